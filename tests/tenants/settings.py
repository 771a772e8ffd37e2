"""Settings of a small site of django-tenants.

``howto``, the module of its CONTEXT, is the code that ``docs/howto/tenants.md`` shows.
"""

from __future__ import annotations

import os

from tests.settings import CACHES, DEFAULT_AUTO_FIELD, RECHECK, SECRET_KEY, USE_TZ

__all__ = ["CACHES", "DEFAULT_AUTO_FIELD", "RECHECK", "SECRET_KEY", "USE_TZ"]

DATABASES = {
    "default": {
        "ENGINE": "django_tenants.postgresql_backend",
        "HOST": os.environ["RECHECK_STORM_HOST"],
        "PORT": os.environ["RECHECK_STORM_PORT"],
        "USER": os.environ["RECHECK_STORM_USER"],
        "PASSWORD": os.environ["RECHECK_STORM_PASSWORD"],
        "NAME": os.environ["RECHECK_STORM_DATABASE"],
    }
}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
TENANT_MODEL = "tests_tenants.Customer"
TENANT_DOMAIN_MODEL = "tests_tenants.Domain"
SHARED_APPS = [
    "django_tenants",
    "django.contrib.contenttypes",
    "django_recheck",
    "django_recheck.outbox",
    "tests.tenants",
]
TENANT_APPS = ["tests.app"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]

if url := os.environ.get("RECHECK_TENANTS_REDIS_URL"):
    CACHES = CACHES | {"recheck": CACHES["recheck"] | {"LOCATION": url}}
RECHECK = RECHECK | {
    "CONTEXT": os.environ.get("RECHECK_TENANTS_CONTEXT", "howto.TenantSchema") or None,
    "DISPATCH": os.environ.get("RECHECK_TENANTS_DISPATCH", "inline"),
    "DURABLE": bool(os.environ.get("RECHECK_TENANTS_DURABLE")),
    "MAX_ATTEMPTS": int(os.environ.get("RECHECK_TENANTS_ATTEMPTS", "5")),
}
