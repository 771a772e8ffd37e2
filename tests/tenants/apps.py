"""The app that all tenants share."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """The tenants themselves, and the receivers that follow the rows of each."""

    name = "tests.tenants"
    label = "tests_tenants"

    def ready(self) -> None:
        """Connect the receivers."""
        from . import receivers  # noqa: F401
