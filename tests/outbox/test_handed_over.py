"""Rows of an item that older code wrote under another name: they go along with it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.signals import post_delete, post_save

from django_recheck import receivers, store, views, worker
from tests.app.models import Item
from tests.settings import WORKER

from .seen import DATABASES, durable, ripen, waiting

pytestmark = pytest.mark.django_db(transaction=True, databases=list(DATABASES))


@pytest.mark.parametrize("lost", [False, True])
def test_c63_rows_go_along_with_a_renamed_receivers_item(lost: bool) -> None:
    calls: list[Any] = []
    old = durable(calls, name="old", dispatch="worker")
    item = Item.objects.create(name="a")
    text = f'{{"tests_app.item":{item.pk}}}'
    assert waiting() == {("old", text): 1}
    post_save.disconnect(old, sender=Item)
    post_delete.disconnect(old, sender=Item)
    receivers.registry.clear()
    durable(calls, name="new", former_names=["old"], dispatch="worker")
    if lost:
        client = store.current().client
        client.delete(*client.scan_iter(f"*test-{WORKER}*"))
        ripen()
    held = store.current().pause(["new"])
    worker.drain()
    assert (held, waiting()) == (True, {("new", text): 1}), "it waits under the name of today"
    store.current().pause(["new"], paused=False)
    worker.drain()
    assert calls == [(item.pk, ["post_save"], False)]
    assert waiting() == {}
    assert views.counts(store.current()) == {}
