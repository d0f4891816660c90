"""Every kind of alert: what raises it, how bad it is, and what it takes unless an admin says
otherwise. A kind without `raised_by_rule` is found where it happens, and only told of here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Level = Literal["warning", "critical"]
LEVELS: tuple[Level, ...] = ("warning", "critical")
Unit = Literal["part", "seconds", "times", ""]
REMIND_HOURS = 12.0


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    label: str
    level: Level
    says: str  # when it is raised; {threshold} and {minutes} are filled in
    do: str  # what whoever is called may do about it
    threshold: float | None = None
    unit: Unit = ""
    least: float = 0.0
    most: float = 1e9
    minutes: int | None = None
    quiet_s: float = 60.0  # it is over once it was not so for that long: no coming and going
    raised_by_rule: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind as it is in force."""

    kind: Kind
    enabled: bool
    level: Level
    threshold: float
    minutes: int
    remind_hours: float  # 0: never again

    @property
    def text(self) -> str:
        shown = shown_threshold(self.kind.unit, self.threshold)
        return self.kind.says.format(threshold=shown, minutes=self.minutes)


def shown_threshold(unit: Unit, value: float) -> str:
    if unit == "part":
        return f"{value * 100:.6g}%"
    return f"{value:.6g} s" if unit == "seconds" else f"{value:.6g}"


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "budget_near",
            "Budget nearly used up",
            "warning",
            "A sustained budget has used {threshold} of its window and is not used up.",
            "See who uses it on the tenant's page; raise the budget, or tell the tenant.",
            threshold=0.8,
            unit="part",
            least=0.01,
            most=1.0,
            quiet_s=0.0,
        ),
        Kind(
            "budget_exhausted",
            "Budget used up",
            "warning",
            "A sustained budget that refuses or demotes has used {threshold} of its window, or is "
            "near that and refuses what no longer fits.",
            "Calls are refused or demoted until its window ends; raise it, or give units back.",
            threshold=1.0,
            unit="part",
            least=0.01,
            most=10.0,
            quiet_s=0.0,
        ),
        Kind(
            "budget_used_up",
            "Calls let in past a budget",
            "warning",
            "A budget with on_exhausted: alert lets calls in past its end.",
            "The budget only warns. Raise it, or set on_exhausted to reject or demote.",
            raised_by_rule=False,
        ),
        Kind(
            "throttle_rate",
            "Many requests throttled",
            "warning",
            "{threshold} of a tenant's requests were throttled within {minutes} minutes, of 20 "
            "or more.",
            "The tenant's usage page tells which limit refused; raise it, or talk to the tenant.",
            threshold=0.5,
            unit="part",
            least=0.01,
            most=1.0,
            minutes=5,
        ),
        Kind(
            "queue_p95",
            "Long queue time",
            "warning",
            "The p95 queue time of a lane over {minutes} minutes, of 20 requests or more, is past "
            "{threshold} of its max_queue_seconds.",
            "Look who holds the capacity on the overview; add an endpoint, or lower a weight.",
            threshold=0.5,
            unit="part",
            least=0.01,
            most=1.0,
            minutes=5,
        ),
        Kind(
            "fairness_debt",
            "Fairness debt past its bound",
            "critical",
            "A waiting tenant's fairness debt is past {threshold} times the bound of its pool.",
            "Fairness does not hold there. Keep the gateway's log and report it as a fault.",
            threshold=1.0,
            unit="times",
            least=0.1,
            most=100.0,
        ),
        Kind(
            "starved_lane",
            "Lane is not served",
            "critical",
            "For {threshold} a lane had requests waiting and none served, while others were.",
            "Give the lane a reserved share, or see what holds its endpoints.",
            threshold=30.0,
            unit="seconds",
            least=5.0,
            most=3600.0,
        ),
        Kind(
            "endpoint_down",
            "Endpoint is down",
            "critical",
            "An endpoint failed its checks, or requests in a row, and is out for {threshold}.",
            "Look at its engine and start it again, or take the endpoint out of its pool.",
            threshold=10.0,
            unit="seconds",
            least=1.0,
            most=3600.0,
        ),
        Kind(
            "no_gateway",
            "No gateway is running",
            "critical",
            "No gateway has told its state for {threshold}.",
            "Start one with manage.py serve; nothing is served until then.",
            threshold=30.0,
            unit="seconds",
            least=10.0,
            most=3600.0,
            quiet_s=0.0,
        ),
        Kind(
            "state_lost",
            "Shared state is out of reach",
            "critical",
            "A gateway cannot reach the shared state.",
            "Bring Redis back. Until then FAIRLANE_STATE_LOSS decides what is served.",
        ),
        Kind(
            "ledger",
            "Stored counter differs from the ledger",
            "critical",
            "A stored budget counter is not what the usage records say.",
            "manage.py usage verify --repair sets it right.",
            raised_by_rule=False,
        ),
        Kind(
            "live_counters",
            "Live counter differs from the ledger",
            "critical",
            "A gateway's own budget counter is not what the usage records say.",
            "manage.py usage verify --repair sets it right.",
            raised_by_rule=False,
        ),
        Kind(
            "undelivered",
            "Alerts are not delivered",
            "critical",
            "Messages to a destination failed again and again, and were given up.",
            "Mend the destination, and send it a test message.",
            raised_by_rule=False,
        ),
    )
}


def usual(kind: Kind) -> Rule:
    return Rule(kind, True, kind.level, kind.threshold or 0.0, kind.minutes or 0, REMIND_HOURS)


def label(name: str) -> str:
    kind = KINDS.get(name)
    return kind.label if kind else name.replace("_", " ").capitalize()
