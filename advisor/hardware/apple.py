"""The GPU of an Apple chip: it works in the system's memory, up to the limit that macOS wires for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from advisor.host import Device, ProbeReport, Ram

NAME = "apple_sysctl"
_GIB = 1 << 30
_KEYS = ("hw.memsize", "iogpu.wired_limit_mb", "machdep.cpu.brand_string", "hw.optional.arm64")


def metal_budget_bytes(memory_bytes: int, wired_limit_mb: int = 0) -> int:
    """Bytes the GPU may use of `memory_bytes` RAM.

    `iogpu.wired_limit_mb` where the user set it, else Metal's recommendedMaxWorkingSetSize: about two
    thirds of RAM up to 36 GiB, three quarters above.
    """
    if wired_limit_mb > 0:
        return min(memory_bytes, wired_limit_mb << 20)
    return memory_bytes * 2 // 3 if memory_bytes <= 36 * _GIB else memory_bytes * 3 // 4


def read_sysctl() -> dict[str, str]:
    """Return the sysctl values this probe needs, through one call of sysctl(8). Raises OSError."""
    import subprocess

    answer = subprocess.run(
        ["/usr/sbin/sysctl", *_KEYS], capture_output=True, text=True, timeout=2, check=False
    ).stdout  # fmt: skip
    pairs = (line.partition(": ") for line in answer.splitlines())
    return {key: value.strip() for key, found, value in pairs if found}


def probe_apple(
    *, ram: Ram, platform: str = sys.platform, sysctl: Callable[[], dict[str, str]] = read_sysctl
) -> tuple[tuple[Device, ...], ProbeReport]:
    """Find the Metal device of an Apple chip, or nothing elsewhere and on Intel Macs. Never raises."""
    started = time.perf_counter()

    def report(status: str, detail: str) -> ProbeReport:
        return ProbeReport(NAME, status, detail, time.perf_counter() - started)

    if platform != "darwin":
        return (), report("absent", "not macOS")
    try:
        values = sysctl()
        if values.get("hw.optional.arm64") != "1":
            return (), report("absent", "a Mac without an Apple chip; name its card with --gpu")
        memory = int(values.get("hw.memsize", "0")) or ram.total_bytes
        limit = int(values.get("iogpu.wired_limit_mb", "0"))
        name = values.get("machdep.cpu.brand_string") or "Apple GPU"
        total = metal_budget_bytes(memory, limit)
        if total <= 0:
            return (), report("failed", "the size of the memory cannot be read")
        device = Device(
            id="MTL0", backend="metal", name=name, total_bytes=total,
            free_bytes=min(total, ram.available_bytes), memory_kind="unified", integrated=True,
        )  # fmt: skip
        source = f"iogpu.wired_limit_mb={limit}" if limit else "the system's default limit"
        return (device,), report("ok", f"{name}, {total >> 20} of {memory >> 20} MiB by {source}")
    except Exception as error:  # a probe reports, it never stops the answer
        return (), report("failed", f"{type(error).__name__}: {error}")
