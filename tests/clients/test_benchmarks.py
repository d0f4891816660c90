"""Two load generators, each for one short run of each kind of call. Their tokenizer is a home-made
one: the hub that they would take one from is not asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway.rig import Rig
from tests.clients.install import program
from tests.clients.rig import ENDLESS_TOKENS, NO_HUB, Cast, cast
from tests.engines.model import write

CALLS = 6
HANG_UPS = ("--request-cancellation-rate", "100", "--request-cancellation-delay", "0.2")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def aiperf(product: Rig) -> Cast:
    return cast(product, "aiperf")


@pytest.fixture(scope="module")
def guidellm(product: Rig) -> Cast:
    return cast(product, "guidellm")


def profile(aiperf: Cast, tokenizer: Path, folder: Path, *more: str, tenant: str = "open") -> Any:
    """Its report. It looks for no hub where the tokenizer is a folder, and finds that folder only
    while it does not believe to be offline."""
    aiperf.run(
        *(program("aiperf", "aiperf"), "profile", "-m", "chat", "--url", aiperf.url),
        *("--api-key", aiperf.keys[tenant], "--tokenizer", str(tokenizer)),
        *("--request-count", str(CALLS), "--isl", "40"),
        *("--ui", "none", "--no-gpu-telemetry", "--artifact-dir", str(folder / "out"), *more),
        folder=folder,
    )
    return json.loads((folder / "out" / "profile_export_aiperf.json").read_text())


@pytest.mark.parametrize(
    "more",
    [
        ("chat", "--streaming", "--use-server-token-count", "--extra-inputs", "ignore_eos:true"),
        ("chat", "--per-chunk-usage", "--streaming", "--use-server-token-count"),
        ("completions", "--streaming"),
        ("responses", "--streaming"),
        ("messages", "--streaming"),
        ("embeddings",),
        ("cohere-rankings", "--endpoint", "/v1/rerank"),
    ],
    ids=" ".join,
)
def test_aiperf_measures(
    aiperf: Cast, tokenizer: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    few = ("--concurrency", "3", "--osl", "8")
    told = profile(aiperf, tokenizer, tmp_path, "--endpoint-type", *more, *few)
    assert told["request_count"]["avg"] == CALLS
    assert told["error_summary"] == []
    aiperf.settled()


def test_what_aiperf_hangs_up_leaves_nothing(aiperf: Cast, tokenizer: Path, tmp_path: Path) -> None:
    """None of its calls comes to its end, and that is what it ends by saying."""
    endless = ("--extra-inputs", "ignore_eos:true", "--osl", str(ENDLESS_TOKENS))
    with pytest.raises(AssertionError, match="inference request"):
        profile(aiperf, tokenizer, tmp_path, "--streaming", *HANG_UPS, *endless, tenant="one")
    aiperf.settled()
    rows = aiperf.rig.rows(aiperf.tenants["one"])
    assert "cancelled" in {row["finish_reason"] for row in rows}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_guidellm_measures(guidellm: Cast, tokenizer: Path, tmp_path: Path, path: str) -> None:
    """It asks for `/health` before it begins."""
    key = guidellm.keys["open"]
    backend = f"kind=openai_http,target={guidellm.url},api_key={key},request_format={path}"
    report = tmp_path / "report.json"
    guidellm.run(
        *(program("guidellm", "guidellm"), "run", "--backend", backend, "--disable-console"),
        *("--profile", "kind=throughput,max_concurrency=3"),
        *("--constraint", f"kind=max_requests,count={CALLS}"),
        *("--tokenizer", f"kind=hf_auto,model={tokenizer}"),
        *("--data", "kind=synthetic_text,prompt_tokens=40,output_tokens=10"),
        *("--output", f"kind=json,path={report}"),
        folder=tmp_path,
        **NO_HUB,
    )
    [ran] = json.loads(report.read_text())["benchmarks"]
    totals = ran["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (CALLS, 0)
    guidellm.settled()
