"""Models in the shapes that signals come from."""

from __future__ import annotations

import uuid

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
