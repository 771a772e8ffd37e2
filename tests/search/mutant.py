"""A rule of the protocol that is switched off, and the machine that runs without it.

A rule is switched off by a patch of a script's text, which must apply, or in the clients' model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from django_recheck import connection

from .machine import Machine
from .worlds import Budget, Client, Rules

INLINE = (Client("inline", 2), Client("inline", 1))
FLAG = """
local r, at = load(ITEM)
if r and r.token ~= '-' then
  add(r, ARGV[3], 1, 0, 0)
  save(ITEM, at, r)
end
return {'COALESCED'}
"""
RELEASE_ANYWAY = ("local due = due_at(r)\nif not due then", "local due = due_at(r)\nif true then")


def replaced(script: str, old: str, new: str) -> Callable[[str, str], str]:
    """Return a patch of one script, or of all that share a part; it must apply, once."""

    def patch(name: str, text: str) -> str:
        if script not in (name, "*"):
            return text
        assert text.count(old) == 1 or script == "*", f"{old!r} isn't in {name} once"
        return text.replace(old, new)

    return patch


@dataclass(frozen=True)
class Mutant:
    """A rule, switched off, and how much interference it takes to see that."""

    rule: str
    budget: Budget = field(default_factory=Budget)
    clients: tuple[Client, ...] = INLINE
    patch: Callable[[str, str], str] = lambda name, text: text
    rules: Rules = field(default_factory=Rules)
    breaks: str = ""
    """The promise that the search finds broken."""
    masked: str = ""
    """What stands in for the rule, where nothing is found."""


def mutated(client: object, mutant: Mutant) -> Machine:
    """Return the machine of a mutant, with what the divided steps need."""
    changed: set[str] = set()

    def patch(name: str, text: str) -> str:
        patched = mutant.patch(name, text)
        changed.update([name] if patched != text else [])
        return patched

    machine = Machine(client, patch)  # type: ignore[arg-type]
    assert changed or mutant.patch is Mutant.patch, f"{mutant.rule}: nothing is switched off"
    text = connection.script("enqueue").text
    machine.learn(
        "flag", text[: text.index("-- Events of one lane, recorded without a lock")] + FLAG
    )
    finish = connection.script("finish").text
    assert finish.count(RELEASE_ANYWAY[0]) == 1
    machine.learn("release", finish.replace(*RELEASE_ANYWAY))
    return machine
