"""Django's admin for the long tail: everything to look at, nothing to change.

1. It has its own site, so that what other packages register on the default one (users, tokens)
   is not reachable: a change there would pass by permissions, revisions and audit.
2. It knows no adding, changing or deleting; the console and the API do that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode

from tenants.gate import viewer_of


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

    def password_change(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The console's page leaves an audit entry; Django's would not."""
        return redirect("account-password")

    password_change_done = password_change


site = ReadOnlySite(name="admin")


if TYPE_CHECKING:  # generic for the type checker only
    ModelAdmin = admin.ModelAdmin[models.Model]
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnly(ModelAdmin):
    list_per_page = 100
    show_full_result_count = False  # counting a table of millions takes longer than a page may
    actions = None

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


def show(
    model: type[models.Model],
    columns: tuple[str, ...],
    search: tuple[str, ...] = (),
    filters: tuple[str, ...] = (),
    hidden: tuple[str, ...] = (),
) -> None:
    said = {
        "list_display": columns,
        "search_fields": search,
        "list_filter": filters,
        "exclude": hidden,
    }
    site.register(model, type(f"{model.__name__}Admin", (ReadOnly,), said))
