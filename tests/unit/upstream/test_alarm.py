from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from gateway.upstream.alarm import Alarm


class Clock:
    """As much of an event loop as an alarm needs, with the time in the test's hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[asyncio.TimerHandle] = []
        self.made = 0

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def call_at(self, when: float, callback: object) -> asyncio.TimerHandle:
        self.made += 1
        timer = asyncio.TimerHandle(when, callback, (), self)  # type: ignore[arg-type]
        self.timers.append(timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.timers.remove(handle)

    def advance_to(self, now: float) -> None:
        while due := [timer for timer in self.timers if timer.when() <= now]:
            timer = min(due, key=asyncio.TimerHandle.when)
            self.timers.remove(timer)
            self.now = max(self.now, timer.when())
            timer._run()
        self.now = now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rings() -> list[float]:
    return []


@pytest.fixture
def alarm(clock: Clock, rings: list[float]) -> Alarm:
    return Alarm(clock, lambda: rings.append(clock.now))  # type: ignore[arg-type]


def test_it_rings_once_at_its_time(alarm: Alarm, clock: Clock, rings: list[float]) -> None:
    alarm.set(110)
    clock.advance_to(109)
    assert rings == []
    clock.advance_to(500)
    assert rings == [110]


def test_moved_later_it_rings_later_and_only_then(
    alarm: Alarm, clock: Clock, rings: list[float]
) -> None:
    alarm.set(110)
    alarm.set(130)
    clock.advance_to(129)
    assert rings == []
    clock.advance_to(131)
    assert rings == [130]


def test_moved_earlier_it_rings_earlier(alarm: Alarm, clock: Clock, rings: list[float]) -> None:
    alarm.set(130)
    alarm.set(110)
    clock.advance_to(500)
    assert rings == [110]
    assert clock.timers == []


def test_lifted_it_is_silent_until_it_is_set_again(
    alarm: Alarm, clock: Clock, rings: list[float]
) -> None:
    alarm.set(110)
    alarm.lift()
    clock.advance_to(200)
    assert rings == []
    alarm.set(210)
    clock.advance_to(220)
    assert rings == [210]


def test_a_thousand_moves_make_one_timer(alarm: Alarm, clock: Clock) -> None:
    for number in range(1000):
        alarm.set(110 + number)
        alarm.lift()
    assert clock.made == 1


def test_stopped_it_leaves_no_timer(alarm: Alarm, clock: Clock, rings: list[float]) -> None:
    alarm.set(110)
    alarm.stop()
    assert clock.timers == []
    clock.advance_to(120)
    assert rings == []


def test_stopped_it_holds_nobody_that_holds_it(clock: Clock) -> None:
    class Owner:
        def __init__(self) -> None:
            self.alarm = Alarm(clock, self.ring)  # type: ignore[arg-type]

        def ring(self) -> None: ...

    owner = Owner()
    seen = weakref.ref(owner)
    owner.alarm.set(110)
    owner.alarm.stop()
    gc.disable()  # freed as it is let go of, not once a collector comes by
    try:
        del owner
        assert seen() is None
    finally:
        gc.enable()
