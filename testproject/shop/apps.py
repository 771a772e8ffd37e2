"""The shop's app."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Connects the receivers when the models are there."""

    name = "shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import receivers  # noqa: F401 - connects them
