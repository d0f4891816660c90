"""Who held the capacity that one tenant waited for, in service units.

1. Meanwhile is while the tenant had requests waiting in a pool: of a minute in which it waited for
   20 seconds, a third of what the pool served counts.
2. Entitled is what lanes and weights imply among those active in the same minute, and to nobody
   more than it asked for (`fairness`): a lane its reserved share, then lanes by rank the rest; in
   a lane, by weight.
3. The answer names whoever got most beyond that; or says that nobody did, that the tenant's own
   limit held it back, or that it did not wait at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.utils.timezone import localtime

from metering.counting import Total
from metering.dashboards import figures, ranges
from metering.dashboards.charts import Chart
from metering.dashboards.fairness import Claim, asked_for, filled, waiting_part
from metering.dashboards.ranges import Span
from metering.dashboards.watching import Board, Watch
from metering.live_history import Past, past
from tenants.core.document import Document
from tenants.core.effective import limits_of, tier_of

FINE = timedelta(hours=6.5)  # up to here minute by minute; longer ones in the chart's steps
NOTICEABLE = 0.05  # beyond its entitled share, of all units
OWN_LIMIT = 0.9  # of its own max_running

FIELDS = ("observed_s", "queued_s", "running_s", "waiting_s", "served", "weight")

Active = dict[tuple[str, str], Past]  # (lane, tenant) -> how it was, in one pool and minute


@dataclass(slots=True)
class Holder:
    units: float = 0.0
    entitled: float = 0.0


@dataclass(slots=True)
class Case:
    """What one tenant waited for, and who had it."""

    tenant: str
    waited_s: float = 0.0
    waiting_s: float = 0.0
    running_s: float = 0.0  # its own requests, while others of it waited
    lanes: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None
    holders: dict[str, Holder] = field(default_factory=lambda: defaultdict(Holder))

    @property
    def units(self) -> float:
        return sum(holder.units for holder in self.holders.values())

    def share(self, name: str) -> float:
        return self.holders[name].units / self.units if self.units else 0.0

    def entitled(self, name: str) -> float:
        return self.holders[name].entitled / self.units if self.units else 0.0

    @property
    def worst(self) -> str | None:
        """Of the others, who got most beyond its share."""
        others = [name for name in self.holders if name != self.tenant]
        beyond = {name: self.share(name) - self.entitled(name) for name in others}
        name = max(beyond, key=lambda each: beyond[each], default=None)
        return name if name is not None and beyond[name] >= NOTICEABLE else None


def neighbours(watch: Watch) -> Board:
    """`watch` is over all tenants; the one in question is its filter."""
    who = watch.filters.tenant
    if not who:
        return Board([], {"who": "", "names": [each.name for each in watch.document.tenants]})
    edges, step = fine(watch.span)
    by, only = ("pool", "lane", "tenant"), {"pool": watch.filters.pool}
    found = past(edges, "tenant", by, only, FIELDS)
    case, served, waiting = judge(who, found, edges, watch)
    total = watch.by_tenant.get(who)
    context = {
        "who": who,
        "case": case,
        "sentence": sentence(case, watch, total),
        "remedy": remedy(case, watch.document),
        "rows": rows(case, watch),
        "total": total,
        "names": [each.name for each in watch.document.tenants],
        "step_text": _step(step) if step > ranges.MINUTE else "",
    }
    return Board([chart(case, served, waiting, watch)], context)


def fine(span: Span) -> tuple[list[datetime], timedelta]:
    step = ranges.MINUTE if span.until - span.since <= FINE else span.step
    return replace(span, step=step).edges, step


def judge(
    who: str,
    found: Mapping[tuple[int, tuple[str, ...]], Past],
    edges: list[datetime],
    watch: Watch,
) -> tuple[Case, dict[str, list[float | None]], list[float | None]]:
    case, ranks = Case(who), Lanes(watch.document)
    moments: dict[tuple[int, str], Active] = defaultdict(dict)
    for (step, (pool, lane, tenant)), each in found.items():
        moments[step, pool][lane, tenant] = each
    units: list[tuple[int, str, float | None]] = []
    queued: list[tuple[int, str, float | None]] = []
    for (step, _), active in sorted(moments.items(), key=lambda each: each[0]):
        length = (edges[step + 1] - edges[step]).total_seconds()
        place = watch.grid.place(edges[step])
        part = add(case, active, length, ranks)
        mine = [each.queued_s for (_, name), each in active.items() if name == who]
        if mine:
            queued.append((place, who, sum(mine)))
        if part:
            case.first = case.first or edges[step]
            case.last = edges[step + 1]
            units += [(place, n, max(0.0, e.served) * part) for (_, n), e in active.items()]
    waiting = watch.grid.rows(queued, 0.0).get(who, [0.0] * len(watch.grid.times))
    mean: list[float | None] = [
        (value or 0.0) / (60 * minutes)
        for value, minutes in zip(waiting, watch.grid.minutes, strict=True)
    ]
    return case, watch.grid.rows(units, 0.0), mean


def add(case: Case, active: Active, length: float, lanes: Lanes) -> float:
    """Adds one pool's minute; returns for which part of it the tenant waited there."""
    mine = {lane: each for (lane, name), each in active.items() if name == case.tenant}
    waiting_s = max((each.waiting_s for each in mine.values()), default=0.0)
    part = min(1.0, waiting_s / length)
    if not part:
        return 0.0
    case.waiting_s += waiting_s
    case.waited_s += sum(each.queued_s for each in mine.values())
    case.running_s += part * sum(each.running_s for each in mine.values())
    case.lanes |= {lane for lane, each in mine.items() if each.waiting_s}
    for (_, name), each in active.items():
        case.holders[name].units += part * max(0.0, each.served)
    for (_, name), units in lanes.entitled(active, case.tenant).items():
        case.holders[name].entitled += part * units
    return part


