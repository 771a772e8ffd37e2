"""A row's values in an event: they come back as they were, and cost no query."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import pytest
from django.db import models
from django.test.utils import isolate_apps

from django_recheck import EventError, travel
from tests.app.models import Item

VALUES: dict[str, Any] = {
    "id": uuid.UUID(int=7),
    "price": decimal.Decimal("1234567890.10"),
    "day": datetime.date(2024, 2, 29),
    "moment": datetime.datetime(2024, 2, 29, 12, 30, 0, 1, tzinfo=datetime.UTC),
    "hour": datetime.time(23, 59, 59, 999999),
    "span": datetime.timedelta(days=-1, hours=2, microseconds=3),
    "ratio": 0.1,
    "big": 1234567890123456789,
    "words": {"a": [None, "ß", 1.5]},
    "nothing": None,
    "raw": b"\x00\xff",
    "scan": "scans/a.pdf",
}


@isolate_apps("tests.app")
def test_carried_values_come_back_as_they_were() -> None:
    class Odd(models.Model):
        id = models.UUIDField(primary_key=True)
        price = models.DecimalField(max_digits=12, decimal_places=2)
        day = models.DateField()
        moment = models.DateTimeField()
        hour = models.TimeField()
        span = models.DurationField()
        ratio = models.FloatField()
        big = models.BigIntegerField()
        words = models.JSONField()
        nothing = models.IntegerField(null=True)
        raw = models.BinaryField()
        scan = models.FileField()
        stock = models.IntegerField()
        shape = models.Field()

        class Meta:
            app_label = "tests_app"

    stock: Any = models.F("stock") - 1
    odd = Odd(stock=stock, shape=object(), **VALUES)
    values = travel.field_values(odd, [*VALUES, "stock"])
    row = travel.Row(Odd, "other", {**values, "no_such_field": 1}).restored()
    assert {name: getattr(row, name) for name in VALUES} == VALUES
    assert (row._state.db, row.get_deferred_fields()) == ("other", {"stock", "shape"})
    with pytest.raises(EventError, match=r"tests_app\.Odd\.shape can't be carried: object is no"):
        travel.field_values(odd, ["shape"])


@pytest.mark.django_db
def test_fields_that_are_not_loaded_cost_no_query(django_assert_num_queries: Any) -> None:
    Item.objects.create(name="a")
    item = Item.objects.only("value").get()
    with django_assert_num_queries(0):
        assert travel.field_values(item, ["name", "value"]) == {"id": item.pk, "value": 0}
