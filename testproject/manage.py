#!/usr/bin/env python
"""The shop's command line. What needs Redis gets an embedded server unless REDIS_URL is set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NEED_REDIS = {"demo", "loaddata", "recheck_run", "recheck_status", "runserver", "shell"}


def main() -> None:
    """Run a management command."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    from project import DEMO_DATABASE

    command = next(iter(sys.argv[1:]), "")
    if command == "demo":
        os.environ["SHOP_DATABASE"] = DEMO_DATABASE
    if command in NEED_REDIS and not {"-h", "--help"} & set(sys.argv):
        from project import embedded

        embedded.ensure()
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
