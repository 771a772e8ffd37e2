"""Changes of rows in groups that all writers share, by one writer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.app.models import Item

KINDS: Final = ("create", "save", "save", "save", "move", "move", "delete")


def concerned(instance: Any, **kwargs: Any) -> set[int]:
    """Return where an item is and where it was: a move concerns both."""
    return {instance.group_id, getattr(instance, "was", instance.group_id)}


class Changes:
    """What one writer does to rows of its own.

    Args:
        seed: Makes it do the same again.
        groups: The groups that all share.
        before: Called with the groups that a change is about to concern.
    """

    def __init__(
        self, seed: object, groups: list[int], before: Callable[[set[int]], Any] = lambda _: None
    ) -> None:
        self.chance = random.Random(str(seed))
        self.groups = groups
        self.before = before
        self.rows: list[Item] = []
        self.kinds: Counter[str] = Counter()
        self.events = 0

    def change(self) -> None:
        """Make one change in autocommit, or several in a transaction."""
        from django.db import transaction

        from tests.app.models import Item

        if self.chance.random() < 0.75:
            self.touch()
            return
        with transaction.atomic():
            self.touch()
            with transaction.atomic():
                Item.objects.create(group_id=self.groups[0], name="never was", value=1)
                transaction.set_rollback(True)
            self.touch()
            self.touch()

    def touch(self) -> None:
        """Create, save, move or delete a row."""
        from tests.app.models import Item

        group, value = self.chance.choice(self.groups), self.chance.randrange(10**6)
        kind = "create" if len(self.rows) < 3 else self.chance.choice(KINDS)
        self.kinds[kind] += 1
        self.events += 1
        if kind == "create":
            self.before({group})
            self.rows.append(Item.objects.create(group_id=group, name="of a writer", value=value))
            return
        row: Any = self.chance.choice(self.rows)
        if kind == "move":
            row.was, row.group_id = row.group_id, group
            self.events += row.was != group
        self.before(concerned(row))
        if kind == "delete":
            self.rows.remove(row)
            row.delete()
            return
        row.value = value
        row.save()
        row.__dict__.pop("was", None)
