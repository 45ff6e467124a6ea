"""The machine as a value: what the probes found, or what the user asked us to imagine.

Everything that depends on the clock, the environment or free memory enters the core through
`HostSnapshot`, so that the same snapshot gives the same answer on every machine.
Bytes are bytes, `_bytes_per_s` is bytes per second, `None` means unknown.
"""

from typing import TYPE_CHECKING

from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.calibration import Calibration


class ProcessUse(NamedTuple):
    """Device memory that one running process holds."""

    pid: int
    name: str
    used_bytes: int | None
    is_engine: bool  # a llama.cpp relative whose memory comes back when it is restarted


class Device(NamedTuple):
    """One GPU as the engine would see it, in the engine's device order."""

    id: str  # "CUDA0", "Vulkan0", "ROCm0", "MTL0", "SYCL0"
    backend: str  # "cuda" | "rocm" | "vulkan" | "metal" | "sycl"
    name: str
    total_bytes: int
    free_bytes: int
    memory_kind: str = "dedicated"  # or "unified": shares system RAM, counted once
    integrated: bool = False
    pci_id: str | None = None
    uuid: str | None = None
    used_by_engines_bytes: int = 0
    processes: tuple[ProcessUse, ...] = ()
    bandwidth_bytes_per_s: int | None = None
    bandwidth_source: str | None = None
    link_bytes_per_s: int | None = None
    f16_tflops: float | None = None  # dense matrix half precision, as rules/gpus.toml defines it
    compute_capability: str | None = None  # "8.6" for CUDA, "gfx1100" for ROCm
    driver: str | None = None
    source: str = "probe"  # "probe" | "rules/gpus.toml" | "given"
    reserved_bytes: int = 0  # kept by the driver, already taken off total_bytes
    shared_bytes: int | None = None  # unified memory: the part of total_bytes that is system RAM; None = all of it
    pci_device: str | None = None  # "10de:2503" or "1002:744c:c8": vendor, device, revision


class Ram(NamedTuple):
    """System memory. `available_bytes` already respects cgroup limits."""

    total_bytes: int
    available_bytes: int
    cgroup_limit_bytes: int | None = None
    used_by_engines_bytes: int = 0
    bandwidth_bytes_per_s: int | None = None
    bandwidth_source: str | None = None


class Cpu(NamedTuple):
    """The processor. `instruction_sets` are lower-case names such as avx2, avx512f, amx_int8, neon."""

    name: str
    physical_cores: int
    logical_cores: int
    instruction_sets: tuple[str, ...] = ()
    architecture: str = ""  # x86_64, aarch64, ...


class Storage(NamedTuple):
    """The disk under a model folder."""

    folder: str
    device: str | None = None
    kind: str | None = None  # "nvme" | "ssd" | "hdd" | "network" | None
    read_bytes_per_s: int | None = None
    source: str | None = None


class ProbeReport(NamedTuple):
    """How one probe went: `ok` found something or nothing to find, `absent` not on this machine, `failed`."""

    name: str
    status: str
    detail: str
    seconds: float


class HostSnapshot(NamedTuple):
    """One machine at one moment; what `advisor hardware --save` writes and `--hardware` replays."""

    devices: tuple[Device, ...]
    ram: Ram
    cpu: Cpu
    platform: str = "linux"  # "linux" | "darwin" | "windows" | "wsl"
    storage: tuple[Storage, ...] = ()
    probes: tuple[ProbeReport, ...] = ()
    origin: str = "probed"  # "probed" | "given" | "file"
    notes: tuple[str, ...] = ()
    idle_devices: tuple[Device, ...] = ()  # present, but llama.cpp leaves them alone (an iGPU beside a card)
    calibration: "Calibration | None" = None  # what was measured on this machine


def with_devices(host: HostSnapshot, devices: tuple[Device, ...]) -> HostSnapshot:
    """`host` as an engine that was told to use only `devices`, in this order, sees it."""
    if devices == host.devices:
        return host
    left = tuple(device for device in host.devices if device not in devices)
    return host._replace(devices=devices, idle_devices=(*host.idle_devices, *left))
