"""Models of odd shapes: what their events carry, and which row a pass gets."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F, Model
from django.db.models.signals import post_delete, post_save

from django_recheck import EventError, Outcome, recheck, worker
from django_recheck.keys import item_text
from tests.app.models import Child, GrandChild, Group, Item, Priced, Seat, Watched

pytestmark = pytest.mark.django_db(transaction=True)


class Notes:
    """Follows a model, and notes what its receiver got."""

    def __init__(self, model: type[Model], **options: Any) -> None:
        self.got: list[tuple[Any, bool, Any]] = []

        @recheck(name="noted", **options)
        def noted(sender: Any, instance: Any, recheck_pass: Any, **kwargs: Any) -> None:
            self.got.append((recheck_pass.key, recheck_pass.gone, instance))

        for signal in (post_save, post_delete):
            signal.connect(noted, sender=model)
        self.receiver = noted

    @property
    def keys(self) -> list[tuple[Any, bool]]:
        return [(key, gone) for key, gone, _ in self.got]


def test_a_model_that_looks_at_itself_when_it_is_made(django_assert_num_queries: Any) -> None:
    notes = Notes(Watched)
    row = Watched(name="a", value=1)
    row.save()
    assert [instance.old for _, _, instance in notes.got] == [("a", 1)]
    with django_assert_num_queries(2):  # the save, and the row read again
        row.save()
    pk = row.pk
    row.delete()
    assert notes.keys == [(pk, False), (pk, False), (pk, True)]
    assert notes.got[-1][2].pk == pk


@pytest.mark.parametrize("model", [Child, GrandChild])
def test_a_child_by_hand(model: type[Group]) -> None:
    row = model.objects.create(name="a")
    notes = Notes(model)
    assert notes.receiver.recheck(key=row.pk) is Outcome.RAN
    assert notes.receiver.recheck(row) is Outcome.RAN
    assert notes.receiver.recheck_many([row.pk, row]) == 1
    assert worker.drain().outcomes == {Outcome.RAN: 1}, "it is one item"
    assert notes.got == [(row.pk, False, row)] * 3
    pk = row.pk
    row.delete()
    assert notes.keys[-1] == (pk, True)
    assert (notes.got[-1][2].pk, notes.got[-1][2].id) == (pk, pk)


def test_a_composite_key() -> None:
    notes, hall = Notes(Seat), uuid.uuid4()
    seat = Seat.objects.create(hall=hall, number=7)
    seat.taken = True
    seat.save()
    assert notes.receiver.recheck(key=(hall, 7)) is Outcome.RAN
    assert notes.receiver.recheck(seat) is Outcome.RAN
    assert notes.keys == [((hall, 7), False)] * 4
    assert notes.got[1][2].taken
    seat.delete()
    assert notes.keys[-1] == ((hall, 7), True)
    assert notes.got[-1][2].pk == (hall, 7)


def test_a_decimal_is_one_key_however_it_is_written() -> None:
    notes = Notes(Priced)
    row = Priced(price=Decimal("1.5"))
    row.save()
    Priced.objects.get().save()
    assert item_text(row) == item_text(Priced.objects.get()) == '{"tests_app.priced":"1.5"}'
    assert notes.keys == [(Decimal("1.5"), False)] * 2


@pytest.mark.parametrize("key", ["pk", "id", "value", "group_id"])
def test_a_fields_value_is_one_key_whatever_its_type_was(key: str) -> None:
    notes = Notes(Item, key=key)
    group = Group.objects.create(pk=5, name="a")
    item = Item.objects.create(pk=5, name="a", value=5, group=group)
    text: Any = "5"
    setattr(item, key, text)
    item.save()
    assert notes.keys == [(5, False)] * 2


def test_a_value_that_cant_be_a_fields_is_no_key() -> None:
    notes = Notes(Item, key="value")
    odd: Any = "five"
    with pytest.raises(EventError, match=r"'five' of tests_app\.Item\.value can't be a key"):
        notes.receiver.recheck(Item(pk=1, value=odd))


def test_what_only_the_database_knows_stays_behind() -> None:
    notes = Notes(Item, carry=["value"])
    item = Item.objects.create(name="a", value=1)
    item.value = F("value") + 1
    item.save()
    assert notes.got[-1][2].value == 2


def test_a_key_that_ignores_what_was_merged_hasnt_moved() -> None:
    def of_values(instance: Item, update_fields: Any, **kwargs: Any) -> Any:
        return instance.name if update_fields and "value" in update_fields else None

    notes = Notes(Item, key=of_values, dispatch="worker")
    item = Item.objects.create(name="a")
    item.save(update_fields=["value"])
    item.save(update_fields=["value", "name"])
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert notes.got == [("a", False, item)]


def test_a_queryset_of_something_else_than_rows_fails(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes(Item, queryset=lambda rows: rows.values())
    Item.objects.create(name="a")
    assert notes.got == []
    assert "queryset= must give model instances, not dict" in caplog.text
