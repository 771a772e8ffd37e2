"""Whether Redis can be used; if not, one sentence says why, on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import RedisError

from . import caches, conf, soundness
from .connection import failure
from .exceptions import RecheckError
from .messages import hide


class Unusable(RecheckError):
    """Settings are wrong, or Redis doesn't answer or refuses. It says so without a password."""


@contextmanager
def usable() -> Iterator[None]:
    """Refuse wrong settings, and say in one sentence why Redis can't be used.

    Raises:
        Unusable: In place of what ``ImproperlyConfigured`` and Redis's errors say.
    """
    try:
        soundness.refuse(soundness.settings(conf.configured()))
        soundness.refuse(caches.problems(conf.get("CACHE")))
        yield
    except (RedisError, OSError) as error:
        raise Unusable(hide(f"Redis {failure(error)}")) from error
    except ImproperlyConfigured as error:
        raise Unusable(hide(str(error))) from error
