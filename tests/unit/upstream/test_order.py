"""Whether an engine looks at priorities is seen from the order in which streams begin."""

from __future__ import annotations

from gateway.upstream.order import ENOUGH, LONG_PROMPT, OrderWatch, Pending

HERE = ("chat", "http://a/v1")
URGENT, BULK = 0, 20


def bulk_first(watch: OrderWatch, times: int, prompt: int = 100) -> None:
    """Bulk begins while an urgent one has waited for long."""
    for at in range(0, times * 10, 10):
        bulk, urgent = Pending(BULK, at, prompt), Pending(URGENT, at + 1, 100)
        watch.ask(HERE, bulk)
        watch.ask(HERE, urgent)
        watch.begin(HERE, bulk, at + 4)
        watch.begin(HERE, urgent, at + 5)


def urgent_first(watch: OrderWatch, times: int) -> None:
    for at in range(0, times * 10, 10):
        bulk, urgent = Pending(BULK, at, 100), Pending(URGENT, at + 1, 100)
        watch.ask(HERE, bulk)
        watch.ask(HERE, urgent)
        watch.begin(HERE, urgent, at + 4)
        watch.begin(HERE, bulk, at + 5)


def test_an_engine_that_serves_in_the_order_of_arrival_is_found_out() -> None:
    watch = OrderWatch()
    bulk_first(watch, ENOUGH - 1)
    assert not watch.ignored(HERE)
    bulk_first(watch, 1)
    assert watch.ignored(HERE)
    assert not watch.ignored(("chat", "http://b/v1"))


def test_one_in_which_urgent_requests_overtake_is_not() -> None:
    watch = OrderWatch()
    urgent_first(watch, 10)
    bulk_first(watch, 30)  # a prompt that took its time; it was let in before the urgent one came
    assert not watch.ignored(HERE)


def test_equal_priorities_long_prompts_and_short_waits_say_nothing() -> None:
    watch = OrderWatch()
    bulk_first(watch, 50, prompt=LONG_PROMPT + 1)
    for at in range(0, 500, 10):
        first, second = Pending(BULK, at, 100), Pending(BULK, at + 1, 100)
        urgent = Pending(URGENT, at + 3.5, 100)
        for stream in (first, second, urgent):
            watch.ask(HERE, stream)
        watch.begin(HERE, first, at + 4)
        watch.begin(HERE, urgent, at + 4.1)
        watch.begin(HERE, second, at + 4.2)
    assert not watch.ignored(HERE)


def test_who_is_gone_has_not_been_passed_over() -> None:
    watch = OrderWatch()
    watch.ask(HERE, Pending(URGENT, 0, 100, is_over=True))
    for at in range(1, 100):
        bulk = Pending(BULK, at, 100)
        watch.ask(HERE, bulk)
        watch.begin(HERE, bulk, at + 2)
    assert not watch.ignored(HERE)


def test_an_engine_that_was_started_anew_is_judged_anew() -> None:
    watch = OrderWatch()
    bulk_first(watch, 50)
    watch.forget(HERE)
    assert not watch.ignored(HERE)


def test_it_comes_right_when_the_engine_does() -> None:
    watch = OrderWatch()
    bulk_first(watch, 500)
    assert watch.ignored(HERE)
    urgent_first(watch, 200)
    assert not watch.ignored(HERE)
