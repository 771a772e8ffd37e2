"""Threads that go one at a time: each stops before every step and is told how to take it.

A step is a round trip to Redis or a line of a receiver. ``Parking`` is the redis client that stops;
nothing of the package is replaced for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import redis
from django.db import connections
from redis.client import Pipeline

WAIT: Final = 20
"""Seconds after which a thread that neither stops nor ends is a failure."""


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class Killed(BaseException):
    """The process of this thread is gone: nothing that follows reaches anybody."""


class Actor(threading.Thread):
    """A thread that does one piece of work after the other, step by step.

    Attributes:
        at: What it is about to do, "" if it has nothing to do.
        dead: Its process was killed.
        unsent: What its commits changed and Redis hasn't heard of, in the schedule's terms.
    """

    def __init__(self, name: str, idle: threading.Lock) -> None:
        super().__init__(name=name, daemon=True)
        self.at = ""
        self.dead = False
        self.unsent: list[Any] = []
        self.failure: BaseException | None = None
        self._order = ""
        self._work: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._turn = _closed()
        self._idle = idle

    def begin(self, work: Callable[[], Any]) -> None:
        """Start a piece of work, up to its first step."""
        self.dead, self.failure, self.unsent = False, None, []
        self._work.put(work)
        self._wait()

    def go(self, order: str = "go") -> None:
        """Take the step at which it stands, in a certain way, up to the next."""
        self._order = order
        self._turn.release()
        self._wait()

    def end(self) -> None:
        """End the thread."""
        self._work.put(None)
        self.join(WAIT)

    def _wait(self) -> None:
        if not self._idle.acquire(timeout=WAIT):
            raise RuntimeError(f"{self.name} hangs behind {self.at!r}")

    def run(self) -> None:
        while work := self._work.get():
            try:
                work()
            except Killed:
                pass
            except BaseException as error:
                self.failure = error
            self.at = ""
            self._idle.release()
        connections.close_all()

    def step(self, what: str) -> str:
        """Stop before a step of this thread; return how it is to be taken."""
        if self.dead:
            raise Killed
        self.at = what
        self._idle.release()
        self._turn.acquire()
        if self._order == "die":
            self.dead = True
            raise Killed
        return self._order


class Stage:
    """The actors of a test."""

    def __init__(self, *names: str) -> None:
        idle = _closed()
        self.actors = [Actor(name, idle) for name in names]
        self.late: list[Callable[[], Any]] = []
        """Commands that were sent, answered by nobody, and haven't arrived yet."""

    @contextmanager
    def open(self) -> Iterator[Stage]:
        """Have the threads for as long as the block runs."""
        for actor in self.actors:
            actor.start()
        Parking.stage = self
        try:
            yield self
        finally:
            Parking.stage = None
            for actor in self.actors:
                actor.end()

    def trip(self, what: str, perform: Callable[[], Any]) -> Any:
        """Take a round trip, as the actor of this thread is told."""
        actor = threading.current_thread()
        if not isinstance(actor, Actor):
            return perform()
        order = actor.step(what)
        if order == "late":
            self.late.append(perform)
        if order in ("cut", "late"):
            raise redis.ConnectionError("the connection broke before the command arrived")
        reply = perform()
        for change in actor.unsent:
            change.reached = True
        actor.unsent.clear()
        if order == "dead":
            actor.dead = True
            raise Killed
        if order == "deaf":
            raise redis.ConnectionError("the connection broke before the reply arrived")
        return reply


class Parking(redis.Redis):
    """A client that stops before every script, for use as ``REDIS_CLIENT_CLASS``."""

    stage: Stage | None = None
    names: ClassVar[dict[str, str]] = {}
    """The scripts' names by their digests."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        perform: Callable[..., Any] = super().execute_command
        if self.stage is None or args[0] != "EVALSHA":
            return perform(*args, **options)
        return self.stage.trip(self.names[args[1]], lambda: perform(*args, **options))

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return ParkingPipeline(
            self.connection_pool, self.response_callbacks, transaction, shard_hint
        )


class ParkingPipeline(Pipeline):
    """A pipeline that stops before it is sent, if it has scripts."""

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        scripts = [args[1] for args, _ in self.command_stack if args[0] == "EVALSHA"]
        if Parking.stage is None or not scripts:
            return super().execute(raise_on_error)
        perform, stack = super().execute, list(self.command_stack)

        def again() -> list[Any]:
            self.command_stack = stack  # a late one comes after the pipeline was reset
            return perform(raise_on_error)

        replies: list[Any] = Parking.stage.trip(Parking.names[scripts[0]], again)
        return replies
