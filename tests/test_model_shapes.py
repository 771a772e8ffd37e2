"""Models of every shape as senders: lazy ones, abstract bases, generic relations, fixtures."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.core.serializers.base import DeserializationError
from django.db import models, transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.test.utils import isolate_apps

from django_recheck import Outcome, connected, recheck, worker
from tests.app.models import City, Country, Group, Item, Label, Named, Note, Owned, Photo, Seat
from tests.test_signal_kinds import Heard

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
WAYS = pytest.mark.parametrize("dispatch", ["inline", "worker", "immediate"])
SAVES = (post_save, post_delete)
"""What a row's receiver follows."""


# Senders that are named by a text


@WAYS
def test_a_sender_may_be_a_text(dispatch: str) -> None:
    heard = Heard(dispatch=dispatch)
    with heard.by(*SAVES, sender="tests_app.Item"):
        item = Item.objects.create(name="a")
        Group.objects.create(name="g")
        if dispatch != "immediate":
            assert heard.receiver.recheck(key=item.pk) in (Outcome.RAN, Outcome.PENDING)
    assert {key for key, _ in heard.keys} == {item.pk}


def test_a_text_of_a_model_that_isnt_there_yet_waits_for_it() -> None:
    @recheck(name="early")
    def early(sender: Any, **kwargs: Any) -> None: ...

    with isolate_apps("tests.app") as isolated:
        receiver(post_save, sender="tests_app.Later", apps=isolated)(early)
        assert connected.signals_of(early) == []

        class Later(models.Model):
            class Meta:
                app_label = "tests_app"

    assert connected.signals_of(early) == [post_save]


# Abstract bases


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_the_children_of_an_abstract_base_are_rows_of_their_own(dispatch: str) -> None:
    heard, group = Heard(dispatch=dispatch), Group.objects.create(name="g")
    children: list[Any] = Owned.__subclasses__()
    assert children == [Note, Photo]
    with heard.by(*SAVES, sender=Note), heard.by(*SAVES, sender=Photo):
        for child in children:
            child(pk=7, group=group, name="a").save()
        Photo.objects.all().delete()
        worker.drain()
    assert {run.item.text for run in heard.passes} == {
        '{"tests_app.note":7}',
        '{"tests_app.photo":7}',
    }
    assert {
        type(c["instance"]): r.gone for c, r in zip(heard.calls, heard.passes, strict=True)
    } == {
        Note: False,
        Photo: True,
    }


def test_a_field_of_an_abstract_base_is_one_key_for_all_its_children() -> None:
    heard, group = Heard(key="group_id", dispatch="worker"), Group.objects.create(name="g")
    with heard.by(*SAVES, sender=Note), heard.by(*SAVES, sender=Photo):
        for child in (Note, Photo):
            child(pk=7, group=group, name="a").save()
    (run,) = heard.passes
    assert (run.key, run.event_count, run.gone) == (group.pk, 2, False)
    assert run.merged == (("post_save", "", "tests_app.note"),)
    assert heard.calls[0]["instance"] == Photo(pk=7)


# Generic relations


@pytest.fixture
def labelled() -> list[Any]:
    """A note and a photo of the same number, each with a label."""
    group = Group.objects.create(name="g")
    found = [child.objects.create(pk=7, group=group, name="a") for child in (Note, Photo)]
    for row in found:
        row.labels.create(text="old")
    return found


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_the_target_of_a_generic_relation_is_a_key(labelled: list[Any], dispatch: str) -> None:
    heard, (note, photo) = Heard(key="target", dispatch=dispatch), labelled
    with heard.by(*SAVES, sender=Label):
        note.labels.create(text="new")
        Label.objects.create(target=photo, text="new")
    assert [run.item.text for run in heard.passes] == [
        '{"tests_app.note":7}',
        '{"tests_app.photo":7}',
    ]
    assert heard.keys == [(7, False)] * 2


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_its_columns_are_a_key_that_outlives_the_target(labelled: list[Any], dispatch: str) -> None:
    note, photo = labelled
    heard = Heard(key=lambda instance, **_: (instance.kind_id, instance.number), dispatch=dispatch)
    kinds = [ContentType.objects.get_for_model(child).pk for child in (Note, Photo)]
    with heard.by(*SAVES, sender=Label):
        photo.labels.add(Label.objects.get(kind=kinds[0]), bulk=False)  # it moves to the photo
        worker.drain()
        photo.delete()  # the labels go along
    assert heard.keys == [((kinds[1], 7), False), ((kinds[1], 7), True)]
    assert heard.passes[-1].event_count == 2
    assert note.labels.count() == 0


