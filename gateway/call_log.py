"""One line in the log for a call that has ended: `FAIRLANE_LOG_CALLS` says for which.

It holds ids, names of the policy, codes and numbers. A caller's or an engine's own words do not
stand in it: either may be a prompt.
"""

from __future__ import annotations

import time

import structlog

from gateway.run import Run

log = structlog.get_logger("fairlane.calls")


def note(run: Run, wanted: str) -> None:
    """`wanted` is `none`, `failed` (by gateway, engine or overload: 5xx) or `all`."""
    failed = run.outcome.answer.status >= 500
    if wanted == "none" or (wanted == "failed" and not failed):
        return
    tell = log.warning if failed else log.info
    tell("call ended", **{name: value for name, value in _about(run).items() if value != ""})


def _about(run: Run) -> dict[str, str | int | float]:
    now = time.monotonic()
    usage, source = run.final_usage()
    who, plan = run.who, run.plan
    return {
        "request_id": run.request_id,
        "trace_id": run.trace.id,
        "tenant": who.tenant.name if who else "",
        "application": who.application.name if who else "",
        "model": plan.pool.model if plan else "",
        "lane": run.lane,
        "endpoint": run.endpoint,
        "status": run.outcome.answer.status,
        "outcome": run.outcome.value,
        "throttle_reason": run.throttle_reason,
        "queue_ms": round(run.place.queue_s * 1000, 1) if run.place else "",
        "ttft_ms": round((run.first_at - run.began) * 1000, 1) if run.first_at else "",
        "e2e_ms": round((now - run.began) * 1000, 1),
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "usage_source": source,
    }
