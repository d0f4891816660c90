"""Django's admin for the long tail: everything to look at, nothing to change.

1. It has its own site, so that what other packages register on the default one (users, tokens)
   is not reachable: a change there would pass by permissions, revisions and audit.
2. It knows no adding, changing or deleting; the console and the API do that. Passwords, signing in
   and out are the console's too.
3. A table may be endless: no page counts it or reads what it does not show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db import models
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.http import urlencode

from tenants.gate import viewer_of

MOST = 10_000  # rows that can be paged through


class ReadOnlySite(admin.AdminSite):
    site_header = site_title = "Fairlane"
    index_title = "All tables, to look at; changes are made in the console"
    site_url = "/"

    def has_permission(self, request: HttpRequest) -> bool:
        who = viewer_of(request.user)
        return who is not None and who.role == "admin"

    def login(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The console's login page serves here too."""
        following = request.GET.get("next", reverse("admin:index"))
        return redirect(f"{reverse('login')}?{urlencode({'next': following})}")

    def password_change(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The console's page leaves an audit entry; Django's would not."""
        return redirect("account-password")

    password_change_done = password_change

    def logout(self, request: HttpRequest, extra_context: Any = None) -> Any:
        return redirect("account")


site = ReadOnlySite(name="admin")


if TYPE_CHECKING:  # generic for the type checker only
    ModelAdmin = admin.ModelAdmin[models.Model]
    Pages = Paginator[models.Model]
else:
    ModelAdmin = admin.ModelAdmin
    Pages = Paginator


class Bounded(Pages):
    """Whoever is past a hundred pages wants to search."""

    @cached_property
    def count(self) -> int:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return rows[:MOST].count()


class ReadOnly(ModelAdmin):
    list_per_page = 100
    show_full_result_count = False  # counting a table of millions takes longer than a page may
    actions = None
    paginator = Bounded
    related: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    kind, key = "", ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).defer(*self.unread)
        return rows.select_related(*self.related) if self.related else rows

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """The audit knows; Django's own log is empty."""
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        query = {"kind": self.kind, "name": getattr(row, self.key, None) or str(row)}
        return redirect(f"{reverse('audit')}?{urlencode(query)}")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return site.has_permission(request)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return site.has_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def column(model: type[models.Model], name: str) -> Any:
    """Moments to the second: the admin's own leave that out."""
    fields = {field.name: field for field in model._meta.get_fields()}
    if not isinstance(fields.get(name), models.DateTimeField):
        return name

    @admin.display(description=name.replace("_", " "), ordering=name)
    def moment(row: Any) -> str:
        at = getattr(row, name)
        return f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S}" if at else "–"

    return moment


def field_of(model: type[models.Model], name: str) -> Any:
    return model._meta.get_field(name)


def show(
    model: type[models.Model],
    columns: tuple[str, ...],
    search: tuple[str, ...] = (),
    filters: tuple[str, ...] = (),
    hidden: tuple[str, ...] = (),
    related: tuple[str, ...] = (),
    kind: str = "",
    key: str = "",
) -> None:
    """`hidden` columns are shown nowhere; `related` rows are read along; `kind` is what the audit
    calls such an object, and `key` the attribute that it is named by there."""
    unread = tuple(name for name in hidden if isinstance(field_of(model, name), models.BinaryField))
    said = {
        "related": related,
        "unread": unread + tuple(f"{name}__packed" for name in related if name == "revision"),
        "kind": kind,
        "key": key,
        "list_display": [column(model, name) for name in columns],
        "search_fields": search,
        "list_filter": filters,
        "exclude": hidden,
    }
    site.register(model, type(f"{model.__name__}Admin", (ReadOnly,), said))
