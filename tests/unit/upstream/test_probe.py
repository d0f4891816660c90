"""Endpoints leave and come back by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.upstream.probe import FAULTS, EndpointProber
from tests.over_httpx import client_over

ALICE, BOB = "http://alice:9101/v1", "http://bob:9102/v1"
Event = tuple[str, str, bool, str]


class Engines:
    """What each address answers now; an exception is raised, a status returned."""

    def __init__(self) -> None:
        self.answers: dict[str, int | Exception] = {}
        self.asked: list[str] = []
        self.events: asyncio.Queue[Event] = asyncio.Queue()

    def answer(self, request: httpx.Request) -> httpx.Response:
        url = str(request.url)
        self.asked.append(url)
        answer = self.answers.get(url, 200)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer)

    def heard(self, pool: str, url: str, healthy: bool, reason: str) -> None:
        self.events.put_nowait((pool, url, healthy, reason))

    async def next_event(self) -> Event:
        async with asyncio.timeout(60):
            return await self.events.get()

    async def checked(self, times: int = 3) -> None:
        """Wait for some more checks to be over."""
        target = len(self.asked) + times
        async with asyncio.timeout(60):
            while len(self.asked) < target:
                await asyncio.sleep(0.001)


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
async def prober(engines: Engines) -> AsyncIterator[EndpointProber]:
    client = client_over(httpx.MockTransport(engines.answer))
    prober = EndpointProber(engines.heard, client, interval_s=0.005, timeout_s=5)
    yield prober
    await prober.aclose()


async def test_a_healthy_endpoint_is_not_reported(prober: EndpointProber, engines: Engines) -> None:
    prober.configure({"chat": [ALICE]})
    await engines.checked()
    assert set(engines.asked) == {"http://alice:9101/health"}
    assert engines.events.empty()
    assert prober.is_healthy("chat", ALICE)


async def test_an_engine_below_a_path_is_asked_there(
    prober: EndpointProber, engines: Engines
) -> None:
    """Another service may answer at the host's root."""
    prober.configure({"chat": ["http://ingress/llm/a/v1"]})
    await engines.checked()
    assert set(engines.asked) == {"http://ingress/llm/a/health"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.ConnectError("refused"), "its check failed: refused"),
        (httpx.ReadTimeout("slow"), "its check failed: slow"),
        (ValueError("odd"), "its check failed: ValueError: odd"),
        (503, "its check answered 503"),
    ],
)
async def test_a_dead_endpoint_leaves_and_comes_back_when_it_answers_again(
    prober: EndpointProber, engines: Engines, answer: int | Exception, reason: str
) -> None:
    engines.answers["http://alice:9101/health"] = answer
    prober.configure({"chat": [ALICE, BOB]})
    assert await engines.next_event() == ("chat", ALICE, False, reason)
    assert prober.fault("chat", ALICE) == reason
    assert not prober.is_healthy("chat", ALICE)
    engines.answers.clear()
    assert await engines.next_event() == ("chat", ALICE, True, "its check succeeded")
    assert engines.events.empty()
    assert prober.fault("chat", ALICE) == ""


async def test_one_failed_check_is_not_enough(prober: EndpointProber, engines: Engines) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        engines.asked.append(str(request.url))
        return httpx.Response(503 if len(engines.asked) == 1 else 200)

    client = client_over(httpx.MockTransport(answer))
    watcher = EndpointProber(engines.heard, client, interval_s=0.005)
    watcher.configure({"chat": [ALICE]})
    await engines.checked(4)
    assert engines.events.empty()
    await watcher.aclose()


@pytest.mark.parametrize(("models", "healthy"), [(200, True), (401, True), (500, False)])
async def test_without_a_health_page_the_models_decide(
    prober: EndpointProber, engines: Engines, models: int, healthy: bool
) -> None:
    engines.answers = {"http://alice:9101/health": 404, f"{ALICE}/models": models}
    prober.configure({"chat": [ALICE]})
    await engines.checked(6)
    assert f"{ALICE}/models" in engines.asked
    assert prober.is_healthy("chat", ALICE) is healthy


async def test_a_request_that_could_not_connect_takes_the_endpoint_out_at_once(
    prober: EndpointProber, engines: Engines
) -> None:
    prober.configure({"chat": [ALICE]})
    prober.failed("chat", ALICE)
    assert engines.events.get_nowait() == ("chat", ALICE, False, "a request could not connect")
    assert (await engines.next_event())[2] is True


async def test_an_endpoint_is_watched_for_each_pool_apart(
    prober: EndpointProber, engines: Engines
) -> None:
    prober.configure({"chat": [ALICE], "embed": [ALICE]})
    prober.failed("embed", ALICE)
    assert prober.is_healthy("chat", ALICE)
    assert not prober.is_healthy("embed", ALICE)


