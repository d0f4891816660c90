"""How each kind of engine speaks: priority, cache isolation, usage, what it tells of itself.

1. A field goes only to an engine that is known to take it; `openai` is any other compatible
   server, so it gets the standard's fields and nothing else (case R37).
2. A lane's `engine_priority` is lower-first, as in vLLM; `priority_sign` turns it where an engine
   sorts the other way (SGLang's default; engines.md 1.2).
3. No caller chooses a priority, in whatever form; those fields are dropped for every engine.
4. Where an engine does not tell something (`metrics` empty, `about` None), nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from tenants.core.snapshot import EngineKind

Figure = Literal["running", "waiting", "memory", "preemptions", "queries", "hits", "hit_rate"]
# `queries` and `hits` are counters of prompt tokens looked up and found in the prefix cache.
Metrics = Mapping[Figure, str]

INT64 = 2**63 - 1  # vLLM answers 500 to a priority past it


VLLM_METRICS: Metrics = MappingProxyType(
    {
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "memory": "vllm:kv_cache_usage_perc",
        "preemptions": "vllm:num_preemptions_total",
        "queries": "vllm:prefix_cache_queries_total",
        "hits": "vllm:prefix_cache_hits_total",
    }
)
SGLANG_METRICS: Metrics = MappingProxyType(  # with --enable-metrics
    {
        "running": "sglang:num_running_reqs",
        "waiting": "sglang:num_queue_reqs",
        "memory": "sglang:token_usage",
        "preemptions": "sglang:num_retracted_reqs",
        "hit_rate": "sglang:cache_hit_rate",
    }
)
LLAMACPP_METRICS: Metrics = MappingProxyType(  # with --metrics; it has no gauge of its KV cache
    {"running": "llamacpp:requests_processing", "waiting": "llamacpp:requests_deferred"}
)


@dataclass(frozen=True, slots=True)
class About:
    """Where an engine tells of itself beside `/v1/models`; None: it does not."""

    version: tuple[str, str] | None = None  # path, key
    order: str | None = None  # path that tells whether it serves by priority


@dataclass(frozen=True, slots=True)
class Dialect:
    priority: Literal["header", "body", "none"] = "none"
    priority_sign: Literal[1, -1] = 1
    flow_headers: bool = False  # llm-d's fairness id and objective
    cache_salt: bool = False
    running_usage: bool = False  # stream_options.continuous_usage_stats
    usage_per_choice: bool = False  # n > 1: a usage frame for each choice, to be summed
    dropped: frozenset[str] = frozenset()  # caller's fields that would get round policy
    counts: Literal["vllm", "llamacpp"] = "vllm"  # upstream.counting and upstream.tokenizing
    metrics: Metrics = field(default_factory=lambda: MappingProxyType({}))  # names at /metrics
    about: About = About()
    quiet_s: float = 0.0  # its load is not read more often

    @property
    def ignores_priority(self) -> bool:
        """It serves in the order of arrival, whatever it is sent."""
        return self.priority == "none" and not self.flow_headers


# Where an engine fetches a prompt's cached state from is its router's to say: a caller that names
# host and blocks would have it connect there, and read what is another tenant's.
VLLM_TRANSFERS = frozenset({"kv_transfer_params", "ec_transfer_params"})
SGLANG_TRANSFERS = frozenset(
    {"bootstrap_host", "bootstrap_port", "bootstrap_room", "disagg_prefill_dp_rank"}
)
# SGLang's own (entrypoints/openai/protocol.py): the name of a running request, which two tenants'
# must never share; sessions, which hold what others said; another adapter than the model's; tokens
# in the place of the messages that policy measured; code to run; the worker to run on.
SGLANG_OWN = frozenset(
    {
        *("rid", "session_id", "session_params", "lora_path", "input_ids"),
        *("custom_logit_processor", "routed_dp_rank", "data_parallel_rank"),
    }
)

# llama.cpp lets n_predict overrule max_tokens, and n_cmpl n, which is what policy has checked; who
# names a slot (id_slot) is served before all who wait for any.
LLAMACPP_OWN = frozenset({"n_predict", "n_cmpl", "id_slot"})

# A hosted API's class of service, which is a priority and has its price; and all that Dynamo takes
# beside the standard: priorities, the worker, tokens in the place of the messages.
HOSTED = frozenset({"service_tier", "nvext"})

# The order is told by vLLM only with VLLM_SERVER_DEV_MODE=1; elsewhere it is a 404.
VLLM_ABOUT = About(("/version", "version"), "/server_info?config_format=json")
SGLANG_ABOUT = About(("/server_info", "version"), "/server_info")

DIALECTS: Mapping[EngineKind, Dialect] = MappingProxyType(
    {
        "vllm": Dialect(
            priority="header",
            cache_salt=True,
            running_usage=True,
            dropped=VLLM_TRANSFERS,
            metrics=VLLM_METRICS,
            about=VLLM_ABOUT,
        ),
        "vllm-body": Dialect(
            priority="body",
            cache_salt=True,
            running_usage=True,
            dropped=VLLM_TRANSFERS,
            metrics=VLLM_METRICS,
            about=VLLM_ABOUT,
        ),
        "sglang": Dialect(
            priority="body",
            priority_sign=-1,
            cache_salt=True,
            running_usage=True,
            dropped=SGLANG_TRANSFERS | SGLANG_OWN,
            metrics=SGLANG_METRICS,
            about=SGLANG_ABOUT,
        ),
        "llamacpp": Dialect(
            usage_per_choice=True,
            counts="llamacpp",
            dropped=LLAMACPP_OWN,
            metrics=LLAMACPP_METRICS,
            about=About(("/props", "build_info")),
            # It looks whether the caller of a whole answer has gone only after a second in which
            # it told nobody anything, its metrics included (b11434, server-queue.cpp).
            quiet_s=2.5,
        ),
        # The engines behind llm-d are vLLM and SGLang; its router orders by its own headers.
        "llm-d": Dialect(
            flow_headers=True,
            cache_salt=True,
            running_usage=True,
            dropped=VLLM_TRANSFERS | SGLANG_TRANSFERS | SGLANG_OWN,
        ),
        # Any server, one of those above too: no standard knows these fields.
        "openai": Dialect(
            dropped=VLLM_TRANSFERS | SGLANG_TRANSFERS | SGLANG_OWN | LLAMACPP_OWN | HOSTED,
        ),
    }
)


def engine_priority(dialect: Dialect, lane_priority: int) -> int:
    """The lane's number as this engine sorts it, within what an engine can hold."""
    return max(-INT64, min(INT64, lane_priority * dialect.priority_sign))
