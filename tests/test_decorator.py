"""What ``@recheck`` takes, and what it refuses in one sentence."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_save
from django.dispatch import receiver

from django_recheck import recheck
from tests.app.models import Item


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tll": 5}, TypeError, "did you mean 'ttl'"),
        ({"ttl": 0.4}, ImproperlyConfigured, "at least 1"),
        ({"ttl": True}, ImproperlyConfigured, "number of seconds"),
        ({"delay": 5, "max_wait": 5}, ImproperlyConfigured, "must be above DELAY"),
        ({"dispatch": "celery"}, ImproperlyConfigured, "no other way to dispatch"),
        ({"durable": True}, ImproperlyConfigured, "no outbox yet"),
        ({"concurrency": 3}, ImproperlyConfigured, "no limit of concurrent passes yet"),
        ({"key": "a", "keys": lambda **_: []}, TypeError, "either key= or keys="),
        ({"key": 42}, TypeError, "a field's name, a path or a callable"),
        ({"key": "group_id."}, TypeError, "names with dots between them"),
        ({"keys": "group_id"}, TypeError, "keys=.* takes a callable"),
        ({"keys": ["group_id"]}, TypeError, "keys=.* takes a callable"),
        ({"data": {}}, TypeError, "data=.* takes a callable"),
        ({"queryset": "value"}, TypeError, "queryset=.* takes a callable"),
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


def test_wrong_order_is_found_and_the_right_one_shown() -> None:
    with pytest.raises(TypeError, match=r"@receiver\(post_save, \.\.\.\)\n@recheck\n"):

        @recheck
        @receiver(post_save, sender=Item)  # noqa: DJ013 - the point of the test
        def note(sender: Any, **kwargs: Any) -> None: ...
