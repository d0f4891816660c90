"""A real engine as a process of its own: how each is started, asked by itself, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.stack import answers, free_port, until
from tests.engines import install, model
from tests.engines.noted import timed

START_S = 600.0  # vLLM imports torch and warms up; on a busy machine that takes minutes
LEFT_ALONE_S = 2.0
SLOTS = 2  # requests that an engine serves at once; more wait in its own queue
VLLM_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "OMP_NUM_THREADS": "1",
}


@dataclass
class RealEngine:
    """`kind` is the dialect that the policy gives its pools."""

    kind: str
    command: list[str]
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """As the policy names it."""
        return f"{self.root}/v1"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.kind}-{self.port}.log"

    @property
    def endless(self) -> int:
        """So many tokens that an answer goes on until it is hung up, on a quick machine too."""
        return {"vllm": 30_000, "llamacpp": 7_000}[self.kind]

    def launch(self) -> None:
        """Start it; it is not ready yet."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "--host", "127.0.0.1", "--port", str(self.port)],
                cwd=self.folder,
                env={**os.environ, **self.env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ready(self) -> None:
        until(self._is_ready, f"{self.kind} is ready; its log is {self.log}", START_S)

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        return answers(f"{self.root}/health")

    def kill(self) -> None:
        """Its whole group at once, as the kernel does where memory is short."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    # --- asked by itself, without Fairlane ------------------------------------------------------

    def post(self, path: str, **body: Any) -> Any:
        answer = httpx.post(self.root + path, json=body, timeout=START_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metric(self, name: str, **labels: str) -> float:
        """Summed over the samples that carry these labels."""
        text = httpx.get(f"{self.root}/metrics", timeout=START_S).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def running(self) -> float:
        return self.metric(RUNNING[self.kind])

    def waiting(self) -> float:
        return self.metric(WAITING[self.kind])

    def idle(self) -> None:
        until(lambda: self.running() + self.waiting() == 0, f"{self.kind} has nothing to do")

    def idle_unasked(self) -> None:
        """As `idle`, but it is left alone meanwhile: llama.cpp notices that the caller of a whole
        answer has gone only after a second in which it told nobody anything."""

        def is_idle() -> bool:
            time.sleep(LEFT_ALONE_S)
            return self.running() + self.waiting() == 0

        until(is_idle, f"{self.kind} has nothing to do")


# Written out here, not read of the dialect: the tests are to find out where that is wrong.
RUNNING = {"vllm": "vllm:num_requests_running", "llamacpp": "llamacpp:requests_processing"}
WAITING = {"vllm": "vllm:num_requests_waiting", "llamacpp": "llamacpp:requests_deferred"}


@contextmanager
def started(engine: RealEngine) -> Iterator[RealEngine]:
    engine.launch()
    try:
        with timed(engine.kind, "start"):
            engine.ready()
        yield engine
    finally:
        engine.stop()


def vllm(folder: Path, names: list[str], *options: str) -> RealEngine:
    """On one CPU: its processes wait for each other in loops of `sched_yield`, and on two CPUs all
    else got none for seconds (Linux 6.18), its own HTTP server and the gateway too."""
    need(install.VLLM_PYTHON, "vllm")
    command = [
        *("taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))),
        *(str(install.VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model.write(folder / "model"))),
        *("--served-model-name", *names),
        *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(model.CONTEXT_TOKENS), "--enable-prompt-tokens-details"),
        *options,
    ]
    return RealEngine("vllm", command, folder, VLLM_ENV)


def vllm_chat(folder: Path, names: list[str], *options: str) -> RealEngine:
    flags = ("--max-num-seqs", str(SLOTS), "--scheduling-policy", "priority")
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    return vllm(folder, names, *flags, *tools, *options)


def llamacpp(folder: Path, names: list[str], *options: str) -> RealEngine:
    """It serves its one model under whatever name it is asked for. Gemma's file has no template of
    its own, and llama.cpp's stand-in tells the model nothing of tools."""
    need(install.LLAMA_SERVER, "llamacpp")
    template = folder / "template.jinja"
    template.write_text(model.GEMMA_TEMPLATE)
    command = [
        *(str(install.LLAMA_SERVER), "--model", str(install.GEMMA_FILE)),
        *("--ctx-size", "16384", "--parallel", str(SLOTS), "--threads", "1"),
        *("--metrics", "--slots", "--alias", ",".join(names)),
        *("--chat-template-file", str(template)),
        *options,
    ]
    return RealEngine("llamacpp", command, folder)


def need(path: Path, engine: str) -> None:
    if not path.exists():
        pytest.skip(f"{engine} is not installed: make test-engines ENGINES={engine}")


MAKE: dict[str, Callable[..., RealEngine]] = {"vllm": vllm_chat, "llamacpp": llamacpp}
