"""The recipe as people write it by hand on redis-py: a lock, a flag, a loop."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from typing import Final

import redis

MOST_LOOPS: Final = 10
RELEASE: Final = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)


class Recipe:
    """A lock with a flag that the holder looks at before it releases."""

    def __init__(self, client: redis.Redis, ttl: int = 30) -> None:
        self.client = client
        self.ttl = ttl
        self.release = client.register_script(RELEASE)

    def run(self, key: str, work: Callable[[], object]) -> bool:
        """Work under the lock, again if the flag is set; else set the flag. Says if it worked."""
        lock, flag = f"recipe:lock:{key}", f"recipe:flag:{key}"
        token = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4()}"
        if not self.client.set(lock, token, nx=True, ex=self.ttl):
            self.client.set(flag, 1)
            return False
        try:
            for _ in range(MOST_LOOPS):
                self.client.delete(flag)
                work()
                if not self.client.exists(flag):
                    break
        finally:
            self.release(keys=[lock], args=[token])
        return True
