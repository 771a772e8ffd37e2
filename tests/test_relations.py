"""Many-to-many changes: whoever changes them from whichever side, every row concerned is heard."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.signals import m2m_changed

from django_recheck import Outcome, recheck, worker
from django_recheck.receiver_checks import check_receivers
from tests.app.models import Friend, Group, Item, Membership, Named, Team

pytestmark = pytest.mark.django_db(transaction=True)
WAYS = pytest.mark.parametrize("dispatch", ["inline", "worker", "immediate"])


class Held:
    """Follows a relation, and notes for each key what its passes were told."""

    def __init__(self, through: Any, **options: Any) -> None:
        self.told: list[tuple[Any, str, Any]] = []
        self.calls: list[dict[str, Any]] = []

        @recheck(name="held", **options)
        def held(sender: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.calls.append(kwargs)
            self.told.append((recheck_pass.key, kwargs["action"], kwargs["pk_set"]))

        m2m_changed.connect(held, sender=through)

    def now(self) -> list[tuple[Any, str, Any]]:
        """Return what was told since the last time, of the newest event of each key."""
        worker.drain()
        told = {key: (key, action, pk_set) for key, action, pk_set in self.told}
        self.told.clear()
        return sorted(told.values(), key=str)


@pytest.fixture
def rows() -> list[Any]:
    """Two rows that hold the relation, and two to be held."""
    items = [Item.objects.create(name=name) for name in "ab"]
    return [*sorted((Named.objects.create() for _ in range(2)), key=lambda n: str(n.pk)), *items]


@WAYS
def test_c48_from_the_relations_own_side(rows: list[Any], dispatch: str) -> None:
    named, _, first, second = rows
    held = Held(Named.items.through, dispatch=dispatch)
    named.items.add(first, second)
    assert held.now() == [(named.pk, "post_add", {first.pk, second.pk})]
    named.items.remove(first)
    assert held.now() == [(named.pk, "post_remove", {first.pk})]
    named.items.set([first])
    assert held.now() == [(named.pk, "post_add", {first.pk})]
    named.items.clear()
    assert held.now() == [(named.pk, "post_clear", None)]


@WAYS
def test_c48_from_the_other_side_each_row_that_holds_it_is_heard(
    rows: list[Any], dispatch: str
) -> None:
    one, two, item, _ = rows
    held = Held(Named.items.through, dispatch=dispatch)
    item.named_set.add(one, two)
    assert held.now() == [(n.pk, "post_add", {item.pk}) for n in (one, two)]
    item.named_set.remove(one)
    assert held.now() == [(one.pk, "post_remove", {item.pk})]
    item.named_set.set([one])
    assert held.now() == [(one.pk, "post_add", {item.pk}), (two.pk, "post_remove", {item.pk})]
    item.named_set.add(two)
    held.now()
    item.named_set.clear()
    assert held.now() == [(n.pk, "post_remove", {item.pk}) for n in (one, two)]
    assert {(c["instance"]._meta.model, c["reverse"], c["model"]) for c in held.calls} == {
        (Named, False, Item)
    }


def test_what_happened_from_both_sides_is_one_pass(rows: list[Any]) -> None:
    one, _, first, second = rows
    held = Held(Named.items.through, dispatch="worker")
    one.items.add(first)
    second.named_set.add(one)
    assert held.now() == [(one.pk, "post_add", None)]
    assert len(held.calls) == 1


@WAYS
def test_c48_a_callable_key_hears_who_was_there_before_a_clear(
    rows: list[Any], dispatch: str
) -> None:
    named, _, first, second = rows
    held = Held(Named.items.through, keys=lambda pk_set, **_: pk_set, dispatch=dispatch)
    named.items.add(first, second)
    held.now()
    named.items.clear()
    both = {first.pk, second.pk}
    assert held.now() == [(pk, "post_clear", both) for pk in sorted(both)]
    named.items.clear()  # nobody is there any more
    assert held.now() == []


def test_nothing_is_looked_up_for_a_key_that_doesnt_need_it(
    rows: list[Any], django_assert_num_queries: Any
) -> None:
    named, _, first, _ = rows
    Held(Named.items.through, dispatch="worker")
    with django_assert_num_queries(3):  # BEGIN, DELETE, COMMIT
        named.items.clear()
    with django_assert_num_queries(4):  # BEGIN, SELECT, INSERT, COMMIT, and no row by its key
        first.named_set.add(*rows[:2])


def test_a_path_leads_from_each_row_that_holds_the_relation(
    django_assert_num_queries: Any,
) -> None:
    groups = [Group.objects.create() for _ in range(2)]
    friend = Friend.objects.create()
    teams = [Team.objects.create(code=f"t{g.pk}", group=g) for g in groups]
    held = Held(Membership, key="group_id", dispatch="worker")
    with django_assert_num_queries(6):  # two are ours: all rows by their codes, before and after
        friend.team_set.add(*teams)
    assert held.now() == [(g.pk, "post_add", {friend.pk}) for g in groups]
    friend.team_set.clear()
    assert held.now() == [(g.pk, "post_remove", {friend.pk}) for g in groups]
    teams[0].members.add(friend)
    assert held.now() == [(groups[0].pk, "post_add", {friend.pk})]


def test_a_relation_by_another_column_than_the_primary_key() -> None:
    friend, team = Friend.objects.create(), Team.objects.create(code="x")
    held = Held(Membership)
    friend.team_set.add(team)
    assert held.now() == [(team.pk, "post_add", {friend.pk})]
    friend.team_set.clear()
    assert held.now() == [(team.pk, "post_remove", {friend.pk})]


def test_a_symmetrical_relation_concerns_both_ends() -> None:
    ann, bob, cid = (Friend.objects.create(name=name) for name in ("ann", "bob", "cid"))
    held = Held(Friend.friends.through)
    ann.friends.add(bob, cid)
    assert sorted(held.now()) == [
        (ann.pk, "post_add", {bob.pk, cid.pk}),
        (bob.pk, "post_add", {ann.pk}),
        (cid.pk, "post_add", {ann.pk}),
    ]
    ann.friends.clear()
    assert sorted(held.now()) == [
        (ann.pk, "post_clear", {bob.pk, cid.pk}),
        (bob.pk, "post_remove", {ann.pk}),
        (cid.pk, "post_remove", {ann.pk}),
    ]


def test_a_relation_to_its_own_model_has_two_sides() -> None:
    ann, bob = (Friend.objects.create(name=name) for name in ("ann", "bob"))
    held = Held(Friend.follows.through)
    ann.follows.add(bob)
    assert held.now() == [(ann.pk, "post_add", {bob.pk})]
    bob.followers.clear()
    assert held.now() == [(ann.pk, "post_remove", {bob.pk})]


def test_what_is_carried_comes_along_from_the_other_side(rows: list[Any]) -> None:
    team, friend = Team.objects.create(code="x"), Friend.objects.create()
    held = Held(Membership, carry=["code"], refresh=False)
    friend.team_set.add(team)
    assert [call["instance"].__dict__["code"] for call in held.calls] == ["x"]


def test_a_clear_that_nobody_announced_is_the_senders_own(rows: list[Any]) -> None:
    item = rows[2]
    held = Held(Named.items.through)
    sent = {"action": "post_clear", "reverse": True, "model": Named, "pk_set": None}
    through = Named.items.through
    answers: Any = m2m_changed.send(through, instance=item, using="default", **sent)
    assert [outcome for _, outcome in answers] == [Outcome.RAN]
    assert held.now() == [(item.pk, "post_clear", None)]


@pytest.mark.parametrize(("key", "ids"), [("group_id", []), ("grup", ["django_recheck.E013"])])
def test_a_path_is_checked_against_the_model_that_holds_the_relation(
    key: str, ids: list[str]
) -> None:
    Held(Membership, key=key)
    assert [found.id for found in check_receivers()] == ids
