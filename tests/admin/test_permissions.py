"""Who may see locks and do what (C53): nothing is open to every member of the staff."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_recheck import Receiver, store, views
from tests.admin.conftest import staff
from tests.admin.pages import LIST, act, address, dead, does, field, marks, seen
from tests.status import held

pytestmark = pytest.mark.django_db
NEEDS = {
    "recheck": "change",
    "release": "change",
    "retry": "change",
    "delete_selected": "delete",
    "pause": "change",
    "resume": "change",
}
"""By action, the permission that it takes."""


def counted(receiver: str = "totals") -> views.Counts | None:
    return views.counts(store.current()).get(receiver)


def test_there_are_three_permissions() -> None:
    found = Permission.objects.filter(content_type__app_label="django_recheck")
    assert set(found.values_list("codename", flat=True)) == {
        "view_lock",
        "change_lock",
        "delete_lock",
    }


@pytest.mark.parametrize("url", [LIST, address(), address(view="history"), address("1", "nobody")])
def test_who_has_no_permission_sees_nothing(
    totals: Receiver[..., Any], client: Client, url: str
) -> None:
    held(totals)
    mark = f"={'0' * 40} totals 7"
    data = {"action": "release", "_selected_action": mark}
    others = staff()
    assert others.get(url).status_code == others.post(url, data).status_code == 403
    assert "locks" not in others.get("/admin/").content.decode().lower()
    for stranger in (client, Client()):
        response = stranger.get(url)
        assert response.status_code == 302
        assert response["Location"].startswith("/admin/login/")
    client.force_login(User.objects.create_user("customer"))
    assert client.post(url, data)["Location"].startswith("/admin/login/")
    found = counted()
    assert found is not None
    assert found.running == 1


def test_who_may_only_delete_must_also_look(totals: Receiver[..., Any], boss: Client) -> None:
    held(totals)
    clerk = staff("delete")
    for url in (LIST, address(), address("")):
        assert clerk.get(url).status_code == 403
        assert act(clerk, "delete_selected", seen(boss), url, post="yes").status_code == 403


def test_who_may_only_look_can_do_nothing(totals: Receiver[..., Any], boss: Client) -> None:
    held(totals)
    viewer = staff("view")
    for url in (LIST, f"{LIST}?receiver=totals", address()):
        page = seen(viewer, url)
        assert not field(page, "action")
        assert not field(page, "_selected_action")
        chosen = seen(boss, url)
        for action in NEEDS:
            for more in ({}, {"post": "yes"}, {"select_across": "1", "as_of": "9e9"}):
                response = act(viewer, action, chosen, url, **more)
                assert response.status_code == (
                    200 if url.startswith(LIST + "?") or url == LIST else 403
                )
    found = counted()
    assert found is not None
    assert (found.running, found.paused) == (1, False)


@pytest.mark.parametrize("permission", ["change", "delete"])
def test_each_action_takes_its_own_permission(
    totals: Receiver[..., Any], boss: Client, permission: str
) -> None:
    held(totals)
    clerk = staff("view", permission)
    for url in (LIST, address()):
        page = seen(clerk, url)
        offered = set(field(page, "action")) if url != LIST else options(page)
        may = {action for action, needed in NEEDS.items() if needed == permission}
        assert offered <= may
        for action in NEEDS.keys() - may:
            assert does(clerk, action, url, seen(boss, url), post="yes") == "No action selected."
    found = counted()
    assert found is not None
    assert (found.running, found.paused) == (1, False)


def options(page: str) -> set[str]:
    """Return the actions that a list offers."""
    return {action for action in NEEDS if f'<option value="{action}">' in page}


def test_a_list_offers_what_is_allowed(totals: Receiver[..., Any], boss: Client) -> None:
    held(totals)
    assert options(seen(boss)) == set(NEEDS)
    assert options(seen(staff("view", "delete"))) == {"delete_selected"}


@pytest.mark.django_db(transaction=True)
def test_who_may_delete_discards(totals: Receiver[..., Any]) -> None:
    dead(totals)
    clerk = staff("view", "delete")
    assert field(seen(clerk, address("13")), "action") == ["delete_selected"]
    said = does(clerk, "delete_selected", f"{LIST}?state=dead", post="yes")
    assert said == "1 lock is discarded, with its events."


def test_nothing_is_done_by_looking(totals: Receiver[..., Any], boss: Client) -> None:
    """Actions are POST only, and nobody else's page can make them."""
    held(totals)
    for url in (LIST, address()):
        mark = marks(seen(boss, url))[0]
        data = {"action": "release", "_selected_action": mark, "index": "0", "post": "yes"}
        assert boss.get(url, data).status_code in (200, 302)
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(User.objects.get(username="boss"))
        assert strict.post(url, data).status_code == 403
        (token, *_rest) = field(seen(strict, url), "csrfmiddlewaretoken")
        assert counted() == views.Counts(running=1)
        assert strict.post(url, {**data, "csrfmiddlewaretoken": token}).status_code == 302
        assert counted() != views.Counts(running=1)
        store.current().discard(
            [(v.item, v.seen) for v in views.page(store.current(), "totals", "due")]
        )
        held(totals)
