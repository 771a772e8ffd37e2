"""What ``@recheck`` takes, and what it refuses in one sentence."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import receivers, recheck
from tests.app.models import Item


async def waits(rows: Any = None, **kwargs: Any) -> int:
    return 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tll": 5}, TypeError, "did you mean 'ttl'"),
        ({"ttl": 0.4}, ImproperlyConfigured, "at least 1"),
        ({"ttl": True}, ImproperlyConfigured, "number of seconds"),
        ({"delay": 5, "max_wait": 5}, ImproperlyConfigured, "must be above DELAY"),
        ({"dispatch": "celery"}, ImproperlyConfigured, "no other way to dispatch"),
        ({"durable": 1}, ImproperlyConfigured, "must be True or False"),
        ({"concurrency": 0}, ImproperlyConfigured, "a whole number .*, at least 1"),
        ({"key": "a", "keys": lambda **_: []}, TypeError, "either key= or keys="),
        ({"key": 42}, TypeError, "a field's name, a path or a callable"),
        ({"key": "group_id."}, TypeError, "names with dots between them"),
        ({"keys": "group_id"}, TypeError, "keys=.* takes a callable"),
        ({"keys": ["group_id"]}, TypeError, "keys=.* takes a callable"),
        ({"data": {}}, TypeError, "data=.* takes a callable"),
        ({"queryset": "value"}, TypeError, "queryset=.* takes a callable"),
        ({"key": lambda instance: 1}, TypeError, r"key=.* must take \*\*kwargs: a signal sends"),
        ({"keys": lambda instance: [1]}, TypeError, r"keys=.* must take \*\*kwargs"),
        ({"data": lambda *args: 1}, TypeError, r"data=.* must take \*\*kwargs"),
        ({"data": lambda: 1}, TypeError, r"data=.* must take \*\*kwargs"),
        ({"key": waits}, TypeError, r"key=.* takes a callable that isn't async"),
        ({"queryset": waits}, TypeError, r"queryset=.* takes a callable that isn't async"),
        ({"queryset": lambda: 1}, TypeError, r"queryset=.* takes a callable of one argument"),
        ({"carry": "name"}, TypeError, r"write \['name'\]"),
        ({"former_names": "old"}, TypeError, r"write \['old'\]"),
        ({"name": "two words"}, TypeError, "without spaces"),
        ({"raise_exceptions": True}, TypeError, "no option"),
    ],
)
def test_wrong_options_are_one_sentence(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):

        @recheck(**options)
        def note(sender: Any, **kwargs: Any) -> None: ...


def test_methods_and_nameless_callables_are_refused() -> None:
    class Holder:
        def method(self, sender: Any, **kwargs: Any) -> None: ...

    def note(extra: int, sender: Any, **kwargs: Any) -> None: ...

    with pytest.raises(TypeError, match="bound method"):
        recheck(Holder().method)
    with pytest.raises(TypeError, match="not the method"):
        recheck(Holder.method)
    partial = functools.partial(note, 1)
    with pytest.raises(TypeError, match="no name of its own"):
        recheck(partial)
    assert recheck(name="partial")(partial).name == "partial"


def without_keywords(sender: Any, instance: Any) -> None: ...
def by_position(sender: Any, /, **kwargs: Any) -> None: ...
def generates(sender: Any, **kwargs: Any) -> Any:
    yield 1


async def generates_too(sender: Any, **kwargs: Any) -> Any:
    yield 1


class Whole:
    @staticmethod
    def static(sender: Any, **kwargs: Any) -> None: ...
    @classmethod
    def of_class(cls, sender: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("func", "words"),
    [
        ("invoice_id", r'by name: write @recheck\(key="invoice_id"\)\.'),
        (5, r"takes a function, not 5\."),
        (Whole, "not the class Whole: decorate a function of the module"),
        (vars(Whole)["static"], r"not the staticmethod Whole\.static: decorate a function"),
        (vars(Whole)["of_class"], r"not the classmethod Whole\.of_class: decorate a function"),
        (Whole.of_class, "a bound method"),
        (without_keywords, r"^without_keywords must take \*\*kwargs: a signal sends all"),
        (by_position, r"^by_position takes 'sender' by position, and a signal sends it by name"),
        (generates, "generates has a yield, so that calling it would run nothing"),
        (generates_too, "has a yield"),
    ],
)
@pytest.mark.parametrize("options", [None, {}])
def test_what_is_no_function_is_one_sentence(func: Any, words: str, options: Any) -> None:
    before = {*receivers.registry}
    with pytest.raises(TypeError, match=words):
        recheck(func) if options is None else recheck(**options)(func)
    assert {*receivers.registry} == before


def test_one_recheck_is_enough() -> None:
    note = recheck(name="once")(lambda **kwargs: None)
    with pytest.raises(TypeError, match=r"^once is decorated already: one @recheck has all"):
        recheck(ttl=5)(note)


def test_a_callable_of_c_is_taken_as_it_is() -> None:
    recheck(name="of-c", key=dict, queryset=iter)(lambda **kwargs: None)


def test_wrong_order_is_found_and_the_right_one_shown() -> None:
    with pytest.raises(TypeError, match=r"@receiver\(post_save, \.\.\.\)\n@recheck\n"):

        @recheck
        @receiver(post_save, sender=Item)  # noqa: DJ013 - the point of the test
        def note(sender: Any, **kwargs: Any) -> None: ...
