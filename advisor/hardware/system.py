"""System memory, processor and platform: /proc and cgroups on Linux, sysctl or psutil elsewhere."""

from __future__ import annotations

import os
import sys
import time

from advisor.hardware._read import key_values, read_int, read_text, under
from advisor.hardware.engine_processes import engine_process_ids, is_engine_name, returnable_ram_bytes
from advisor.host import Cpu, ProbeReport, Ram

# /proc/cpuinfo spelling -> the name llama.cpp and its users know.
_X86_SETS = {
    "sse3": "sse3", "pni": "sse3", "ssse3": "ssse3", "sse4_1": "sse4_1", "sse4_2": "sse4_2",
    "avx": "avx", "f16c": "f16c", "fma": "fma", "bmi2": "bmi2", "avx2": "avx2", "avx_vnni": "avx_vnni",
    "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512vl": "avx512vl", "avx512vbmi": "avx512vbmi",
    "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16", "avx512_fp16": "avx512_fp16",
    "amx_tile": "amx_tile", "amx_int8": "amx_int8", "amx_bf16": "amx_bf16",
}  # fmt: skip
_ARM_SETS = {
    "asimd": "neon", "neon": "neon", "asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16",
    "asimdhp": "fp16", "sve": "sve", "sve2": "sve2", "sme": "sme",
}  # fmt: skip
_NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a huge number rounded to pages


class SystemFacts:
    """What one look at the operating system gives. A plain class: a dataclass costs a millisecond to define."""

    __slots__ = ("cpu", "platform", "ram")

    def __init__(self, ram: Ram, cpu: Cpu, platform: str) -> None:
        self.ram = ram
        self.cpu = cpu
        self.platform = platform  # "linux" | "wsl" | "darwin" | "windows"


def probe_system(*, root: str = "/", platform: str = sys.platform) -> tuple[SystemFacts, ProbeReport]:
    """RAM, processor and platform. Unknown figures are 0; the report then says `failed`. Never raises."""
    started = time.perf_counter()
    try:
        facts = _linux(root) if platform.startswith("linux") else _elsewhere(platform)
        if facts.ram.total_bytes > 0:
            status, detail = "ok", _describe(facts)
        else:
            status, detail = "failed", "the size of the memory cannot be read; give it with --ram"
    except Exception as error:  # a probe reports, it never stops the answer
        facts = SystemFacts(Ram(0, 0), Cpu("unknown", 1, 1), _platform_name(platform))
        status, detail = "failed", f"{type(error).__name__}: {error}"
    return facts, ProbeReport("system", status, detail, time.perf_counter() - started)


def _describe(facts: SystemFacts) -> str:
    limit = "" if facts.ram.cgroup_limit_bytes is None else ", limited by a cgroup"
    return f"{facts.cpu.physical_cores} cores, {facts.ram.total_bytes >> 20} MiB RAM{limit}"


def _platform_name(platform: str) -> str:
    if platform == "darwin":
        return "darwin"
    return "windows" if platform.startswith("win") else "linux"


# ------------------------------------------------------------------------------------------ Linux


def _linux(root: str) -> SystemFacts:
    meminfo = key_values(read_text(under(root, "/proc/meminfo"), 8192) or "", ":")
    total = _kib(meminfo.get("MemTotal"))
    available = _kib(meminfo.get("MemAvailable"))
    if not available:  # kernels before 3.14
        available = _kib(meminfo.get("MemFree")) + _kib(meminfo.get("Cached"))
    limit, free_in_cgroup = cgroup_memory(root)
    if limit is not None and limit >= total > 0:
        limit = None
    if limit is not None and free_in_cgroup is not None:
        available = min(available, free_in_cgroup)
    used_by_engines = sum(returnable_ram_bytes(root, pid) for pid, _ in engine_process_ids(root))
    ram = Ram(total, min(available, total), limit, used_by_engines)
    release = (read_text(under(root, "/proc/sys/kernel/osrelease"), 256) or "").lower()
    return SystemFacts(ram, _linux_cpu(root), "wsl" if "microsoft" in release else "linux")


def _kib(text: str | None) -> int:
    words = (text or "").split()
    return int(words[0]) * 1024 if words and words[0].isdecimal() else 0


