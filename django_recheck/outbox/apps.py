"""The outbox's app: one table, for those who list it."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """``"django_recheck.outbox"`` in INSTALLED_APPS."""

    name = "django_recheck.outbox"
    label = "django_recheck_outbox"
    verbose_name = "Recheck outbox"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401 - registers them
