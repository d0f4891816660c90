"""One's own account: password, authenticator, token, sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import segno
from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.debug import sensitive_post_parameters

from tenants import services
from tenants.errors import PolicyRefused
from tenants.forms.people import CodeForm, PasswordForm
from tenants.services import second_factor
from tenants.sessions import pass_second_factor, pending
from tenants.views.answers import actor, confirm, reason, show_refusal
from tenants.views.users import facts_of, renew


def account(request: HttpRequest) -> HttpResponse:
    return render(request, "tenants/account.html", facts_of(request.user))


@sensitive_post_parameters()
def password(request: HttpRequest) -> HttpResponse:
    form = PasswordForm(request.POST or None)
    user: Any = request.user
    if request.method == "POST" and form.is_valid():
        old, new = form.cleaned_data["old"], form.cleaned_data["new"]
        try:
            services.change_password(user, old, new, actor=actor(request))
        except PolicyRefused as refusal:
            show_refusal(form, refusal)
        else:
            update_session_auth_hash(request, user)  # a new session key; all others have ended
            messages.success(request, "Password changed. Your other sessions have ended.")
            return redirect("account")
    return render(request, "tenants/account_password.html", {"form": form, **waits(request)})


password.step = "account-password"  # type: ignore[attr-defined]


@sensitive_post_parameters()
def totp(request: HttpRequest) -> HttpResponse:
    """Add an authenticator: shows its secret until it has shown a right code."""
    user: Any = request.user
    if second_factor.has_totp(user):
        return redirect("account")
    form = CodeForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            codes = second_factor.confirm_totp(
                user, form.cleaned_data["code"], actor=actor(request)
            )
        except PolicyRefused as refusal:
            show_refusal(form, refusal)
        else:
            pass_second_factor(request)
            return recovery(request, codes)
    device = second_factor.unconfirmed_totp(user)
    context = {"form": form, "qr": qr(device.config_url), "secret": typed(device)}
    return render(request, "tenants/account_totp.html", {**context, **waits(request)})


totp.step = "account-totp"  # type: ignore[attr-defined]


def codes(request: HttpRequest) -> HttpResponse:
    def act() -> HttpResponse:
        made = second_factor.new_recovery_codes(request.user, actor=actor(request))
        return recovery(request, made)

    return by_code(
        request,
        act,
        title="New recovery codes",
        explanation="Ten new ones are shown once, on the next page. Those you have stop working.",
        verb="Make new codes",
    )


def totp_off(request: HttpRequest) -> HttpResponse:
    def act() -> HttpResponse:
        second_factor.drop_totp(request.user, actor=actor(request))
        return redirect("account")

    return by_code(
        request,
        act,
        title="Switch the authenticator off",
        explanation="Your password alone will do to sign in. The recovery codes are forgotten.",
        verb="Switch off",
        danger=True,
    )


def by_code(
    request: HttpRequest, act: Callable[[], HttpResponse], **said: str | bool
) -> HttpResponse:
    """Only who holds the authenticator, or a recovery code, takes it away: a session that was left
    open is not enough."""
    if not second_factor.has_totp(request.user):
        return redirect("account")
    form = CodeForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            if second_factor.verify(request.user, form.cleaned_data["code"]):
                return act()
        except PolicyRefused as refusal:
            show_refusal(form, refusal)
        else:
            wait = second_factor.wait_of(request.user)
            form.add_error("code", f"the code does not fit. {wait}")
    status = 400 if form.errors else 200
    return render(request, "tenants/account_code.html", {"form": form, **said}, status=status)


def sign_out(request: HttpRequest) -> HttpResponse:
    def act() -> HttpResponse:
        services.end_sessions(request.user.get_username(), actor=actor(request))
        logout(request)
        return redirect("login")

    return confirm(
        request,
        act,
        back=reverse("account"),
        back_label="Account",
        title="Sign out everywhere",
        explanation="Every session of yours ends, this one too. Your token works on.",
        verb="Sign out everywhere",
    )


def token(request: HttpRequest) -> HttpResponse:
    return renew(request, request.user, reverse("account"), "Account")


def token_revoke(request: HttpRequest) -> HttpResponse:
    def act() -> HttpResponse:
        name = request.user.get_username()
        services.revoke_own_token(name, actor=actor(request), reason=reason(request))
        return redirect("account")

    return confirm(
        request,
        act,
        back=reverse("account"),
        back_label="Account",
        title="Revoke your token",
        explanation="Calls of the admin API with it are refused at once.",
        verb="Revoke token",
        danger=True,
    )


def recovery(request: HttpRequest, made: list[str]) -> HttpResponse:
    return render(request, "tenants/recovery_codes.html", {"codes": made})


def waits(request: HttpRequest) -> dict[str, bool]:
    """Is there nothing else to go to before this is done?"""
    member = getattr(request.user, "membership", None)
    return {"first": member is not None and bool(pending(request, member))}


def qr(text: str) -> SafeString:
    """As SVG inside the page: black on white in either theme, or phones do not read it."""
    drawn = segno.make(text, error="m").svg_inline(
        scale=5, border=4, dark="#000", light="#fff", title="QR code of the secret"
    )
    return SafeString(drawn)


def typed(device: Any) -> str:
    """The secret as an app takes it by hand, in groups of four."""
    secret = device.config_url.partition("secret=")[2].partition("&")[0]
    return " ".join(secret[at : at + 4] for at in range(0, len(secret), 4))
