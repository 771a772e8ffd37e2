"""The list: what it shows, and how it is narrowed."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_recheck import Receiver
from tests.status import held, receiver

pytestmark = pytest.mark.django_db
URL = "/admin/django_recheck/lock/"


@pytest.fixture
def totals() -> Receiver[..., Any]:
    return receiver()


@pytest.fixture
def boss(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("boss"))
    return client


def test_it_opens_on_what_is_running(totals: Receiver[..., Any], boss: Client) -> None:
    grant = held(totals)
    page = boss.get(URL).content.decode()
    assert '<span class="recheck-badge recheck-running">running</span>' in page
    assert "<bdi>7</bdi>" in page
    host, pid, _ = grant.token.rsplit(":", 2)
    assert f"<bdi>{host}:{pid}</bdi>" in page
