"""Histories of rows: django-reversion and django-simple-history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import reversion
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.utils import timezone
from reversion.models import Revision, Version
from reversion.signals import post_revision_commit, pre_revision_commit
from simple_history.signals import (
    post_create_historical_m2m_records,
    post_create_historical_record,
    pre_create_historical_record,
)
from simple_history.utils import bulk_create_with_history

from django_recheck import EventError, Outcome, recheck, store, views, worker

from .models import Article, Place, Poll
from .twins import Twins, Way, following

pytestmark = pytest.mark.django_db(transaction=True)
MakeTwins = Callable[..., Twins]


def own_pk(instance: Any, **_: Any) -> list[Any]:
    return [instance.pk]


# django-reversion


def comments(object_id: str) -> str:
    """Return the comments of an article's revisions, newest first."""
    found = Version.objects.filter(object_id=object_id).order_by("-pk")
    return ", ".join(found.values_list("revision__comment", flat=True))


def object_ids(versions: Any, **_: Any) -> list[str]:
    return [version.object_id for version in versions]


def revised(title: str, comment: str, *articles: Article) -> None:
    with reversion.create_revision():
        for article in articles:
            article.title = title
            article.save()
        reversion.set_comment(comment)


def test_reversion_each_object_has_its_key(way: Way, twins: MakeTwins) -> None:
    pair = twins(
        comments,
        [(post_revision_commit, None)],
        object_ids,
        keys=object_ids,
        data=object_ids,
    )
    with way.block():
        one, two = Article(), Article()
        revised("a", "made", one, two)
        revised("b", "changed", one)
    assert pair.agree_on([str(one.pk), str(two.pk)]) == {
        str(one.pk): "changed, made",
        str(two.pk): "made",
    }


def test_reversion_rows_put_back_are_saves_from_a_fixture(way: Way, twins: MakeTwins) -> None:
    def title(pk: int) -> str:
        return "".join(Article.objects.filter(pk=pk).values_list("title", flat=True))

    raws: list[bool] = []
    pair = twins(title, [(post_save, Article), (post_delete, Article)], own_pk)
    post_save.connect(lambda raw, **_: raws.append(raw), sender=Article, weak=False)
    article = Article()
    with way.block():
        revised("first", "made", article)
        revised("second", "changed", article)
    assert pair.agree_on([article.pk]) == {str(article.pk): "second"}
    with way.block():
        Version.objects.get_for_object(article).last().revision.revert()
    assert pair.agree_on([article.pk]) == {str(article.pk): "first"}
    pk = article.pk
    with way.block():
        article.delete()
    assert pair.agree_on([pk]) == {}
    with way.block():
        Version.objects.get_deleted(Article).get().revision.revert()
    assert pair.agree_on([pk]) == {str(pk): "second"}
    assert raws == [False, False, True, True]


def test_reversions_versions_cant_travel_and_data_takes_what_is_needed() -> None:
    calls = []

    @recheck(name="plainly", key="revision")
    def plainly(**kwargs: Any) -> None: ...

    @recheck(name="with-data", key="revision", data=object_ids)
    def with_data(recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.key, recheck_pass.data, kwargs))

    with (
        following(plainly, post_revision_commit),
        pytest.raises(EventError, match=r"'versions' of reversion.*data=") as refused,
    ):
        revised("a", "refused", Article())
    assert "reversion.signals:post_revision_commit" in str(refused.value)
    assert not Revision.objects.exists(), "it broke the transaction that it came from"
    article = Article()
    with following(with_data, post_revision_commit):
        revised("a", "taken", article)
    revision = Revision.objects.get()
    ((key, data, kwargs),) = calls
    assert (key, data) == (revision.pk, [str(article.pk)])
    assert kwargs == {
        "signal": post_revision_commit,
        "sender": None,  # a function
        "revision": revision,
        "versions": None,
    }


def test_reversions_revision_isnt_saved_yet_when_it_is_announced() -> None:
    @recheck(name="early", key="revision", data=object_ids)
    def early(**kwargs: Any) -> None: ...

    with (
        following(early, pre_revision_commit),
        pytest.raises(EventError, match=r"A reversion\.Revision that was never saved"),
    ):
        revised("a", "refused", Article())


