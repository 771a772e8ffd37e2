"""The clients around one item, step by step; what Redis does is the machine's.

Writers commit and send their event; whoever is granted reads the row, writes what is derived from
it, and finishes, as ``dispatch``, ``runner`` and ``worker`` do. What happens to them is the
environment's. All of it in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import machine
from .machine import LATER, Command, Reply, State
from .worlds import (
    CAP,
    HOLDING,
    UNLOCKED,
    Apply,
    Client,
    Move,
    Rules,
    Violation,
    World,
    alter,
    commit,
    rested,
    spend,
)


class Process:
    """The steps that one client can take.

    Args:
        world: This moment.
        index: Whose steps.
        rules: What holds for all clients.
    """

    def __init__(self, world: World, index: int, rules: Rules) -> None:
        self.world = world
        self.index = index
        self.rules = rules
        self.client = world.clients[index]

    def moves(self) -> Iterator[Move]:
        """Yield every step."""
        client, world = self.client, self.world
        phase = client.phase
        if phase == "rest":
            if client.commits:
                yield self._commits()
            if client.role == "drain" and world.redis.ripe:
                yield from self._sent(client, machine.peek())
        elif phase == "committed" and client.role == "inline":
            yield from self._acquiring("request")
        elif phase == "committed":
            delay = self.rules.delay if client.role == "delayed" else 0
            yield from self._sent(client, machine.enqueue(self._event, delay))
        elif phase in ("peeked", "recorded"):
            yield from self._acquiring("claim")
        elif phase == "lost":
            yield from self._acquiring("heal")
        elif phase in ("lost again", "owing"):
            yield from self._sent(client, machine.enqueue(client.events))
        elif phase == "flag":
            yield from self._sent(client, ("flag", (machine.ITEM.text, machine.EVENT)))
        elif phase == "resend":
            assert client.command is not None
            again = client._replace(command=None)
            command = client.command
            yield self._move(f"sends {command[0]} again", self._answers(again, command), command)
        elif phase in UNLOCKED:
            yield self._runs_unlocked()
        else:
            yield from self._holds()

    @property
    def _event(self) -> bytes:
        return machine.EVENT if self.client.role == "inline" else machine.OTHER

    def _move(self, label: str, apply: Apply, command: Command | None = None) -> Move:
        return Move(self.index, label, command, apply)

    def _becomes(self, client: Client, **changes: object) -> Apply:
        after = alter(self.world, self.index, client, **changes)
        return lambda state, reply: after

    def _commits(self) -> Move:
        world, client = commit(self.world), self.client
        passes = world.passes - 1 if self.rules.counts_passes else 0
        committed = client._replace(phase="committed", commits=client.commits - 1)
        if not self.rules.reads_under_lock:
            committed = committed._replace(fresh=True)
        after = alter(world, self.index, committed, passes=passes)
        return self._move("commits", lambda state, reply: after)

    def _runs_unlocked(self) -> Move:
        client = self.client
        if client.phase == "unlocked":
            read = client._replace(phase="unlocked read", fresh=True)
            return self._move("reads without the lock", self._becomes(read))
        phase = "owing" if self.rules.owes_after_the_run else "rest"
        wrote = rested(client)._replace(phase=phase, events=client.events)
        return self._move("writes without the lock", self._becomes(wrote, fresh=client.fresh))

    def _holds(self) -> Iterator[Move]:
        client, world, budget = self.client, self.world, self.world.budget
        phase = client.phase
        if budget.renewals and not client.lapsed and phase in HOLDING:
            yield from self._renews()
        if phase == "granted":
            stale = not self.rules.reads_under_lock and client.number == 1
            stale = stale and client.role != "drain"
            read = client._replace(phase="read", fresh=client.fresh if stale else True)
            # Also after its lease: the receiver's own queries come after the last look at it.
            yield self._move("reads", self._becomes(read))
            if client.lapsed:
                yield from self._finishes("back")
            elif client.role == "drain" and budget.stops:
                yield from self._finishes("unbegun", spend(world, "stops"))
            return
        if phase == "looked":
            name = "finish" if client.lapsed else "release"
            command = machine.finish(client.token, client.fence, client.number)
            yield from self._sent(client._replace(lapsed=False), (name, command[1]))
            return
        if budget.failures:
            yield from self._finishes("failed", spend(world, "failures"))
        if budget.stops:
            yield from self._finishes("back", spend(world, "stops"))
        if phase == "read":
            written = client._replace(phase="written")
            yield self._move("writes", self._becomes(written, fresh=client.fresh))
            if budget.owns and not client.own:
                saved = commit(spend(world, "owns"))
                own = saved.clients[self.index]._replace(own=1)
                after = alter(saved, self.index, own)
                yield self._move("saves its own item", lambda state, reply: after)
        elif self.rules.looks_in_one_step:
            yield from self._finishes("ok")
            if budget.hurries and client.number < CAP:
                yield from self._finishes("ok", spend(world, "hurries"), last=True)
        else:
            record = world.redis.parsed
            flagged = record is not None and record.newer_count > 0
            looked = client._replace(phase="looked", lapsed=flagged)
            yield self._move("looks", self._becomes(looked))

    def _finishes(
        self, word: str, world: World | None = None, *, last: bool = False
    ) -> Iterator[Move]:
        client = self.client
        command = machine.finish(
            client.token,
            client.fence,
            client.number,
            word=word,
            last=last or client.number >= CAP,
            attempts=self.rules.attempts,
            own=word == "ok" and client.own == 1,
        )
        yield from Process(world or self.world, self.index, self.rules)._sent(client, command)

    def _renews(self) -> Iterator[Move]:
        spent, client = spend(self.world, "renewals"), self.client
        command = machine.renew(client.token, client.fence)

        def learns(world: World) -> Apply:
            def apply(state: State, reply: Reply) -> World:
                mine = bool(reply[0])
                told = client._replace(lapsed=not mine, out=client.out and not mine)
                return alter(world, self.index, told, redis=state)

            return apply

        yield self._move("renews", learns(spent), command)
        if self.world.budget.copies:
            late = spend(spent, "copies")._replace(late=(*self.world.late, command))
            yield self._move("renews, a copy is under way", learns(late), command)

    def _acquiring(self, what: str) -> Iterator[Move]:
        client = self.client
        token = f"{self.index}.{client.turns}"
        client = client._replace(
            token=token, turns=client.turns + 1, lapsed=False, out=False, alone=False, own=0
        )
        if what == "claim":
            command = machine.claim(token, self.rules.attempts)
        else:
            heal, events = what == "heal", client.events if what == "heal" else self._event
            command = machine.request(token, events, heal=heal, attempts=self.rules.attempts)
        yield from self._sent(client, command)

    def _sent(self, client: Client, command: Command) -> Iterator[Move]:
        """Send a command that is answered, or whose reply is lost, or that arrives twice."""
        world, index, budget = self.world, self.index, self.world.budget
        label = f"sends {command[0]}"
        if command[0] == "finish" and command[1][4] != "ok":
            label = f"sends {command[1][4]}"
        yield self._move(label, self._answers(client, command), command)
        if budget.replies:
            resend = client._replace(phase="resend", command=command)
            unheard = alter(spend(world, "replies"), index, resend)
            yield self._move(f"{label}, reply lost", self._unheard(unheard, command), command)
        if budget.copies and command[0] != "peek":
            late = spend(world, "copies")._replace(late=(*world.late, command))
            answered = Process(late, index, self.rules)._answers(client, command)
            yield self._move(f"{label}, a copy is under way", answered, command)
        if budget.outages:
            cut = self._cut_off(spend(world, "outages"), client, command)
            yield self._move(f"{label}, no answer", self._unheard(cut, command), command)
            yield self._move(f"{label} in vain", lambda state, reply: cut)

    def _cut_off(self, world: World, client: Client, command: Command) -> World:
        """A command got no answer, though it was sent twice: see ``outage``."""
        ended, name = rested(client), command[0]
        closing = name == "finish" or client.phase in ("lost", "lost again")
        if client.role == "drain":  # it repays nothing: what only it knew is lost, as if it died
            record = world.redis.parsed
            mine = record is not None and record.token == client.token
            unknown = closing and not mine and (client.alone or not world.fresh)
            return alter(world, self.index, ended, excused=world.excused or unknown, bare=True)
        phase, events = "unlocked", client.events or self._event
        if closing or client.phase == "owing":
            phase = "owing" if self.rules.heals_the_unknown else "rest"
        return alter(world, self.index, ended._replace(phase=phase, events=events))

    def _unheard(self, world: World, command: Command) -> Apply:
        """A command does its work, and nobody hears of it."""
        return lambda state, reply: self._counted(world._replace(redis=state), command, reply)

    def _counted(self, world: World, command: Command, reply: Reply) -> World:
        """Count events as recorded, or as covered by a pass that succeeded."""
        name, word = command[0], reply[0] if reply else ""
        if name in ("finish", "release") and command[1][4] == "ok" and word not in ("LOST", "DEAD"):
            covered = self.world.clients[self.index].covers
            return world._replace(missing=world.missing & ~covered)
        if (name == "request" and word != "DEAD") or name == "enqueue":
            events = machine.kinds(command[1][4 if name == "request" else 5])
            clients = tuple(
                c._replace(covers=c.covers & ~events) if c.covers & events else c
                for c in world.clients
            )
            return world._replace(clients=clients, missing=world.missing | events)
        return world

    def _answers(self, client: Client, command: Command) -> Apply:
        def apply(state: State, reply: Reply) -> World:
            return self._answered(client, command, state, reply)

        return apply

    def _answered(self, client: Client, command: Command, redis: State, reply: Reply) -> World:
        world, name = self._counted(self.world, command, reply), command[0]
        word = reply[0] if reply else ""
        if name == "peek":
            peeked = client._replace(phase="peeked") if reply else rested(client)
            return alter(world, self.index, peeked, redis=redis)
        if word in ("GRANTED", "AGAIN"):
            self._check_grant(self.world.redis, name, reply)
            client = self._granted(client, reply)
            passes = world.passes + 1 if self.rules.counts_passes else 0
            if passes > 0:
                raise Violation("more passes than events")
            after = alter(world, self.index, client, redis=redis, passes=passes)
        else:
            after = alter(world, self.index, self._told(client, command, word), redis=redis)
        if self.rules.counts_failures:
            after = after._replace(failures=self._failed(command, word))
        if (name == "request" and word != "DEAD") or name == "enqueue":
            # An event makes lock, record and indexes agree again, whatever was lost before.
            clients = tuple(c._replace(alone=False) if c.alone else c for c in after.clients)
            after = after._replace(clients=clients, excused=False)
        return after

    def _failed(self, command: Command, word: str) -> int:
        failures = self.world.failures
        if command[0] == "finish":
            kept = failures if command[1][4] == "unbegun" else 0
            failures = failures + 1 if command[1][4] == "failed" else kept
        if word == "DEAD" and failures < self.rules.attempts:
            raise Violation("given up too early")
        return failures

    def _granted(self, client: Client, reply: Reply) -> Client:
        # The deadline counts from the first sending: what lapsed before the answer stays lapsed.
        resent = client.phase == "resend"
        return client._replace(
            phase="granted",
            fence=reply[1],
            number=reply[2],
            events=reply[6],
            covers=machine.kinds(reply[6]),
            own=2 if reply[5] else 0,
            lapsed=resent and client.lapsed,
            out=resent and client.out,
        )

    def _told(self, client: Client, command: Command, word: str) -> Client:
        """Return what a client makes of a reply that grants nothing."""
        if word == "LOST" and self.rules.heals:
            back = command[1][4] in ("back", "unbegun")
            quiet = back or client.phase == "resend"
            phase = "lost again" if client.healed or back else "lost"
            return client._replace(phase=phase, healed=not quiet)
        if word == "REFUSED":
            return client._replace(phase="flag")
        enqueued = command[0] == "enqueue" and word == "PENDING"
        if enqueued and client.role in ("inline", "bulk") and not client.token:
            return client._replace(phase="recorded")
        return rested(client)

    def _check_grant(self, before: State, name: str, reply: Reply) -> None:
        if not reply[6] and not self.world.bare:
            raise Violation("a pass is granted without its event")
        if reply[2] > CAP:
            raise Violation("a hold has more passes than its cap")
        record = before.parsed
        if name == "claim" and record is not None and record.token == "-":
            owed = [time for time in (record.owed, record.ready) if time]
            if not owed or min(owed) >= LATER:
                raise Violation("a pass is granted before it is ripe")
