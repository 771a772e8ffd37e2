"""The command: ``python -m tests.benchmarks [names…] [--json] [--rounds N] [--quick]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from . import figures, plot
from .figures import Figure
from .harness import fork, measure, surroundings

NAMES: Final = (
    "holds",
    "saves",
    "bulk",
    "workers",
    "memory",
    "leases",
    "start",
    "flat",
    "crowded",
    "several",
    "hot",
    "outbox",
)
ON_DATABASES: Final = ("saves", "workers", "outbox")
"""Those that a second database says more of."""
KINDS: Final = ("sqlite", "postgres")
PEERS: Final = ("huey", "dramatiq", "celery", "rq")
DRIVERS: Final = ("redis", "hiredis", "django-redis", "psycopg", "psycopg-binary")


def versions(kind: str) -> Iterator[tuple[str, str]]:
    """Yield what the figures depend on: name and version."""
    from django.db import connection

    from tests.servers import running

    yield "python", platform.python_version()
    for name in ("django", *DRIVERS, *PEERS):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"
    with running() as server, server.client as client:
        found = client.info("server")
    name = found.get("server_name", "redis")
    yield "server", f"{name} {found.get(f'{name}_version', found['redis_version'])}"
    with connection.cursor() as cursor:
        asking = "SELECT sqlite_version()" if kind == "sqlite" else "SHOW server_version"
        cursor.execute(asking)
        yield kind, cursor.fetchone()[0]
    connection.close()
    yield "machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="also draw what is to be reached")
    parser.add_argument(
        "--read", metavar="FILE", type=Path, nargs="+", help="measure nothing: what --json printed"
    )
    parser.add_argument("--rounds", type=int, default=31, help="paired rounds a figure")
    parser.add_argument("--seconds", type=float, default=30, help="that one comparison may last")
    parser.add_argument("--quick", action="store_true", help="only try whether all of it works")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of items")
    parser.add_argument("--cpu", action="store_true", help="count processor time, on busy machines")
    kinds = ["sqlite", "postgres"]
    parser.add_argument(
        "--database", choices=kinds, nargs="+", default=kinds[:1], help="one or both"
    )
    options = parser.parse_args()
    if unknown := set(options.names).difference(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}, only {', '.join(NAMES)}")
    loud = not (options.json or options.markdown)
    report: dict[str, Any] = {"versions": {}, "figures": []}
    if options.read:
        for path in options.read:
            part = json.loads(path.read_text("utf-8"))
            report["versions"] |= part["versions"]
            report["figures"] += part["figures"]
    for kind in () if options.read else options.database:
        names = options.names or NAMES
        if kind != options.database[0]:
            names = [name for name in names if name in ON_DATABASES]
        with ProcessPoolExecutor(1, mp_context=fork) as apart:  # Django is set up for one database
            known, found = apart.submit(_measured, kind, names, options, loud).result()
        report["versions"] |= known
        report["figures"] += found
    if options.json:
        print(json.dumps(report))
    drawn = [Figure.from_json(figure) for figure in report["figures"]]
    if options.markdown or (options.read and loud):
        print(", ".join(" ".join(pair) for pair in report["versions"].items()), end="\n\n")
        print(figures.MARKDOWN if options.markdown else figures.HEAD)
        for figure in drawn:
            print(figure.markdown() if options.markdown else figure.row())
    if options.svg:
        options.svg.write_text(plot.svg(drawn), "utf-8")
    return 0


def _measured(
    kind: str, names: Sequence[str], options: argparse.Namespace, loud: bool
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Measure on one database; print each figure at once, unless all are printed at the end."""
    rounds, scale = (1, 0.002) if options.quick else (options.rounds, options.scale)
    how = {"rounds": rounds, "scale": scale, "cpu": options.cpu, "seconds": options.seconds}
    found = []
    with surroundings(kind):
        known = dict(versions(kind))
        if loud:
            print(", ".join(" ".join(pair) for pair in known.items()))
            print(figures.HEAD)
        for name in names:
            for figure in measure(name, everywhere=not options.quick, **how):
                found.append({"benchmark": name, **figure.as_json()})
                if loud:
                    print(figure.row(), flush=True)
    return known, found


if __name__ == "__main__":
    sys.exit(main())
