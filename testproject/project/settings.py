"""Settings of the shop: SQLite in WAL mode or DATABASE_URL, Redis from REDIS_URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from project import VAR

SECRET_KEY = "the shop is for trying things out"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_recheck",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
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


def _database() -> dict[str, Any]:
    if url := os.environ.get("DATABASE_URL"):
        parts = urlsplit(url)
        if parts.scheme not in ("postgres", "postgresql") or not parts.path.strip("/"):
            raise ImproperlyConfigured("DATABASE_URL is postgres://user:password@host:port/name.")
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": parts.hostname,
            "PORT": parts.port or 5432,
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "NAME": unquote(parts.path.strip("/")),
            "OPTIONS": dict(parse_qsl(parts.query)),
        }
    VAR.mkdir(parents=True, exist_ok=True)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR / os.environ.get("SHOP_DATABASE", "shop.sqlite3"),
        "OPTIONS": {
            "timeout": 30,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


DATABASES = {"default": _database()}

# A cache of its own: clearing the default cache doesn't touch locks and events.
# Its prefix names the database: locks of another database's rows are other locks.
CACHES: dict[str, Any] = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "recheck": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
        "KEY_PREFIX": f"shop-{Path(DATABASES['default']['NAME']).stem}",
        "OPTIONS": {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5},
    },
}
RECHECK: dict[str, Any] = {"CACHE": "recheck"}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django_recheck": {"handlers": ["console"], "level": "WARNING"}},
}
