from django.urls import path

from tenants.api import budgets, keys, policy
from tenants.api.described import TenantApplication, listed, single
from tenants.core import document

urlpatterns = [
    path("tenants/", listed("tenant", document.Tenant).as_view()),
    path("tenants/<str:name>/", single("tenant", document.Tenant).as_view(), name="api-tenant"),
    path("applications/", listed("application", TenantApplication).as_view()),
    path(
        "applications/<str:tenant>/<str:name>/",
        single("application", TenantApplication).as_view(),
        name="api-application",
    ),
    path("tiers/", listed("tier", document.Tier).as_view()),
    path("tiers/<str:name>/", single("tier", document.Tier).as_view(), name="api-tier"),
    path("lanes/", listed("lane", document.Lane).as_view()),
    path("lanes/<str:name>/", single("lane", document.Lane).as_view(), name="api-lane"),
    path("pools/", listed("pool", document.Pool).as_view()),
    path("pools/<path:name>/", single("pool", document.Pool).as_view(), name="api-pool"),
    path("budgets/", budgets.Budgets.as_view()),
    path("budgets/<path:budget_id>/", budgets.OneBudget.as_view()),
    path("keys/", keys.Keys.as_view()),
    path("keys/<str:public_id>/", keys.Key.as_view()),
    path("keys/<str:public_id>/rotate/", keys.Rotate.as_view()),
    path("keys/<str:public_id>/revoke/", keys.Revoke.as_view()),
    path("policy/", policy.Policy.as_view()),
    path("policy/diff/", policy.Diff.as_view()),
    path("policy/apply/", policy.Apply.as_view()),
    path("policy/rollback/", policy.RollBack.as_view()),
    path("policy/history/", policy.History.as_view()),
    path("policy/history/<int:number>/", policy.Revision.as_view()),
    path("audit/", policy.Audit.as_view()),
    path("users/", policy.Users.as_view()),
]
