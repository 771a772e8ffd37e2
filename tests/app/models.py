"""Models in the shapes that signals come from."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models


class Group(models.Model):
    """What items belong to."""

    name = models.CharField(max_length=50)
    total = models.IntegerField(default=0)


class Item(models.Model):
    """A row of a group."""

    group = models.ForeignKey(Group, models.CASCADE, null=True)
    name = models.CharField(max_length=50)
    value = models.IntegerField(default=0)


class ProxyItem(Item):
    """The same rows under another class."""

    class Meta:
        proxy = True


class Child(Group):
    """A group with a table of its own below."""

    extra = models.IntegerField(default=0)


class Named(models.Model):
    """A row whose key is a UUID."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    items = models.ManyToManyField(Item)


class Watched(models.Model):
    """Remembers what it was read with, as change trackers do."""

    name = models.CharField(max_length=50)
    value = models.IntegerField(default=0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.old = (self.name, self.value)


class GrandChild(Child):
    """A child's child: three tables."""

    more = models.IntegerField(default=0)


class Priced(models.Model):
    """A row whose key is a decimal."""

    price = models.DecimalField(max_digits=8, decimal_places=2, primary_key=True)


class Seat(models.Model):
    """A row whose key is made of two columns."""

    pk = models.CompositePrimaryKey("hall", "number")
    hall = models.UUIDField()
    number = models.IntegerField()
    taken = models.BooleanField(default=False)


class Friend(models.Model):
    """Friendship holds for both."""

    name = models.CharField(max_length=50)
    friends = models.ManyToManyField("self")
    follows = models.ManyToManyField("self", symmetrical=False, related_name="followers")


class Team(models.Model):
    """Has members, in a table of its own making, and is known there by its code."""

    group = models.ForeignKey(Group, models.CASCADE, null=True)
    code = models.CharField(max_length=10, unique=True)
    members = models.ManyToManyField(Friend, through="Membership")


class Membership(models.Model):
    """Who is in a team."""

    friend = models.ForeignKey(Friend, models.CASCADE)
    team = models.ForeignKey(Team, models.CASCADE, to_field="code")


class Remote(models.Model):
    """What another place keeps under a key, with the fence of its last write."""

    key = models.IntegerField(unique=True)
    value = models.IntegerField()
    fence = models.BigIntegerField()


class Owned(models.Model):
    """What belongs to a group: no table of its own."""

    group = models.ForeignKey(Group, models.CASCADE)
    name = models.CharField(max_length=50)
    labels = GenericRelation("Label", "number", "kind")

    class Meta:
        abstract = True


class Note(Owned):
    """One thing that is owned."""


class Photo(Owned):
    """Another."""


class Label(models.Model):
    """Sticks to a row of any model."""

    text = models.CharField(max_length=50)
    # Without a constraint, as this app's tables are made before those of apps with migrations.
    kind = models.ForeignKey(ContentType, models.CASCADE, db_constraint=False)
    number = models.PositiveBigIntegerField()
    target = GenericForeignKey("kind", "number")


class ByCode(models.Manager["Country"]):
    """Finds countries by their codes."""

    def get_by_natural_key(self, code: str) -> Country:
        """Return the country of a fixture."""
        return self.get(code=code)


class Country(models.Model):
    """What fixtures know by its code."""

    code = models.CharField(max_length=2, unique=True)
    objects = ByCode()

    def natural_key(self) -> tuple[str]:
        """Return what stands for the key in a fixture."""
        return (self.code,)


class City(models.Model):
    """What refers to one that fixtures know by its code."""

    name = models.CharField(max_length=50)
    country = models.ForeignKey(Country, models.CASCADE, null=True)
