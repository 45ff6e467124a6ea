"""The constants of one machine as one value: what rules/speed.toml says of its devices, or what was measured there.

Every figure that a prediction rests on, beside the plan itself, is in `Constants`; who has measured better ones
replaces them there (`_replace`) and hands the value to SpeedModel.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from advisor.host import Device, HostSnapshot
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.calibration import Calibration, CpuTimes


class DeviceConstants(NamedTuple):
    """One GPU. `decode_factor` multiplies its seconds per token: 1 unless a run of its own was measured."""

    read_bytes_per_s: float  # what decoding gets out of its memory for weights
    cache_bytes_per_s: float  # the same for the cache, with flash attention
    step_seconds: float  # one plain block beside its reading: kernels started one after the other
    extra_steps: float  # of a block with experts or a recurrent state, beside a plain block's 1
    flops: float  # matrix products of a prompt
    attention_flops: float  # attention of a prompt
    expert_rows: float  # tokens that an expert must get of a batch to run at half the speed of a dense matrix
    link_bytes_per_s: float
    spill_bytes_per_s: float  # what a driver that spills gets over the link
    slow_expert_types: tuple[str, ...]  # storage types whose experts have no kernel for a single token
    slow_expert_seconds: float  # what each stack of such experts costs instead
    spread: float
    prefill_spread: float
    confidence: str  # "calibrated" | "formula" | "low"
    decode_factor: float = 1.0


class HostConstants(NamedTuple):
    """CPU, system memory and disk."""

    read_bytes_per_s: float  # what decoding gets out of system memory for weights
    cache_bytes_per_s: float  # the same for the cache, with flash attention
    step_seconds: float  # one plain block beside its reading
    extra_steps: float  # as a GPU's
    flops: float  # matrix products of a prompt
    attention_flops: float  # attention of a prompt
    disk_bytes_per_s: float
    spread: float
    disk_spread: float
    confidence: str
    decode_factor: float = 1.0
    times: "CpuTimes | None" = None  # what an engine's trials told; they stand in for the rates above
    vocabulary_seconds: float = 0.0  # choosing a token


class Measured(NamedTuple):
    """What was measured on this machine, and how far it is to be trusted."""

    calibration: "Calibration"
    spread: float
    prefill_spread: float
    nearest_size_ratio: float  # a run tells of models up to so many times smaller or larger
    no_flash: tuple[float, float]  # what pair_seconds and row_seconds become without flash attention
    quantized_cache: tuple[float, float]  # and with a quantised cache


class Constants(NamedTuple):
    """Everything. What is not of one device holds for all."""

    devices: tuple[DeviceConstants, ...]
    host: HostConstants
    hop_seconds: float  # from one device to another, or to the CPU
    no_flash_factor: float  # of cache_bytes_per_s without flash attention
    quantized_cache_factor: float  # of cache_bytes_per_s with a quantised cache
    latent_flops_factor: float  # of flops: what attention over a latent cache reaches for a single token
    cold_read_ahead: float  # bytes read from disk for each byte of an expert that is not in memory
    measured: Measured | None = None


def class_of(device: Device) -> str:
    """The speed class of a device: its backend, with old NVIDIA cards apart."""
    if device.backend == "cuda" and device.compute_capability:
        major = device.compute_capability.split(".", 1)[0]
        if major.isdecimal() and int(major) < 7:
            return "cuda_pascal"
    return device.backend


def constants_of(host: HostSnapshot, rules: Mapping[str, Any], model_path: str = "") -> Constants:
    """What a checked rules/speed.toml says of this machine; `model_path` tells which disk is read."""
    attention = rules["attention"]
    on_host, measured = _host(host, rules, model_path), None
    if host.calibration is not None:
        from advisor.speed.measured import with_calibration  # only where something was measured

        trust = rules["measured"]
        on_host = with_calibration(on_host, host.calibration, rules)
        measured = Measured(
            host.calibration,
            trust["range"],
            trust["prefill_range"],
            trust["nearest_size_ratio"],
            (trust["cpu_no_flash_pair_factor"], trust["cpu_no_flash_row_factor"]),
            (trust["cpu_quantized_cache_pair_factor"], trust["cpu_quantized_cache_row_factor"]),
        )
    return Constants(
        devices=tuple(_device(device, rules) for device in host.devices),
        host=on_host,
        hop_seconds=rules["copies"]["hop_seconds"],
        no_flash_factor=attention["no_flash_efficiency_factor"],
        quantized_cache_factor=attention["quantized_cache_efficiency_factor"],
        latent_flops_factor=attention["latent_flops_factor"],
        cold_read_ahead=rules["disk"]["cold_expert_read_ahead"],
        measured=measured,
    )


def _device(device: Device, rules: Mapping[str, Any]) -> DeviceConstants:
    kind = rules["classes"][class_of(device)]
    stacked = rules["stacked_memory"]
    rate = kind["efficiency"] * (device.bandwidth_bytes_per_s or kind["assumed_bandwidth_bytes_per_s"])
    if device.compute_capability in stacked["chips"]:
        rate *= stacked["efficiency_factor"]
    flops = kind["prefill_efficiency"] * 1e12 * (device.f16_tflops or kind["assumed_tflops"])
    low = kind["confidence"] == "low" or device.bandwidth_bytes_per_s is None
    return DeviceConstants(
        read_bytes_per_s=rate,
        cache_bytes_per_s=rate * kind["flash_efficiency_factor"],
        step_seconds=kind["block_seconds"],
        extra_steps=kind["extra_steps"],
        flops=flops,
        attention_flops=flops * kind["prefill_attention_factor"],
        expert_rows=kind["prefill_expert_rows"],
        link_bytes_per_s=rules["copies"]["link_efficiency"]
        * (device.link_bytes_per_s or kind["assumed_link_bytes_per_s"]),
        spill_bytes_per_s=rules["copies"]["spill_efficiency"]
        * (device.link_bytes_per_s or kind["assumed_link_bytes_per_s"]),
        slow_expert_types=tuple(kind["slow_expert_types"]),
        slow_expert_seconds=kind["slow_expert_seconds"],
        spread=kind["range"],
        prefill_spread=kind["prefill_range"],
        confidence="low" if low else "formula",
    )


def _host(host: HostSnapshot, rules: Mapping[str, Any], model_path: str) -> HostConstants:
    cpu, sets = rules["cpu"], host.cpu.instruction_sets
    per_core = cpu["gflops_per_core"]
    if "avx512f" in sets:
        per_core = cpu["gflops_per_core_avx512"]
    elif "avx2" in sets or "neon" in sets or "asimd" in sets:
        per_core = cpu["gflops_per_core_avx2"]
    flops = max(host.cpu.physical_cores, 1) * per_core * 1e9
    rate = cpu["efficiency"] * (host.ram.bandwidth_bytes_per_s or cpu["assumed_bandwidth_bytes_per_s"])
    return HostConstants(
        read_bytes_per_s=rate,
        cache_bytes_per_s=rate * cpu["flash_efficiency_factor"],
        step_seconds=cpu["block_seconds"],
        extra_steps=cpu["extra_steps"],
        flops=flops,
        attention_flops=flops,
        disk_bytes_per_s=disk_rate(host, rules, model_path),
        spread=cpu["range"],
        disk_spread=rules["disk"]["range"],
        confidence="low" if host.ram.bandwidth_bytes_per_s is None else "formula",
    )


def disk_rate(host: HostSnapshot, rules: Mapping[str, Any], model_path: str) -> float:
    """Bytes per second of the disk under the model: measured, else what its kind reads, else an NVMe's."""
    disk = rules["disk"]
    path = model_path.replace("\\", "/")
    under = [s for s in host.storage if path.startswith(s.folder.replace("\\", "/").rstrip("/") + "/")]
    found = max(under, key=lambda s: len(s.folder), default=host.storage[0] if host.storage else None)
    if found is not None and found.read_bytes_per_s:
        return float(found.read_bytes_per_s)
    return float(disk["kinds"].get(found.kind if found else None, disk["assumed_read_bytes_per_s"]))
