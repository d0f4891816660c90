from tenants.forms.objects import (
    ApplicationForm,
    KeyForm,
    LaneForm,
    PoolForm,
    TenantForm,
    TierForm,
)
from tenants.forms.sheet import Sheet

__all__ = [
    "ApplicationForm",
    "KeyForm",
    "LaneForm",
    "PoolForm",
    "Sheet",
    "TenantForm",
    "TierForm",
]
