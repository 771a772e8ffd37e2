"""Relations: django-taggit, groups and permissions of Django's own auth, and django-guardian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.contrib.auth.models import User as DjangosOwn
from django.contrib.auth.signals import user_logged_in
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.test import Client
from guardian.models import UserObjectPermission
from guardian.shortcuts import assign_perm, get_perms, remove_perm
from taggit.models import Tag, TaggedItem

from django_recheck import recheck

from .models import Derived, Food
from .twins import Twins, Way, following

pytestmark = pytest.mark.django_db(transaction=True)
User: Any = get_user_model()
MakeTwins = Callable[..., Twins]


def own_pk(instance: Any, **_: Any) -> list[Any]:
    return [instance.pk]


# django-taggit


def tags(food_id: int) -> str:
    """Return the tags of a food."""
    food = Food.objects.filter(pk=food_id).first()
    return ", ".join(sorted(food.tags.names())) if food else ""


def test_taggit_tags_of_a_row(way: Way, twins: MakeTwins) -> None:
    pair = twins(tags, [(m2m_changed, TaggedItem)], own_pk)
    with way.block():
        apple, pear = Food.objects.create(name="apple"), Food.objects.create(name="pear")
        apple.tags.add("red", "sweet")
        pear.tags.set(["green", "sweet"])
    pks = [apple.pk, pear.pk]
    assert list(pair.agree_on(pks).values()) == ["red, sweet", "green, sweet"]
    with way.block():
        apple.tags.remove("red")
        apple.tags.add("ripe")
        pear.tags.set(["soft"])
    assert list(pair.agree_on(pks).values()) == ["ripe, sweet", "soft"]
    with way.block():
        apple.tags.clear()
    assert list(pair.agree_on(pks).values()) == ["soft"]


def test_taggit_a_deleted_tag_or_row_is_told_by_the_rows_between(
    way: Way, twins: MakeTwins
) -> None:
    def tagged(instance: Any, **_: Any) -> list[Any]:
        return [instance.object_id]

    pair = twins(
        tags, [(post_save, TaggedItem), (post_delete, TaggedItem)], tagged, key="object_id"
    )
    with way.block():
        apple, pear = Food.objects.create(name="apple"), Food.objects.create(name="pear")
        apple.tags.add("red", "sweet")
        pear.tags.add("sweet")
    pks = [apple.pk, pear.pk]
    assert list(pair.agree_on(pks).values()) == ["red, sweet", "sweet"]
    with way.block():
        Tag.objects.get(name="sweet").delete()
    assert list(pair.agree_on(pks).values()) == ["red"]
    with way.block():
        Food.objects.filter(pk=apple.pk).delete()
    assert pair.agree_on(pks) == {}


# Django's auth


def rights(user_id: int) -> str:
    """Return what a user may do through groups."""
    found = Permission.objects.filter(group__user=user_id).order_by("codename")
    return ", ".join(found.values_list("codename", flat=True).distinct())


def members(instance: Any, reverse: bool, pk_set: Any, **_: Any) -> Any:
    """Return the users whom a change of ``User.groups`` concerns, as Django tells it."""
    return (pk_set or ()) if reverse else [instance.pk]


def holders(instance: Any, reverse: bool, pk_set: Any, **_: Any) -> Any:
    """Return the users whom a change of ``Group.permissions`` concerns."""
    groups = (pk_set or ()) if reverse else [instance.pk]
    return list(User.objects.filter(groups__in=groups).values_list("pk", flat=True).distinct())


@pytest.mark.parametrize("options", [{}, {"keys": members}], ids=["row", "callable"])
def test_auth_members_of_groups_from_both_sides(way: Way, twins: MakeTwins, options: Any) -> None:
    def groups(user_id: int) -> str:
        found = Group.objects.filter(user=user_id).order_by("name")
        return ", ".join(found.values_list("name", flat=True))

    pair = twins(groups, [(m2m_changed, User.groups.through)], members, **options)
    ann, bob = (User.objects.create(username=name) for name in ("ann", "bob"))
    staff, boss = (Group.objects.create(name=name) for name in ("staff", "boss"))
    pks = [ann.pk, bob.pk]
    with way.block():
        ann.groups.add(staff)
        boss.user_set.add(ann, bob)
    assert list(pair.agree_on(pks).values()) == ["boss, staff", "boss"]
    with way.block():
        boss.user_set.remove(ann)
        bob.groups.set([staff])
    assert list(pair.agree_on(pks).values()) == ["staff", "staff"]
    with way.block():
        boss.user_set.set([bob])
        ann.groups.clear()
    assert list(pair.agree_on(pks).values()) == ["boss, staff"]
    with way.block():
        staff.user_set.clear()
    assert pair.found("rechecked") == {str(bob.pk): "boss"}
    assert pair.found("plain") == {str(bob.pk): "boss, staff"}, "Django says nothing of whom"


def test_auth_permissions_of_groups_from_both_sides(way: Way, twins: MakeTwins) -> None:
    pair = twins(rights, [(m2m_changed, Group.permissions.through)], holders, keys=holders)
    ann, bob = (User.objects.create(username=name) for name in ("ann", "bob"))
    staff = Group.objects.create(name="staff")
    staff.user_set.add(ann, bob)
    add, change = (
        Permission.objects.get(codename=f"{verb}_food", content_type__app_label="tests_packages")
        for verb in ("add", "change")
    )
    pks = [ann.pk, bob.pk]
    with way.block():
        staff.permissions.add(add)
        change.group_set.add(staff)
    assert list(pair.agree_on(pks).values()) == ["add_food, change_food"] * 2
    with way.block():
        staff.permissions.set([change])
    assert list(pair.agree_on(pks).values()) == ["change_food"] * 2
    with way.block():
        change.group_set.remove(staff)
    assert pair.agree_on(pks) == {}


def test_auth_a_user_model_of_ones_own(way: Way, twins: MakeTwins) -> None:
    def name(pk: int) -> str:
        return "".join(User.objects.filter(pk=pk).values_list("username", flat=True))

    pair = twins(
        name,
        [(post_save, settings.AUTH_USER_MODEL), (post_delete, settings.AUTH_USER_MODEL)],
        own_pk,
    )
    with way.block():
        ann, bob = (User.objects.create(username=name) for name in ("ann", "bob"))
        DjangosOwn(username="nobody's")  # swapped out: it has no table
    pks = [ann.pk, bob.pk]
    assert list(pair.agree_on(pks).values()) == ["ann", "bob"]
    with way.block():
        ann.delete()
        bob.username = "rob"
        bob.save()
    assert list(pair.agree_on(pks).values()) == ["rob"]


def test_auth_a_user_model_of_ones_own_logs_in() -> None:
    calls = []

    @recheck(name="login")
    def login(recheck_pass: Any, **kwargs: Any) -> None:
        calls.append((recheck_pass.item.text, kwargs["sender"], kwargs["user"]))

    ann = User.objects.create_user("ann")
    with following(login, user_logged_in):
        Client().force_login(ann)
    assert calls == [(f'{{"tests_packages.person":{ann.pk}}}', User, ann)]


def test_auth_what_was_rolled_back_is_no_event(way: Way, twins: MakeTwins) -> None:
    pair = twins(tags, [(m2m_changed, TaggedItem), (post_save, Food)], own_pk)
    with way.block():
        apple = Food.objects.create(name="apple")
        apple.tags.add("red")
        with transaction.atomic():
            apple.tags.add("sweet")
            pear = Food.objects.create(name="pear")
            pear.tags.add("green")
            transaction.set_rollback(True)
    pks = [apple.pk, pear.pk]
    assert pair.agree_on(pks) == {str(apple.pk): "red"}
    assert not Derived.objects.filter(value__contains="sweet").exists()


# django-guardian


def allowed(key: tuple[int, str]) -> str:
    """Return what users may do with a food; its key is its content type and its own."""
    found = Food.objects.filter(pk=key[1]).first()
    if found is None:
        return ""
    users = User.objects.order_by("username")
    said = {user.username: ", ".join(sorted(get_perms(user, found))) for user in users}
    return "; ".join(f"{name}: {perms}" for name, perms in said.items() if perms)


def of_the_object(instance: Any, **_: Any) -> Any:
    """Return the key of the object: its own key as text, which is a number until it is saved."""
    return (instance.content_type_id, str(instance.object_pk))


def test_guardian_permissions_for_an_object(way: Way, twins: MakeTwins) -> None:
    pair = twins(
        allowed,
        [(post_save, UserObjectPermission), (post_delete, UserObjectPermission)],
        lambda **kwargs: [of_the_object(**kwargs)],
        key=of_the_object,
    )
    ann, bob = (User.objects.create(username=name) for name in ("ann", "bob"))
    apple, pear = Food.objects.create(name="apple"), Food.objects.create(name="pear")
    kind = ContentType.objects.get_for_model(Food).pk
    keys = [(kind, str(food.pk)) for food in (apple, pear)]
    with way.block():
        assign_perm("view_food", ann, apple)
        assign_perm("change_food", ann, apple)
        assign_perm("tests_packages.view_food", bob, apple)
        assign_perm("view_food", bob, pear)
    assert list(pair.agree_on(keys).values()) == [
        "ann: change_food, view_food; bob: view_food",
        "bob: view_food",
    ]
    with way.block():
        remove_perm("view_food", ann, apple)
        bob.delete()
    assert list(pair.agree_on(keys).values()) == ["ann: change_food"]


def test_guardian_permissions_in_bulk_need_recheck_many(way: Way, twins: MakeTwins) -> None:
    pair = twins(
        allowed,
        [(post_save, UserObjectPermission), (post_delete, UserObjectPermission)],
        lambda **kwargs: [of_the_object(**kwargs)],
        key=of_the_object,
    )
    ann = User.objects.create(username="ann")
    foods = [Food.objects.create(name=name) for name in ("apple", "pear")]
    with way.block():
        assign_perm("view_food", ann, Food.objects.all())
        pair.rechecked.recheck_many(UserObjectPermission.objects.all())
    assert pair.found("plain") == {}
    kind = ContentType.objects.get_for_model(Food).pk
    keys = [(kind, str(food.pk)) for food in foods]
    assert pair.found("rechecked") == {str(key): "ann: view_food" for key in keys}
