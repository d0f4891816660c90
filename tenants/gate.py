"""The one gate in front of pages: every page names the action that it needs, in the URL conf.

1. `page` is how a page gets an address; it cannot be left without an action. What is open before
   anybody has signed in says so by `public`. A test refuses an address that has neither.
2. A person without a membership may nothing; a superuser counts as admin.
3. What a page shows is kept nowhere: after somebody has signed out, "back" shows nothing.
4. The gate answers "may this role do that"; whose objects it may do it to, views ask `Viewer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.views.decorators.cache import never_cache

from tenants.core import permissions
from tenants.core.permissions import Action
from tenants.selectors import role_of

View = Callable[..., HttpResponseBase]


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: the role, and for tenant roles the one tenant that is theirs."""

    name: str
    role: str
    tenant: str | None = None

    def can(self, action: Action) -> bool:
        return permissions.can(self.role, action)

    def can_for(self, action: Action, tenant: str | None) -> bool:
        return permissions.can_for(self.role, self.tenant, action, tenant)

    @property
    def confined(self) -> bool:
        return self.role in permissions.TENANT_ROLES

    def require(self, action: Action, tenant: str | None) -> None:
        """Another tenant's objects are as if they were not there."""
        if not self.can_for(action, tenant):
            raise Http404


def viewer_of(user: Any) -> Viewer | None:
    if not user.is_authenticated or not user.is_active:
        return None
    role, tenant = role_of(user)
    return Viewer(user.get_username(), role, tenant) if role else None


def viewer(request: HttpRequest) -> Viewer:
    """Of a request that has passed the gate."""
    found: Viewer = request.viewer  # type: ignore[attr-defined]
    return found


def gated(action: Action, view: View, home: str | None = None) -> View:
    """`home` is where a tenant's people are sent instead of a refusal. A page that only shows
    takes no POST."""
    methods = ["GET", "HEAD", "POST"] if action.endswith(".edit") else ["GET", "HEAD"]

    @wraps(view)
    @never_cache
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        found = viewer_of(request.user)
        if found is None:
            raise PermissionDenied("This account has no role yet.")
        request.viewer = found  # type: ignore[attr-defined]
        if found.can(action):
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            return view(request, *args, **kwargs)
        if home and found.confined:
            return redirect(home)
        roles = " or ".join(role for role in permissions.ROLES if permissions.can(role, action))
        raise PermissionDenied(f"Your role is {found.role}; this takes {roles}.")

    guarded.action = action  # type: ignore[attr-defined]
    return guarded


def page(
    route: str, view: View, action: Action, *, name: str, home: str | None = None
) -> URLPattern:
    return path(route, gated(action, view, home), name=name)


def public(
    route: str, view: View, *, name: str, given: Mapping[str, str] | None = None
) -> URLPattern:
    """A page for everybody, signed in or not. It must tell nothing of policy, people or use."""
    opened = login_not_required(view)
    opened.public = True  # type: ignore[attr-defined]
    return path(route, opened, dict(given or {}), name=name)
