from django.apps import AppConfig


class MeteringConfig(AppConfig):
    name = "metering"

    def ready(self) -> None:
        from metering.impact import live_state
        from tenants.preview import read_live_by

        read_live_by(live_state)
