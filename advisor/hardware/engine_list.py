"""The engine's own list of devices: `llama-server --list-devices`.

It is the truth per backend, after the visible-devices environment and the driver had their say; it costs
0.1 to 1 s, so it is asked only on request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from advisor.host import Device, ProbeReport

NAME = "engine_list"
_PROGRAMS = ("llama-server", "llama-cli", "llama-bench", "llama-server-vulkan")
_TIME_LIMIT_S = 3.0
_BACKENDS = {"cuda": "cuda", "rocm": "rocm", "vulkan": "vulkan", "mtl": "metal", "metal": "metal", "sycl": "sycl"}
_SOFTWARE = ("llvmpipe", "lavapipe", "swiftshader", "softpipe", "microsoft basic render")
_MIB = 1 << 20


def find_engine(environ: Mapping[str, str], programs: Sequence[str] = _PROGRAMS) -> str | None:
    """Path of the first llama.cpp program on PATH."""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    for program in programs:
        for folder in folders:
            path = os.path.join(folder, program)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None


def probe_engine_list(
    *, environ: Mapping[str, str], program: str | None = None, time_limit_s: float = _TIME_LIMIT_S
) -> tuple[tuple[Device, ...], ProbeReport]:
    """Devices that the engine itself lists, in its order, and how it went. Never raises.

    `program` is the llama.cpp program to ask; without it the first one on PATH.
    """
    started = time.perf_counter()

    def report(status: str, detail: str) -> ProbeReport:
        return ProbeReport(NAME, status, detail, time.perf_counter() - started)

    try:
        path = program or find_engine(environ)
        if path is None:
            return (), report("absent", "no llama.cpp program on PATH")
        import subprocess

        try:
            answer = subprocess.run(
                [path, "--list-devices"], capture_output=True, stdin=subprocess.DEVNULL,
                timeout=time_limit_s, env=dict(environ), check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return (), report("failed", f"{path} --list-devices gave no answer in {time_limit_s:g} s")
        text = answer.stdout.decode("utf-8", "replace")
        if "Available devices" not in text:
            return (), report("failed", f"{path} --list-devices ended with status {answer.returncode} and no list")
        devices, ignored = parse_device_list(text)
        names = ", ".join(device.id for device in devices) or "none"
        skipped = f"; not real GPUs: {', '.join(ignored)}" if ignored else ""
        return devices, report("ok", f"{path}: {names}{skipped}")
    except Exception as error:  # a probe reports, it never stops the answer
        return (), report("failed", f"{type(error).__name__}: {error}")


def parse_device_list(text: str) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Devices in the lines `  NAME: description (TOTAL MiB, FREE MiB free)`, and the names of those ignored.

    Software renderers and devices of other kinds (BLAS, RPC) are ignored.
    """
    devices: list[Device] = []
    ignored: list[str] = []
    listing = text.partition("Available devices")[2]
    for line in listing.splitlines():
        head, found, memory = line.strip().rpartition(" (")
        name, colon, description = head.partition(": ")
        words = memory.rstrip(")").replace(",", "").split()
        if not found or not colon or len(words) != 5 or not (words[0].isdecimal() and words[2].isdecimal()):
            continue
        backend = _BACKENDS.get(name.rstrip("0123456789").lower())
        total, free = int(words[0]) * _MIB, int(words[2]) * _MIB
        if backend is None or total <= 0 or any(word in description.lower() for word in _SOFTWARE):
            ignored.append(f"{name} ({description})")
            continue
        unified = backend == "metal"
        devices.append(
            Device(
                id=name, backend=backend, name=description, total_bytes=total, free_bytes=min(free, total),
                memory_kind="unified" if unified else "dedicated", integrated=unified, source="engine",
            )
        )  # fmt: skip
    return tuple(devices), tuple(ignored)
