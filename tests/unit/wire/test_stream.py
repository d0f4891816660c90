"""A stream is passed on as the engine wrote it, metered, and never shows half an event."""

from typing import Any

import pytest

from gateway.errors import ApiError, Outcome
from gateway.wire import sse
from gateway.wire.usage import Usage
from tenants.core.snapshot import EngineKind
from tests.unit.wire.frames import (
    DONE,
    counts,
    event,
    finish,
    frame,
    meter,
    role,
    run,
    token,
    usage,
)

PLAIN = role() + token("Hel") + token("lo") + finish()


def test_a_caller_who_did_not_ask_sees_no_usage_frame() -> None:
    metered = meter("openai")
    assert run(metered, [PLAIN, usage(12, 34), DONE]) == PLAIN + DONE
    assert metered.usage == Usage(12, 0, 34)
    assert metered.usage_is_final


def test_a_caller_who_asked_sees_it() -> None:
    metered = meter("openai", asked=True)
    assert run(metered, [PLAIN, usage(12, 34), DONE]) == PLAIN + usage(12, 34) + DONE
    assert metered.usage == Usage(12, 0, 34)


def test_content_frames_are_counted_and_the_end_is_noted() -> None:
    metered = meter()
    run(metered, [PLAIN, DONE])
    assert metered.tokens == 2
    assert metered.finish_reasons == {0: "stop"}
    assert metered.done
    assert metered.usage is None


def test_first_content_is_not_the_role_frame() -> None:
    metered = meter()
    metered.feed(b": ping\n\n" + role())
    assert not metered.first_content_seen
    metered.feed(token())
    assert metered.first_content_seen


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"content": None, "reasoning_content": "hm", "tool_calls": None},
        {"content": "", "reasoning": "hm"},
        {"tool_calls": [{"index": 0, "function": {"arguments": ""}}]},
        {"refusal": "no"},
    ],
)
def test_reasoning_tool_calls_and_refusals_are_output_too(delta: dict[str, Any]) -> None:
    metered = meter()
    run(metered, [role()] + [event(frame(delta))] * 3)
    assert metered.tokens == 3


@pytest.mark.parametrize("delta", [{}, {"content": ""}, {"role": "assistant", "content": ""}])
def test_frames_with_nothing_in_them_are_not(delta: dict[str, Any]) -> None:
    metered = meter()
    run(metered, [token(), token(), event(frame(delta)), event(frame(delta))])
    assert metered.tokens == 2


def test_completions_texts_count() -> None:
    text = event({"choices": [{"index": 0, "text": "Hi", "finish_reason": None}]})
    metered = meter()
    assert run(metered, [text * 3]) == text * 3
    assert metered.tokens == 3


def test_usage_on_every_frame_and_again_at_the_end_is_counted_once() -> None:
    frames = [token(usage=counts(10, n)) for n in range(1, 21)]
    metered = meter()
    shown = run(metered, [role(), *frames, finish(), usage(10, 20), DONE])
    assert metered.usage == Usage(10, 0, 20)
    assert shown == role() + token() * 20 + finish() + DONE


def test_running_usage_is_cut_out_wherever_it_stands() -> None:
    first = event({"usage": counts(10, 1), **frame({"content": "a"})})
    nested = {**counts(10, 2), "prompt_tokens_details": {"cached_tokens": 8}}
    metered = meter()
    shown = run(metered, [first, token("b", usage=nested), token("c", usage=counts(10, 3))])
    assert shown == event(frame({"content": "a"})) + token("b") + token("c")
    assert b"usage" not in shown
    assert metered.tokens == 3


def test_a_text_that_looks_like_a_usage_is_left_alone() -> None:
    for text in ("usage", '"usage":{"prompt_tokens":1}}', "error", "choices", '\\"}', "{}"):
        metered = meter()
        shown = token(text)
        assert run(metered, [token(), shown, token(text, usage=counts(9, 2))]) == (
            token() + shown + shown
        )
        assert metered.tokens == 3
        assert metered.usage == Usage(9, 0, 3)
        assert metered.error is None


