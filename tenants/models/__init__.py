from tenants.models.budget import Budget
from tenants.models.history import AuditEntry, Immutable, PolicyRevision, PolicyState
from tenants.models.keys import ApiKey, KeySecret
from tenants.models.policy import Endpoint, Lane, Pool, Tier
from tenants.models.tenancy import Application, Membership, Role, Tenant

__all__ = [
    "ApiKey",
    "Application",
    "AuditEntry",
    "Budget",
    "Endpoint",
    "Immutable",
    "KeySecret",
    "Lane",
    "Membership",
    "PolicyRevision",
    "PolicyState",
    "Pool",
    "Role",
    "Tenant",
    "Tier",
]
