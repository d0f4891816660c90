"""Changes as people read them: each value in words, and what is inherited with its source.

A value that an object does not say itself is not "unset" to whoever looks at a preview: it is what
the tier, the tenant or the default says, and that is what is shown, with where it comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tenants.core.compile import engine_priority
from tenants.core.diff import Change, Kind
from tenants.core.document import Document, Lane, Tenant, Tier, plain_numbers
from tenants.core.effective import lane_of, origins
from tenants.core.merge import Beside

FEW = 5  # names that are spelled out before the rest is a number
WARN, BAD = 0.8, 0.95  # parts used

Level = Literal["", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Side:
    """`text` is empty where there is no such object; `source` where it says so itself."""

    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    kind: Kind
    name: str
    field: str
    old: Side
    new: Side
    reach: str = ""  # of a tier's value: whom it reaches


def rows(changes: Iterable[Change], old: Document, new: Document) -> list[Row]:
    before, after = Sources(old), Sources(new)
    return [
        Row(
            change.kind,
            change.name,
            change.field,
            before.side(change.kind, change.name, change.field, change.old),
            after.side(change.kind, change.name, change.field, change.new),
            after.reach(change),
        )
        for change in changes
    ]


@dataclass(frozen=True, slots=True)
class Crossing:
    """A field that two changed, with its three values in words."""

    row: Beside
    base: Side
    theirs: Side
    yours: Side


def crossings(beside: Iterable[Beside], document: Document) -> list[Crossing]:
    """What is inherited is as it is in `document`, the one in force."""
    sources = Sources(document)
    return [
        Crossing(
            row,
            *(
                sources.side(row.kind, row.name, row.field, value)
                for value in (row.base, row.theirs, row.yours)
            ),
        )
        for row in beside
    ]


class Sources:
    """Where a value comes from that an object of this document does not say itself."""

    def __init__(self, document: Document) -> None:
        self.tiers = {tier.name: tier for tier in document.tiers}
        self.tenants = {tenant.name: tenant for tenant in document.tenants}
        self.lanes = {lane.name: lane for lane in document.lanes}
        self.members: dict[str, list[Tenant]] = {tier.name: [] for tier in document.tiers}
        for tenant in document.tenants:
            self.members[tenant.tier].append(tenant)

    def side(self, kind: Kind, name: str, field: str, value: Any) -> Side:
        if value is None and field:
            return self._inherited(kind, name, field) or Side("unset")
        return Side("" if value is None else words(value))

    def _inherited(self, kind: Kind, name: str, field: str) -> Side | None:
        if kind == "tenant" and name in self.tenants:
            return self._of_tenant(self.tenants[name], field)
        if kind == "application":
            tenant = self.tenants.get(name.partition("/")[0])
            if tenant is None or field != "lane":
                return Side("none") if field.startswith("budgets.") else None
            return Side(lane_of(tenant, self.tiers[tenant.tier]), f"tenant {tenant.name}")
        if kind == "tier" and name in self.tiers:
            return _of_tier(self.tiers[name], field)
        if kind == "lane" and field == "engine_priority" and name in self.lanes:
            return _of_lane(self.lanes[name])
        return None

    def _of_tenant(self, tenant: Tenant, field: str) -> Side | None:
        """As if it said nothing itself; but its lane decides what is allowed without a list."""
        lane = None if field == "lane" else tenant.lane
        bare = Tenant(name=tenant.name, tier=tenant.tier, lane=lane)
        value, origin = origins(bare, self.tiers[tenant.tier]).get(field, (None, "default"))
        if value is None and not field.startswith("limits."):
            return Side("none") if field.startswith("budgets.") and field.count(".") == 1 else None
        return Side(
            "unlimited" if value is None else words(plain_numbers(value)),
            f"tier {tenant.tier}" if origin == "tier" else origin,
        )

    def reach(self, change: Change) -> str:
        """Who of a tier's tenants gets its value, and who says their own."""
        members = self.members.get(change.name, []) if change.kind == "tier" else []
        if not members or not change.field:
            return ""
        own = [tenant.name for tenant in members if _says_itself(tenant, change.field)]
        text = f"reaches {counted(len(members) - len(own), 'tenant')}"
        if not own:
            return text
        return f"{text}; {few(own)} {'says its' if len(own) == 1 else 'say their'} own"


def _of_tier(tier: Tier, field: str) -> Side | None:
    if field.startswith("limits."):
        return Side("unlimited")
    if field == "allowed_lanes":
        return Side(tier.lane, "its lane")
    return Side("none") if field.startswith("budgets.") else None


def _of_lane(lane: Lane) -> Side:
    return Side(str(engine_priority(lane)), "10 × rank")


def _says_itself(tenant: Tenant, field: str) -> bool:
    group, _, rest = field.partition(".")
    if group == "limits":
        return getattr(tenant.limits, rest) is not None
    if group == "budgets":
        return any(budget.name == rest.partition(".")[0] for budget in tenant.budgets)
    return getattr(tenant, group, None) is not None


def words(value: Any) -> str:
    """A value of the document in words: no brackets, no quotes, no True."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,.12g}"
        case list():
            return ", ".join(words(item) for item in value) or "none"
        case Mapping():
            return ", ".join(f"{name}: {text}" for name, text in _leaves(value)) or "all defaults"
    return "unset" if value is None else str(value)


def budget_text(budget: Mapping[str, Any]) -> str:
    if budget["kind"] == "burst":
        return f"{budget['cost']:,.12g} units, refills {budget['refill_per_second']:,.12g} a second"
    return f"{budget['cost']:,.12g} units per {budget['period']}, then {budget['on_exhausted']}"


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _leaves(item, f"{prefix}{name}.")
        elif isinstance(item, list) and item and isinstance(item[0], Mapping):
            yield f"{prefix}{name}", "; ".join(words(each) for each in item)
        else:
            yield f"{prefix}{name}", words(item)


def few(names: list[str]) -> str:
    shown = ", ".join(names[:FEW])
    return f"{shown} and {len(names) - FEW} more" if len(names) > FEW else shown


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def level(part: float) -> Level:
    """How near to its end something is of which so much, 0..1, is used."""
    return "bad" if part >= BAD else "warn" if part >= WARN else ""


def summary(changes: Iterable[Change]) -> str:
    """How many objects of each kind a preview is about, for its heading."""
    objects = Counter(kind for kind, _ in dict.fromkeys((each.kind, each.name) for each in changes))
    return ", ".join(counted(number, kind) for kind, number in objects.items())