def test_a_caller_who_asked_once_sees_usage_once() -> None:
    frames = token(usage=counts(10, 1)) + token(usage=counts(10, 2))
    assert run(meter(asked=True), [frames, usage(10, 2), DONE]) == token() * 2 + usage(10, 2) + DONE


def test_an_engine_that_merges_usage_unasked_shows_it_to_who_asked() -> None:
    last = finish(usage=counts(10, 2))
    assert run(meter("openai", asked=True), [token(), last, DONE]) == token() + last + DONE
    # vLLM was asked for usage as it goes, so this is that; the whole follows in a frame of its own.
    assert run(meter("vllm", asked=True), [token(), last, DONE]) == token() + finish() + DONE
    assert run(meter("openai"), [token(), last, DONE]) == token() + finish() + DONE


def test_a_caller_who_asked_for_running_usage_gets_all_of_it() -> None:
    frames = token(usage=counts(10, 1)) + token(usage=counts(10, 2)) + usage(10, 2) + DONE
    assert run(meter(asked=True, asked_running=True), [frames]) == frames


def test_null_usage_is_no_usage() -> None:
    frames = role(usage=None) + token(usage=None) * 3 + finish(usage=None)
    metered = meter("openai")
    assert run(metered, [frames, usage(7, 3), DONE]) == frames + DONE
    assert metered.tokens == 3


def test_an_aborted_stream_is_known_from_its_running_usage() -> None:
    metered = meter()
    for n in range(1, 41):
        metered.feed(token(usage=counts(30, n)))
    assert metered.usage == Usage(30, 0, 40)
    assert not metered.usage_is_final
    assert not metered.finish().complete


def test_running_usage_that_lags_behind_the_frames_is_raised_to_them() -> None:
    metered = meter()
    run(metered, [role(usage=counts(30, 0)), token() * 5])
    assert metered.usage == Usage(30, 0, 5)


def test_the_last_running_usage_counts_however_it_was_read() -> None:
    metered = meter("openai")
    run(metered, [token() * 2, token(usage=counts(10, 50)), finish(usage=counts(10, 60))])
    assert metered.usage == Usage(10, 0, 60)
    assert metered.usage_is_final


def test_a_finish_reason_may_come_with_the_last_content() -> None:
    last = event(frame({"content": "end"}, "length"))
    metered = meter()
    assert run(metered, [token() * 2, last]) == token() * 2 + last
    assert (metered.tokens, metered.finish_reasons) == (3, {0: "length"})


def test_running_usage_of_several_choices_is_added_up() -> None:
    frames = [token(index=i, usage=counts(10, n)) for n in (4, 8, 12) for i in (0, 1)]
    opening = [role(0), role(1), token(index=1), token(index=1)]
    metered = meter(expected=2)
    shown = run(metered, [*opening, *frames])
    assert metered.usage == Usage(10, 0, 24)
    assert shown == b"".join(opening) + (token(index=0) + token(index=1)) * 3
    metered = meter(expected=2)
    run(metered, [*frames, usage(10, 7), DONE])
    assert metered.usage == Usage(10, 0, 7), "the engine's own sum wins"


def test_running_usage_of_several_prompts_tells_each_ones_own() -> None:
    """As vLLM 0.32 was seen to answer two prompts, of 2 and of 5 tokens, two choices each."""
    frames = [token(index=i, usage=counts(2 if i < 2 else 5, 3)) for i in (2, 0, 1, 3)]
    metered = meter(expected=4, prompts=2)
    run(metered, frames)
    assert metered.usage == Usage(7, 0, 12)


def test_llamacpp_sends_a_usage_frame_for_each_choice() -> None:
    frames = [token(index=0), token(index=1), usage(10, 6), usage(10, 6), DONE]
    metered = meter("llamacpp", expected=2)
    run(metered, frames)
    assert metered.usage == Usage(10, 0, 12)
    metered = meter("llamacpp")
    run(metered, frames)
    assert metered.usage == Usage(10, 0, 6)


