"""The one door for changes of policy, keys and roles. Pages, API, commands and admin all use it.

Each function checks the actor's permission and the input, then writes rows, revision, audit
entries and version in one transaction.
"""

from tenants.core.issue import Issue
from tenants.errors import Conflict, NotAllowed, NotFound, PolicyRefused
from tenants.services.actors import Actor, Source, actor_for, require
from tenants.services.audit import record_counter
from tenants.services.documents import Applied, apply_document, read_document, rollback
from tenants.services.keys import (
    create_key,
    expire_key,
    note_use,
    revoke_key,
    rotate_key,
    set_key_budgets,
)
from tenants.services.lockouts import unlock
from tenants.services.objects import (
    create_object,
    delete_object,
    edit_object,
    edit_objects,
    etag_of,
)
from tenants.services.second_factor import require_totp, reset_totp
from tenants.services.state import hold, on_change
from tenants.services.tokens import (
    create_service_token,
    renew_token,
    revoke_own_token,
    revoke_token,
)
from tenants.services.users import (
    change_password,
    create_user,
    end_sessions,
    reset_password,
    set_enabled,
    set_role,
)

__all__ = [
    "Actor",
    "Applied",
    "Conflict",
    "Issue",
    "NotAllowed",
    "NotFound",
    "PolicyRefused",
    "Source",
    "actor_for",
    "apply_document",
    "change_password",
    "create_key",
    "create_object",
    "create_service_token",
    "create_user",
    "delete_object",
    "edit_object",
    "edit_objects",
    "end_sessions",
    "etag_of",
    "expire_key",
    "hold",
    "note_use",
    "on_change",
    "read_document",
    "record_counter",
    "renew_token",
    "require",
    "require_totp",
    "reset_password",
    "reset_totp",
    "revoke_key",
    "revoke_own_token",
    "revoke_token",
    "rollback",
    "rotate_key",
    "set_enabled",
    "set_key_budgets",
    "set_role",
    "unlock",
]