# Keys of other kinds than numbers


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
def test_a_uuid_and_a_key_of_two_columns_from_the_first_save_to_the_end(dispatch: str) -> None:
    heard, hall = Heard(dispatch=dispatch), uuid.uuid4()
    with heard.by(*SAVES, sender=Named), heard.by(*SAVES, sender=Seat):
        named, seat = Named.objects.create(), Seat.objects.create(hall=hall, number=7)
        worker.drain()
        keys = [named.pk, seat.pk]
        named.delete()
        Seat.objects.filter(hall=hall).delete()
    assert heard.keys == [(key, gone) for gone in (False, True) for key in keys]
    assert [call["instance"].pk for call in heard.calls] == [*keys, *keys]


def test_a_key_of_two_columns_is_a_key_of_a_callable_too() -> None:
    heard, hall = Heard(key=lambda instance, **_: instance, dispatch="worker"), uuid.uuid4()
    with heard.by(*SAVES, sender=Seat):
        Seat.objects.create(hall=hall, number=7)
        Seat.objects.update_or_create(hall=hall, number=7, defaults={"taken": True})
    (run,) = heard.passes
    assert (run.key, run.gone, run.event_count) == ((hall, 7), False, 2)


# Fixtures

FIXTURE = [
    {"model": "tests_app.city", "pk": 1, "fields": {"name": "Rome", "country": ["it"]}},
    {"model": "tests_app.country", "fields": {"code": "it"}},
    {"model": "tests_app.city", "pk": 2, "fields": {"name": "Milan", "country": ["it"]}},
]


def load(folder: Path, database: str = "default") -> None:
    """Load the fixture, whose first row refers to its second by the natural key."""
    path = folder / "cities.json"
    path.write_text(json.dumps(FIXTURE))
    call_command("loaddata", str(path), verbosity=0, database=database)


@pytest.mark.parametrize("dispatch", ["inline", "worker"])
@pytest.mark.parametrize("database", ["default", "other"])
def test_c45_a_fixtures_rows_are_heard_raw_after_its_commit(
    tmp_path: Path, dispatch: str, database: str
) -> None:
    heard = Heard(dispatch=dispatch)
    with heard.by(post_save, sender=City), heard.by(post_save, sender=Country):
        load(tmp_path, database)
        assert (heard.calls == []) == (dispatch == "worker")
    italy = Country.objects.using(database).get()
    rome, milan = City.objects.using(database).filter(country=italy).order_by("pk")
    told = {(c["instance"], c["raw"], c["instance"]._state.db) for c in heard.calls}
    assert told == {(row, True, database) for row in (italy, rome, milan)}
    count = {run.key: run.event_count for run in heard.passes if "city" in run.item.text}
    assert count == {rome.pk: 2, milan.pk: 1}, "Rome a second time when its country is known"
    assert all((c["created"], c["using"]) == (True, database) for c in heard.calls)


@WAYS
def test_c45_a_key_can_leave_a_fixture_out(tmp_path: Path, dispatch: str) -> None:
    heard = Heard(
        dispatch=dispatch, key=lambda instance, raw, **_: None if raw else instance.country_id
    )
    with heard.by(post_save, sender=City):
        load(tmp_path)
        worker.drain()
        assert heard.calls == []
        rome = City.objects.get(name="Rome")
        rome.save()
    assert heard.keys == [(rome.country_id, False)]


def test_c45_a_fixture_that_doesnt_load_is_no_event(tmp_path: Path) -> None:
    heard, broken = Heard(), tmp_path / "broken.json"
    broken.write_text(json.dumps([*FIXTURE[1:], {"model": "tests_app.nothing"}]))
    with heard.by(post_save, sender=City), pytest.raises(DeserializationError):
        call_command("loaddata", str(broken), verbosity=0)
    assert heard.calls == []


def test_a_fixtures_natural_keys_in_a_transaction_of_ones_own(tmp_path: Path) -> None:
    heard = Heard(key="country_id")
    with heard.by(post_save, sender=City), transaction.atomic():
        load(tmp_path)
        City.objects.create(name="Turin", country=Country.objects.get())
    (run,) = heard.passes
    assert (run.event_count, heard.calls[0]["raw"], heard.calls[0]["created"]) == (3, False, True)
    assert heard.calls[0]["instance"].name == "Turin"