@pytest.mark.parametrize("odd", [{}, {"prompt_tokens": -1}, {"prompt_tokens": "x"}, [], "x", 7])
def test_an_odd_usage_is_none(odd: Any) -> None:
    metered = meter()
    run(metered, [token(), token(usage=odd), event({"choices": [], "usage": odd}), DONE])
    assert metered.usage is None
    assert metered.tokens == 2


@pytest.mark.parametrize(
    "around",
    [
        (token(), token()),
        (token() + event({"note": 1}), token()),
        (token(), token(nested={"choices": 1})),
    ],
)
def test_done_is_seen_among_content_frames_of_one_chunk(around: tuple[bytes, bytes]) -> None:
    metered = meter()
    metered.feed(token())
    metered.feed(DONE.join(around))
    assert metered.done


def test_the_role_frame_of_a_late_choice_is_no_output() -> None:
    late = event(frame({"role": "assistant", "content": None}, index=1))
    metered = meter(expected=2)
    run(metered, [token(index=0) * 2, late, token(index=1)])
    assert metered.tokens == 3


def test_an_error_inside_a_stream_is_seen_and_passed_on() -> None:
    broken = event({"error": {"message": "CUDA error", "type": "InternalServerError"}})
    beside = token(error={"message": "CUDA error"})
    for bad in (broken, beside):
        metered = meter()
        assert run(metered, [token(), bad, DONE]) == token() + bad, "no DONE: it was not done"
        assert metered.error is not None
        assert metered.error.message == "CUDA error"
        assert not metered.finish().complete


@pytest.mark.parametrize("cut", range(1, len(finish())))
def test_half_an_event_is_never_shown(cut: int) -> None:
    metered = meter()
    shown = metered.feed(token()) + metered.feed(finish()[:cut])
    ending = metered.finish()
    if cut < len(finish()) - 2:
        assert shown + ending.rest == token()
        assert not ending.complete
    else:
        assert shown + ending.rest == token() + finish()


def test_a_last_event_without_its_empty_line_is_whole() -> None:
    metered = meter()
    metered.feed(token())
    assert metered.feed(DONE.rstrip()) == b""
    assert metered.finish() == (DONE, True)


def test_a_stream_is_complete_with_done_or_with_every_choice_finished() -> None:
    for frames, expected, complete in [
        ([token(), DONE], 1, True),
        ([token(), finish()], 1, True),
        ([token(), finish()], 2, False),
        ([token(), finish(index=0), finish(index=1)], 2, True),
        ([token()], 1, False),
        ([], 1, False),
    ]:
        metered = meter(expected=expected)
        metered.feed(b"".join(frames))
        assert metered.finish().complete is complete


@pytest.mark.parametrize(
    "other",
    [
        b": ping\n\n",
        b": ping\r\n\r\n",
        b"\n\n",
        b"event: ping\n\n",
        b"retry: 10\n\n",
        b"data:\n\n",
        b"data\n\n",
        b"data: not json\n\n",
        b"data: 17\n\n",
        b'data: {"choices": 5, "usage": 3}\n\n',
    ],
)
def test_what_is_no_frame_passes_and_counts_nothing(other: bytes) -> None:
    metered = meter()
    assert run(metered, [token(), other, token()]) == token() + other + token()
    assert metered.tokens == 2


def test_odd_choices_before_the_first_content_are_not_content() -> None:
    odd = b'data: {"choices": [5, null, {"delta": 7}]}\n\n'
    metered = meter()
    assert run(metered, [odd]) == odd
    assert not metered.first_content_seen


