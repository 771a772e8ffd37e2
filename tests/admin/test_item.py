"""One item's page: all of its record, only read, whatever stands in Redis."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models.signals import post_save
from django.dispatch import receiver as connect
from django.test import Client
from shop.models import Customer, Order

from django_recheck import Receiver, recheck, store, worker
from django_recheck.keys import dumps
from django_recheck.records import Item, pack
from tests.admin.conftest import staff
from tests.admin.pages import LIST, address, dead, does, field, marks, seen, words
from tests.status import EVENT, held

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = (
    '"a/../b?c#d&e=f"',
    '"<script>alert(1)</script>"',
    '"50% \\"of\\" it"',
    '"it\'s {{ 7 }} %(x)s %s"',
    '"\\u202eright to left"',
    '"_5F_2F"',
    '[7,"de"] "other" {"schema":"a b"}',
    "no JSON at all",
    "line\nline\r\nand \r \x00 \x1b[31m \x7f %41",
    " starts and ends ",
    "ünïcödé 鍵 \U0001f511",
    "..",
    "=a mark",
)


def test_all_of_the_record_is_shown(totals: Receiver[..., Any], boss: Client) -> None:
    grant = held(totals)
    totals.recheck_many([7])
    said = words(seen(boss, address()))
    for text in (
        "State: running, flagged",
        "Receiver: totals",
        "Key: 7",
        "and one more follows.",
        "It would flag the holder, which then goes again.",
        "Lease left: 30 s",
        "Pass: 1",
        "Events of this pass: 3",
        f"Owner token: {grant.token}",
        f"Fence: {grant.fence}",
        "Events waiting: 1",
        "First event that waits:",
        "Attempts: 0",
        "Events worked on: post_save of shop.order (created)",
        "Events that wait: asked for by hand",
    ):
        assert text in said


def test_the_last_error_is_shown_with_its_traceback(
    totals: Receiver[..., Any], boss: Client
) -> None:
    dead(totals)
    said = words(seen(boss, address("13")))
    assert "Given up (attempts: 2), until a new event, or a person." in said
    assert "ValueError: no order 13" in said
    assert "Traceback (most recent call last)" in said
    assert "raise ValueError(" in said


def test_errors_are_text_and_hold_no_password(boss: Client) -> None:
    @recheck(name="loud", key="order_id")
    def loud(sender: Any, **kwargs: Any) -> None:
        raise ValueError("<b>\x1b[2J</b> redis://:hunter2@host/0")

    loud.recheck_many([1])
    worker.drain()
    page = seen(boss, address("1", "loud"))
    assert "&lt;b&gt;\\x1b[2J&lt;/b&gt;" in page
    assert "hunter2" not in page
    assert "<b>" not in page


def test_nothing_on_it_can_be_edited(totals: Receiver[..., Any], boss: Client) -> None:
    held(totals)
    page = seen(boss, address())
    assert field(page, "action") == ["recheck", "release", "pause"]
    assert not field(page, "key")
    assert not field(page, "_save")
    assert "deletelink" not in page
    for url in (address(view="delete"), f"{LIST}add/"):
        assert boss.get(url).status_code == boss.post(url).status_code == 403


@pytest.mark.parametrize("text", HOSTILE)
def test_any_key_works_in_an_address(totals: Receiver[..., Any], boss: Client, text: str) -> None:
    held(totals, text)
    page = seen(boss)
    assert f'href="{address(text)}"' in unescape(page), "the list leads there"
    assert "<script>alert" not in page
    page = seen(boss, address(text))
    assert "<script>alert" not in page
    assert "State: running" in words(page)
    assert not any(each in mark for mark in marks(page) for each in "\r\n\0"), "forms change those"
    assert does(boss, "release", address(text)).startswith("1 lock is released.")
    assert "Released the lock." in words(seen(boss, address(text, view="history")))
    assert boss.get("/admin/").status_code == 200, "it stands among the recent actions"


def test_any_receiver_works_in_an_address(totals: Receiver[..., Any], boss: Client) -> None:
    for name in ("app.views:<locals>.f", "a b%20/c", "<i>é", "="):
        store.current().request(Item(name, "1"), EVENT, 1, totals.options)
        page = seen(boss, address("1", name))
        assert "<i>" not in page
        assert "It has no next event here" in words(page)
        assert does(boss, "pause", address("1", name)).startswith("1 receiver is paused")


def test_what_is_not_there_leads_elsewhere_and_says_so(boss: Client) -> None:
    response = boss.get(address("1", "nobody"))
    assert response["Location"] == "/admin/"
    (said,) = boss.get("/admin/").context["messages"]
    assert "“nobody 1” doesn" in str(said)
    assert "Perhaps it was deleted?" in str(said)


def test_a_broken_record_is_shown_as_such(totals: Receiver[..., Any], boss: Client) -> None:
    held(totals)
    current = store.current()
    current.client.hset(current.lane("totals", 0).keys[0], "7", b"1 <b>\xff")
    said = words(seen(boss, address()))
    assert "State: running problem" in said
    assert "Its record can't be used: The record is broken: its head can't be read." in said
    for body in (b"nonsense", b"4:[[[[1:c0:0:", b'21:["post_save","","x.y"]0:0:5:[[[[['):
        record = b"1 - 0" + b" 0" * 11 + b"\n0:0:%d:%s" % (len(body), body)
        current.client.hset(current.lane("totals", 0).keys[0], "7", record)
        assert "Events that wait: They can't be read" in words(seen(boss, address()))


@pytest.mark.parametrize("values", [{}, {"id": "x"}, {"id": []}, {"id": {}}, [], 7, None])
def test_an_event_of_no_row_leads_nowhere(
    totals: Receiver[..., Any], boss: Client, values: Any
) -> None:
    body = dumps(["shop.order", values, {}, {}, None]).encode()
    event = pack([b'["post_save","","shop.order"]', b"c", b"", body])
    store.current().request(Item("totals", "7"), event, 1, totals.options)
    assert "State: running" in words(seen(boss, address()))


@pytest.fixture
def followed() -> Order:
    """Return an order that has an event waiting."""

    @connect(post_save, sender=Order)
    @recheck(name="statistics", key="customer_id", dispatch="worker")
    def statistics(sender: Any, **kwargs: Any) -> None: ...

    customer = Customer.objects.create(name="<i>Ann")
    return Order.objects.create(customer=customer)


def test_it_leads_to_the_object_of_its_event(followed: Order, boss: Client) -> None:
    page = seen(boss, address(str(followed.customer_id), "statistics"))
    link = f'<a href="/admin/shop/order/{followed.pk}/change/">order: order {followed.pk}</a>'
    assert link in page
    assert f"post_save of shop.order id={followed.pk} (created)" in words(page)
    url = address(str(followed.customer_id), "statistics")
    Order.objects.all().delete()
    assert "order: order" not in words(seen(boss, url)), "it is gone"


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_it_does_not_lead_to_another_databases_row(followed: Order, boss: Client) -> None:
    """There is one of the same primary key in the database that the admin shows."""
    customer = Customer.objects.using("other").create(pk=followed.customer_id, name="Bob")
    Order.objects.using("other").create(pk=followed.pk, customer=customer)
    url = address(f'{customer.pk} "other"', "statistics")
    page = words(seen(boss, url))
    assert f"post_save of shop.order id={followed.pk}" in page
    assert "order: order" not in page


def test_it_leads_nowhere_that_the_user_may_not_go(followed: Order) -> None:
    client = staff("view")
    url = address(str(followed.customer_id), "statistics")
    assert "order: order" not in words(seen(client, url))
    user = User.objects.get(username="staff-view")
    user.user_permissions.add(Permission.objects.get(codename="view_order"))
    assert "order: order" in words(seen(client, url))
