"""Trees: django-mptt and django-treebeard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from mptt.signals import node_moved
from treebeard import mp_tree, ns_tree

from django_recheck import Outcome, recheck, worker
from django_recheck.keys import dumps

from .models import Chapter, Genre, Section, Step
from .twins import Twins, Way, following

pytestmark = pytest.mark.django_db(transaction=True)
MakeTwins = Callable[..., Twins]


def own_pk(instance: Any, **_: Any) -> list[Any]:
    return [instance.pk]


# django-mptt


def path(pk: int) -> str:
    """Return the names from a genre's root to itself."""
    names = []
    node: Genre | None = Genre.objects.filter(pk=pk).first()
    if node:
        names = [parent.name for parent in node.get_ancestors(include_self=True)]
    return "/".join(names)


def shelf(pk: int) -> str:
    """Return the children of a genre, in their order."""
    node = Genre.objects.filter(pk=pk).first()
    return f"[{', '.join(child.name for child in node.get_children())}]" if node else ""


def genres() -> tuple[Any, Any, Any, Any]:
    """Make music with rock and jazz, and punk below rock."""
    music = Genre.objects.create(name="music")
    rock = Genre.objects.create(name="rock", parent=music)
    jazz = Genre.objects.create(name="jazz", parent=music)
    return music, rock, jazz, Genre.objects.create(name="punk", parent=rock)


def test_mptt_rows_made_renamed_moved_and_deleted(way: Way, twins: MakeTwins) -> None:
    pair = twins(path, [(post_save, Genre), (post_delete, Genre)], own_pk)
    with way.block():
        made = genres()
    pks = [genre.pk for genre in made]
    assert list(pair.agree_on(pks).values()) == [
        "music",
        "music/rock",
        "music/jazz",
        "music/rock/punk",
    ]
    with way.block():
        _, rock, jazz, punk = (Genre.objects.get(pk=pk) for pk in pks)
        punk.move_to(jazz)
        rock.name = "rock'n'roll"
        rock.save()
    assert pair.agree_on(pks)[str(punk.pk)] == "music/jazz/punk"
    with way.block():
        punk = Genre.objects.get(pk=punk.pk)
        punk.parent = None
        punk.save()
    assert pair.agree_on(pks)[str(punk.pk)] == "punk"
    with way.block():
        Genre.objects.get(pk=pks[0]).delete()
    assert pair.agree_on(pks) == {str(punk.pk): "punk"}


def parents(instance: Any, **_: Any) -> set[Any]:
    """Return the parent, and the one before a move, which only who moves it knows."""
    return {instance.parent_id, getattr(instance, "was_below", None)} - {None}


def test_mptt_both_shelves_of_a_moved_node(way: Way, twins: MakeTwins) -> None:
    pair = twins(shelf, [(post_save, Genre), (post_delete, Genre)], parents, keys=parents)
    with way.block():
        music, rock, jazz, punk = genres()
    above = [music.pk, rock.pk, jazz.pk]
    with way.block():
        punk = Genre.objects.get(pk=punk.pk)
        punk.was_below, punk.parent = punk.parent_id, jazz
        punk.save()
    found = pair.found("rechecked")
    assert (
        found
        == pair.found("plain")
        == dict(zip(map(str, above), ["[jazz, rock]", "[]", "[punk]"], strict=True))
    )
    with way.block():
        Genre.objects.get(pk=punk.pk).delete()
    assert list(pair.agree_on(above).values()) == ["[jazz, rock]", "[]", "[]"]


@pytest.mark.parametrize("followed", [[node_moved], [node_moved, post_save]])
def test_mptt_tells_of_a_move_before_it_is_written(followed: list[Any]) -> None:
    seen = []

    @recheck(name="moved")
    def moved(sender: Any, instance: Any, **kwargs: Any) -> None:
        seen.append(instance.parent_id)

    _, _, jazz, punk = genres()
    with following(moved, *followed):
        punk = Genre.objects.get(pk=punk.pk)
        before = punk.parent_id
        punk.parent = Genre.objects.get(pk=jazz.pk)
        punk.save()
        assert seen == [before, jazz.pk][: len(followed)]
        seen.clear()
        with transaction.atomic():
            punk.parent = Genre.objects.get(pk=before)
            punk.save()
        assert seen == [before]


def test_mptt_arguments_of_a_move_arrive() -> None:
    calls = []

    @recheck(name="moved", dispatch="worker")
    def moved(**kwargs: Any) -> None:
        calls.append(kwargs)

    _, _, jazz, punk = genres()
    with following(moved, node_moved):
        Genre.objects.get(pk=punk.pk).move_to(Genre.objects.get(pk=jazz.pk), "left")
        worker.drain()
    (call,) = calls
    assert (call["signal"], call["sender"], call["instance"]) == (node_moved, Genre, punk)
    assert (call["target"], call["position"]) == (jazz, "left")
    assert call["instance"].parent_id == jazz.parent_id


