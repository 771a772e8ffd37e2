"""The locks in Django's admin: a list, a page for each, and what people may do to them.

It has no table and no URLs of its own. To have it in another AdminSite, register it there:
``site.register(Lock, LockAdmin)``.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin import ShowFacets
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from ..models import Lock
from ..usable import Unusable
from . import actions, columns, item
from .changelist import LockList, ReceiverFilter, StateFilter
from .locks import Locks
from .wanted import lock_of, mark, marked


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What is held, owed and dead, as Redis has it."""

    list_display = columns.FOUND
    list_display_links = (columns.key,)
    actions: Any = (
        *(actions.recheck, actions.release, actions.retry, actions.delete_selected),
        *(actions.pause, actions.resume),
    )
    list_filter = (StateFilter, ReceiverFilter)
    list_per_page = 100
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    search_fields = ("key",)
    search_help_text = _('A key, such as 42, "ab" or (7, "de"); or a receiver and a key.')

    class Media:
        css = {"all": ["django_recheck/locks.css"]}  # noqa: RUF012 - as Django documents it
        js = ("django_recheck/refresh.js",)

    def get_queryset(self, request: HttpRequest) -> Locks:
        """Return the locks in Redis."""
        return Locks(self.model)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LockList]:
        """Return the class of the list."""
        return LockList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the list, under its own name."""
        title = {"title": capfirst(self.opts.verbose_name_plural)}
        return super().changelist_view(request, {**title, **(extra_context or {})})

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns that the looked-at state has."""
        if request.GET.get("q"):
            return columns.FOUND
        return columns.BY_STATE.get(request.GET.get("state", ""), columns.HELD)

    def get_ordering(self, request: HttpRequest) -> Any:
        """Return the order of the index: what ends or is owed first, or what died last."""
        return ["-moment"] if request.GET.get("state") == "dead" else ["moment"]

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        """Look a key up directly."""
        return (queryset.narrowed(typed=search_term) if search_term.strip() else queryset), False

    def action_checkbox(self, obj: Lock) -> Any:
        """Return the box that selects a lock as it stands on the page."""
        return super().action_checkbox(Lock(id=mark(obj), receiver=obj.receiver, key=obj.key))

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return a lock, or one that only says why Redis can't be used."""
        try:
            return super().get_object(request, object_id, from_field)
        except Unusable as error:
            lock = lock_of(marked(object_id)[0])
            lock.problem = str(error)
            return lock

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: Any = None,
    ) -> Any:
        """Show one item, or do what a button of its page says."""
        if object_id is None:
            raise PermissionDenied
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        found, _seen = marked(unquote(object_id))
        if not found.text:
            return HttpResponseRedirect(self._list(request, receiver=found.receiver))
        if request.method == "POST":
            return self._act(request, unquote(object_id))
        return super().changeform_view(request, object_id, form_url, extra_context)

    def _act(self, request: HttpRequest, pk: str) -> Any:
        """Do an action of the list to one item."""
        if not self.get_actions(request):
            raise PermissionDenied
        chosen = self.get_queryset(request).filter(pk=pk)
        response = self.response_action(request, queryset=chosen)
        if response is not None and "post" not in request.POST:
            return response
        gone = response is not None
        return HttpResponseRedirect(self._list(request) if gone else request.get_full_path())

    def _list(self, request: HttpRequest, **narrowed: str) -> str:
        """Return the address of the list, as it was looked at or narrowed."""
        named = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
        url = reverse(named, current_app=self.admin_site.name)
        if narrowed:
            return f"{url}?{urlencode(narrowed)}"
        kept: Any = {"preserved_filters": self.get_preserved_filters(request), "opts": self.opts}
        return add_preserved_filters(kept, url)

    def get_fieldsets(self, request: HttpRequest, obj: Lock | None = None) -> Any:
        """Return what is known of an item."""
        return item.fieldsets(obj, self.admin_site, request) if obj and not obj.problem else []

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Show one item, with the buttons that make sense."""
        lock: Lock = context["original"]
        if not lock.problem:
            context["recheck_buttons"] = item.buttons(lock, self.get_actions(request))
            context["recheck_mark"] = mark(lock)
            context["action_checkbox_name"] = ACTION_CHECKBOX_NAME
        return super().render_change_form(request, context, *args, **kwargs)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: locks are taken by passes."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        """Return whether a user may act on locks; nothing of one can be edited."""
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        """Return whether a user may discard locks, which is an action of the list."""
        return obj is None and super().has_delete_permission(request)