# django-simple-history


def record_of(poll_id: int) -> str:
    """Return the kinds of changes of a poll, oldest first."""
    found = Poll.history.filter(id=poll_id).order_by("history_id")
    return "".join(found.values_list("history_type", flat=True))


def test_historys_rows_are_rows(way: Way, twins: MakeTwins) -> None:
    pair = twins(
        record_of, [(post_save, Poll.history.model)], lambda instance, **_: [instance.id], key="id"
    )
    with way.block():
        poll, other = Poll.objects.create(question="a"), Poll.objects.create(question="b")
        poll.question = "c"
        poll.save()
    pks = [poll.pk, other.pk]
    assert list(pair.agree_on(pks).values()) == ["+~", "+"]
    with way.block():
        poll.places.add(Place.objects.create(name="here"))
        other.delete()
    assert list(pair.agree_on(pks).values()) == ["+~~", "+-"]


def test_historys_bulk_rows_need_recheck_many(way: Way, twins: MakeTwins) -> None:
    pair = twins(
        record_of, [(post_save, Poll.history.model)], lambda instance, **_: [instance.id], key="id"
    )
    with way.block():
        polls = bulk_create_with_history([Poll(question="a"), Poll(question="b")], Poll)
        pks = [poll.pk for poll in polls]
        pair.rechecked.recheck_many(pks)
    assert pair.found("plain") == {}
    assert pair.found("rechecked") == dict.fromkeys(map(str, pks), "+")


HISTORICAL = pytest.mark.parametrize(
    ("signal", "refused"),
    [
        (pre_create_historical_record, "history_date"),
        (post_create_historical_record, "history_date"),
        (post_create_historical_m2m_records, "field"),
    ],
    ids=["before", "after", "relations"],
)


@HISTORICAL
def test_historys_signals_are_refused_without_data(signal: Any, refused: str) -> None:
    @recheck(name="plainly")
    def plainly(**kwargs: Any) -> None: ...

    with (
        following(plainly, signal),
        pytest.raises(EventError, match=f"The argument '{refused}' of simple_history.*data="),
    ):
        Poll.objects.create(question="a")
    assert views.counts(store.current()) == {}


@HISTORICAL
def test_historys_signals_travel_with_data(signal: Any, refused: str) -> None:
    calls = []

    def kind(history_instance: Any, **_: Any) -> str:
        found: str = history_instance.history_type
        return found

    @recheck(name="with-data", data=kind, dispatch="worker")
    def with_data(recheck_pass: Any, instance: Any, **kwargs: Any) -> None:
        calls.append((instance, recheck_pass.data, kwargs[refused]))

    with following(with_data, signal):
        poll = Poll.objects.create(question="a")
        poll.save()
    assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert calls == [(poll, "~", None)]


def test_a_key_of_what_stayed_behind_holds() -> None:
    calls = []

    @recheck(
        name="with-data",
        key=lambda history_date, instance, **_: f"{instance.pk} {history_date:%Y}",
        data=lambda **_: None,
    )
    def with_data(recheck_pass: Any, instance: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.key, recheck_pass.gone, instance))

    with following(with_data, post_create_historical_record):
        poll = Poll.objects.create(question="a")
        poll.save()
    key = f"{poll.pk} {timezone.now():%Y}"
    assert calls == [(key, False, poll)] * 2


def test_historys_relations_of_a_row(way: Way, twins: MakeTwins) -> None:
    def places(poll_id: int) -> str:
        newest = Poll.history.filter(id=poll_id).first()
        return ", ".join(row.place.name for row in newest.places.order_by("pk")) if newest else ""

    pair = twins(places, [(m2m_changed, Poll.places.through)], own_pk)
    here, there = (Place.objects.create(name=name) for name in ("here", "there"))
    with way.block():
        poll = Poll.objects.create(question="a")
        poll.places.add(here, there)
    assert pair.agree_on([poll.pk]) == {str(poll.pk): "here, there"}
    with way.block():
        poll.places.remove(here)
    assert pair.agree_on([poll.pk]) == {str(poll.pk): "there"}