class Lanes:
    """Entitled units of those who are active in a pool at one moment."""

    def __init__(self, document: Document) -> None:
        self._ranks = {lane.name: lane.rank for lane in document.lanes}
        self._reserved = {lane.name: lane.reserved_share for lane in document.lanes}

    def entitled(self, active: Active, who: str) -> dict[tuple[str, str], float]:
        """`who` waits all the time that is looked at."""
        lanes: dict[str, dict[tuple[str, str], Claim]] = defaultdict(dict)
        for (lane, name), each in active.items():
            waiting = 1.0 if name == who and each.waiting_s else waiting_part(each)
            claim = Claim(each.weight, asked_for(max(0.0, each.served), waiting))
            lanes[lane][lane, name] = claim
        whole = sum(max(0.0, each.served) for each in active.values())
        asked = {lane: sum(c.asked for c in claims.values()) for lane, claims in lanes.items()}
        found: dict[tuple[str, str], float] = {}
        for lane, units in self._by_lane(whole, asked).items():
            found |= filled(units, lanes[lane])
        return found

    def _by_lane(self, whole: float, asked: Mapping[str, float]) -> dict[str, float]:
        given = {lane: min(self._reserved.get(lane, 0.0) * whole, asked[lane]) for lane in asked}
        for lane in sorted(asked, key=lambda name: self._ranks.get(name, len(self._ranks))):
            given[lane] += min(max(0.0, whole - sum(given.values())), asked[lane] - given[lane])
        return given


def sentence(case: Case, watch: Watch, total: Total | None) -> str:
    """One sentence that says why it was slow, as far as the queue is why."""
    who, first, last = case.tenant, case.first, case.last
    if first is None or last is None:
        return _did_not_wait(who, watch.span, total)
    lanes = " and ".join(sorted(case.lanes))
    waited = f"{who}'s requests waited {_waited(case.waited_s)} together in {lanes}"
    told = f"Between {_clock(first, last)} {waited}"
    if limit := _at_own_limit(case, watch.document):
        return f"{told}; meanwhile it had all {limit} requests running that its own limit allows."
    if not case.units:
        return f"{told}; nothing was served meanwhile: look at the pool's endpoints."
    told = f"{told}; of the {_amount(case.units)} units served meanwhile"
    worst = case.worst
    if worst is not None:
        return f"{told} {worst} got {_got(case, worst)}."
    told = f"{told} it got {_got(case, who)}"
    if case.share(who) - case.entitled(who) >= NOTICEABLE:
        return f"{told}: it asked for more."
    return f"{told}, and nobody got far beyond what they give: there was more work than capacity."