def test_mptt_updates_that_are_delayed_need_recheck_many(way: Way, twins: MakeTwins) -> None:
    pair = twins(path, [(post_save, Genre)], own_pk)
    with way.block():
        with Genre.objects.delay_mptt_updates():
            pks = [genre.pk for genre in genres()]
        pair.rechecked.recheck_many(Genre.objects.all())  # the tree was rebuilt without signals
    assert pair.found("rechecked") == {str(pk): path(pk) for pk in pks}


# django-treebeard


def outline(pk: int, model: Any) -> str:
    """Return the names from a node's root to itself."""
    node = model.objects.filter(pk=pk).first()
    return "/".join(n.name for n in [*model.objects.get_ancestors(node), node]) if node else ""


def added(model: Any) -> list[Any]:
    """Make book with one and two, and a below one."""
    rows = model.objects
    book = rows.add_root({"name": "book"})
    one = rows.add_child(book, {"name": "one"})
    two = rows.add_child(rows.get(pk=book.pk), {"name": "two"})
    return [book, one, two, rows.add_child(rows.get(pk=one.pk), {"name": "a"})]


def move(model: Any, node: Any, target: Any, where: str) -> None:
    """Move a node, both read again as they are now."""
    rows = model.objects
    rows.move(rows.get(pk=node.pk), rows.get(pk=target.pk), where)


@pytest.mark.parametrize("model", [Chapter, Section, Step])
def test_treebeard_nodes_added_renamed_and_deleted(way: Way, twins: MakeTwins, model: Any) -> None:
    pair = twins(lambda pk: outline(pk, model), [(post_save, model), (post_delete, model)], own_pk)
    with way.block():
        pks = [node.pk for node in added(model)]
    assert list(pair.agree_on(pks).values()) == ["book", "book/one", "book/two", "book/one/a"]
    with way.block():
        two = model.objects.get(pk=pks[2])
        two.name = "second"
        two.save()
    assert pair.agree_on(pks)[str(pks[2])] == "book/second"
    with way.block():
        model.objects.get(pk=pks[1]).delete()
    assert list(pair.agree_on(pks).values()) == ["book", "book/second"]


def roots(old_path: str, new_path: str, **_: Any) -> set[str]:
    return {path[: Chapter.steplen] for path in (old_path, new_path)}


def contents(root: str) -> str:
    """Return the names in the tree below a root's path."""
    return " ".join(Chapter.objects.filter(path__startswith=root).values_list("name", flat=True))


def test_treebeard_moves_of_paths_are_told_by_its_own_signal(way: Way, twins: MakeTwins) -> None:
    book, one, _, a = added(Chapter)
    other = Chapter.objects.add_root({"name": "other"})
    pair = twins(contents, [(mp_tree.path_updated, Chapter)], roots, keys=roots)
    with way.block():
        move(Chapter, a, other, "last-child")
    both = [book.path, other.path]
    assert pair.agree_on(both) == {book.path: "book one two", other.path: "other a"}
    with way.block():
        move(Chapter, one, other, "first-child")
    assert pair.agree_on(both) == {book.path: "book two", other.path: "other one a"}


def test_treebeard_moves_of_adjacency_lists_are_saves(way: Way, twins: MakeTwins) -> None:
    *_, two, a = added(Step)
    pair = twins(lambda pk: outline(pk, Step), [(post_save, Step)], own_pk)
    with way.block():
        move(Step, a, two, "first-child")
    assert pair.agree_on([a.pk]) == {str(a.pk): "book/two/a"}


@pytest.mark.parametrize(
    ("signal", "model"),
    [(mp_tree.nodes_deleted, Chapter), (ns_tree.nodes_deleted, Section)],
    ids=["paths", "sets"],
)
def test_treebeards_deletions_of_trees_travel(signal: Any, model: Any) -> None:
    calls = []

    @recheck(name="deleted", key=lambda **_: "all", dispatch="worker")
    def deleted(**kwargs: Any) -> None:
        calls.append(kwargs)

    pks = [node.pk for node in added(model)]
    sent: list[dict[str, Any]] = []

    def plain(**kwargs: Any) -> None:
        sent.append(kwargs)

    with following(deleted, signal), following(plain, signal):
        model.objects.get(pk=pks[1]).delete()
        assert worker.drain().outcomes == {Outcome.RAN: 1}
    assert [(call["signal"], call["sender"]) for call in calls] == [(signal, model)]
    as_json = {name: dumps(value) for name, value in sent[0].items() if "remove" in name}
    assert as_json
    assert {name: dumps(calls[0][name]) for name in as_json} == as_json
