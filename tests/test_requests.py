"""Requests: their passes come after their commit, whatever kind of view it is and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import SimpleTemplateResponse
from django.test import Client
from django.urls import path

from django_recheck import recheck, store, views, worker
from tests.app.models import Item

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

log: list[str] = []
"""What happened, in order."""


def save(name: str, using: str = "default") -> None:
    Item.objects.using(using).create(name=name)
    log.append(f"{name} saved")


def says(request: HttpRequest) -> HttpResponse:
    save("a")
    log.append("view ends")
    return HttpResponse("ok")


def says_500(request: HttpRequest) -> HttpResponse:
    save("a")
    return HttpResponse("not good", status=500)


def fails(request: HttpRequest) -> HttpResponse:
    save("a")
    raise LookupError


def finds_nothing(request: HttpRequest) -> HttpResponse:
    save("a")
    raise Http404


def takes_back(request: HttpRequest) -> HttpResponse:
    save("a")
    transaction.set_rollback(True)
    return HttpResponse("ok")


def takes_back_a_part(request: HttpRequest) -> HttpResponse:
    save("a")
    try:
        with transaction.atomic():
            save("b")
            raise LookupError
    except LookupError:
        save("c")
    return HttpResponse("ok")


@transaction.non_atomic_requests
def by_itself(request: HttpRequest) -> HttpResponse:
    save("a")
    log.append("view ends")
    return HttpResponse("ok")


def streams(request: HttpRequest) -> StreamingHttpResponse:
    save("a")

    def rows() -> Iterator[str]:
        for name in "bc":
            save(name)
            yield name

    return StreamingHttpResponse(rows())


def renders_late(request: HttpRequest) -> SimpleTemplateResponse:
    save("a")
    template = engines["django"].from_string("{{ save }}")
    return SimpleTemplateResponse(template, {"save": lambda: save("b")})


def both_databases(request: HttpRequest) -> HttpResponse:
    save("a")
    save("b", "other")
    return HttpResponse("ok")


def one_database_takes_back(request: HttpRequest) -> HttpResponse:
    save("a")
    save("b", "other")
    transaction.set_rollback(True, using="other")
    return HttpResponse("ok")


def error_view(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    save("error")
    return HttpResponse("sorry", status=404 if exception else 500)


handler404 = handler500 = error_view
VIEWS: list[Callable[..., Any]] = [
    says,
    says_500,
    fails,
    finds_nothing,
    takes_back,
    takes_back_a_part,
    by_itself,
    streams,
    renders_late,
    both_databases,
    one_database_takes_back,
]
urlpatterns = [path(view.__name__, view) for view in VIEWS]


@pytest.fixture(autouse=True)
def _site(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ROOT_URLCONF = __name__
    log.clear()
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)

    @receiver(post_save, sender=Item)
    @recheck(name="note", on_redis_error="raise")
    def note(sender: Any, instance: Item, **kwargs: Any) -> None:
        inside = [c.alias for c in connections.all(initialized_only=True) if c.in_atomic_block]
        log.append(f"{instance.name} passed{' in ' + inside[0] if inside else ''}")


def get(view: Callable[..., Any]) -> int:
    client = Client(raise_request_exception=False)
    response = client.get(f"/{view.__name__}")
    if response.streaming:
        list(response.streaming_content)  # type: ignore[attr-defined]
    assert views.counts(store.current()) == {}
    return response.status_code


def test_the_pass_comes_after_the_view_and_before_the_response() -> None:
    assert get(says) == 200
    assert log == ["a saved", "view ends", "a passed"]


def test_in_autocommit_the_pass_comes_with_the_save() -> None:
    assert get(by_itself) == 200
    assert log == ["a passed", "a saved", "view ends"]


def test_a_response_that_says_500_is_a_commit() -> None:
    assert get(says_500) == 500
    assert log == ["a saved", "a passed"]


@pytest.mark.parametrize(("view", "status"), [(fails, 500), (finds_nothing, 404)])
def test_a_view_that_raises_leaves_no_event_and_its_error_view_has_its_own(
    view: Callable[..., Any], status: int
) -> None:
    assert get(view) == status
    assert log == ["a saved", "error passed", "error saved"]
    assert Item.objects.get().name == "error"


def test_a_rollback_without_an_error_leaves_no_event() -> None:
    assert get(takes_back) == 200
    assert log == ["a saved"]


def test_a_savepoint_takes_its_own_events_only() -> None:
    assert get(takes_back_a_part) == 200
    assert log == ["a saved", "b saved", "c saved", "a passed", "c passed"]


def test_what_a_stream_saves_is_outside_of_the_transaction() -> None:
    assert get(streams) == 200
    assert log == ["a saved", "a passed", "b passed", "b saved", "c passed", "c saved"]


def test_what_a_template_response_saves_is_outside_of_the_transaction() -> None:
    assert get(renders_late) == 200
    assert log == ["a saved", "a passed", "b passed", "b saved"]


def test_two_databases_commit_one_after_the_other_and_then_all_passes_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connections.settings["other"], "ATOMIC_REQUESTS", True)
    assert get(both_databases) == 200
    assert log == ["a saved", "b saved", "b passed", "a passed"]


def test_the_other_database_of_a_request_may_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["other"], "ATOMIC_REQUESTS", True)
    client = Client()
    assert client.get(f"/{one_database_takes_back.__name__}").status_code == 200
    assert log == ["a saved", "b saved"]
    assert views.counts(store.current())["note"].due == 1, "the other one was open still"
    assert worker.drain().items == 1
    assert log == ["a saved", "b saved", "a passed"]


def test_a_receiver_that_raises_breaks_no_request(caplog: pytest.LogCaptureFixture) -> None:
    @receiver(post_save, sender=Item)
    @recheck(name="raises", max_attempts=1)
    def raises(sender: Any, **kwargs: Any) -> None:
        raise LookupError

    client = Client()
    assert client.get("/says").content == b"ok"
    assert client.get("/by_itself").content == b"ok"
    assert views.counts(store.current())["raises"].dead == 2
