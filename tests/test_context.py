"""CONTEXT: the language of an event, and contexts that go wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.db.models.signals import post_save
from django.utils import translation

from django_recheck import EventError, Outcome, Receiver, recheck, store, views, worker
from tests.app.models import Item

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = Path(__file__).parent.parent / "docs/howto/tenants.md"
shown: dict[str, Any] = {}
exec(re.findall(r"^```python\n# howto\.py\n(.*?)^```", PAGE.read_text(), re.M | re.S)[1], shown)
Language = shown["Language"]
"""As the how-to page shows it."""


class Odd:
    """A context that is told what to do."""

    capture_is: Any = "a"
    fails: str = ""
    in_force: ClassVar[list[Any]] = []

    def capture(self) -> Any:
        if self.fails == "capture":
            raise LookupError("no tenant")
        return self.capture_is

    @contextmanager
    def restore(self, value: Any) -> Iterator[None]:
        if self.fails == "restore":
            raise LookupError(f"no tenant {value}")
        self.in_force.append(value)
        yield
        self.in_force.pop()
        if self.fails == "exit":
            raise LookupError("no way back")


@pytest.fixture
def odd(settings: Any, monkeypatch: pytest.MonkeyPatch) -> type[Odd]:
    settings.RECHECK = {**settings.RECHECK, "CONTEXT": f"{__name__}.Odd"}
    for name in ("capture_is", "fails"):
        monkeypatch.setattr(Odd, name, getattr(Odd, name))
    monkeypatch.setattr(Odd, "in_force", [])
    return Odd


@pytest.fixture
def spoken() -> list[Any]:
    """What the passes saw: the item, the language, and the odd context in force."""
    return []


@pytest.fixture
def speak(spoken: list[Any]) -> Receiver[..., Any]:
    @recheck(name="speak")
    def speak(sender: Any, instance: Item, recheck_pass: Any, **kwargs: Any) -> None:
        spoken.append((recheck_pass.item.text, translation.get_language(), *Odd.in_force))

    post_save.connect(speak, sender=Item)
    return speak


@pytest.fixture
def item(speak: Receiver[..., Any]) -> Item:
    """A row that was there before."""
    return Item.objects.bulk_create([Item(name="a")])[0]


def told(item: Item, context: str) -> str:
    return f'{{"tests_app.item":{item.pk}}} "default" {context}'


@pytest.mark.parametrize("way", ["signal", "recheck", "by key", "recheck_many", "keys"])
def test_a_drain_in_another_language_speaks_the_events_own(
    settings: Any, speak: Receiver[..., Any], spoken: list[Any], item: Item, way: str
) -> None:
    settings.RECHECK = {
        **settings.RECHECK,
        "CONTEXT": f"{__name__}.Language",
        "DISPATCH": "worker",
    }
    for language in ("de", "fr"):
        with translation.override(language):
            if way == "signal":
                item.save()
            elif way in ("recheck", "by key"):
                speak.recheck(item) if way == "recheck" else speak.recheck(key=item.pk)
            else:
                assert speak.recheck_many([item if way == "recheck_many" else item.pk]) == 1
    assert spoken == []
    with translation.override("en"):
        assert worker.drain().outcomes == {Outcome.RAN: 2}
        assert translation.get_language() == "en"
    assert sorted(spoken) == [(told(item, '"de"'), "de"), (told(item, '"fr"'), "fr")]


def test_no_language_at_all_is_an_items_own_too(
    settings: Any, spoken: list[Any], item: Item
) -> None:
    settings.RECHECK = {**settings.RECHECK, "CONTEXT": f"{__name__}.Language"}
    with translation.override(None):
        item.save()
    with translation.override("de"):
        item.save()
    assert spoken == [(f'{{"tests_app.item":{item.pk}}}', None), (told(item, '"de"'), "de")]


def test_the_row_is_read_in_the_events_context(odd: type[Odd], item: Item) -> None:
    read_in = []

    def note(rows: QuerySet[Item]) -> QuerySet[Item]:
        read_in.extend(Odd.in_force)
        return rows

    @recheck(name="reads", queryset=note)
    def reads(sender: Any, **kwargs: Any) -> None: ...

    assert reads.recheck(item) is Outcome.RAN
    assert read_in == ["a"]


def test_a_capture_that_raises_comes_out_of_the_save(odd: type[Odd], item: Item) -> None:
    odd.fails = "capture"
    with pytest.raises(LookupError, match="no tenant"):
        item.save()
    assert views.receivers(store.current()) == []


@pytest.mark.parametrize("value", [object(), {"a", "b"}, b"a"])
def test_a_capture_that_is_no_json_comes_out_of_the_save(
    odd: type[Odd], item: Item, value: Any
) -> None:
    odd.capture_is = value
    with pytest.raises(EventError, match=r"capture\(\) of Odd returned is no JSON"):
        item.save()
    assert views.receivers(store.current()) == []


@pytest.mark.parametrize("value", ["a", 1, 1.5, True, False, "", [1, "a"], {"a": None}, "ä \n\0"])
def test_whatever_is_json_comes_back(
    odd: type[Odd], spoken: list[Any], item: Item, value: Any
) -> None:
    odd.capture_is = value
    item.save()
    ((_, _, in_force),) = spoken
    assert (in_force, type(in_force)) == (value, type(value))


@pytest.mark.parametrize("fails", ["restore", "exit"])
def test_a_restore_that_raises_is_a_failed_pass(
    odd: type[Odd], spoken: list[Any], item: Item, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd.fails = fails
    item.save()
    (view,) = views.page(store.current(), "speak", "due")
    assert view.record is not None
    assert (view.item.text, view.record.attempts) == (told(item, '"a"'), 1)
    assert "the receiver failed, attempt 1" in caplog.text
    item.save()
    assert "the receiver failed, attempt 2" in caplog.text
    assert spoken == [], "the row is read in the context, too, and before"
    odd.fails = ""
    item.save()
    assert spoken[-1][2:] == ("a",)
    assert views.receivers(store.current()) == []


def test_a_restore_that_raises_for_ever_ends_dead(
    odd: type[Odd], settings: Any, spoken: list[Any], item: Item
) -> None:
    odd.fails = "restore"
    settings.RECHECK = {**settings.RECHECK, "MAX_ATTEMPTS": 1}
    item.save()
    assert spoken == []
    assert views.counts(store.current())["speak"].dead == 1


def test_a_context_that_is_gone_is_a_failed_pass(
    odd: type[Odd], settings: Any, speak: Receiver[..., Any], spoken: list[Any], item: Item
) -> None:
    speak.recheck_many([item])
    settings.RECHECK = {**settings.RECHECK, "CONTEXT": f"{__name__}.Missing"}
    assert worker.drain().outcomes == {Outcome.FAILED: 1}
    assert spoken == []
    with pytest.raises(ImproperlyConfigured, match=r"ImportError.*Missing.*E009"):
        item.save()
    assert len(views.page(store.current(), "speak", "due")) == 1, "the event before still waits"


def test_what_was_captured_and_what_is_captured_now_are_two_items(
    odd: type[Odd], speak: Receiver[..., Any], spoken: list[Any], item: Item
) -> None:
    speak.recheck_many([item])
    odd.capture_is = "b"
    item.save()
    assert [(text, now) for text, _, now in spoken] == [(told(item, '"b"'), "b")]
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert [now for *_, now in spoken] == ["b", "a"]


def test_a_new_context_gets_none_for_what_was_recorded_before(
    settings: Any, speak: Receiver[..., Any], spoken: list[Any], item: Item
) -> None:
    speak.recheck_many([item])
    settings.RECHECK = {**settings.RECHECK, "CONTEXT": f"{__name__}.Odd"}
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert [now for *_, now in spoken] == [None]
