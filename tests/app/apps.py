"""The tests' own app."""

from django.apps import AppConfig


class TestsConfig(AppConfig):
    """Models for tests, under a label that nobody else has."""

    name = "tests.app"
    label = "tests_app"
    default_auto_field = "django.db.models.BigAutoField"
