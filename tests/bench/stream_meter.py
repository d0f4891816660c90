"""Nanoseconds of CPU per event that StreamMeter costs: `python -m tests.bench.stream_meter`."""

from __future__ import annotations

import statistics
import time

from gateway.dialects import DIALECTS
from gateway.wire.stream import StreamMeter

HEAD = (
    b'data: {"id":"chatcmpl-9f0c8d7e6b5a4f3e2d1c0b9a8f7e6d5c","object":"chat.completion.chunk",'
    b'"created":1764000000,"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,'
)
EVENT = HEAD + b'"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}\n\n'
USAGE = b',"usage":{"prompt_tokens":812,"total_tokens":913,"completion_tokens":101}}\n\n'
WITH_USAGE = EVENT[:-3] + USAGE
REASONING = HEAD + b'"delta":{"content":"","reasoning_content":"x"},"finish_reason":null}]}\n\n'

CASES = {
    "plain, one event a chunk": (EVENT, 1, 1),
    "plain, 16 events a chunk": (EVENT * 16, 16, 1),
    "plain, two choices": (EVENT, 1, 2),
    "running usage, cut out": (WITH_USAGE, 1, 1),
    "running usage, cut out, 4 a chunk": (WITH_USAGE * 4, 4, 1),
    "parsed (an empty member)": (REASONING, 1, 1),
    "split in the middle": (EVENT[150:] + EVENT[:150], 1, 1),
}


def nanoseconds(chunk: bytes, events: int, expected: int, feeds: int = 20_000) -> float:
    meter = StreamMeter(DIALECTS["vllm"], asked_usage=False, expected=expected)
    meter.feed(EVENT)
    if not chunk.startswith(b"data:"):
        meter.feed(EVENT[:150])
    began = time.process_time_ns()
    for _ in range(feeds):
        meter.feed(chunk)
    spent = time.process_time_ns() - began
    assert meter.tokens == 1 + feeds * events
    return spent / (feeds * events)


def main() -> None:
    rounds = {name: [] for name in CASES}
    for _ in range(7):  # interleaved, so that a noisy neighbour meets every case
        for name, case in CASES.items():
            rounds[name].append(nanoseconds(*case))
    for name, found in rounds.items():
        print(f"{name:36} {statistics.median(found):8.0f} ns/event")


if __name__ == "__main__":
    main()
