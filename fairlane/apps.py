from django.apps import AppConfig


class FairlaneConfig(AppConfig):
    name = "fairlane"
