"""Tokens per second and seconds per turn, as a value with a range and what bounds it.

Decode: t = sum over devices (weights read + cache read at depth) / (efficiency * bandwidth) + blocks * u + hops + disk.
Prefill: efficiency * FLOP/s / (2 * active parameters), or the link when host weights are copied in for each batch.
The constants stand in rules/speed.toml with their sources.
"""

from collections.abc import Mapping
from typing import Any

from advisor.ggml_types import BY_NAME, row_bytes
from advisor.host import Device, HostSnapshot
from advisor.memory.placement import HOST
from advisor.memory.types import MemoryPlan
from advisor.model.spec import LayerSpec, ModelSpec
from advisor.records import NamedTuple
from advisor.settings import RunSettings

_CLASS_SCHEMA: dict[str, object] = {
    "efficiency": "number",
    "block_seconds": "number",
    "prefill_efficiency": "number",
    "range": "number",
    "assumed_bandwidth_bytes_per_s": "number",
    "assumed_tflops": "number",
    "assumed_link_bytes_per_s": "number",
    "confidence": ("formula", "low"),
    "source": "str",
}
SCHEMA: dict[str, object] = {
    "source": "str",
    "classes": {"*": _CLASS_SCHEMA},
    "cpu": {
        "efficiency": "number",
        "range": "number",
        "assumed_bandwidth_bytes_per_s": "number",
        "gflops_per_core": "number",
        "gflops_per_core_avx2": "number",
        "gflops_per_core_avx512": "number",
        "source": "str",
    },
    "moe": {"prefill_factor": "number", "host_experts_seconds_per_block": "number", "source": "str"},
    "attention": {
        "no_flash_efficiency_factor": "number",
        "quantized_cache_efficiency_factor": "number",
        "source": "str",
    },
    "disk": {
        "assumed_read_bytes_per_s": "number",
        "range": "number",
        "cold_expert_read_ahead": "number",
        "source": "str",
    },
}


class Turn(NamedTuple):
    """One exchange: tokens to read, tokens already in the cache, tokens to answer."""

    prompt_tokens: int
    depth_tokens: int
    answer_tokens: int


class Range(NamedTuple):
    """A figure with its bounds."""

    value: float
    low: float
    high: float


class Speed(NamedTuple):
    """What a person will feel. `at_depth` is the tokens in the cache for the decode figure."""

    turn_seconds: Range
    decode_tokens_per_s: Range
    prefill_tokens_per_s: Range
    at_depth: int
    confidence: str  # "formula" | "low"
    bound_by: str  # "gpu bandwidth" | "ram bandwidth" | "disk" | "compute"


def cache_read_bytes(layer: LayerSpec, settings: RunSettings, depth_tokens: int) -> int:
    """Bytes of this block's cache that one token reads at `depth_tokens`; state is read and written back."""
    total = 8 * (layer.recurrent_conv + layer.recurrent_state)
    if layer.attention == "none":
        return total
    cells = min(depth_tokens, layer.n_window) if layer.n_window else depth_tokens
    per_cell = row_bytes(BY_NAME[settings.cache_type_k.lower()], layer.k_width + layer.indexer_head_size)
    per_cell += row_bytes(BY_NAME[settings.cache_type_v.lower()], layer.v_width)
    return total + cells * per_cell


def class_of(device: Device) -> str:
    """The speed class of a device: its backend, with old NVIDIA cards apart."""
    if device.backend == "cuda" and device.compute_capability:
        major = device.compute_capability.split(".", 1)[0]
        if major.isdigit() and int(major) < 7:
            return "cuda_pascal"
    return device.backend


