"""A primary with a replica that Sentinel promotes: what a failover of Redis is made of."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers import Server, running

NAME = "main"


def wait(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until, "it didn't come about"
        time.sleep(0.01)


class Pair:
    """Replication is asynchronous, as it is by default: what is acknowledged may be lost."""

    def __init__(self, primary: Server, replica: Server, sentinel: Server) -> None:
        self.primary = primary
        self.replica = replica
        self.sentinel = sentinel

    @property
    def cache(self) -> dict[str, Any]:
        """What the cache's settings are, as django-redis wants them for Sentinel."""
        return {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://{NAME}/0",
            "OPTIONS": {
                "CLIENT_CLASS": "django_redis.client.SentinelClient",
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                "SENTINELS": [("127.0.0.1", self.sentinel.port)],
                "SOCKET_TIMEOUT": 5,
                "SOCKET_CONNECT_TIMEOUT": 5,
            },
        }

    def come_together(self) -> None:
        """Wait until the replica has all of it, and Sentinel knows both."""
        with self.replica.client as client:
            wait(lambda: client.info("replication")["master_link_status"] == "up")
        with self.sentinel.client as client:
            wait(lambda: client.sentinel_slaves(NAME))

    def cut(self) -> None:
        """Let the primary go on alone: what it acknowledges from now on is nowhere else."""
        with self.primary.client as client:
            client.acl_setuser("default", enabled=True, commands=["-psync", "-sync"])
            client.client_kill_filter(_type="replica")
            wait(lambda: not client.info("replication")["connected_slaves"])

    def fail_over(self) -> None:
        """Kill the primary, and wait until Sentinel names the replica instead.

        It is told, for it can't know whether a server that doesn't answer has only too much to do.
        """
        self.primary.end(signal.SIGKILL)
        with self.sentinel.client as client:
            client.sentinel_failover(NAME)
            wait(lambda: client.sentinel_master(NAME)["port"] == self.replica.port)


@contextmanager
def paired() -> Iterator[Pair]:
    """Run two servers and a Sentinel for as long as the block runs."""
    with (
        running(repl_diskless_sync_delay="0") as primary,
        running(replicaof=f"127.0.0.1 {primary.port}") as replica,
        running(
            f"monitor {NAME} 127.0.0.1 {primary.port} 1",
            f"down-after-milliseconds {NAME} 60000",
            f"failover-timeout {NAME} 5000",
        ) as sentinel,
    ):
        pair = Pair(primary, replica, sentinel)
        pair.come_together()
        yield pair
