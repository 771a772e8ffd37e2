#!/usr/bin/env python
"""The shop's command line. What needs Redis gets an embedded server unless REDIS_URL is set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NEED_REDIS = {"demo", "runserver", "recheck_run", "shell"}


def main() -> None:
    """Run a management command."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    if NEED_REDIS & set(sys.argv[1:2]) and "--help" not in sys.argv:
        from project import embedded

        embedded.ensure()
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
