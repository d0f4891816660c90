"""The admin API's addresses, its schema, and a page that lists it."""

from django.urls import URLPattern, URLResolver, include, path

from fairlane import api_docs, simulations_api
from metering import api as metering
from metering.alerts import api as alerts
from metering.alerts import api_settings as alert_settings
from metering.api_corrections import Corrections
from tenants.gate import page

v1: list[URLPattern | URLResolver] = [
    path("", include("tenants.api.urls")),
    path("usage/records/", metering.Records.as_view()),
    path("usage/summary/", metering.Summary.as_view()),
    path("usage/corrections/", Corrections.as_view()),
    path("live/", metering.Live.as_view()),
    path("alerts/", alerts.Alerts.as_view()),
    path("alerts/rules/", alert_settings.Rules.as_view()),
    path("alerts/rules/<str:kind>/", alert_settings.OneRule.as_view()),
    path("alerts/destinations/", alert_settings.Destinations.as_view()),
    path("alerts/destinations/<int:number>/", alert_settings.OneDestination.as_view()),
    path("alerts/destinations/<int:number>/secret/", alert_settings.RenewSecret.as_view()),
    path("alerts/destinations/<int:number>/test/", alert_settings.TestDestination.as_view()),
    path("alerts/<int:number>/", alerts.OneAlert.as_view()),
    path("alerts/<int:number>/acknowledge/", alerts.AcknowledgeAlert.as_view()),
    path("simulations/", simulations_api.Simulations.as_view()),
    path("simulations/<uuid:simulation_id>/", simulations_api.OneSimulation.as_view()),
]

urlpatterns = [
    path("v1/", include(v1)),
    path("schema/", api_docs.Schema.as_view(), name="api-schema"),
    page("docs/", api_docs.docs, "usage.view", name="api-docs"),
]
