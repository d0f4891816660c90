"""How large a call is expected to be, and what is learnt from those that ended."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.estimates import MEDIA_TOKENS, OPEN_CEILING_TOKENS, Estimates
from gateway.run import Run
from gateway.wire.request import ParsedCall, parse
from gateway.wire.usage import Usage
from metering.core.record import FinishReason
from tests.unit.gateway.cast import chat, planned_run

BOT = "alice/bot"


def ended(completion: int = 40, prompt: int = 100, finish: FinishReason = "stop") -> Run:
    run = planned_run()
    run.usage = Usage(prompt, 0, completion)
    run.finish = finish
    return run


def expected(estimates: Estimates, call: ParsedCall | None = None, **options: Any) -> int:
    ceiling = options.pop("ceiling", None)
    application = options.pop("application", BOT)
    return estimates.of(application, "chat", call or chat(), 10, ceiling).output_tokens


def test_an_empty_prompt_is_still_one_token() -> None:
    call = parse("completions", b'{"model": "chat", "prompt": ""}')
    assert Estimates().prompt_tokens("chat", call) == 1


def test_token_arrays_are_counted_exactly() -> None:
    call = parse("completions", b'{"model": "chat", "prompt": [1, 2, 3]}')
    assert Estimates().prompt_tokens("chat", call) == 3


def test_a_picture_costs_what_pictures_cost() -> None:
    text = {"type": "text", "text": "What is this?"}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

    def tokens(*parts: object) -> int:
        call = chat(messages=[{"role": "user", "content": list(parts)}])
        return Estimates().prompt_tokens("chat", call)

    assert tokens(text, picture, picture) == tokens(text) + 2 * MEDIA_TOKENS


def test_max_tokens_is_a_ceiling_not_the_expectation() -> None:
    estimates = Estimates()
    open_ended = estimates.of(BOT, "chat", chat(), 10, None)
    assert open_ended.ceiling_tokens == OPEN_CEILING_TOKENS
    assert estimates.of(BOT, "chat", chat(), 10, 100_000).output_tokens == open_ended.output_tokens
    assert estimates.of(BOT, "chat", chat(), 10, 3).output_tokens == 3


def test_several_choices_cost_as_many_times_the_output() -> None:
    one = Estimates().of(BOT, "chat", chat(), 10, 50)
    three = Estimates().of(BOT, "chat", chat(n=3), 10, 50)
    assert three.prompt_tokens == one.prompt_tokens
    assert three.output_tokens == 3 * one.output_tokens
    assert three.ceiling_tokens == 150


def test_an_application_is_expected_to_go_on_as_it_did() -> None:
    estimates = Estimates()
    for _ in range(40):
        estimates.learn(BOT, "chat", chat(), ended(completion=12))
    assert expected(estimates) == pytest.approx(12, abs=6)
    assert expected(estimates, application="alice/nightly") > expected(estimates)


def test_a_choices_length_is_learnt_not_their_sum() -> None:
    estimates = Estimates()
    for _ in range(60):
        estimates.learn(BOT, "chat", chat(n=4), ended(completion=40))
    assert expected(estimates) == pytest.approx(10, abs=6)


def test_the_engines_count_of_prompts_corrects_the_next_estimate() -> None:
    estimates, call = Estimates(), chat(messages=[{"role": "user", "content": "x" * 4000}])
    before = estimates.prompt_tokens("chat", call)
    for _ in range(200):
        estimates.learn(BOT, "chat", call, ended(prompt=2000))
    assert before == pytest.approx(1000, rel=0.01)
    assert estimates.prompt_tokens("chat", call) == pytest.approx(2000, rel=0.05)


@pytest.mark.parametrize("finish", ["cancelled", "error", "timeout", "content_filter"])
def test_nothing_is_learnt_from_an_answer_that_was_cut_off(finish: FinishReason) -> None:
    estimates = Estimates()
    estimates.learn(BOT, "chat", chat(), ended(completion=1, finish=finish))
    assert expected(estimates) == expected(Estimates())


def test_nothing_is_learnt_where_the_engine_told_nothing() -> None:
    estimates, run = Estimates(), ended()
    run.usage = None
    estimates.learn(BOT, "chat", chat(), run)
    assert expected(estimates) == expected(Estimates())


def test_pictures_say_nothing_about_the_bytes_of_a_token() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    call = chat(messages=[{"role": "user", "content": [picture]}])
    estimates = Estimates()
    estimates.learn(BOT, "chat", call, ended(prompt=5000))
    assert estimates.prompt_tokens("chat", chat()) == Estimates().prompt_tokens("chat", chat())


def test_how_far_off_the_held_estimate_was_is_kept_whoever_made_it() -> None:
    estimates = Estimates()
    run = ended(completion=40, prompt=100)
    assert run.plan is not None
    held = run.plan.estimate
    estimates.learn(BOT, "chat", chat(), run)
    assert estimates.output_errors.models()["chat"].total == 1
    off = abs(100 - held.prompt_tokens) / 100
    assert estimates.prompt_errors.models()["chat"].quantile(1.0) == pytest.approx(off, rel=0.03)
    estimates.learn(BOT, "chat", chat(), ended(finish="cancelled"))
    assert estimates.output_errors.models()["chat"].total == 1
