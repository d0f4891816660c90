"""Only listed headers cross the gateway, and who a caller is comes from the key alone."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ApiError, Outcome
from gateway.wire.headers import (
    duration,
    ratelimit_headers,
    read,
    to_caller,
    to_engine,
)
from metering.core.hold import RateState

KEY = (b"authorization", b"Bearer fl-alice")


def refusal(*headers: tuple[bytes, bytes]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(headers)
    return caught.value


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer fl-alice")],
        [(b"authorization", b"bearer   fl-alice ")],
        [(b"x-api-key", b"fl-alice")],
        [(b"x-api-key", b"fl-alice"), (b"authorization", b"Bearer fl-alice")],
        [(b"x-api-key", b"fl-alice"), (b"authorization", b"Basic dTpw")],
    ],
)
def test_the_key_is_found_wherever_clients_put_it(headers: list[tuple[bytes, bytes]]) -> None:
    assert read(headers).key == b"fl-alice"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"fl-alice")],
        [(b"x-api-key", b"")],
        [(b"x-api-key", b"k" * 600)],
    ],
)
def test_no_key_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    assert refusal(*headers).outcome is Outcome.INVALID_API_KEY


@pytest.mark.parametrize("second", [(b"x-api-key", b"fl-bob"), (b"authorization", b"Bearer bob")])
def test_two_different_keys_are_refused_and_not_repeated(second: tuple[bytes, bytes]) -> None:
    error = refusal(KEY, second)
    assert error.outcome is Outcome.INVALID_API_KEY
    assert "alice" not in error.message
    assert "bob" not in error.message


def test_only_what_is_listed_reaches_the_engine() -> None:
    trusted = [
        (b"accept", b"text/event-stream"),
        (b"user-agent", b"curl"),
        (b"traceparent", b"00-aa-bb-01"),
    ]
    dangerous = [
        b"x-tenant-id",
        b"x-priority",
        b"x-vllm-priority",
        b"x-fairlane-lane",
        b"x-fairlane-tenant",
        b"x-llm-d-inference-fairness-id",
        b"x-gateway-inference-objective",
        b"x-data-parallel-rank",
        b"x-forwarded-for",
        b"forwarded",
        b"cookie",
        b"host",
        b"connection",
        b"transfer-encoding",
        b"content-length",
        b"accept-encoding",
        b"te",
        b"content-type",
        b"upgrade",
        b"x-request-id",
    ]
    asked = read(
        [KEY, (b"x-api-key", b"fl-alice"), *trusted, *((name, b"B") for name in dangerous)]
    )
    sent = to_engine(asked, "req-1", [(b"x-vllm-priority", b"10")])
    ours = [(b"content-type", b"application/json"), (b"x-request-id", b"req-1")]
    assert sent == [*trusted, *ours, (b"x-vllm-priority", b"10")]


def test_only_what_is_listed_comes_back() -> None:
    answer = [
        (b"Content-Type", b"text/event-stream"),
        (b"Retry-After", b"7"),
        (b"set-cookie", b"a=b"),
        (b"server", b"uvicorn"),
        (b"x-request-id", b"the engine's"),
        (b"x-ratelimit-limit-requests", b"9"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"10"),
    ]
    assert to_caller(answer) == [(b"content-type", b"text/event-stream"), (b"retry-after", b"7")]


def test_lane_and_interaction_are_read() -> None:
    asked = read([KEY, (b"x-fairlane-lane", b"async-batch"), (b"x-fairlane-interaction", b"a:1/2")])
    assert (asked.lane, asked.interaction) == ("async-batch", "a:1/2")
    assert (read([KEY]).lane, read([KEY]).interaction) == ("", "")


@pytest.mark.parametrize("name", [b"x-fairlane-lane", b"x-fairlane-interaction"])
@pytest.mark.parametrize("value", [b"a b", b"x" * 200, b"caf\xe9", b"a\x00", b"a,b", b"a;b"])
def test_odd_lanes_and_interactions_are_refused_by_name(name: bytes, value: bytes) -> None:
    error = refusal(KEY, (name, value))
    assert error.outcome is Outcome.INVALID_REQUEST
    assert error.param == name.decode()
    assert str(error).startswith(f"{name.decode()} takes ")


def test_the_refusal_of_an_interaction_names_each_sign_that_it_may_have() -> None:
    name = b"x-fairlane-interaction"
    told = str(refusal(KEY, (name, b"a b"))).partition("digits and ")[2].removesuffix(" signs")
    value = "a" + told.replace(" ", "")
    assert read([KEY, (name, value.encode())]).interaction == value


def test_a_lane_given_twice_must_agree() -> None:
    lane = b"x-fairlane-lane"
    assert refusal(KEY, (lane, b"a"), (lane, b"b")).param == "x-fairlane-lane"
    assert read([KEY, (lane, b"a"), (lane, b"a")]).lane == "a"


def test_what_connection_names_goes_one_hop_only() -> None:
    passing = [(b"traceparent", b"00-1"), (b"accept", b"*/*")]
    for connection in (b"keep-alive, TraceParent", b"traceparent", b"x, traceparent ,close"):
        asked = read([KEY, *passing, (b"connection", connection)])
        assert asked.to_engine == [(b"accept", b"*/*")]
    for connection in (b"keep-alive", b"Close", b""):
        assert read([KEY, *passing, (b"connection", connection)]).to_engine == passing
    told = [(b"Content-Type", b"a/b"), (b"Retry-After", b"5")]
    assert to_caller([*told, (b"Connection", b"Retry-After")]) == [(b"content-type", b"a/b")]
    assert len(to_caller([*told, (b"Connection", b"keep-alive")])) == 2


names = st.sampled_from(
    [b"authorization", b"x-api-key", b"x-fairlane-lane", b"x-fairlane-interaction", b"x-request-id"]
)


@given(st.lists(st.tuples(names | st.binary(max_size=20), st.binary(max_size=30)), max_size=6))
def test_no_headers_raise_anything_but_a_refusal(headers: list[tuple[bytes, bytes]]) -> None:
    caught = None
    try:
        read(headers)
    except ApiError as error:
        caught = error
    assert caught is None or caught.status in (400, 401)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, b"0s"),
        (-1, b"0s"),
        (float("inf"), b"0s"),
        (float("nan"), b"0s"),
        (0.0001, b"1ms"),
        (0.012, b"12ms"),
        (1, b"1s"),
        (2.007, b"2.007s"),
        (8.64, b"8.64s"),
        (59.9999, b"1m0s"),
        (360, b"6m0s"),
        (3605, b"1h0m5s"),
    ],
)
def test_durations_read_as_openai_s(seconds: float, text: bytes) -> None:
    assert duration(seconds) == text


@given(st.floats(0.001, 10**6))
def test_a_duration_is_never_too_short(seconds: float) -> None:
    form = rb"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:(\d+)ms)?"
    hours, minutes, secs, ms = (
        float(part or 0) for part in re.fullmatch(form, duration(seconds)).groups()
    )
    told = hours * 3600 + minutes * 60 + secs + ms / 1000
    assert seconds - 1e-6 <= told < seconds + 0.0011


def test_limits_are_told_and_missing_ones_left_out() -> None:
    assert ratelimit_headers(RateState()) == []
    told = ratelimit_headers(RateState(60, 59, 1.0, 1000, -5, 90.0))
    assert told == [
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"59"),
        (b"x-ratelimit-reset-requests", b"1s"),
        (b"x-ratelimit-limit-tokens", b"1000"),
        (b"x-ratelimit-remaining-tokens", b"0"),
        (b"x-ratelimit-reset-tokens", b"1m30s"),
    ]