def cgroup_memory(root: str) -> tuple[int | None, int | None]:
    """Tightest memory limit of the cgroups this process is in, and what is left below it, in bytes.

    Every ancestor may hold a limit, so the tree is walked up to the mount. Page cache that the kernel
    can drop does not count as used: mapped weights would otherwise make a container look full.
    """
    tightest: int | None = None
    left: int | None = None
    for line in (read_text(under(root, "/proc/self/cgroup"), 8192) or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        controllers, path = fields[1], fields[2]
        if controllers == "" and fields[0] == "0":
            base = under(root, "/sys/fs/cgroup")
            if not os.path.exists(base + "/cgroup.controllers"):
                base += "/unified"
            names = ("memory.max", "memory.current", "active_file", "inactive_file")
        elif "memory" in controllers.split(","):
            base = under(root, "/sys/fs/cgroup/memory")
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file", "total_inactive_file")
        else:
            continue
        # In a container the path may name a folder outside its view; the mount itself is then the container's group.
        parts = [part for part in path.split("/") if part not in ("", "..", ".")]
        for depth in range(len(parts), -1, -1):
            limit, free = _cgroup_level("/".join([base, *parts[:depth]]), names)
            if limit is None:
                continue
            tightest = limit if tightest is None else min(tightest, limit)
            if free is not None:
                left = free if left is None else min(left, free)
    return tightest, left


def _cgroup_level(folder: str, names: tuple[str, str, str, str]) -> tuple[int | None, int | None]:
    limit = read_int(f"{folder}/{names[0]}")  # "max" is no number: no limit
    if limit is None or not 0 < limit < _NO_LIMIT:
        return None, None
    used = read_int(f"{folder}/{names[1]}")
    if used is None:
        return limit, None
    stat = key_values(read_text(folder + "/memory.stat", 16384) or "", " ")
    droppable = sum(int(stat[name]) for name in names[2:] if stat.get(name, "").isdecimal())
    return limit, max(0, limit - max(0, used - droppable))


def _linux_cpu(root: str) -> Cpu:
    # The first entry names the processor; reading the entries of 128 cores would cost milliseconds.
    text = read_text(under(root, "/proc/cpuinfo"), 8192) or ""
    first: dict[str, str] = {}
    for line in text.splitlines():
        key, found, value = line.partition(":")
        if not found:
            if first:
                break
            continue
        first.setdefault(key.strip(), value.strip())
    logical = _count_list(read_text(under(root, "/sys/devices/system/cpu/online"), 4096))
    if logical is None:
        logical = max(1, (read_text(under(root, "/proc/cpuinfo"), 8 << 20) or "").count("processor\t"))
    siblings = int(first["siblings"]) if first.get("siblings", "").isdecimal() else 0
    cores = int(first["cpu cores"]) if first.get("cpu cores", "").isdecimal() else 0
    if siblings > 0 and cores > 0:
        # "cpu cores" is per socket, and right for hybrid processors too (E cores have one thread).
        physical = max(1, min(logical, cores * max(1, round(logical / siblings))))
    else:
        physical = _cores_by_topology(root, logical)
    flags = (first.get("flags") or first.get("Features") or "").split()
    known = _X86_SETS if "flags" in first else _ARM_SETS
    sets = tuple(dict.fromkeys(known[flag] for flag in flags if flag in known))
    name = first.get("model name") or first.get("Model") or first.get("Hardware")
    if not name:
        name = (read_text(under(root, "/proc/device-tree/model"), 256) or "").strip("\0\n ") or "unknown"
    architecture = "x86_64" if "flags" in first else ("aarch64" if "Features" in first else "")
    if root == "/":
        architecture = os.uname().machine
    return Cpu(name, physical, logical, sets, architecture)


def _count_list(text: str | None) -> int | None:
    """Members of a kernel list such as `0-15,32-47`."""
    count = 0
    for part in (text or "").strip().split(","):
        low, _, high = part.partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None
        count += (int(high) if high else int(low)) - int(low) + 1
    return count or None


def _cores_by_topology(root: str, logical: int) -> int:
    groups = set()
    for index in range(min(logical, 1024)):
        siblings = read_text(under(root, f"/sys/devices/system/cpu/cpu{index}/topology/thread_siblings_list"), 256)
        if siblings is None:
            return logical
        groups.add(siblings.strip())
    return max(1, len(groups))


# -------------------------------------------------------------------------------- other platforms


def _elsewhere(platform: str) -> SystemFacts:
    import psutil  # type: ignore[import-untyped]  # costs 23 ms, so Linux reads /proc itself

    memory = psutil.virtual_memory()
    used_by_engines = 0
    for process in psutil.process_iter(["name", "memory_info"]):
        info = process.info
        if info.get("memory_info") is not None and is_engine_name(info.get("name") or ""):
            used_by_engines += int(info["memory_info"].rss)
    import platform as platform_module

    logical = psutil.cpu_count(logical=True) or 1
    physical = psutil.cpu_count(logical=False) or logical
    machine = platform_module.machine().lower()
    sets = ("neon", "dotprod", "fp16") if platform == "darwin" and machine == "arm64" else ()
    cpu = Cpu(platform_module.processor() or machine, physical, logical, sets, machine)
    ram = Ram(int(memory.total), int(memory.available), None, used_by_engines)
    return SystemFacts(ram, cpu, _platform_name(platform))
