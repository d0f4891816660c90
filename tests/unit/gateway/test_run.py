"""The usage record of every end."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import Outcome
from gateway.governor import Place
from gateway.run import Run
from gateway.wire.usage import Usage
from metering.core.hold import RateState
from scheduling.core.model import Grant
from tests.unit.gateway.cast import AT, A, chat, plan, planned_run, snapshot, who
from tests.unit.wire.frames import finish, meter, role, token, usage

HOURLY = {"name": "hourly", "kind": "sustained", "cost": 1000, "period": "hour"}


def placed(**fields: Any) -> Run:
    """Granted after 1.5 s in the queue; not yet asked of an engine."""
    run = planned_run(snapshot(alice={"budgets": [HOURLY]}, revision=7))
    assert run.plan is not None
    run.place = Place(Grant("r1", A), run.plan.lane, 1.5, RateState())
    run.endpoint = A
    for name, value in fields.items():
        setattr(run, name, value)
    return run


def test_the_engines_count_is_the_truth() -> None:
    run = placed(asked=True, answering=True, usage=Usage(100, 40, 30), first_at=102.0)
    record = run.record(104.0)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (100, 40, 30)
    assert (record.usage_source, record.cost, record.estimated_cost) == ("engine", 160.0, 50.0)
    assert (record.status, record.finish_reason) == (200, "stop")
    assert (record.queue_ms, record.ttft_ms, record.e2e_ms) == (1500.0, 2000.0, 4000.0)


def test_the_record_says_whose_it_was_and_where_it_ran() -> None:
    run = placed(asked=True, answering=True, usage=Usage(1, 0, 1), interaction="chat-9")
    record = run.record(104.0)
    assert (record.request_id, record.at, record.policy_revision) == ("r1", AT, 7)
    assert (record.tenant, record.application, record.key) == ("alice", "", "keyalice")
    assert (record.model, record.lane, record.endpoint) == ("chat", "standard", A)
    assert (record.interaction, record.accounts) == ("chat-9", ("tenant:alice/hourly",))


def test_cached_tokens_cost_what_the_pool_says() -> None:
    cheap = {"cost": {"input": 1, "cached_input": 0.25, "output": 2}}
    run = planned_run(snapshot(pool=cheap))
    run.asked = run.answering = True
    run.usage = Usage(100, 40, 30)
    assert run.record(104.0).cost == 60 + 10 + 60


def test_a_stream_without_usage_is_counted_by_what_was_delivered() -> None:
    run = placed(asked=True, answering=True)
    seen = meter()
    for event in (role(), token(), token(), token(), finish("length")):
        seen.feed(event)
    run.note_stream(seen)
    record = run.record(104.0)
    assert (record.prompt_tokens, record.completion_tokens) == (10, 3)
    assert (record.usage_source, record.cost, record.finish_reason) == ("counted", 16.0, "length")


def test_a_stream_with_usage_takes_the_engines() -> None:
    run = placed(asked=True, answering=True)
    seen = meter()
    for event in (token(), finish("tool_calls"), usage(11, 5)):
        seen.feed(event)
    run.note_stream(seen)
    record = run.record(104.0)
    assert (record.prompt_tokens, record.completion_tokens) == (11, 5)
    assert (record.usage_source, record.finish_reason) == ("engine", "tool_calls")


def test_a_stream_that_ended_before_any_content_costs_its_prompt() -> None:
    run = placed(asked=True, answering=True, streamed=True)
    run.end(Outcome.ENGINE_ERROR)
    record = run.record(104.0)
    assert (record.completion_tokens, record.cost, record.usage_source) == (0, 10.0, "counted")


def test_a_whole_answer_without_usage_is_estimated() -> None:
    record = placed(asked=True, answering=True).record(104.0)
    assert (record.prompt_tokens, record.completion_tokens) == (10, 20)
    assert (record.usage_source, record.cost) == ("estimated", 50.0)


@pytest.mark.parametrize(
    "outcome", [Outcome.ENGINE_ERROR, Outcome.ENGINE_TIMEOUT, Outcome.OVERLOADED]
)
def test_what_an_engine_refused_costs_nothing(outcome: Outcome) -> None:
    run = placed(asked=True)
    run.end(outcome)
    record = run.record(104.0)
    assert (record.prompt_tokens, record.completion_tokens, record.cost) == (0, 0, 0.0)
    assert (record.status, record.estimated_cost) == (outcome.answer.status, 50.0)


def test_who_hangs_up_before_an_engine_was_asked_pays_nothing() -> None:
    run = planned_run(snapshot(alice={"budgets": [HOURLY]}))
    run.end(Outcome.CLIENT_CLOSED)
    record = run.record(104.0)
    assert (record.cost, record.status, record.finish_reason) == (0.0, 499, "cancelled")
    assert (record.queue_ms, record.accounts) == (4000.0, ())


def test_who_hangs_up_while_an_engine_works_pays_what_is_estimated() -> None:
    run = placed(asked=True)
    run.end(Outcome.CLIENT_CLOSED)
    record = run.record(104.0)
    assert (record.cost, record.usage_source, record.status) == (50.0, "estimated", 499)


def test_who_hangs_up_in_mid_stream_pays_what_was_delivered() -> None:
    run = placed(asked=True, answering=True)
    run.end(Outcome.CLIENT_CLOSED)
    seen = meter()
    seen.feed(token())
    run.note_stream(seen)
    record = run.record(104.0)
    assert (record.cost, record.usage_source) == (12.0, "counted")
    assert record.finish_reason == "cancelled"  # whatever the engine would have said


def test_a_refused_call_waited_nothing_and_counts_against_no_budget() -> None:
    run = Run("r1", AT, 100.0, snapshot(), who=who(snapshot()), model="gpt-9")
    run.end(Outcome.MODEL_NOT_FOUND)
    record = run.record(100.5)
    assert (record.model, record.lane, record.status) == ("gpt-9", "", 404)
    assert (record.cost, record.estimated_cost, record.queue_ms) == (0.0, 0.0, 0.0)
    assert (record.accounts, record.finish_reason) == ((), "rejected")


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.OK])
def test_every_outcome_gives_its_status_and_its_finish_reason(outcome: Outcome) -> None:
    run = planned_run()
    run.end(outcome)
    record = run.record(104.0)
    assert (record.status, record.finish_reason) == (
        outcome.answer.status,
        outcome.answer.finish_reason,
    )


def test_an_application_is_named_among_all_tenants() -> None:
    assert planned_run(snapshot(), "bot").application_name() == "alice/bot"
    assert planned_run(snapshot(), "bob").application_name() == "bob/"


def test_several_choices_are_told_as_one_answer() -> None:
    run = placed(asked=True, answering=True, plan=plan(call=chat(n=2)))
    seen = meter(expected=2)
    for event in (token(index=0), token(index=1), finish("stop", 0), finish("length", 1)):
        seen.feed(event)
    run.note_stream(seen)
    record = run.record(104.0)
    assert (record.completion_tokens, record.finish_reason) == (2, "stop")
