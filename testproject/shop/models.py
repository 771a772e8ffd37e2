"""A small shop. Three things are derived in it: totals, statistics, search documents."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models


class Belonging(models.Model):
    """A row that belongs to another and may move: it knows all those that it has been in.

    What was derived of the one that it left changes, too, and no signal tells which one that was.
    The set only grows: a save may be rolled back, or leave the foreign key out. One too many costs
    a pass; one too few leaves something stale.
    To move a row, read it in the transaction that moves it, with ``select_for_update()``.
    """

    belongs: ClassVar[str]
    """The attribute that has the other row's primary key."""

    class Meta:
        abstract = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._been_in: set[int] = set()

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and remember where the row is now."""
        super().save(*args, **kwargs)
        self._remember()

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Belonging:
        """Remember where the row was when it was read."""
        row = super().from_db(*args, **kwargs)
        row._remember()
        return row

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """Remember where the row is by now; deferred fields come this way as well."""
        super().refresh_from_db(*args, **kwargs)
        self._remember()

    def whereabouts(self) -> set[int]:
        """Return the primary keys of the row that it is in and of those that it was in."""
        self._remember()
        return set(self._been_in)

    def _remember(self) -> None:
        here = self.__dict__.get(self.belongs)  # a deferred one isn't there, and isn't read
        if here is not None:
            self._been_in.add(here)


class Customer(models.Model):
    """Who orders."""

    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class CustomerStatistics(models.Model):
    """Derived from a customer's orders."""

    customer = models.OneToOneField(Customer, models.CASCADE, related_name="statistics")
    orders = models.PositiveIntegerField(default=0)
    spent = models.DecimalField(max_digits=12, decimal_places=2, default=0)

    class Meta:
        verbose_name_plural = "customer statistics"

    def __str__(self) -> str:
        return f"{self.customer}: {self.orders} orders"


class Tag(models.Model):
    """A word that products have in common."""

    name = models.CharField(max_length=50, unique=True)

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    """What is sold."""

    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    tags = models.ManyToManyField(Tag, blank=True, related_name="products")

    def __str__(self) -> str:
        return self.name


class SearchDocument(models.Model):
    """Derived from a product and its tags: what a search looks at."""

    product = models.OneToOneField(Product, models.CASCADE, related_name="document")
    text = models.TextField()

    def __str__(self) -> str:
        return self.text[:60]


class Order(Belonging):
    """What a customer ordered; its total is derived from its lines."""

    belongs = "customer_id"

    customer = models.ForeignKey(Customer, models.CASCADE, related_name="orders")
    placed = models.DateTimeField(auto_now_add=True)
    total = models.DecimalField(max_digits=12, decimal_places=2, default=0)

    def __str__(self) -> str:
        return f"order {self.pk}"


class OrderLine(Belonging):
    """One product in an order, at the price of that time. It may move to another order."""

    belongs = "order_id"

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT)
    quantity = models.PositiveIntegerField(default=1)
    price = models.DecimalField(max_digits=8, decimal_places=2)

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product_id}"
