"""People: who there is, what they may do, and how they sign in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from tenants import selectors, services
from tenants.core.diff import named
from tenants.core.permissions import ROLES
from tenants.errors import NotFound, PolicyRefused
from tenants.forms.people import DaysForm, RoleForm, UserForm
from tenants.gate import View, viewer
from tenants.services.lockouts import wrong_passwords
from tenants.services.rows import user_row
from tenants.services.second_factor import has_totp, those_with_totp
from tenants.services.sso import signs_in_by_sso
from tenants.views.answers import actor, confirm, reason, show_refusal, told_once

FILTERS = ("q", "role", "tenant", "state")


def users(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in FILTERS}
    page = Paginator(selectors.people(*asked.values()), 50).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "with_totp": those_with_totp(page.object_list),
        "asked": asked,
        "filtered": any(asked.values()),
        "roles": (*ROLES, "none"),
        "states": ("enabled", "disabled"),
        "editor": viewer(request).can("users.edit"),
    }
    return render(request, "tenants/users.html", context)


def user(request: HttpRequest, username: str) -> HttpResponse:
    found = person(username)
    return render(request, "tenants/user.html", {**facts_of(found), **rights(request, found)})


def facts_of(person: Any) -> dict[str, Any]:
    """What the page of one person shows, and everybody's own page."""
    return {
        "person": person,
        "member": getattr(person, "membership", None),
        "totp": has_totp(person),
        "codes_left": person.recovery_codes.count(),
        "token": selectors.token_of(person),
        "sso": signs_in_by_sso(person),
        "wrong_passwords": wrong_passwords(person),
    }


def rights(request: HttpRequest, person: Any) -> dict[str, bool]:
    return {
        "editor": viewer(request).can("users.edit"),
        "is_self": person.pk == request.user.pk,
    }


def create(request: HttpRequest) -> HttpResponse:
    of = request.GET.get("tenant", "")  # of the tenant's page, whose people it lists
    initial = {"tenant": of, "role": "tenant-admin"} if of else None
    form = with_tenants(UserForm(request.POST or None, initial=initial))
    if request.method == "POST" and form.is_valid():
        asked = form.part()
        try:
            made, password, token = services.create_user(
                asked["username"],
                asked["role"],
                asked["tenant"],
                one_time=True,
                actor=actor(request),
                reason=reason(request),
            )
        except (PolicyRefused, NotFound) as refusal:
            show_refusal(form, refusal)
        else:
            secrets = [("One-time password", password), ("Token for the admin API", token)]
            return told_once(request, f"User {made.get_username()}", secrets, user_url(made))
    context = {"form": form, "reason": reason(request)}
    return render(request, "tenants/user_new.html", context)


