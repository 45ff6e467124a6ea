"""An engine's server started for a moment: a llama-server binary, or the one in the Python package xllamacpp.

The server belongs to a small Python process that ends it as soon as advisor lets go of its standard input, also when
advisor itself is killed. It listens on this machine alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from advisor.engines.dry_run import environment
from advisor.engines.find import EngineBinary, find_engines
from advisor.engines.http import Address, ask
from advisor.engines.process import end_group
from advisor.errors import EngineError

PACKAGE = "xllamacpp"  # the kind of an engine that is a Python package
START_LIMIT_S = 60.0
_LOG_BYTES = 1 << 16
_SIGNALLED = "ended by signal"
# both run isolated (-I): nothing is imported from the folder that advisor is started in
_GUARD = """
import json, os, signal, subprocess, sys, threading
engine = subprocess.Popen(json.loads(sys.argv[1]), stdin=subprocess.DEVNULL)
def watch():
    sys.stdin.read()
    engine.kill()
threading.Thread(target=watch, daemon=True).start()
status = engine.wait()
if status < 0:
    print("ended by signal", signal.Signals(-status).name, file=sys.stderr, flush=True)
os._exit(1)
"""
_SERVER = """
import json, sys
import xllamacpp as x
values = json.loads(sys.argv[1])
params = x.CommonParams()
params.model.path = values.pop("model")
params.fit_params = params.warmup = False
for name, value in values.items():
    setattr(params, name, value)
server = x.Server(params)
sys.stdin.read()
del server
"""


def find_servers(given: str | None, environ: Mapping[str, str]) -> tuple[EngineBinary, ...]:
    """Engines that can be started as a server, the best first. Raises EngineError when there is none."""
    from importlib.util import find_spec

    package: tuple[EngineBinary, ...] = ()
    if given in (None, PACKAGE) and sys.executable and find_spec(PACKAGE) is not None:
        package = (EngineBinary(sys.executable, PACKAGE, "Python"),)
    if given == PACKAGE:
        if package:
            return package
        raise EngineError("xllamacpp is not installed beside advisor; pip install xllamacpp.")
    servers: tuple[EngineBinary, ...] = ()
    try:
        servers = tuple(binary for binary in find_engines(given, environ) if binary.kind == "server")
    except EngineError:
        if given is not None:
            raise
    if not servers and given is not None:
        raise EngineError(f"{given} is no llama-server; give one, or the word {PACKAGE}, with --engine-binary.")
    if not servers and not package:
        raise EngineError(
            "no llama-server was found on PATH or in Ollama's folders, and no xllamacpp beside advisor in Python; "
            "give one with --engine-binary /path/to/llama-server."
        )
    return (*servers, *package)


@contextlib.contextmanager
def running(
    binary: EngineBinary,
    model: str,
    n_ctx: int,
    environ: Mapping[str, str],
    *,
    layers: int = 0,
    device: str | None = None,
) -> Iterator[Address]:
    """The server of `binary` with `model` loaded, one slot of `n_ctx` tokens; gone when the block ends.

    `layers` of it go to the GPU that the engine calls `device`, to its own choice without a name; with none of them no
    GPU is used. Everything else is left to the engine.
    Raises EngineError when it does not come up or ends before it has answered.
    """
    port = _free_port()
    command = _command(binary, model, n_ctx, port, layers, device)
    address = Address("127.0.0.1", port, False, "")
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment(binary, environ),
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise EngineError(f"{binary.path} cannot be run ({reason}).") from None
        try:
            _wait(process, address, binary, log.fileno())
            yield address
        except EngineError:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may just be dying
                process.wait(0.5)
            if process.returncode is None:
                raise
            raise EngineError(_ended(binary, log.fileno(), process.returncode)) from None
        finally:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            end_group(process)


def _command(binary: EngineBinary, model: str, n_ctx: int, port: int, layers: int, device: str | None) -> Sequence[str]:
    model = os.path.abspath(model)
    if binary.kind == PACKAGE:
        values = {"model": model, "n_ctx": n_ctx, "n_parallel": 1, "port": port, "verbosity": 1}
        return [binary.path, "-I", "-c", _SERVER, json.dumps(values)]
    words = ["-m", model, "-c", str(n_ctx), "-np", "1", "--host", "127.0.0.1", "--port", str(port), "--no-warmup"]
    words += ["-ngl", str(layers)]
    if device is not None or not layers:
        words += ["--device", device or "none"]
    return [sys.executable, "-I", "-c", _GUARD, json.dumps([binary.path, *words])]


def _wait(process: subprocess.Popen[bytes], address: Address, binary: EngineBinary, log: int) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while process.poll() is None:
        with contextlib.suppress(EngineError):  # not listening yet
            if ask(address, "GET", "/health", seconds=2).status == 200:
                return
        if time.monotonic() > deadline:
            raise EngineError(f"{binary.path} was not ready within {START_LIMIT_S:.0f} s.")
        time.sleep(0.02)
    raise EngineError(_ended(binary, log, process.returncode))


def _ended(binary: EngineBinary, log: int, status: int) -> str:
    """Why the engine ended, as far as its status and its last lines tell."""
    size = os.lseek(log, 0, os.SEEK_END)
    os.lseek(log, max(size - _LOG_BYTES, 0), os.SEEK_SET)
    lines = [line.strip() for line in os.read(log, _LOG_BYTES).decode("utf-8", "replace").split("\n") if line.strip()]
    last = next((line for line in reversed(lines) if _SIGNALLED in line), lines[-1] if lines else f"status {status}")
    if "SIGILL" in last or status == -signal.SIGILL:
        last = "it uses instructions that this processor does not have"
    return f"{binary.path} ended before it answered ({last[-200:]})."


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
