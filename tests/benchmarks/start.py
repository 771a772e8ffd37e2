"""What the app adds to ``django.setup()``: its import, and ``ready()``, as processor time."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .figures import Figure
from .harness import Bench

PLACES: Final = ("P",)
ROUNDS: Final = 9
PROGRAM: Final = """
import time
from django.conf import settings
{before}
apps = ["django.contrib.auth", "django.contrib.contenttypes", {app}]
cache = {{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}}
settings.configure(INSTALLED_APPS=apps, CACHES={{"default": cache}})
import django
began = time.process_time()
django.setup()
{use}
print(time.process_time() - began)
"""
CACHE: Final = "import django_redis.cache, django_redis.client, redis"


def run(bench: Bench) -> Iterator[Figure]:
    """Compare processes with and without it, with and without redis-py imported already."""
    compileall.compile_dir(Path(__file__).parents[2] / "django_recheck", quiet=2)  # as pip does
    use, app = "import django_recheck.receivers", '"django_recheck"'
    for before, work in ((CACHE, "the cache in use"), ("", "redis-py's own import, too")):
        found = []
        for _ in bench.turns(ROUNDS):
            ours = _seconds(before=before, app=app, use=use)
            found.append(1e3 * (ours - _seconds(before=before, app="", use="")))
        most = 15.0 if before else None
        yield Figure.of(
            found, work=f"import and ready(), {work}", unit="ms", place=bench.place, most=most
        )


def _seconds(**parts: str) -> float:
    command = [sys.executable, "-c", PROGRAM.format(**parts)]
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
