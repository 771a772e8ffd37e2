"""Settings of the tests. Importing them starts and connects nothing.

``RECHECK_TEST_DATABASE`` puts both databases on a server instead of SQLite:
``postgres://user:password@host:port``, or ``mysql://…`` for MySQL and MariaDB.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SHOP = Path(__file__).parent.parent / "testproject"
if str(SHOP) not in sys.path:  # for mypy, and for processes that tests start
    sys.path.append(str(SHOP))

SECRET_KEY = "for tests only"
USE_TZ = True
ROOT_URLCONF = "tests.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django_recheck",
    "tests.app",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


SERVERS = {
    "postgres": ("postgresql", 5432, "postgres", "postgres"),
    "mysql": ("mysql", 3306, "root", "mysql"),
}
"""By scheme: Django's backend, the port, who connects, and a database that is there."""


def _database(alias: str) -> dict[str, Any]:
    if url := os.environ.get("RECHECK_TEST_DATABASE"):
        parts = urlsplit(url)
        engine, port, user, name = SERVERS[parts.scheme]
        return {
            "ENGINE": f"django.db.backends.{engine}",
            "HOST": parts.hostname or "127.0.0.1",
            "PORT": parts.port or port,
            "USER": parts.username or user,
            "PASSWORD": parts.password or "",
            "NAME": name,
            "TEST": {"NAME": f"recheck_test_{alias}_{os.getpid()}"},
        }
    folder = os.environ.get("RECHECK_TEST_FOLDER")  # the run's own; without a run there is none
    name = os.path.join(folder, f"{alias}.sqlite3") if folder else ":memory:"
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": name,
        "TEST": {"NAME": name},
        "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
    }


DATABASES = {alias: _database(alias) for alias in ("default", "other")}

CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "recheck": {
        "BACKEND": "django_redis.cache.RedisCache",
        # Nothing listens on the port of the fallback: only a run of the tests has a server.
        "LOCATION": os.environ.get("RECHECK_TEST_REDIS_URL", "redis://127.0.0.1:1/0"),
        "KEY_PREFIX": f"test-{WORKER}",
        "OPTIONS": {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5},
    },
}
RECHECK: dict[str, Any] = {"CACHE": "recheck"}
SILENCED_SYSTEM_CHECKS = ["django_recheck.W002"]  # most receivers of tests are asked by hand
