"""The forms of the policy's objects; each covers every field that the policy file has for it."""

from __future__ import annotations

from typing import get_args
from zoneinfo import available_timezones

from django import forms
from pydantic import BaseModel

from tenants.core.document import Application, Capacity, Cost, Lane, Tier, Timeouts
from tenants.core.snapshot import EngineKind
from tenants.forms.parts import ListField, Number, Part, PartForm, Section, Whole, choices

NAMES = "Lower-case letters, digits, dots, dashes, underscores; at most 63."
LIMITS = (
    "limits__requests_per_minute",
    "limits__tokens_per_minute",
    "limits__max_running",
    "limits__max_queued",
    "limits__max_input_tokens",
    "limits__max_output_tokens",
)


SOFT_LIMITS = [
    ("requests_per_minute", "Requests a minute"),
    ("tokens_per_minute", "Tokens a minute"),
]


def usual(part: type[BaseModel], field: str) -> str:
    """What holds where a field of the file is left out, for its help."""
    return f"{part.model_fields[field].default:,g} when empty."


class LaneForm(PartForm):
    name = forms.CharField(label="Name", help_text=NAMES)
    rank = Whole(label="Rank", help_text="0 is served first; each lane has its own.")
    engine_priority = Whole(
        label="Engine priority", required=False, help_text="Lower goes first; 10 × rank when empty."
    )
    reserved_share = Number(
        label="Reserved share",
        required=False,
        help_text="0 to 1, of what a pool serves while this lane waits. All lanes: at most 1. "
        + usual(Lane, "reserved_share"),
    )
    ceiling = Number(
        label="Ceiling",
        required=False,
        help_text="Part of a pool's capacity that this lane and those below it may fill. "
        + usual(Lane, "ceiling"),
    )
    max_queue_seconds = Number(
        label="Longest wait, s", required=False, help_text=usual(Lane, "max_queue_seconds")
    )

    sections: tuple[Section, ...] = (
        ("", "", ("name", "rank", "engine_priority")),
        ("Share and patience", "", ("reserved_share", "ceiling", "max_queue_seconds")),
    )


class LimitFields(PartForm):
    limits__requests_per_minute = Whole(label="Requests a minute", required=False)
    limits__tokens_per_minute = Whole(label="Tokens a minute", required=False)
    limits__max_running = Whole(label="Running at once", required=False)
    limits__max_queued = Whole(label="Queued at once", required=False)
    limits__max_input_tokens = Whole(label="Input tokens", required=False)
    limits__max_output_tokens = Whole(label="Output tokens", required=False)
    soft_limits = forms.MultipleChoiceField(
        label="Soft limits",
        required=False,
        choices=SOFT_LIMITS,
        widget=forms.CheckboxSelectMultiple,
        help_text="They refuse only while others wait for the pool.",
    )


class TierForm(LimitFields):
    name = forms.CharField(label="Name", help_text=NAMES)
    weight = Number(
        label="Weight",
        required=False,
        help_text="Fair share against other tenants. " + usual(Tier, "weight"),
    )
    lane = forms.ChoiceField(
        label="Lane",
        choices=choices(empty="choose"),
        error_messages={"required": "Choose the lane that the tier's requests take."},
        help_text="Used when nothing else says a lane.",
    )
    allowed_lanes = forms.MultipleChoiceField(
        label="Allowed lanes",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen: only the lane above.",
    )
    on_overload = forms.ChoiceField(
        label="When overloaded", choices=choices("queue", "demote", "reject")
    )
    models = ListField(
        label="Models",
        required=False,
        help_text="Pools this tier may use; * and ? stand for any text. Empty: all.",
    )
    sections: tuple[Section, ...] = (
        ("", "", ("name", "weight", "on_overload", "models")),
        ("Lanes", "", ("lane", "allowed_lanes")),
        ("Limits", "Per tenant. Empty means unlimited.", (*LIMITS, "soft_limits")),
    )

    named_by = {"lane": "lanes", "allowed_lanes": "lanes"}


