from django.apps import AppConfig


class MeteringConfig(AppConfig):
    name = "metering"

    def ready(self) -> None:
        from metering.alerts import waiting_count
        from metering.impact import live_state
        from tenants.preview import read_live_by
        from tenants.templatetags.console import BADGES

        read_live_by(live_state)
        BADGES["alerts"] = waiting_count
