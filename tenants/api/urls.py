from collections.abc import Callable
from functools import wraps
from typing import Any

from django.urls import path

from tenants import models
from tenants.api import budgets, filters, keys, people, policy
from tenants.api.described import TenantApplication, listed, single
from tenants.core import document

tenants = models.Tenant.objects.filter(in_policy=True).select_related("tier")
applications = models.Application.objects.filter(in_policy=True).select_related("tenant")
tiers, lanes, pools = (each.objects.all() for each in (models.Tier, models.Lane, models.Pool))

tenant = single("tenant", document.Tenant).as_view()


def posts_only(many: Callable[..., Any]) -> Callable[..., Any]:
    """A tenant may be called `bulk`, too."""

    @wraps(many)
    def view(request: Any) -> Any:
        return many(request) if request.method == "POST" else tenant(request, name="bulk")

    return view


urlpatterns = [
    path("tenants/", listed("tenant", document.Tenant, tenants, filters.Tenants).as_view()),
    path("tenants/bulk/", posts_only(policy.EditMany.as_view())),
    path("tenants/<str:name>/", tenant, name="api-tenant"),
    path(
        "applications/",
        listed("application", TenantApplication, applications, filters.Applications).as_view(),
    ),
    path(
        "applications/<str:tenant>/<str:name>/",
        single("application", TenantApplication).as_view(),
        name="api-application",
    ),
    path("tiers/", listed("tier", document.Tier, tiers, filters.Tiers).as_view()),
    path("tiers/<str:name>/", single("tier", document.Tier).as_view(), name="api-tier"),
    path("lanes/", listed("lane", document.Lane, lanes, filters.Lanes).as_view()),
    path("lanes/<str:name>/", single("lane", document.Lane).as_view(), name="api-lane"),
    path("pools/", listed("pool", document.Pool, pools, filters.Pools).as_view()),
    path("pools/<path:name>/", single("pool", document.Pool).as_view(), name="api-pool"),
    path("budgets/", budgets.Budgets.as_view()),
    path("budgets/<path:budget_id>/", budgets.OneBudget.as_view()),
    path("keys/", keys.Keys.as_view()),
    path("keys/bulk/revoke/", keys.RevokeMany.as_view()),
    path("keys/<str:public_id>/", keys.Key.as_view()),
    path("keys/<str:public_id>/rotate/", keys.Rotate.as_view()),
    path("keys/<str:public_id>/revoke/", keys.Revoke.as_view()),
    path("users/", people.Users.as_view()),
    path("users/<str:username>/", people.User.as_view()),
    path("users/<str:username>/password/", people.Password.as_view()),
    path("users/<str:username>/sessions/", people.Sessions.as_view()),
    path("users/<str:username>/totp/", people.SecondFactor.as_view()),
    path("users/<str:username>/wrong-passwords/", people.WrongPasswords.as_view()),
    path("users/<str:username>/token/", people.UserToken.as_view()),
    path("tokens/", people.Tokens.as_view()),
    path("tokens/<str:public_id>/", people.Token.as_view()),
    path("tokens/<str:public_id>/revoke/", people.RevokeToken.as_view()),
    path("policy/", policy.Policy.as_view()),
    path("policy/schema/", policy.Schema.as_view()),
    path("policy/diff/", policy.Diff.as_view()),
    path("policy/apply/", policy.Apply.as_view()),
    path("policy/rollback/", policy.RollBack.as_view()),
    path("policy/revert/", policy.TakeBack.as_view()),
    path("policy/history/", policy.History.as_view()),
    path("policy/history/<int:number>/", policy.Revision.as_view()),
    path("audit/", policy.Audit.as_view()),
]
