from django.contrib.auth import get_user_model

from tenants import models
from tenants.site import show

show(
    models.Tenant,
    ("name", "tier", "weight", "enabled", "in_policy"),
    ("name",),
    ("tier",),
    related=("tier",),
    kind="tenant",
)
show(
    models.Application,
    ("tenant", "name", "lane", "weight", "in_policy"),
    ("name", "tenant__name"),
    related=("tenant", "lane"),
    kind="application",
)
show(models.Tier, ("name", "weight", "lane", "on_overload"), ("name",), kind="tier")
show(
    models.Lane,
    ("name", "rank", "engine_priority", "reserved_share", "ceiling"),
    ("name",),
    kind="lane",
)
show(models.Pool, ("model", "engine", "capacity_auto"), ("model",), ("engine",), kind="pool")
show(models.Endpoint, ("url", "pool", "drain"), ("url",), ("drain",), kind="pool", key="pool")
show(
    models.Budget,
    ("name", "kind", "cost", "period", "tier", "tenant", "application", "key"),
    ("name",),
    ("kind",),
    related=("tier", "tenant", "application__tenant", "key"),
)
show(
    models.ApiKey,
    ("masked", "tenant", "application", "name", "state", "created_at", "expires_at"),
    ("public_id", "name", "tenant__name"),
    related=("tenant", "application__tenant"),
    kind="key",
    key="public_id",
)
show(
    models.AccessToken,
    ("masked", "name", "user", "role", "tenant", "state", "expires_at", "last_used_at"),
    ("public_id", "name", "user__username"),
    ("role",),
    hidden=("digest",),
    related=("user", "tenant"),
    kind="token",
    key="name",
)
show(
    models.Membership,
    ("user", "role", "tenant"),
    ("user__username", "tenant__name"),
    ("role",),
    related=("user", "tenant"),
    kind="user",
    key="user",
)
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
    related=("revision",),
)
show(models.PolicyState, ("revision", "version"))
show(
    models.RememberedAnswer,
    ("caller", "at"),
    ("caller",),
    hidden=("name", "call", "sealed"),
)
show(
    get_user_model(),
    ("username", "is_active", "is_superuser", "last_login"),
    ("username",),
    hidden=("password", "groups", "user_permissions"),
    kind="user",
    key="username",
)
