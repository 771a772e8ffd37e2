"""The app of a site that uses these packages."""

from django.apps import AppConfig


class PackagesConfig(AppConfig):
    """Models in the ways of the packages."""

    name = "tests.packages"
    label = "tests_packages"
    default_auto_field = "django.db.models.BigAutoField"
