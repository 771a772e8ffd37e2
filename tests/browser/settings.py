"""The shop's settings, with a strict Content-Security-Policy and a prefix that tests clean up."""

from __future__ import annotations

import os
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from project.settings import *  # noqa: F403
from project.settings import CACHES, MIDDLEWARE, RECHECK

PREFIX = f"test-browser-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
CACHES = CACHES | {"recheck": CACHES["recheck"] | {"KEY_PREFIX": PREFIX}}
RECHECK = RECHECK | {
    "RECEIVERS": {
        "search-document": {"MAX_ATTEMPTS": 1},
        "customer-statistics": {"DELAY": 3600},
    }
}
MIDDLEWARE = ["tests.browser.settings.strict", *MIDDLEWARE]


def strict(get_response: Callable[[HttpRequest], HttpResponse]) -> object:
    """Allow nothing but what the site itself serves."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers["Content-Security-Policy"] = "default-src 'self'"
        return response

    return middleware
