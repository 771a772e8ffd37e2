"""``recheck_run --watch --reload``: a project whose code is changed under it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import of_the_run
from tests.watch.watching import until

ROOT = Path(__file__).parent.parent.parent
SETTINGS = """
import os
SECRET_KEY = "x"
DEBUG = True
INSTALLED_APPS = ["django_recheck", "shopfront"]
DATABASES = {}
CACHES = {"default": {
    "BACKEND": "django_redis.cache.RedisCache",
    "LOCATION": os.environ["RECHECK_TEST_REDIS_URL"],
    "KEY_PREFIX": "test-reload-" + os.environ["SHOPFRONT"],
}}
SILENCED_SYSTEM_CHECKS = ["django_recheck.W002"]
"""
APPS = """
from django.apps import AppConfig

class ShopfrontConfig(AppConfig):
    name = "shopfront"

    def ready(self):
        from . import receivers
"""
RECEIVERS = """
import os, pathlib, time
from django_recheck import recheck

@recheck(name="written", key="group", dispatch="worker")
def written(sender, recheck_pass, **kwargs):
    key = str(recheck_pass.key)
    pathlib.Path("began-" + key).touch()
    while "slow" in key and not os.path.exists("go"):
        time.sleep(0.01)
    pathlib.Path("ran-" + key).write_text("first")
"""
SECOND = RECEIVERS.replace('"first"', '"second"')
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
ASK = """
import sys, django
django.setup()
from shopfront.receivers import written
written.recheck_many([sys.argv[1]])
"""


class Project:
    """A project in a folder of its own, and its watch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        app = folder / "shopfront"
        app.mkdir()
        (app / "__init__.py").touch()
        (app / "apps.py").write_text(APPS)
        (folder / "site_settings.py").write_text(SETTINGS)
        (folder / "manage.py").write_text(MANAGE)
        self.code = app / "receivers.py"
        self.code.write_text(RECEIVERS)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "SHOPFRONT": folder.name}
        self.environment |= {"DJANGO_SETTINGS_MODULE": "site_settings", "PYTHONUNBUFFERED": "1"}
        self.environment["RECHECK_TEST_REDIS_URL"] = of_the_run().url
        self.said = ""
        # In a session of its own: Ctrl-C goes to both of its processes, and to no other.
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "recheck_run", "--watch", "--reload", "-v3"],
            cwd=folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line

    def ask(self, key: str) -> None:
        """Record an event, in another process."""
        command = [sys.executable, "-c", ASK, key]
        subprocess.run(command, cwd=self.folder, env=self.environment, check=True, timeout=60)

    def change(self, code: str) -> None:
        """Write new code, and touch it until that is noticed: nobody tells from when on it is."""
        told = self.said.count("receivers.py changed, reloading")
        self.code.write_text(code)

        def noticed() -> bool:
            self.code.touch()
            return self.said.count("receivers.py changed, reloading") > told

        until(noticed)

    def ran(self, key: str) -> str:
        """Wait until the pass of a key has ended; return what it wrote."""
        path = self.folder / f"ran-{key}"
        until(lambda: path.exists() and path.read_text(), self.said)
        return path.read_text()

    def close(self) -> None:
        """End what is still there."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self.reader.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    try:
        until(lambda: "next look" in project.said)
        yield project
    finally:
        project.close()
        print(project.said)


def ctrl_c(project: Project) -> int:
    """Press Ctrl-C; return the exit code."""
    os.killpg(project.process.pid, signal.SIGINT)
    return project.process.wait(30)


def test_new_code_runs_after_the_old_codes_pass(project: Project) -> None:
    project.ask("slow")
    until((project.folder / "began-slow").exists)
    project.change(SECOND)
    project.ask("next")
    (project.folder / "go").touch()
    assert project.ran("slow") == "first", "the pass is finished, not struck down"
    assert project.ran("next") == "second"
    assert ctrl_c(project) == 0


def test_code_that_cant_be_loaded_is_waited_for(project: Project) -> None:
    project.change("def wrong(")
    until(lambda: "The code can't be loaded" in project.said)
    project.change(SECOND)
    project.ask("next")
    assert project.ran("next") == "second"
    assert ctrl_c(project) == 0


def test_ctrl_c_finishes_the_pass(project: Project) -> None:
    project.ask("slow")
    until((project.folder / "began-slow").exists)
    os.killpg(project.process.pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        project.process.wait(1)
    (project.folder / "go").touch()
    assert project.process.wait(30) == 0
    assert project.ran("slow") == "first"
    project.reader.join(30)
    assert "Traceback" not in project.said
    assert "1 items, 1 passes, 0 failed" in project.said
