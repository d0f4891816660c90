from metering import models
from metering.counting import SKETCHES
from tenants.site import show

show(
    models.UsageRow,
    ("request_id", "at", "tenant", "model", "lane", "status", "finish_reason", "cost"),
    ("request_id", "tenant"),
)
show(models.BudgetWindow, ("account", "window_start", "window_end", "used"), ("account",))
show(
    models.UsageMinute,
    ("start", "tenant", "application", "key", "model", "lane", "requests", "errors", "cost"),
    ("tenant",),
    hidden=SKETCHES,  # packed bytes
)
show(models.GatewaySample, ("gateway", "at"), ("gateway",))
show(
    models.Correction,
    ("made_at", "account", "at", "units", "counter", "actor", "reason"),
    ("account", "actor"),
)
show(
    models.Alert,
    ("kind", "subject", "first_at", "last_at", "count", "acknowledged_by", "resolved_at"),
    ("kind", "subject"),
)
show(models.AlertRule, ("kind", "enabled", "level", "threshold", "minutes"), ("kind",))
show(
    models.AlertDestination,
    ("name", "shape", "enabled", "only_critical"),
    ("name",),
    hidden=("salt",),
)
show(
    models.AlertDelivery,
    ("destination", "event", "state", "attempts", "due_at", "sent_at", "error"),
    ("error",),
)
show(models.GatewayCheck, ("gateway", "at", "whole_since"), ("gateway",))
show(models.Learnt, ("name", "at"), ("name",))
