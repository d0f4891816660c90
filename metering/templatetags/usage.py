"""What templates that show usage need beside the console's own tags."""

from __future__ import annotations

from typing import Any

from django import template

from metering.dashboards.reasons import Why
from metering.dashboards.reasons import why as why_of

register = template.Library()


@register.filter
def why(record: Any) -> Why | None:
    return why_of(record)
