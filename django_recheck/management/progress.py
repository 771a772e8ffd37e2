"""What a command tells of its work: bars on a terminal, and more of the log with ``-v``."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import OutputWrapper


@contextmanager
def bar(title: str, total: Callable[[], int], *, shown: bool) -> Iterator[Callable[[], Any]]:
    """Show a bar on the terminal; without tqdm, or elsewhere, nothing.

    Args:
        title: What stands before it.
        total: Asked for its length, if it is shown.
        shown: Whether it may be shown.

    Returns:
        What moves it on by one.
    """
    made = _made(title, total) if shown else None
    try:
        yield made.update if made is not None else lambda: None
    finally:
        if made is not None:
            made.close()


def _made(title: str, total: Callable[[], int]) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    size = shutil.get_terminal_size()  # where it is unknown, tqdm by itself shows nothing
    return tqdm(
        total=total(),
        desc=title,
        unit=" items",
        leave=False,
        file=sys.stderr,
        ncols=size.columns,
        nrows=size.lines,
    )


class _Into(logging.Handler):
    """Writes what is logged to a command's standard error."""

    def __init__(self, stream: OutputWrapper) -> None:
        super().__init__()
        self.stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        self.stream.write(self.format(record))


@contextmanager
def logged(verbosity: int, stream: OutputWrapper) -> Iterator[None]:
    """Log errors only, as usual, or all there is, as ``-v`` says.

    Args:
        verbosity: 0 for errors, 3 for each look and pass.
        stream: Where to write what is usually not shown.
    """
    logger = logging.getLogger("django_recheck")
    before, handler = logger.level, _Into(stream)
    if verbosity == 0:
        logger.setLevel(logging.ERROR)
    elif verbosity >= 3:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        if logger.hasHandlers():  # they show the rest
            handler.addFilter(lambda record: record.levelno < logging.WARNING)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