class TenantForm(LimitFields):
    name = forms.CharField(label="Name", help_text=NAMES)
    tier = forms.ChoiceField(label="Tier")
    enabled = forms.BooleanField(
        label="Enabled", required=False, help_text="Not enabled: suspended, every request refused."
    )
    timezone = forms.CharField(
        label="Time zone",
        required=False,
        help_text="For calendar budgets; UTC when empty.",
        widget=forms.TextInput(attrs={"list": "zones", "autocomplete": "off"}),
    )
    weight = Number(label="Weight", required=False)
    lane = forms.ChoiceField(label="Lane", required=False, choices=choices(empty="as in the tier"))
    allowed_lanes = forms.MultipleChoiceField(
        label="Allowed lanes",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen: as in the tier.",
    )
    on_overload = forms.ChoiceField(
        label="When overloaded",
        required=False,
        choices=choices("queue", "demote", "reject", empty="as in the tier"),
    )
    models = ListField(label="Models", required=False, help_text="Empty: as in the tier.")

    zones = sorted(zone for zone in available_timezones() if "/" in zone or zone == "UTC")
    sections: tuple[Section, ...] = (
        ("", "", ("name", "tier", "timezone", "enabled")),
        ("Service", "Empty means: as in the tier.", ("weight", "on_overload", "models")),
        ("Lanes", "", ("lane", "allowed_lanes")),
        ("Limits", "Empty means: as in the tier.", (*LIMITS, "soft_limits")),
    )

    named_by = {"tier": "tiers", "lane": "lanes", "allowed_lanes": "lanes"}


class ApplicationForm(PartForm):
    name = forms.CharField(label="Name", help_text=NAMES)
    lane = forms.ChoiceField(
        label="Lane", required=False, choices=choices(empty="as in the tenant")
    )
    weight = Number(
        label="Weight",
        required=False,
        help_text="Divides the tenant's share among its own. " + usual(Application, "weight"),
    )
    sections: tuple[Section, ...] = (("", "", ("name", "lane", "weight")),)

    named_by = {"lane": "lanes"}


class PoolForm(PartForm):
    model = forms.CharField(label="Model", help_text="The name that requests ask for.")
    aliases = ListField(label="Aliases", required=False, help_text="Other names for this pool.")
    engine = forms.ChoiceField(
        label="Engine",
        choices=choices(*get_args(EngineKind)),
        help_text="How priority and usage are spoken.",
    )
    api_key_env = forms.CharField(
        label="Engine's key: variable",
        required=False,
        help_text="The name of an environment variable, never the key itself.",
    )
    isolate_prefix_cache = forms.BooleanField(
        label="Isolate prefix caches by tenant", required=False
    )
    capacity_auto = forms.BooleanField(label="Learn capacity from the engine", required=False)
    capacity__max_running = Whole(
        label="Running requests", required=False, help_text=usual(Capacity, "max_running")
    )
    capacity__max_running_tokens = Whole(
        label="Running tokens", required=False, help_text=usual(Capacity, "max_running_tokens")
    )
    locality_quantum = Number(
        label="Locality quantum, units",
        required=False,
        help_text="How far fairness may bend for a cached prefix; 0: not at all.",
    )
    cost__input = Number(label="Input", required=False, help_text=usual(Cost, "input"))
    cost__cached_input = Number(
        label="Cached input", required=False, help_text=usual(Cost, "cached_input")
    )
    cost__output = Number(label="Output", required=False, help_text=usual(Cost, "output"))
    price__currency = forms.CharField(label="Currency", required=False, help_text="Such as USD.")
    price__input_per_million = forms.CharField(label="Input, per million", required=False)
    price__output_per_million = forms.CharField(label="Output, per million", required=False)
    tokenizer__kind = forms.ChoiceField(
        label="Tokenizer", choices=choices("estimate", "engine", "file")
    )
    tokenizer__path = forms.CharField(
        label="Path of tokenizer.json", required=False, help_text="For a tokenizer file only."
    )
    timeouts__connect = Number(
        label="Connect, s", required=False, help_text=usual(Timeouts, "connect")
    )
    timeouts__first_token = Number(
        label="First token, s", required=False, help_text=usual(Timeouts, "first_token")
    )
    timeouts__idle = Number(
        label="Between tokens, s", required=False, help_text=usual(Timeouts, "idle")
    )
    timeouts__total = Number(
        label="Whole request, s", required=False, help_text=usual(Timeouts, "total")
    )

    sections: tuple[Section, ...] = (
        ("", "", ("model", "aliases", "engine", "api_key_env", "isolate_prefix_cache")),
        (
            "Capacity of each endpoint",
            "What it may hold at once; the rest waits here, where policy rules the order.",
            (
                "capacity_auto",
                "capacity__max_running",
                "capacity__max_running_tokens",
                "locality_quantum",
            ),
        ),
        (
            "Cost",
            "Service units per token: what fairness shares. Not money.",
            ("cost__input", "cost__cached_input", "cost__output"),
        ),
        (
            "Price",
            "Money for showback; it never touches scheduling.",
            ("price__currency", "price__input_per_million", "price__output_per_million"),
        ),
        ("Tokenizer", "", ("tokenizer__kind", "tokenizer__path")),
        (
            "Time limits",
            "",
            ("timeouts__connect", "timeouts__first_token", "timeouts__idle", "timeouts__total"),
        ),
    )

    def part(self) -> Part:
        part = super().part()
        if part.pop("capacity_auto"):
            part["capacity"] = "auto"
        return part
