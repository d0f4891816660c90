"""Addresses of people: signing in, one's own account, users and tokens."""

from django.conf import settings
from django.contrib.auth import views as auth
from django.urls import URLPattern

from tenants.gate import page, public
from tenants.views import account, sign_in, tokens, users

signing_in: list[URLPattern] = [
    public("login/", sign_in.SignIn.as_view(), name="login"),
    public("login/code/", sign_in.code, name="login-code"),
    public("logout/", auth.LogoutView.as_view(next_page="login"), name="logout"),
]

if settings.OIDC is not None:
    from tenants import sso

    provider = {"provider_id": settings.OIDC.provider}
    signing_in += [
        public("oidc/login/", sso.login, name="openid_connect_login", given=provider),
        public("oidc/callback/", sso.callback, name="openid_connect_callback", given=provider),
    ]

own_account = [
    page("account/", account.account, "account.edit", name="account"),
    page("account/password/", account.password, "account.edit", name="account-password"),
    page("account/authenticator/", account.totp, "account.edit", name="account-totp"),
    page("account/authenticator/off/", account.totp_off, "account.edit", name="account-totp-off"),
    page("account/recovery-codes/", account.codes, "account.edit", name="account-codes"),
    page("account/token/", account.token, "account.edit", name="account-token"),
    page(
        "account/token/revoke/", account.token_revoke, "account.edit", name="account-token-revoke"
    ),
    page("account/sign-out/", account.sign_out, "account.edit", name="account-sign-out"),
]

people = [
    page("users/", users.users, "users.view", name="users"),
    page("new/user/", users.create, "users.edit", name="user-new"),
    page("users/<str:username>/", users.user, "users.view", name="user"),
    page("users/<str:username>/edit/", users.edit, "users.edit", name="user-edit"),
    page("users/<str:username>/token/", users.token, "users.edit", name="user-token"),
    *(
        page(f"users/<str:username>/{name}/", users.step(name), "users.edit", name=f"user-{name}")
        for name in users.STEPS
    ),
    page("tokens/", tokens.tokens, "users.view", name="tokens"),
    page("new/token/", tokens.create, "users.edit", name="token-new"),
    page("tokens/<str:token_id>/revoke/", tokens.revoke, "users.edit", name="token-revoke"),
]
