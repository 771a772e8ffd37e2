"""Serves the shop on a port, with a user of each kind, until its standard input ends."""

from __future__ import annotations

import json
import os
import sys
from threading import Thread


def main(port: str) -> None:
    """Prepare the database, print who is signed in by which session, and serve."""
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)
    print(json.dumps(signed_in()), flush=True)
    Thread(target=end_with_the_test, daemon=True).start()
    call_command("runserver", f"127.0.0.1:{port}", use_reloader=False, skip_checks=True)


def signed_in() -> dict[str, str]:
    """Make users and orders; return a session's key for each user."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import Permission, User
    from django.contrib.sessions.backends.db import SessionStore
    from shop.models import Customer, Order, Product

    customer = Customer.objects.create(name="Ada")
    Order.objects.bulk_create(Order(customer=customer) for _ in range(9))
    Product.objects.bulk_create([Product(name="Teapot", price=25), Product(name="Cup", price=7)])
    users = {
        "boss": User(username="boss", is_staff=True, is_superuser=True),
        "viewer": User(username="viewer", is_staff=True),
        "stranger": User(username="stranger", is_staff=True),
    }
    sessions = {}
    for name, user in users.items():
        user.save()
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.create()
        sessions[name] = str(session.session_key)
    users["viewer"].user_permissions.add(Permission.objects.get(codename="view_lock"))
    users["stranger"].user_permissions.add(Permission.objects.get(codename="view_order"))
    return sessions


def end_with_the_test() -> None:
    """Wait until whoever started this process is gone, or has had enough."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
