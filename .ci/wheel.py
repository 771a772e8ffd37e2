"""Look at the installed wheel: it must be whole, and not the source tree."""

import subprocess
import sys
from pathlib import Path

import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django_recheck"],
    CACHES={
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://localhost"}
    },
)
django.setup()

import django_recheck  # noqa: E402
import django_recheck.routers  # noqa: E402
import django_recheck.testing  # noqa: E402
from django_recheck.connection import script  # noqa: E402

folder = Path(django_recheck.__file__).parent
assert "site-packages" in folder.parts, folder
for name in ("py.typed", "static/django_recheck/refresh.js", "templates/django_recheck/chart.html"):
    assert (folder / name).exists(), name
for name in ("request", "enqueue", "claim", "finish", "renew", "peek"):
    assert script(name).text
help_of = "from django.core.management import call_command; call_command('recheck_run', '--help')"
setup = Path(__file__).read_text("utf-8").partition("import django_recheck")[0]
done = subprocess.run(
    [sys.executable, "-c", f"{setup}\n{help_of}"], capture_output=True, text=True, check=True
)
assert "--receiver" in done.stdout
print("the wheel is whole:", folder)
