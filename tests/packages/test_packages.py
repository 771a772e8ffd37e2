"""Starts the tests on packages, which need these packages' apps: a site of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_receivers_on_models_of_packages() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--no-migrations", "-p", "no:cacheprovider"]
    command += ["--ds=tests.packages.settings"]
    command += [f"tests/packages/{subject}.py" for subject in ("trees", "histories", "relations")]
    # As a run of its own: not as part of this one, and not as one of its workers.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
