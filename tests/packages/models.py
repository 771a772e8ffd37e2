"""Models in the ways of the packages, and what receivers make of them."""

from __future__ import annotations

from typing import Any

import reversion
from django.contrib.auth.models import AbstractUser
from django.db import models
from mptt.models import MPTTModel, TreeForeignKey
from simple_history.models import HistoricalRecords
from taggit.managers import TaggableManager
from treebeard.al_tree import AL_Node
from treebeard.mp_tree import MP_Node
from treebeard.ns_tree import NS_Node


class Row(models.Model):
    """A row, with a manager for mypy, which reads settings without this app."""

    objects: Any = models.Manager()

    class Meta:
        abstract = True


class Person(AbstractUser):
    """Who takes the place of Django's own user."""


class Derived(Row):
    """What a receiver has made of a key's rows."""

    who = models.CharField(max_length=20)
    key = models.CharField(max_length=100)
    value = models.TextField()


class Genre(MPTTModel):  # type: ignore[misc]
    """A node of a tree of django-mptt, among siblings in the order of their names."""

    name = models.CharField(max_length=50)
    parent = TreeForeignKey("self", models.CASCADE, null=True, related_name="children")

    class MPTTMeta:
        order_insertion_by = ("name",)


class Chapter(MP_Node):  # type: ignore[misc]
    """A node of a tree of django-treebeard, kept as materialized paths."""

    name = models.CharField(max_length=50)


class Section(NS_Node):  # type: ignore[misc]
    """The same, kept as nested sets."""

    name = models.CharField(max_length=50)


class Step(AL_Node):  # type: ignore[misc]
    """The same, kept as adjacency lists."""

    name = models.CharField(max_length=50)
    parent = models.ForeignKey("self", models.CASCADE, null=True, related_name="children")
    sib_order = models.PositiveIntegerField()


@reversion.register()
class Article(Row):
    """What django-reversion keeps versions of."""

    title = models.CharField(max_length=50)


class Poll(Row):
    """What django-simple-history keeps a history of."""

    question = models.CharField(max_length=50)
    places: Any = models.ManyToManyField("Place")
    history = HistoricalRecords(m2m_fields=[places])


class Place(Row):
    """Where polls are held."""

    name = models.CharField(max_length=50)


class Food(Row):
    """What has tags of django-taggit, and permissions of its own."""

    name = models.CharField(max_length=50)
    tags = TaggableManager()
