"""Settings with the outbox listed: for processes of its tests, mypy, and ``makemigrations``."""

from __future__ import annotations

from tests.storm.settings import *  # noqa: F403
from tests.storm.settings import INSTALLED_APPS as APPS

INSTALLED_APPS = [*APPS, "django_recheck.outbox"]