def edit(request: HttpRequest, username: str) -> HttpResponse:
    found = person(username)
    member = getattr(found, "membership", None)
    tenant = member.tenant.name if member and member.tenant else ""
    initial = {"role": member.role if member else "", "tenant": tenant}
    form = with_tenants(RoleForm(request.POST or None, initial=initial))
    if request.method == "POST" and form.is_valid():
        asked = form.part()
        try:
            services.set_role(
                username,
                asked["role"],
                asked["tenant"],
                actor=actor(request),
                reason=reason(request),
            )
        except (PolicyRefused, NotFound) as refusal:
            show_refusal(form, refusal)
        else:
            messages.success(request, f"{username} is {asked['role']} from now on.")
            return redirect(user_url(found))
    context = {"form": form, "person": found, "member": member, "reason": reason(request)}
    return render(request, "tenants/user_edit.html", context)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is done to an account after a page has asked whether it is meant. Where
    `secret` has a name, `act` returns one to tell."""

    title: str
    explanation: str
    verb: str
    act: Callable[..., Any]
    danger: bool = False
    secret: str = ""


STEPS: Mapping[str, Step] = {
    "disable": Step(
        "Disable",
        "Sessions end and the token is refused, both at once. Nothing is deleted: the account can "
        "be enabled again.",
        "Disable",
        partial(services.set_enabled, enabled=False),
        danger=True,
    ),
    "enable": Step(
        "Enable",
        "Sign-in and token work again as they did.",
        "Enable",
        partial(services.set_enabled, enabled=True),
    ),
    "password": Step(
        "Reset the password of",
        "Sessions end. The new password is shown once, on the next page, and must be changed at "
        "the next sign-in.",
        "Reset password",
        services.reset_password,
        danger=True,
        secret="One-time password",  # noqa: S106 - what a page calls it
    ),
    "unlock": Step(
        "Unlock",
        "Wrong passwords are forgotten, from every address; the right one is taken at once.",
        "Unlock",
        services.unlock,
    ),
    "sign-out": Step(
        "Sign out everywhere",
        "Every session ends. The token works on.",
        "Sign out",
        services.end_sessions,
    ),
    "revoke-token": Step(
        "Revoke the token of",
        "Calls of the admin API with it are refused at once.",
        "Revoke token",
        services.revoke_own_token,
        danger=True,
    ),
    "require-totp": Step(
        "Require an authenticator of",
        "Whoever has none adds one before anything else, from the next page on.",
        "Require it",
        partial(services.require_totp, required=True),
    ),
    "allow-password": Step(
        "Do not require an authenticator of",
        "Its owner may switch it off then.",
        "Do not require it",
        partial(services.require_totp, required=False),
    ),
    "reset-totp": Step(
        "Reset the authenticator of",
        "For somebody who has lost it, and the recovery codes. Both are forgotten, and sessions "
        "end: make sure that it is them who ask.",
        "Reset authenticator",
        services.reset_totp,
        danger=True,
    ),
}


def step(name: str) -> View:
    asked = STEPS[name]

    def view(request: HttpRequest, username: str) -> HttpResponse:
        found = person(username)

        def act() -> HttpResponse:
            secret = asked.act(username, actor=actor(request), reason=reason(request))
            return after(request, asked, found, secret)

        return confirm(
            request,
            act,
            title=f"{asked.title} {username}",
            explanation=asked.explanation,
            verb=asked.verb,
            back=user_url(found),
            back_label=username,
            danger=asked.danger,
        )

    return view


def after(request: HttpRequest, done: Step, person: Any, secret: Any) -> HttpResponse:
    if not done.secret:
        messages.success(request, f"{done.title} {person.get_username()}: done.")
        return redirect(user_url(person))
    title = f"{done.secret} of {person.get_username()}"
    return told_once(request, title, [(done.secret, str(secret))], user_url(person))


def token(request: HttpRequest, username: str) -> HttpResponse:
    found = person(username)
    return renew(request, found, user_url(found), username)


def renew(request: HttpRequest, person: Any, back: str, back_label: str) -> HttpResponse:
    """The form for a new token, and the page that shows it; one's own page uses it as well."""
    form = DaysForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made, text = services.renew_token(
                person.get_username(),
                form.cleaned_data["expires_days"],
                actor=actor(request),
                reason=reason(request),
            )
        except PolicyRefused as refusal:
            show_refusal(form, refusal)
        else:
            label = f"Token, until {made.expires_at:%Y-%m-%d %H:%M} UTC"
            return told_once(request, "New token", [(label, text)], back)
    context = {
        "form": form,
        "person": person,
        "token": selectors.token_of(person),
        "reason": reason(request),
        "back": back,
        "back_label": back_label,
    }
    return render(request, "tenants/token_renew.html", context)


def person(username: str) -> Any:
    try:
        return user_row(username)
    except NotFound:
        raise Http404 from None


def user_url(person: Any) -> str:
    return reverse("user", args=[person.get_username()])


def with_tenants(form: Any) -> Any:
    form.allow(named(selectors.current_document(), "tenant"))
    return form
