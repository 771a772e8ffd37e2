"""Settings of a site that uses these packages."""

from __future__ import annotations

import os

from tests import settings as base
from tests.settings import (
    CACHES,
    DEFAULT_AUTO_FIELD,
    MIDDLEWARE,
    RECHECK,
    ROOT_URLCONF,
    SECRET_KEY,
    TEMPLATES,
    USE_TZ,
)

__all__ = [
    "CACHES",
    "DEFAULT_AUTO_FIELD",
    "MIDDLEWARE",
    "RECHECK",
    "ROOT_URLCONF",
    "SECRET_KEY",
    "TEMPLATES",
    "USE_TZ",
]

DATABASES = base.DATABASES
if not os.environ.get("RECHECK_TEST_DATABASE"):
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = [
    *base.INSTALLED_APPS,
    "guardian",
    "mptt",
    "reversion",
    "simple_history",
    "taggit",
    "treebeard",
    "tests.packages",
]
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "guardian.backends.ObjectPermissionBackend",
]
ANONYMOUS_USER_NAME = None
AUTH_USER_MODEL = "tests_packages.Person"
