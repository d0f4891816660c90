from django.contrib.auth import get_user_model

from tenants import models
from tenants.site import show

show(models.Tenant, ("name", "tier", "weight", "enabled", "in_policy"), ("name",), ("tier",))
show(models.Application, ("tenant", "name", "lane", "weight", "in_policy"), ("name",))
show(models.Tier, ("name", "weight", "lane", "on_overload"), ("name",))
show(models.Lane, ("name", "rank", "engine_priority", "reserved_share", "ceiling"), ("name",))
show(models.Pool, ("model", "engine", "capacity_auto"), ("model",), ("engine",))
show(models.Endpoint, ("url", "pool", "drain"), ("url",), ("drain",))
show(
    models.Budget,
    ("name", "kind", "cost", "period", "tier", "tenant", "application", "key"),
    ("name",),
    ("kind", "period"),
)
show(
    models.ApiKey,
    ("masked", "tenant", "application", "name", "state", "created_at", "expires_at"),
    ("public_id", "name", "tenant__name"),
)
show(
    models.AccessToken,
    ("masked", "user", "name", "role", "tenant", "state", "expires_at", "last_used_at"),
    ("public_id", "name", "user__username"),
    hidden=("digest",),
)
show(models.Membership, ("user", "role", "tenant"), ("user__username", "tenant__name"), ("role",))
show(
    models.PolicyRevision,
    ("number", "at", "author", "source", "changes", "reason"),
    ("author", "reason"),
    ("source",),
    hidden=("packed",),
)
show(
    models.AuditEntry,
    ("at", "actor", "source", "kind", "name", "field", "reason", "revision"),
    ("actor", "name", "field", "reason"),
    ("kind", "source"),
)
show(models.PolicyState, ("revision", "version"))
show(
    get_user_model(),
    ("username", "is_active", "is_superuser", "last_login"),
    ("username",),
    hidden=("password", "groups", "user_permissions"),
)
