"""A small shop. Three things are derived in it: totals, statistics, search documents."""

from __future__ import annotations

from typing import Any

from django.db import models


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


class Order(models.Model):
    """What a customer ordered; its total is derived from its lines."""

    customer = models.ForeignKey(Customer, models.CASCADE, related_name="orders")
    placed = models.DateTimeField(auto_now_add=True)
    total = models.DecimalField(max_digits=12, decimal_places=2, default=0)

    def __str__(self) -> str:
        return f"order {self.pk}"


class OrderLine(models.Model):
    """One product in an order. A line may move to another order of the shop."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT)
    quantity = models.PositiveIntegerField(default=1)
    price = models.DecimalField(max_digits=8, decimal_places=2)

    loaded_order_id: int | None = None
    """The order that the line was in when it was read: that one's total changes, too."""

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and be where it says from then on."""
        super().save(*args, **kwargs)
        self.loaded_order_id = self.order_id

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> OrderLine:
        """Remember the order that the line was in."""
        line = super().from_db(*args, **kwargs)
        line.loaded_order_id = line.__dict__.get("order_id")
        return line
