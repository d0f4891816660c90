from tenants.forms.keys import ExpiryForm, GraceForm, KeyForm
from tenants.forms.objects import (
    ApplicationForm,
    LaneForm,
    PoolForm,
    TenantForm,
    TierForm,
)
from tenants.forms.sheet import Sheet

__all__ = [
    "ApplicationForm",
    "ExpiryForm",
    "GraceForm",
    "KeyForm",
    "LaneForm",
    "PoolForm",
    "Sheet",
    "TenantForm",
    "TierForm",
]