def test_other_ways_to_write_the_same_events() -> None:
    frames = [frame({"content": "a"}), frame({"content": "b"}), frame({}, "length")]
    ended = {"choices": [], "usage": counts(5, 2)}
    crlf = b"".join(event(one, b"\r\n") for one in frames)
    tight = b"".join(event(one).replace(b"data: ", b"data:") for one in frames)
    lines = b"".join(event(one).replace(b',"choices"', b'\ndata: ,"choices"') for one in frames)
    for written in (crlf, tight, lines):
        metered = meter()
        assert run(metered, [written, event(ended), DONE]) == written + DONE
        assert (metered.tokens, metered.usage) == (2, Usage(5, 0, 2))
        assert metered.finish_reasons == {0: "length"}


def test_usage_is_cut_out_of_crlf_and_spaced_frames() -> None:
    crlf = event(frame({"content": "a"}, usage=counts(5, 1)), b"\r\n")
    assert run(meter(), [crlf * 2]) == event(frame({"content": "a"}), b"\r\n") * 2
    spaced = b'data: {"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 1, '
    spaced += b'"completion_tokens": 1}}\n\n'
    assert run(meter(), [spaced * 3]) == b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n' * 3


def test_other_lines_of_an_event_survive_the_cutting() -> None:
    first = event({"usage": counts(1, 1), **frame({"content": "a"})})
    shown = run(meter(), [b"id: 7\n" + first])
    assert shown == b"id: 7\n" + event(frame({"content": "a"}))


def test_an_event_past_the_bound_ends_the_stream() -> None:
    short, long = token(), token("x" * 300)
    for chunks in ([long], [short, long], [short, long[:250], long[250:]], [short, long[:-2]]):
        metered = meter(limit=300)
        with pytest.raises(ApiError) as caught:
            run(metered, chunks)
        assert caught.value.outcome is Outcome.ENGINE_ERROR
        assert metered.finish() == (b"", False)


def test_many_events_may_pass_the_bound_together() -> None:
    metered = meter(limit=400)
    metered.feed(token())
    assert metered.feed(token() * 50) == token() * 50
    assert metered.tokens == 51


def test_a_usage_that_comes_before_the_end_is_of_what_came_before_it() -> None:
    """Some engines tell in frames of their own as they go; some tell the prompt first."""
    metered = meter("openai")
    run(metered, [usage(10, 0), token() * 3, finish(), DONE])
    assert (metered.usage, metered.usage_is_final) == (Usage(10, 0, 3), False)
    metered = meter("openai")
    run(metered, [token(), usage(10, 4), token(), usage(10, 8), token(), token()])
    assert (metered.usage, metered.usage_is_final) == (Usage(10, 0, 10), False)
    metered = meter("openai")
    run(metered, [token(), usage(10, 4), token(), finish(), usage(10, 8), DONE])
    assert (metered.usage, metered.usage_is_final) == (Usage(10, 0, 8), True)


@pytest.mark.parametrize("kind", ["vllm", "openai"])
def test_of_two_ways_to_tell_usage_the_later_counts(kind: EngineKind) -> None:
    metered = meter(kind)
    frames = [token(usage=counts(10, 1)), token(usage=counts(10, 2))]
    run(metered, [usage(10, 0), *frames, finish(usage=counts(10, 2)), DONE])
    assert (metered.usage, metered.usage_is_final) == (Usage(10, 0, 2), True)


def test_lines_may_end_in_cr_and_a_mark_may_stand_first() -> None:
    stream = PLAIN + usage(12, 34) + DONE
    for written in (stream.replace(b"\n", b"\r"), sse.BOM + stream):
        for size in (1, 7, len(written)):
            metered = meter("openai", asked=True)
            pieces = [written[at : at + size] for at in range(0, len(written), size)]
            assert run(metered, pieces) == written
            assert (metered.usage, metered.tokens, metered.done) == (Usage(12, 0, 34), 2, True)


def test_usage_is_cut_out_of_the_first_event_of_a_marked_stream() -> None:
    metered = meter("openai")
    assert run(metered, [sse.BOM + finish(usage=counts(5, 2)), DONE]) == sse.BOM + finish() + DONE
    assert metered.usage == Usage(5, 0, 2)
