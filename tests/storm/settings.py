"""Settings of a storm's processes: a database of its own, on the server that the storm started."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403

_name = os.environ.get("RECHECK_STORM_DATABASE", ":memory:")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": _name,
        "OPTIONS": {
            "timeout": 60,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
        },
    }
    if not _name.startswith("recheck_storm")
    else {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["RECHECK_STORM_HOST"],
        "PORT": os.environ["RECHECK_STORM_PORT"],
        "USER": os.environ["RECHECK_STORM_USER"],
        "PASSWORD": os.environ["RECHECK_STORM_PASSWORD"],
        "NAME": _name,
    }
}
