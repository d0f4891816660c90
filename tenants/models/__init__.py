from tenants.models.access import AccessToken, RecoveryCode
from tenants.models.budget import Budget
from tenants.models.history import AuditEntry, Immutable, PolicyRevision, PolicyState
from tenants.models.keys import ApiKey, KeySecret
from tenants.models.policy import Endpoint, Lane, Pool, Tier
from tenants.models.remembered import RememberedAnswer
from tenants.models.tenancy import Application, Membership, Role, Tenant

__all__ = [
    "AccessToken",
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
    "RecoveryCode",
    "RememberedAnswer",
    "Role",
    "Tenant",
    "Tier",
]
