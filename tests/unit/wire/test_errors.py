"""Each outcome has its answer everywhere, and clients are told what to do next."""

import json
import math
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import (
    ANSWERS,
    ApiError,
    Outcome,
    anthropic_body,
    headers,
    openai_body,
    sse_error_event,
)
from metering.core.record import FinishReason

CONTRACT_CODES = {
    "ok": 200,
    "invalid_request": 400,
    "context_length_exceeded": 400,
    "output_limit_exceeded": 400,
    "invalid_api_key": 401,
    "tenant_suspended": 403,
    "model_not_allowed": 403,
    "lane_not_allowed": 403,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "client_closed": 499,
    "engine_error": 502,
    "engine_timeout": 504,
    "overloaded": 503,
    "queue_timeout": 503,
    "no_endpoint": 503,
    "state_unavailable": 503,
}


def header(error: ApiError, name: bytes) -> bytes | None:
    return dict(headers(error)).get(name)


def test_the_outcomes_are_those_of_the_contract() -> None:
    assert {outcome.value: outcome.answer.status for outcome in Outcome} == CONTRACT_CODES


def test_every_outcome_has_an_answer_and_no_answer_is_left_over() -> None:
    assert set(ANSWERS) == set(Outcome)


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_lacks_nothing(outcome: Outcome) -> None:
    answer = outcome.answer
    assert outcome.value.isidentifier(), "metric label"
    assert answer.console, "console label"
    assert answer.finish_reason in get_args(FinishReason)
    assert 200 <= answer.status < 600
    if outcome is not Outcome.OK:
        assert answer.openai_type
        assert answer.anthropic_type


def test_console_labels_can_be_told_apart() -> None:
    assert len({outcome.answer.console for outcome in Outcome}) == len(Outcome)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o.answer.status in (429, 503)])
def test_every_429_and_503_says_when_to_come_back(outcome: Outcome) -> None:
    assert header(ApiError(outcome, "full", retry_after_s=0.2), b"retry-after") == b"1"
    assert header(ApiError(outcome, "full", retry_after_s=0.2), b"retry-after-ms") == b"200"
    assert header(ApiError(outcome, "full"), b"retry-after") == b"1"


@pytest.mark.parametrize("outcome", [o for o in Outcome if o.answer.status not in (429, 503)])
def test_nothing_else_does(outcome: Outcome) -> None:
    assert header(ApiError(outcome, "no", retry_after_s=5), b"retry-after") is None


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_wait_is_whole_seconds_rounded_up_whatever_it_was(wait: float) -> None:
    error = ApiError(Outcome.RATE_LIMIT_EXCEEDED, "wait", retry_after_s=wait)
    seconds = int(header(error, b"retry-after") or b"0")
    assert 1 <= seconds <= 367 * 86_400
    if 0 <= wait <= 31 * 86_400:
        assert seconds == max(1, math.ceil(wait))


def test_a_used_up_quota_says_not_to_retry() -> None:
    error = ApiError(Outcome.INSUFFICIENT_QUOTA, "budget hourly is used up", retry_after_s=1800)
    assert header(error, b"x-should-retry") == b"false"
    assert header(error, b"retry-after") == b"1800"
    assert json.loads(openai_body(error))["error"]["type"] == "insufficient_quota"


@pytest.mark.parametrize(("wait_s", "said"), [(61, None), (120, None), (121, b"false")])
def test_nobody_sleeps_long_unseen(wait_s: float, said: bytes | None) -> None:
    error = ApiError(Outcome.RATE_LIMIT_EXCEEDED, "the bucket refills", retry_after_s=wait_s)
    assert header(error, b"x-should-retry") == said
    assert header(error, b"retry-after") == str(wait_s).encode()


def test_an_unknown_key_is_told_which_scheme_to_use() -> None:
    assert header(ApiError(Outcome.INVALID_API_KEY, "no"), b"www-authenticate") == b"Bearer"


def test_headers_given_with_an_error_come_first() -> None:
    extra = (b"x-ratelimit-limit-requests", b"60")
    assert headers(ApiError(Outcome.RATE_LIMIT_EXCEEDED, "wait", headers=[extra]))[0] == extra


def test_openai_clients_get_their_four_fields() -> None:
    body = openai_body(ApiError(Outcome.INVALID_REQUEST, "n is odd", param="n"))
    assert json.loads(body) == {
        "error": {
            "message": "n is odd",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_request",
        }
    }


def test_anthropic_clients_get_theirs() -> None:
    body = anthropic_body(ApiError(Outcome.OVERLOADED, "busy"), request_id="req_1")
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "busy"},
        "request_id": "req_1",
    }


def test_a_broken_stream_ends_with_one_error_event_and_no_done() -> None:
    event = sse_error_event(ApiError(Outcome.ENGINE_ERROR, "line one\nline two"))
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
    assert json.loads(event[6:])["error"]["code"] == "engine_error"


@given(st.text(st.characters(codec=None)))
def test_any_message_can_be_sent(message: str) -> None:
    json.loads(openai_body(ApiError(Outcome.ENGINE_ERROR, message)))


def test_the_modules_here_do_no_io_and_own_no_clock() -> None:
    root = Path(__file__).resolve().parents[3] / "gateway"
    for path in [root / "errors.py", root / "dialects.py", *(root / "wire").glob("*.py")]:
        text = path.read_text()
        for name in ("django", "asyncio", "httpx", "socket", "time", "random", "threading"):
            assert f"import {name}" not in text, path
            assert f"from {name}" not in text, path