async def test_a_new_configuration_keeps_what_is_known_and_forgets_what_is_gone(
    prober: EndpointProber, engines: Engines
) -> None:
    engines.answers["http://alice:9101/health"] = 500
    engines.answers["http://bob:9102/health"] = 500
    prober.configure({"chat": [ALICE, BOB]})
    assert {(await engines.next_event())[1] for _ in range(2)} == {ALICE, BOB}
    prober.configure({"chat": [ALICE]})
    assert not prober.is_healthy("chat", ALICE)
    engines.answers.clear()
    assert (await engines.next_event())[:3] == ("chat", ALICE, True)
    engines.asked.clear()
    await engines.checked()
    assert "http://bob:9102/health" not in engines.asked
    prober.failed("chat", BOB)  # a request that was under way
    assert engines.events.empty()


async def test_a_faulty_listener_does_not_end_the_watch(
    engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    def listener(pool: str, url: str, healthy: bool, reason: str) -> None:
        engines.heard(pool, url, healthy, reason)
        raise RuntimeError("a bug")

    client = client_over(httpx.MockTransport(engines.answer))
    prober = EndpointProber(listener, client, interval_s=0.005)
    engines.answers["http://alice:9101/health"] = 500
    prober.configure({"chat": [ALICE]})
    assert (await engines.next_event())[2] is False
    engines.answers.clear()
    assert (await engines.next_event())[2] is True
    assert "on_change failed" in caplog.text
    await prober.aclose()


async def test_an_engine_that_never_ends_its_answer_is_slow_not_healthy(engines: Engines) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    client = client_over(httpx.MockTransport(answer))
    prober = EndpointProber(engines.heard, client, interval_s=0.005, timeout_s=0.01)
    prober.configure({"chat": [ALICE]})
    reason = (await engines.next_event())[3]
    assert reason == "its check took longer than 0.01 s"
    await prober.aclose()


async def test_closed_it_leaves_no_task(engines: Engines) -> None:
    before = asyncio.all_tasks()
    client = client_over(httpx.MockTransport(engines.answer))
    prober = EndpointProber(engines.heard, client, interval_s=0.005)
    prober.configure({"chat": [ALICE, BOB]})
    await engines.checked()
    assert len(asyncio.all_tasks() - before) == 2
    await prober.aclose()
    assert asyncio.all_tasks() == before


@pytest.fixture
async def strict(engines: Engines) -> AsyncIterator[EndpointProber]:
    """Of one that fails requests it stays away for long."""
    client = client_over(httpx.MockTransport(engines.answer))
    prober = EndpointProber(engines.heard, client, interval_s=0.005, timeout_s=5, eject_s=60)
    yield prober
    await prober.aclose()


def fail(prober: EndpointProber, url: str, times: int) -> None:
    for _ in range(times):
        prober.faulty("chat", url)


async def test_one_that_passes_its_checks_and_fails_requests_is_left(
    strict: EndpointProber, engines: Engines
) -> None:
    strict.configure({"chat": [ALICE, BOB]})
    fail(strict, ALICE, FAULTS - 1)
    strict.answered("chat", ALICE)
    fail(strict, ALICE, FAULTS - 1)
    assert strict.is_healthy("chat", ALICE)
    fail(strict, ALICE, 1)
    assert await engines.next_event() == ("chat", ALICE, False, "5 requests in a row failed there")
    await engines.checked(6)
    assert not strict.is_healthy("chat", ALICE), "whatever its checks say"


async def test_it_comes_back_and_has_one_request_to_show_for_itself(
    engines: Engines,
) -> None:
    client = client_over(httpx.MockTransport(engines.answer))
    prober = EndpointProber(engines.heard, client, interval_s=0.005, timeout_s=5, eject_s=0.001)
    prober.configure({"chat": [ALICE, BOB]})
    fail(prober, ALICE, FAULTS)
    assert (await engines.next_event())[2] is False
    assert await engines.next_event() == ("chat", ALICE, True, "its check succeeded")
    fail(prober, ALICE, 1)
    assert (await engines.next_event())[2] is False
    assert (await engines.next_event())[2] is True
    prober.answered("chat", ALICE)
    fail(prober, ALICE, FAULTS - 1)
    assert prober.is_healthy("chat", ALICE)
    await prober.aclose()


async def test_the_last_endpoint_in_service_is_not_left_for_failed_requests(
    strict: EndpointProber,
) -> None:
    strict.configure({"chat": [ALICE]})
    fail(strict, ALICE, FAULTS - 1)
    assert strict.fault("chat", ALICE) == ""
    fail(strict, ALICE, 2 * FAULTS)
    assert strict.is_healthy("chat", ALICE)
    assert strict.fault("chat", ALICE) == "5 requests in a row failed there", (
        "it is told all the same"
    )
    strict.answered("chat", ALICE)
    assert strict.fault("chat", ALICE) == ""
    strict.configure({"chat": [ALICE, BOB]}, draining=[("chat", BOB)])
    fail(strict, ALICE, 3 * FAULTS)
    assert strict.is_healthy("chat", ALICE), "nothing is sent to Bob's"
    strict.configure({"chat": [ALICE, BOB]})
    fail(strict, BOB, FAULTS)
    fail(strict, ALICE, 1)
    assert strict.is_healthy("chat", ALICE)
    assert not strict.is_healthy("chat", BOB)
