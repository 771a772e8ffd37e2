"""The app: it registers its checks, and touches neither Redis nor a database."""

from __future__ import annotations

from django.apps import AppConfig


class RecheckConfig(AppConfig):
    """``"django_recheck"`` in INSTALLED_APPS."""

    name = "django_recheck"
    verbose_name = "Recheck"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, receiver_checks  # noqa: F401 - registers them