def remedy(case: Case, document: Document) -> tuple[str, list[str]]:
    """What to change, and whose limits and weight that are; nothing where policy is not why."""
    who, worst = case.tenant, case.worst
    if not case.units:
        return "", []
    if _at_own_limit(case, document):
        return f"What helps: more “running at once” for {who}.", [who]
    if worst is not None:
        helps = (
            f"What helps: less “running at once” for {worst}, since what runs is not taken back, "
            f"or more weight for {who}. Then look here again: a change holds within a second."
        )
        return helps, [worst, who]
    return f"What helps: another endpoint of its pool, or more weight for {who}.", [who]


def _at_own_limit(case: Case, document: Document) -> int | None:
    """The limit on what it runs at once, where that is what held it back."""
    limit = own_limit(case.tenant, document)
    full = limit and case.running_s / case.waiting_s >= OWN_LIMIT * limit
    return limit if full else None


def _got(case: Case, name: str) -> str:
    itself = " itself" if name == case.tenant else ""
    due = f"lanes and weights give it {case.entitled(name):.0%}"
    return f"{case.share(name):.0%}{itself}, where {due}"


def _did_not_wait(who: str, span: Span, total: Total | None) -> str:
    if total is None:
        return f"{who} sent nothing in {span.label}."
    ttft, queue = total.quantile("ttft_ms", 0.95), total.quantile("queue_ms", 0.95) or 0.0
    if ttft is None:
        return f"{who} did not wait for others in {span.label}."
    return (
        f"{who} did not wait for others in {span.label}: its first token took {_seconds(ttft)} at "
        f"p95, {_seconds(queue)} of queue among it, so look at the model and its engines."
    )


def own_limit(name: str, document: Document) -> int | None:
    tenant = next((each for each in document.tenants if each.name == name), None)
    if tenant is None:
        return None
    return limits_of(tenant, tier_of(tenant, document)).get("max_running")


def rows(case: Case, watch: Watch) -> list[dict[str, object]]:
    """Everybody who was served meanwhile, most units first."""
    return [
        {
            "name": name,
            "colour": watch.ink.colour(name),
            "units": holder.units,
            "share": case.share(name),
            "entitled": case.entitled(name),
            "beyond": case.share(name) - case.entitled(name),
        }
        for name, holder in sorted(case.holders.items(), key=lambda each: -each[1].units)
    ]


def chart(
    case: Case,
    served: dict[str, list[float | None]],
    waiting: list[float | None],
    watch: Watch,
) -> Chart:
    grid = watch.grid
    values = {name: served[name] for name in watch.ink.order(served)}
    figure = figures.held(grid.times, grid.a_minute(values), waiting, case.tenant, watch.ink)
    return watch.over_time(
        "held",
        "Who held what it waited for",
        values | {f"{case.tenant} waiting": waiting},
        figures.with_legend(figure),
        f"units a minute, served while {case.tenant} waited; dotted: its waiting requests",
        empty=f"{case.tenant} did not wait in this range. Choose another one.",
        wide=True,
    )


def _step(step: timedelta) -> str:
    minutes = int(step / ranges.MINUTE)
    return f"{minutes} minutes" if minutes < 60 else f"{minutes // 60} hours"


def _clock(first: datetime, last: datetime) -> str:
    same = localtime(first).date() == localtime(last).date()
    form = "%H:%M" if same else "%d %b %H:%M"
    return f"{localtime(first):{form}} and {localtime(last):{form}}"


def _amount(value: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            scale = 1e3 if unit == " k" else size
            return f"{value / scale:.3g}{unit}"
    return f"{value:,.0f}"


def _waited(seconds: float) -> str:
    """Of all its requests together."""
    return f"{seconds:,.0f} s" if seconds < 10_000 else f"{seconds / 3600:,.1f} h"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"
