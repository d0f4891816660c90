"""Every address of the console and the admin API, each page with the action that it needs."""

from django.contrib.auth import views as auth
from django.urls import include, path

from metering.dashboards import assets
from metering.dashboards import views as dashboards
from tenants.gate import page
from tenants.site import site
from tenants.views import keys, lists, objects, people, policy
from tenants.views.theme import theme

watch = [
    page("", dashboards.overview, "live.view", name="overview", home="usage"),
    page("usage/", dashboards.usage, "usage.view", name="usage"),
]

objects_of_policy = [
    page("tenants/", dashboards.tenants, "policy.view", name="tenants"),
    page("tenants/<str:name>/", dashboards.tenant, "policy.view", name="tenant"),
    page("tenants/<str:name>/live/", dashboards.tenant_live, "live.view", name="tenant-live"),
    page("tenants/<str:name>/edit/", objects.edit("tenant"), "policy.edit", name="tenant-edit"),
    page(
        "tenants/<str:name>/delete/", objects.delete("tenant"), "policy.edit", name="tenant-delete"
    ),
    page("new/tenant/", objects.create("tenant"), "policy.edit", name="tenant-new"),
    page(
        "tenants/<str:tenant>/applications/<str:name>/edit/",
        objects.edit("application"),
        "policy.edit",
        name="application-edit",
    ),
    page(
        "tenants/<str:tenant>/applications/<str:name>/delete/",
        objects.delete("application"),
        "policy.edit",
        name="application-delete",
    ),
    page(
        "new/application/<str:tenant>/",
        objects.create("application"),
        "policy.edit",
        name="application-new",
    ),
    page("tiers/", lists.tiers, "policy.view", name="tiers"),
    page("tiers/<str:name>/edit/", objects.edit("tier"), "policy.edit", name="tier-edit"),
    page("tiers/<str:name>/delete/", objects.delete("tier"), "policy.edit", name="tier-delete"),
    page("new/tier/", objects.create("tier"), "policy.edit", name="tier-new"),
    page("lanes/", lists.lanes, "policy.view", name="lanes"),
    page("lanes/<str:name>/edit/", objects.edit("lane"), "policy.edit", name="lane-edit"),
    page("lanes/<str:name>/delete/", objects.delete("lane"), "policy.edit", name="lane-delete"),
    page("new/lane/", objects.create("lane"), "policy.edit", name="lane-new"),
    page("pools/", dashboards.pools, "policy.view", name="pools"),
    page("pools/<path:name>/edit/", objects.edit("pool"), "policy.edit", name="pool-edit"),
    page("pools/<path:name>/delete/", objects.delete("pool"), "policy.edit", name="pool-delete"),
    page("new/pool/", objects.create("pool"), "policy.edit", name="pool-new"),
    page("budgets/", lists.budgets, "policy.view", name="budgets"),
    page("policy/", policy.document, "policy.view", name="policy"),
    page("revisions/", policy.revisions, "policy.view", name="revisions"),
    page("revisions/<int:number>/", policy.revision, "policy.view", name="revision"),
    page("revisions/<int:number>/restore/", policy.restore, "policy.edit", name="revision-restore"),
]

access = [
    page("keys/", keys.keys, "keys.view", name="keys"),
    page("new/key/", keys.create, "keys.edit", name="key-new"),
    page("keys/<str:public_id>/rotate/", keys.rotate, "keys.edit", name="key-rotate"),
    page("keys/<str:public_id>/revoke/", keys.revoke, "keys.edit", name="key-revoke"),
    page("users/", people.users, "users.view", name="users"),
    page("audit/", people.audit, "audit.view", name="audit"),
]

open_to_all = [
    path("login/", auth.LoginView.as_view(), name="login"),
    path("logout/", auth.LogoutView.as_view(next_page="login"), name="logout"),
    path("theme/", theme, name="theme"),
    path("assets/plotly-<str:release>.min.js", assets.plotly_js, name="plotly"),
]

urlpatterns = [
    *watch,
    *objects_of_policy,
    *access,
    *open_to_all,
    path("api/", include("fairlane.api_urls")),
    path("admin/", site.urls),
]
