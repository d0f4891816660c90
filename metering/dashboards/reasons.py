"""Why a request was refused, and what helps, in words for whoever sent it.

`throttle_reason` of a usage record is a limit's name, a budget's account, or what became of the
request in the queue. What is not a refusal of ours has its `finish_reason` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol


class Ended(Protocol):
    """What is read of a usage record, as a row or as a `UsageRecord`."""

    status: int
    finish_reason: str
    throttle_reason: str


@dataclass(frozen=True, slots=True)
class Why:
    text: str
    advice: str = ""


RETRY = "Try again after the answer's retry-after."
AGAIN = "Send it again after a pause."
ASK = "Ask an admin."
LIMITS = {
    "requests_per_minute": Why(
        "Too many requests in a minute", "Send fewer requests a minute, or spread them out."
    ),
    "tokens_per_minute": Why(
        "Too many tokens in a minute", "Shorten prompts or outputs, or spread the work out."
    ),
    "max_running": Why(
        "Too many requests at once",
        "Wait for answers before sending more; lower your concurrency.",
    ),
    "max_queued": Why(
        "Too many requests waiting",
        "Wait for answers before sending more; back off when told to.",
    ),
    "max_input_tokens": Why(
        "Prompt too long", "Shorten the prompt, or ask an admin for a higher limit."
    ),
    "max_output_tokens": Why("Output too long", "Ask for fewer tokens with max_tokens."),
    "predicted_wait": Why("The queue was too long to make its lane's time limit", RETRY),
    "queue_timeout": Why("Waited in the queue as long as its lane allows", RETRY),
    "pool_removed": Why("Its model left the policy while it waited", "Ask for another model."),
    "lane_removed": Why("Its lane left the policy while it waited", "Send it again."),
    "tenant_removed": Why("Its tenant left the policy while it waited", ASK),
    "tenant_suspended": Why("Its tenant was suspended while it waited", ASK),
    "shutting_down": Why("The gateway was shutting down", RETRY),
    "key_revoked": Why("Its key was revoked while it waited", "Use another key."),
    "state_unavailable": Why("The gateway could not reach the counters that all share", RETRY),
    "gateway_restart": Why("The gateway was restarted while it ran; its use is an estimate"),
}
SAID = "The answer's message said which."
REJECTED = {  # by status, where no limit decided
    400: Why("It was malformed, or too long for the engine", SAID),
    403: Why("Its tenant was suspended, or may not use this model or lane", SAID),
    404: Why("There is no such model", "GET /v1/models lists those it may use."),
    413: Why("Its body was too large", "Send less at once."),
    503: Why("No endpoint of its model was in service, or the gateway was full or stopping", RETRY),
}
BUDGETS = {  # by its kind
    "burst": "It refills all the time: wait for the answer's retry-after.",
    "sustained": "It starts anew when its window ends.",
}
GONE = "It is not in force any more."
ENDS = {
    "cancelled": Why("The caller went away"),
    "timeout": Why("Took longer than the pool's timeouts", "Ask for less, or try again."),
    "error": Why("The engine failed", AGAIN),
    "rejected": Why("Refused before the queue"),
}


def of_limit(reason: str, kinds: Mapping[str, str] = MappingProxyType({})) -> Why:
    """Of one `throttle_reason`; budgets are named by their account: `tenant:acme/hourly`. `kinds`:
    of the budgets that are in force, by their account."""
    if known := LIMITS.get(reason):
        return known
    kind, colon, name = reason.partition(":")
    if colon and "/" in name:
        owner, _, budget = name.rpartition("/")
        advice = BUDGETS.get(kinds.get(reason, ""), GONE)
        whose = {"application": f"application {owner.rpartition('/')[2]}", "key": f"key fl_{owner}"}
        return Why(f"Budget {budget} of {whose.get(kind, 'the tenant')} was used up", advice)
    return Why(reason, RETRY)


def why(record: Ended | Any, kinds: Mapping[str, str] = MappingProxyType({})) -> Why | None:
    """None where there is nothing to explain: the request was served. `kinds`: as of `of_limit`."""
    if record.throttle_reason:
        return of_limit(record.throttle_reason, kinds)
    if record.finish_reason == "rejected" and record.status in REJECTED:
        return REJECTED[record.status]
    return ENDS.get(record.finish_reason) if record.status >= 400 else None
