"""Signing in with a local account: password, then a code where an authenticator is on.

Nobody is signed in half: until the code has come, the session knows only who wants in, for five
minutes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from tenants.services import second_factor
from tenants.sessions import pass_second_factor

WAITING = "waiting_for_code"
WAIT_SECONDS = 300


class Credentials(AuthenticationForm):
    """Django bounds a user name in the page alone; one that is tried is stored, to be throttled."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name = self.fields["username"]
        name.validators.append(MaxLengthValidator(name.max_length))  # type: ignore[attr-defined]


class SignIn(LoginView):
    authentication_form = Credentials

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs, sso=settings.OIDC)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        if not second_factor.has_totp(user):
            return super().form_valid(form)
        self.request.session[WAITING] = {
            "user": user.pk,
            "password": user.get_session_auth_hash(),
            "backend": user.backend,
            "until": timezone.now().timestamp() + WAIT_SECONDS,
            "next": self.get_success_url(),
        }
        return redirect("login-code")


@sensitive_post_parameters("code")
@never_cache
def code(request: HttpRequest) -> HttpResponse:
    waiting: Any = request.session.get(WAITING)
    user = who_waits(waiting)
    if user is None:
        request.session.pop(WAITING, None)
        return redirect("login")
    wrong = wait = ""
    if request.method == "POST":
        if second_factor.verify(user, request.POST.get("code", "")):
            del request.session[WAITING]
            login(request, user, backend=waiting["backend"])
            pass_second_factor(request)
            return redirect(waiting["next"])
        wrong, wait = "The code does not fit.", second_factor.wait_of(user)
    context = {"wrong": wrong, "wait": wait}
    return render(request, "registration/login_code.html", context, status=400 if wrong else 200)


def who_waits(waiting: Any) -> Any:
    """None where the time is over, or the account is not what it was when the password fitted."""
    if not waiting or waiting["until"] < timezone.now().timestamp():
        return None
    user = get_user_model()._default_manager.filter(pk=waiting["user"], is_active=True).first()
    if user is None or user.get_session_auth_hash() != waiting["password"]:
        return None
    return user


def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """Too many wrong passwords: the page says when to come back. django-axes calls it."""
    until = locked_until(request)
    seconds = max(1, round((until - timezone.now()).total_seconds()))
    context = {"until": until, "minutes": -(-seconds // 60)}
    response = render(request, "registration/locked_out.html", context, status=429)
    response["Retry-After"] = str(seconds)
    return response


def locked_until(request: HttpRequest) -> datetime:
    from axes.models import AccessAttempt  # not there where throttling is off

    said = getattr(request, "axes_credentials", None) or {}
    tried = AccessAttempt.objects.filter(
        username=said.get("username"), ip_address=getattr(request, "axes_ip_address", None)
    )
    last = tried.order_by("-attempt_time").values_list("attempt_time", flat=True).first()
    return (last or timezone.now()) + timedelta(minutes=settings.FAIRLANE_LOGIN_LOCK_MINUTES)
