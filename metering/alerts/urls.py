"""The alerts' pages."""

from metering.alerts import pages
from tenants.gate import page

urlpatterns = [
    page("alerts/", pages.alerts, "alerts.view", name="alerts"),
    page("alerts/<int:number>/", pages.alert, "alerts.view", name="alert"),
    page(
        "alerts/<int:number>/acknowledge/",
        pages.acknowledge,
        "alerts.edit",
        name="alert-acknowledge",
    ),
    page("alerts/rules/", pages.rule_list, "alerts.view", name="alert-rules"),
    page("alerts/rules/<str:kind>/edit/", pages.edit_rule, "alerts.edit", name="alert-rule-edit"),
    page(
        "alerts/destinations/new/",
        pages.new_destination,
        "alerts.edit",
        name="alert-destination-new",
    ),
    page(
        "alerts/destinations/<int:number>/edit/",
        pages.edit_destination,
        "alerts.edit",
        name="alert-destination-edit",
    ),
    page(
        "alerts/destinations/<int:number>/secret/",
        pages.new_secret,
        "alerts.edit",
        name="alert-destination-secret",
    ),
    page(
        "alerts/destinations/<int:number>/delete/",
        pages.delete_destination,
        "alerts.edit",
        name="alert-destination-delete",
    ),
    page(
        "alerts/destinations/<int:number>/test/",
        pages.test_destination,
        "alerts.edit",
        name="alert-destination-test",
    ),
]