class SpeedModel:
    """Speed of one model on one machine for any plan; what does not depend on the plan is worked out once."""

    def __init__(self, spec: ModelSpec, host: HostSnapshot, rules: Mapping[str, Any]) -> None:
        self._spec, self._host, self._rules = spec, host, rules
        self._classes = [rules["classes"][class_of(device)] for device in host.devices]
        used = spec.n_expert_used / spec.n_expert if spec.n_expert else 1.0
        self._active_parameters = 0.0
        for tensor in spec.tensors:
            if tensor.place in ("skipped", "input"):
                continue
            count = 1
            for extent in tensor.shape:
                count *= extent
            self._active_parameters += count * used if "exps." in tensor.name else count
        if spec.tied_output:
            self._active_parameters += spec.n_vocab * spec.n_embd
        cpu = rules["cpu"]
        self.read_rates = tuple(  # bytes per second that decoding gets out of each GPU's memory
            constants["efficiency"] * (device.bandwidth_bytes_per_s or constants["assumed_bandwidth_bytes_per_s"])
            for device, constants in zip(host.devices, self._classes, strict=True)
        )
        self._ram_bandwidth = host.ram.bandwidth_bytes_per_s or cpu["assumed_bandwidth_bytes_per_s"]
        self._disk = next((s.read_bytes_per_s for s in host.storage if s.read_bytes_per_s), None)
        self._depth_cache: dict[tuple[int, str, str, tuple[int, ...]], tuple[int, ...]] = {}

    def predict(self, plan: MemoryPlan, turn: Turn, available_ram_bytes: int) -> Speed:
        """Speed of `plan` for `turn`; `available_ram_bytes` decides whether host weights stay in RAM."""
        depth = max(min(turn.depth_tokens, plan.settings.n_ctx_seq - turn.answer_tokens), 0)
        decode_s, spread, bound, low = self._decode_seconds(plan, depth, available_ram_bytes)
        prefill_s, prefill_bound = self._prefill_seconds(plan, depth, available_ram_bytes)
        decode = _range(1 / decode_s, spread)
        prefill = _range(1 / prefill_s, max(spread, 0.25))
        turn_s = turn.prompt_tokens * prefill_s + turn.answer_tokens * decode_s
        turn_bound = "disk" if prefill_bound == "disk" else bound
        return Speed(
            turn_seconds=Range(turn_s, turn_s * (1 - spread), turn_s * (1 + spread)),
            decode_tokens_per_s=decode,
            prefill_tokens_per_s=prefill,
            at_depth=depth,
            confidence="low" if low else "formula",
            bound_by=turn_bound,
        )

    def if_it_fitted(self, plan: MemoryPlan, share: float, turn: Turn) -> float:
        """Tokens/s of `plan`, everything on the GPUs, if the weights were `share` of their size."""
        depth = max(min(turn.depth_tokens, plan.settings.n_ctx_seq - turn.answer_tokens), 0)
        smaller = plan._replace(read_device_bytes=tuple(int(n * share) for n in plan.read_device_bytes))
        return 1 / self._decode_seconds(smaller, depth, 1 << 62)[0]

    def _cache_reads(self, plan: MemoryPlan, depth: int) -> tuple[int, ...]:
        """Cache bytes read per token at `depth`: per device, the host last."""
        settings = plan.settings
        key = (depth, settings.cache_type_k, settings.cache_type_v, plan.placement if settings.kv_offload else ())
        known = self._depth_cache.get(key)
        if known is None:
            reads = [0] * (len(self._classes) + 1)
            for layer in self._spec.layers:
                at = plan.placement[layer.il] if settings.kv_offload else HOST
                reads[at] += cache_read_bytes(layer, settings, depth)
            known = self._depth_cache[key] = tuple(reads)
        return known

    def _decode_seconds(self, plan: MemoryPlan, depth: int, available: int) -> tuple[float, float, str, bool]:
        """(seconds per token, relative spread, what bounds it, low confidence)."""
        rules = self._rules
        reads = self._cache_reads(plan, depth)
        flash = 1.0 if plan.flash_attn else rules["attention"]["no_flash_efficiency_factor"]
        if BY_NAME[plan.settings.cache_type_k.lower()].is_quantized:
            flash *= rules["attention"]["quantized_cache_efficiency_factor"]
        parts: list[tuple[float, float, str]] = []  # seconds, spread, bound
        low = False
        for index, (device, constants) in enumerate(zip(self._host.devices, self._classes, strict=True)):
            n_bytes, cache = plan.read_device_bytes[index], reads[index]
            blocks = plan.devices[index].n_layers
            if not n_bytes and not cache:
                continue
            rate = self.read_rates[index]
            low = low or device.bandwidth_bytes_per_s is None or constants["confidence"] == "low"
            overhead = blocks * constants["block_seconds"]
            parts.append((n_bytes / rate + cache / flash / rate + overhead, constants["range"], "gpu bandwidth"))
        host_bytes, cache = plan.read_host_bytes, reads[-1]
        on_host = host_bytes + cache
        if on_host:
            cpu = rules["cpu"]
            spread, bound = cpu["range"], "ram bandwidth"
            seconds = (host_bytes + cache / flash) / (cpu["efficiency"] * self._ram_bandwidth)
            seconds += plan.host_expert_blocks * rules["moe"]["host_experts_seconds_per_block"]
            low = low or self._host.ram.bandwidth_bytes_per_s is None
            missing = plan.host.weights_bytes + plan.host.cache_bytes - available
            if missing > 0:
                seconds += self._disk_seconds(plan, missing)
                spread, bound, low = rules["disk"]["range"], "disk", True
            parts.append((seconds, spread, bound))
        total = sum(part[0] for part in parts) or 1e-9
        spread = sum(part[0] * part[1] for part in parts) / total if parts else 0.5
        bound = max(parts, key=lambda part: part[0])[2] if parts else "compute"
        return total, spread, bound, low

    def _disk_seconds(self, plan: MemoryPlan, missing: int) -> float:
        """Seconds a token waits for the disk when `missing` bytes of host weights do not stay in RAM."""
        disk = self._rules["disk"]
        speed = self._disk or disk["assumed_read_bytes_per_s"]
        weights = max(plan.host.weights_bytes, 1)
        if self._spec.n_expert:
            cold = min(missing / weights, 1.0) * disk["cold_expert_read_ahead"]
            return float(min(plan.read_host_bytes * cold, weights) / speed)
        return float(plan.read_host_bytes / speed)

    def _prefill_seconds(self, plan: MemoryPlan, depth: int, available: int) -> tuple[float, str]:
        """(seconds per prompt token, "compute", "link" or "disk")."""
        rules, spec, settings = self._rules, self._spec, plan.settings
        reads = sum(plan.read_device_bytes) + plan.read_host_bytes or 1
        moe = rules["moe"]["prefill_factor"] if spec.n_expert else 1.0
        attention = 0.0
        for layer in spec.layers:
            cells = min(depth, layer.n_window) if layer.n_window else depth
            attention += 4.0 * layer.n_head * (layer.head_size_k + layer.head_size_v) / 2 * cells
        seconds, bound = 0.0, "compute"
        fastest = 0.0
        link = 0.0
        for index, (device, constants) in enumerate(zip(self._host.devices, self._classes, strict=True)):
            flops = constants["prefill_efficiency"] * 1e12 * (device.f16_tflops or constants["assumed_tflops"])
            fastest = max(fastest, flops)
            link = max(link, device.link_bytes_per_s or constants["assumed_link_bytes_per_s"])
            share = plan.read_device_bytes[index] / reads
            seconds += share * (2 * self._active_parameters / (flops * moe) + attention / flops)
        host_share = plan.read_host_bytes / reads
        if host_share:
            cpu_flops = self._cpu_flops()
            on_cpu = host_share * (2 * self._active_parameters + attention) / cpu_flops
            offloaded = float("inf")
            if fastest and settings.op_offload:
                copied = plan.host.weights_bytes / (0.8 * link * settings.n_ubatch)
                offloaded = copied + host_share * (2 * self._active_parameters / (fastest * moe) + attention / fastest)
            if offloaded < on_cpu:
                bound = "link"
            seconds += min(on_cpu, offloaded)
            missing = plan.host.weights_bytes + plan.host.cache_bytes - available
            if missing > 0:
                speed = self._disk or rules["disk"]["assumed_read_bytes_per_s"]
                seconds += plan.host.weights_bytes / speed / settings.n_ubatch
                bound = "disk"
        return max(seconds, 1e-9), bound

    def _cpu_flops(self) -> float:
        cpu, sets = self._rules["cpu"], self._host.cpu.instruction_sets
        per_core = cpu["gflops_per_core"]
        if "avx512f" in sets:
            per_core = cpu["gflops_per_core_avx512"]
        elif "avx2" in sets or "neon" in sets or "asimd" in sets:
            per_core = cpu["gflops_per_core_avx2"]
        return float(max(self._host.cpu.physical_cores, 1) * per_core * 1e9)


def _range(value: float, spread: float) -> Range:
    return Range(value, value * (1 - spread), value * (1 + spread))
