"""The list: which state and which receiver are looked at, and how a page is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .. import receivers
from ..usable import Unusable
from .locks import Locks
from .summary import STATES, Summary


class StateFilter(admin.SimpleListFilter):
    """One state at a time: each is an index of its own."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return the states."""
        return STATES.items()

    def state(self) -> str:
        """Return the state that is looked at."""
        return self.value() if self.value() in STATES else next(iter(STATES))  # type: ignore[return-value]

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Yield the states with their numbers; there is no choice of all."""
        offered = list(super().choices(changelist))[1:]
        for state, choice in zip(STATES, offered, strict=True):
            choice["selected"] = state == self.state()
            if changelist.summary:
                number = changelist.summary.number(state)
                choice["display"] = f"{choice['display']} ({number})"
            yield choice

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the locks of the state."""
        return queryset.narrowed(state=self.state())


class ReceiverFilter(admin.SimpleListFilter):
    """One receiver, or all: those of this process, and those that Redis has items of."""

    title = _("receiver")
    parameter_name = "receiver"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return this process's receivers; which others there are is known when Redis is read."""
        return [(name, name) for name in sorted({*receivers.registry, self.value() or ""} - {""})]

    def has_output(self) -> bool:
        """Return True, though there may be nothing yet to choose from."""
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Yield the receivers."""
        known = {name for name, _ in self.lookup_choices}
        strangers = changelist.summary.strangers if changelist.summary else ()
        self.lookup_choices += [(name, name) for name in strangers if name not in known]
        return super().choices(changelist)

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the locks of the receiver."""
        return queryset.narrowed(receiver=self.value() or "")


class LockList(ChangeList):
    """A page of locks, read at once with what stands above it."""

    queryset: Locks
    summary: Summary | None = None
    problem = ""
    """Why nothing could be read."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page; if that isn't possible, it is empty."""
        size = self.list_per_page
        try:
            page = self.queryset.look(max(0, self.page_num - 1) * size, size)
            if page.count <= size and self.page_num > 1:
                page = self.queryset.look(0, size)  # there is only one page by now
        except Unusable as error:
            self.problem, self.queryset = str(error), self.queryset.none()
        else:
            tending = "pause" in self.model_admin.get_actions(request)
            self.summary = Summary(page, tending=tending)
            self.queryset = self.queryset.showing(page)
        super().get_results(request)
        self.full_result_count = None if self.query else self.result_count  # "Show all" shows these
