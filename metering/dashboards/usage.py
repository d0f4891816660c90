"""One tenant's own usage. Every query here is confined to that tenant."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from metering import selectors
from metering.dashboards import figures, live
from metering.dashboards.ranges import Grid, Range

ADVICE = {
    "requests_per_minute": "Send fewer requests a minute, or spread them out.",
    "tokens_per_minute": "Shorten prompts or outputs, or spread the work out.",
    "max_running": "Wait for answers before sending more; lower your concurrency.",
    "max_queued": "Wait for answers before sending more; back off when told to.",
    "max_input_tokens": "Shorten the prompt, or ask an admin for a higher limit.",
    "max_output_tokens": "Ask for fewer tokens with max_tokens.",
}


def usage(name: str, at: datetime, chosen: Range) -> dict[str, Any]:
    since = at - chosen.length
    shares = selectors.breakdown("tenant", since, at, tenant=name)
    now = live.combine(selectors.latest_samples(at))
    return {
        "share": shares[0] if shares else None,
        "applications": selectors.breakdown("application", since, at, tenant=name),
        "models": selectors.breakdown("model", since, at, tenant=name),
        "throttles": [
            (each.reason, each.count, advice(each.reason))
            for each in selectors.throttles(since, at, tenant=name)
        ],
        "standing": now.tenants.get(name) or live.Standing(),
        "live_known": bool(now.gateways),
        "records": selectors.recent_records(name, 50),
        "figures": charts(name, since, at, chosen),
    }


def charts(name: str, since: datetime, until: datetime, chosen: Range) -> dict[str, figures.Figure]:
    grid = Grid.over(since, until, chosen.step)
    points = selectors.token_series(grid.times[0], until, chosen.step, tenant=name)
    kinds = [("prompt", "prompt_tokens"), ("completion", "completion_tokens")]
    tokens = grid.sums(
        ((p.at, kind, getattr(p, field)) for p in points for kind, field in kinds), empty=0.0
    )
    ends = [(p.at, "served", float(p.requests - p.throttled)) for p in points]
    ends += [(p.at, "throttled", float(p.throttled)) for p in points]
    requests = grid.sums(ends, empty=0.0)
    ink = figures.Ink(["prompt", "completion"])
    ends_ink = figures.Ink(["served", "throttled"])
    drawn = {
        "tokens": figures.stacked(grid.times, tokens, ink, "tokens", percent=False),
        "requests": figures.stacked(grid.times, requests, ends_ink, "requests", percent=False),
    }
    for figure in drawn.values():
        figure["layout"] |= figures.OWN_LEGEND
    return drawn


def advice(reason: str) -> str:
    """What the caller can do about it; budgets are named by their account."""
    if reason in ADVICE:
        return ADVICE[reason]
    if "/" in reason:
        return "A budget was used up; it refills or starts anew as the budgets table tells."
    return "Try again later, as the answer's retry-after says."
