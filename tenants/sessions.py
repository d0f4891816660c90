"""What a session may still be used for: ended everywhere, or a step of signing in that is left.

1. A session that began before its owner signed out everywhere is over.
2. Whoever has a one-time password, or must use an authenticator and has none, reaches nothing but
   the page where that is put right; the admin API says so with 403.
3. Pages that are open to all stay open: see `gate.public`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth import logout
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from tenants.services.second_factor import has_totp

BEGAN = "began"
SECOND_FACTOR = "second_factor"  # true once this session needs no more of it
STEPS = {
    "account-password": "Change your one-time password first.",
    "account-totp": "Add an authenticator first.",
}

View = Callable[..., Any]


def note_beginning(sender: Any, request: HttpRequest, user: Any, **_: Any) -> None:
    request.session[BEGAN] = timezone.now().timestamp()


user_logged_in.connect(note_beginning, dispatch_uid="fairlane-session-began")


def pass_second_factor(request: HttpRequest) -> None:
    request.session[SECOND_FACTOR] = True


class Steps(MiddlewareMixin):
    """Behind AuthenticationMiddleware, before LoginRequiredMiddleware."""

    def process_view(
        self, request: HttpRequest, view: View, args: Any, kwargs: Any
    ) -> HttpResponse | None:
        if not request.user.is_authenticated:
            return None
        member = getattr(request.user, "membership", None)
        if member is None or has_ended(request, member):
            return None
        step = pending(request, member)
        if not step or getattr(view, "public", False) or getattr(view, "step", "") == step:
            return None
        if hasattr(view, "cls"):  # of the admin API
            return JsonResponse({"detail": STEPS[step], "errors": []}, status=403)
        return redirect(step)


def has_ended(request: HttpRequest, member: Any) -> bool:
    """Ends it where its owner has signed out everywhere since; the login page comes next."""
    since = member.sessions_since
    if since is None or request.session.get(BEGAN, 0.0) >= since.timestamp():
        return False
    logout(request)
    return True


def pending(request: HttpRequest, member: Any) -> str:
    """The name of the page that is still to be passed; empty where none is."""
    if member.must_change_password:
        return "account-password"
    if member.must_use_totp and not request.session.get(SECOND_FACTOR):
        return "" if has_totp(request.user) else "account-totp"
    return ""
