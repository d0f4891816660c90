"""Why a call that passed admission got no place, in words for its caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.errors import ApiError, Outcome, come_back
from gateway.governor import NoPlace, Overloaded
from scheduling.core.model import DropReason
from tenants.core.snapshot import LanePolicy

STATE_LOST_S = 2.0  # when to come back while the shared state is out of reach


def shed_error(shed: Overloaded) -> ApiError:
    return ApiError(
        Outcome.OVERLOADED,
        f"The expected wait in lane '{shed.lane.name}' is {shed.wait_s:.0f} s, past its limit of "
        f"{shed.lane.max_queue_seconds:g} s (max_queue_seconds).",
        retry_after_s=shed.wait_s - shed.lane.max_queue_seconds,
    )


def state_error() -> ApiError:
    return ApiError(
        Outcome.STATE_UNAVAILABLE,
        "The gateway cannot reach the state that it shares with others, and lets no call in until "
        f"it can. {come_back(STATE_LOST_S)}",
        retry_after_s=STATE_LOST_S,
    )


LOST: Mapping[DropReason, tuple[Outcome, Callable[[LanePolicy, str], str]]] = {
    "queue_timeout": (
        Outcome.QUEUE_TIMEOUT,
        lambda lane, _: (
            f"No place came free in lane '{lane.name}' within {lane.max_queue_seconds:g} s, its "
            f"max_queue_seconds. {come_back(None)}"
        ),
    ),
    "pool_removed": (
        Outcome.NO_ENDPOINT,
        lambda _, model: f"The model '{model}' was taken out of service while the call waited.",
    ),
    "lane_removed": (
        Outcome.NO_ENDPOINT,
        lambda lane, _: f"The lane '{lane.name}' was removed while the call waited. Send it again.",
    ),
    "tenant_removed": (
        Outcome.TENANT_SUSPENDED,
        lambda *_: "The tenant was removed while the call waited.",
    ),
    "tenant_suspended": (
        Outcome.TENANT_SUSPENDED,
        lambda *_: "The tenant was suspended while the call waited.",
    ),
    "key_revoked": (
        Outcome.INVALID_API_KEY,
        lambda *_: "The API key was revoked or expired while the call waited.",
    ),
    "shutting_down": (
        Outcome.OVERLOADED,
        lambda *_: "This gateway is stopping. Send the call again.",
    ),
}


def lost_place(lost: NoPlace, model: str) -> ApiError:
    outcome, message = LOST[lost.reason]
    return ApiError(outcome, message(lost.lane, model))
