"""Users, a receiver and its items, for the tests of the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_recheck import Receiver
from tests.status import receiver


@pytest.fixture
def totals() -> Receiver[..., Any]:
    return receiver()


@pytest.fixture
def boss(client: Client) -> Client:
    """A client who may do everything."""
    client.force_login(User.objects.create_superuser("boss"))
    return client


def staff(*permissions: str) -> Client:
    """Return the client of a member of the staff who has some permissions on locks."""
    user = User.objects.create_user("-".join(("staff", *permissions)), is_staff=True)
    names = [f"{permission}_lock" for permission in permissions]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    assert user.user_permissions.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client
