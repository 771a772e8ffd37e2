"""What a pass is told of its merged events: of any events, merged in any order of steps."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.signals import m2m_changed, post_delete, post_save
from hypothesis import given
from hypothesis import strategies as st

from django_recheck import Outcome, recheck
from django_recheck.events import Call, Events, from_signal
from tests.app.models import Group, Item, Named
from tests.test_signal_kinds import Heard

NAMES = st.none() | st.frozensets(st.sampled_from(["name", "value"]))
ACTIONS = ["post_add", "post_remove", "post_clear"]
SAVES = st.fixed_dictionaries(
    {"created": st.booleans(), "raw": st.booleans(), "update_fields": NAMES}
)
CHANGES = st.fixed_dictionaries(
    {
        "action": st.sampled_from(ACTIONS),
        "pk_set": st.none() | st.sets(st.sampled_from([1, "a", 2**63])),
        "reverse": st.just(False),
        "model": st.just(Item),
    }
)
SENT = st.lists(
    st.tuples(st.just(post_save), SAVES)
    | st.tuples(st.just(m2m_changed), CHANGES)
    | st.tuples(st.just(post_delete), st.just({"origin": None})),
    min_size=1,
    max_size=8,
)


def merged(parts: list[Events], draw: Any) -> Events:
    """Merge neighbours until one is left, in an order that is drawn."""
    while len(parts) > 1:
        at = draw(st.integers(0, len(parts) - 2))
        parts[at : at + 2] = [parts[at + 1].after(parts[at])]
    return parts[0]


def same(values: list[Any]) -> Any:
    """Return what all say, None if two differ or one doesn't know."""
    return values[0] if all(value == values[0] for value in values) else None


@given(SENT, st.data())
def test_a_pass_is_told_no_less_than_happened(sent: list[Any], data: Any) -> None:
    merges = recheck(name="merges", data=lambda number, **_: number)(lambda **kwargs: None)
    named = [
        {"sender": Named, "instance": Named(), "using": "default", "number": n, **arguments}
        for n, (_, arguments) in enumerate(sent)
    ]
    parts = [from_signal(merges, s, kw) for (s, _), kw in zip(sent, named, strict=True)]
    events = merged(parts, data.draw)
    assert events.count == len(sent)
    assert Events.parse(events.count, events.packed()) == events
    told = {
        (c.signal, c.arguments.get("action")): c for c in (Call.of(g, "x") for g in events.groups)
    }
    kinds = {post_save: "post_save", m2m_changed: "m2m_changed", post_delete: "post_delete"}
    numbers = []
    for kind, call in told.items():
        group = [
            kw
            for (s, a), kw in zip(sent, named, strict=True)
            if (kinds[s], a.get("action")) == kind
        ]
        numbers.append(group[-1]["number"])
        assert call.data == call.arguments["number"] == numbers[-1], "the newest one's"
        if call.signal == "post_save":
            assert call.arguments["created"] == any(one["created"] for one in group)
            assert call.arguments["raw"] == all(one["raw"] for one in group)
            assert call.arguments["update_fields"] == same([one["update_fields"] for one in group])
        elif call.signal == "m2m_changed":
            assert call.arguments["pk_set"] == same([one["pk_set"] for one in group])
    assert numbers == sorted(numbers), "the newest group is the last"
    assert numbers[-1] == len(sent) - 1


db = pytest.mark.django_db(transaction=True)


@db
@pytest.mark.parametrize(
    ("key", "outcome", "keys"),
    [(None, Outcome.GONE, []), ("group_id", Outcome.RAN, [True])],
    ids=["row", "path"],
)
def test_a_row_that_the_queryset_leaves_out_counts_as_gone(
    key: Any, outcome: Outcome, keys: list[bool]
) -> None:
    heard = Heard(key=key, queryset=lambda rows: rows.filter(value__gt=0))
    group = Group.objects.create(name="g")
    with heard.by(post_save, sender=Item):
        item = Item.objects.create(group=group, name="a")
        answers: Any = post_save.send(Item, instance=item, created=False, using="default")
        assert dict(answers)[heard.receiver] is outcome
        assert [gone for _, gone in heard.keys] == keys * 2
        heard.passes.clear()
        item.value = 1
        item.save()
    assert [gone for _, gone in heard.keys] == [False]


@db
def test_data_and_carried_values_are_those_of_the_newest_event() -> None:
    heard = Heard(
        key="group_id", carry=["name"], data=lambda instance, **_: instance.value, dispatch="worker"
    )
    group = Group.objects.create(name="g")
    with heard.by(post_save, post_delete, sender=Item):
        first, second = (Item.objects.create(group=group, name=n, value=v) for n, v in ("a1", "b2"))
        first.delete()
        second.name, second.value = "c", 3
        second.save()
        Item.objects.filter(pk=second.pk).update(group=None)  # it leaves the key for none
    (run,) = heard.passes
    assert (run.gone, run.data, run.event_count) == (True, 3, 4)
    assert heard.calls[0]["instance"].name == "c"
