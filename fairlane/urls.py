"""Every address of the console and the admin API, each page with the action that it needs."""

from django.urls import include, path

from fairlane.people_urls import own_account, signing_in
from fairlane.people_urls import people as users
from metering import pages_corrections
from metering.dashboards import assets
from metering.dashboards import pools as pool_pages
from metering.dashboards import tenants as tenant_pages
from metering.dashboards import views as dashboards
from metering.dashboards.boards import board
from tenants.gate import page, public
from tenants.site import site
from tenants.views import audit, bulk, keys, lists, names, objects, policy
from tenants.views.drain import drain
from tenants.views.theme import theme

watch = [
    page("", board, "live.view", name="overview", home="usage"),
    page("watch/<str:name>/", board, "live.view", name="watch"),
    page("usage/", dashboards.usage, "usage.view", name="usage"),
]

objects_of_policy = [
    page("tenants/", tenant_pages.tenants, "policy.view", name="tenants"),
    page("tenants/<str:name>/", tenant_pages.tenant, "policy.view", name="tenant"),
    page("tenants/<str:name>/live/", tenant_pages.tenant_live, "live.view", name="tenant-live"),
    page("tenants/<str:name>/edit/", objects.edit("tenant"), "policy.edit", name="tenant-edit"),
    page(
        "tenants/<str:name>/delete/", objects.delete("tenant"), "policy.edit", name="tenant-delete"
    ),
    page("names/tenants/", names.tenants, "policy.view", name="tenant-names"),
    page("bulk/tenants/", bulk.tenants, "policy.edit", name="tenants-bulk"),
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
    page("lanes/", pool_pages.lanes, "policy.view", name="lanes"),
    page("lanes/<str:name>/edit/", objects.edit("lane"), "policy.edit", name="lane-edit"),
    page("lanes/<str:name>/delete/", objects.delete("lane"), "policy.edit", name="lane-delete"),
    page("new/lane/", objects.create("lane"), "policy.edit", name="lane-new"),
    page("pools/", pool_pages.pools, "policy.view", name="pools"),
    page("pools/<path:name>/edit/", objects.edit("pool"), "policy.edit", name="pool-edit"),
    page("pools/<path:name>/delete/", objects.delete("pool"), "policy.edit", name="pool-delete"),
    page("pools/<path:name>/drain/", drain, "policy.edit", name="pool-drain"),
    page("new/pool/", objects.create("pool"), "policy.edit", name="pool-new"),
    page("budgets/", lists.budgets, "policy.view", name="budgets"),
    page("corrections/", pages_corrections.corrections, "policy.view", name="corrections"),
    page("names/budgets/", pages_corrections.names, "policy.edit", name="budget-names"),
    page("new/correction/", pages_corrections.new, "policy.edit", name="correction-new"),
    page("policy/", policy.document, "policy.view", name="policy"),
    page("policy/edit/", policy.edit, "policy.edit", name="policy-edit"),
    page("revisions/", policy.revisions, "policy.view", name="revisions"),
    page("revisions/<int:number>/", policy.revision, "policy.view", name="revision"),
    page("revisions/<int:number>/restore/", policy.restore, "policy.edit", name="revision-restore"),
    page("revisions/<int:number>/revert/", policy.revert, "policy.edit", name="revision-revert"),
]

access = [
    page("keys/", keys.keys, "keys.view", name="keys"),
    page("new/key/", keys.create, "keys.edit", name="key-new"),
    page("keys/<str:public_id>/rotate/", keys.rotate, "keys.edit", name="key-rotate"),
    page("keys/<str:public_id>/expire/", keys.expire, "keys.edit", name="key-expire"),
    page("keys/<str:public_id>/budgets/", keys.budgets, "keys.edit", name="key-budgets"),
    page("keys/<str:public_id>/revoke/", keys.revoke, "keys.edit", name="key-revoke"),
    page("keys/revoke/", keys.revoke_many, "keys.edit", name="keys-revoke"),
    page("audit/", audit.audit, "audit.view", name="audit"),
]

open_to_all = [
    *signing_in,
    public("theme/", theme, name="theme"),
    public("assets/plotly-<str:release>.min.js", assets.plotly_js, name="plotly"),
]

urlpatterns = [
    *watch,
    *objects_of_policy,
    *access,
    *users,
    *own_account,
    *open_to_all,
    path("", include("metering.alerts.urls")),
    path("api/", include("fairlane.api_urls")),
    path("admin/", site.urls),
]

handler400 = "fairlane.faults.bad_request"
handler403 = "fairlane.faults.forbidden"
handler404 = "fairlane.faults.not_found"
handler500 = "fairlane.faults.server_error"
