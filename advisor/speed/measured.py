"""What was measured on the machine in place of what rules/speed.toml assumes: for the machine, then for one model.

The CPU's own times are those of an engine's trials (advisor.speed.trials says what they mean). Runs of whole models
correct what is left: where there were no trials for models of the same quantization and about the same size, else for
the model that ran, of which they know more than its types.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.calibration import CPU, Calibration, CpuTimes, HeadTimes, Run, device_key, median
from advisor.ggml_types import BY_NAME, GGML_TYPES
from advisor.host import Device
from advisor.memory.cache import layer_cells
from advisor.memory.placement import HOST
from advisor.memory.types import MemoryPlan
from advisor.model.spec import LayerSpec, ModelSpec
from advisor.settings import RunSettings
from advisor.speed.constants import Constants, HostConstants, Measured
from advisor.units import round_up

CELLS_PADDING = 256  # n_kv grows by this many tokens (llama_kv_cache::get_n_kv)
SPLIT_FROM_CELLS = 512  # tokens of the cache are dealt to the threads from here on, heads below
WIDE = 2150  # elements; rows of the trials of types come to it on average; shorter ones cost more time a byte
_LONGEST = 1.5  # times WIDE, from where on longer rows gain no more
_KNOWN_SHARE = 0.9  # of a model's bytes must be of types that were tried for its speed to count as calibrated


def with_calibration(host: HostConstants, calibration: Calibration, rules: Mapping[str, Any]) -> HostConstants:
    """`host` with the measured memory, and with the CPU's times where there are any."""
    if calibration.ram_bytes_per_s is not None:
        rate = rules["measured"]["ram_efficiency"] * calibration.ram_bytes_per_s
        host = host._replace(read_bytes_per_s=rate, cache_bytes_per_s=rate, confidence="formula")
    if calibration.cpu is not None:
        host = host._replace(step_seconds=calibration.cpu.block_seconds, times=calibration.cpu)
    return host


def for_model(base: Constants, spec: ModelSpec, devices: Sequence[Device]) -> Constants:
    """`base` for this model: the CPU's rate for its storage types, and what runs of models like it showed."""
    measured = base.measured
    if measured is None:
        return base
    host = base.host
    if host.times is not None:
        host = _of_types(host, host.times, spec, measured)
    build = host.times.build if host.times is not None else None
    factors = _factors(measured, CPU, spec, build, itself=host.confidence == "calibrated")
    if factors is not None:
        host = host._replace(
            decode_factor=factors[0], flops=host.flops / factors[1], attention_flops=host.attention_flops / factors[1],
            spread=measured.spread, confidence="calibrated",
        )  # fmt: skip
    found = []
    for constants, device in zip(base.devices, devices, strict=True):
        factors = _factors(measured, device_key(device.backend, device.name), spec, None, itself=False)
        if factors is not None:
            constants = constants._replace(
                decode_factor=factors[0], flops=constants.flops / factors[1],
                attention_flops=constants.attention_flops / factors[1], spread=measured.spread,
                prefill_spread=measured.prefill_spread, confidence="calibrated",
            )  # fmt: skip
        found.append(constants)
    return base._replace(host=host, devices=tuple(found))


def _of_types(host: HostConstants, times: CpuTimes, spec: ModelSpec, measured: Measured) -> HostConstants:
    """The rate at which the CPU gets through this model's types; those that were not tried come at memory's pace."""
    rates = {entry.name: entry.bytes_per_s for entry in times.types}
    flops = {entry.name: entry.flops for entry in times.types if entry.flops}
    n_bytes, parameters, rows = _by_type(spec)
    reading = sum(count / rates.get(name, host.read_bytes_per_s) for name, count in n_bytes.items())
    seconds = max(reading + rows * times.row_seconds, reading / 2)  # long rows gain, but not that much
    total = sum(n_bytes.values())
    multiplied = sum(parameters.values())
    computing = sum(count / flops.get(name, host.flops) for name, count in parameters.items())
    attending = [
        (
            layer.n_head * 2.0 * (layer.head_size_k + layer.head_size_v),
            layer.n_head * _head_times(layer, times.heads)[2],
        )
        for layer in spec.layers
        if layer.attention != "none" and times.heads and times.heads[0].prompt_seconds is not None
    ]
    attention_s = sum(seconds for _, seconds in attending)
    known = sum(count for name, count in n_bytes.items() if name in rates) >= _KNOWN_SHARE * total
    return host._replace(
        read_bytes_per_s=total / seconds if seconds else host.read_bytes_per_s,
        flops=multiplied / computing if computing else host.flops,
        attention_flops=sum(n for n, _ in attending) / attention_s if attention_s else host.attention_flops,
        vocabulary_seconds=times.vocabulary_seconds * spec.n_vocab if spec.has_logits else 0.0,
        spread=measured.spread if known else host.spread,
        confidence="calibrated" if known else host.confidence,
    )


def _by_type(spec: ModelSpec) -> tuple[dict[str, float], dict[str, float], float]:
    """(bytes that one token reads, parameters that a prompt's token multiplies, by type; short rows)."""
    used = spec.n_expert_used / spec.n_expert if spec.n_expert else 1.0
    n_bytes: dict[str, float] = {}
    parameters: dict[str, float] = {}
    rows = 0.0
    for tensor in spec.tensors:
        if tensor.place == "skipped" or (tensor.place == "input" and not spec.tied_output) or len(tensor.shape) < 2:
            continue
        if tensor.place == "input" and not tensor.name.startswith("token_embd"):
            continue
        name, share = GGML_TYPES[tensor.ggml_type].name, used if "exps." in tensor.name else 1.0
        n_bytes[name] = n_bytes.get(name, 0.0) + tensor.n_bytes * share
        count = share
        for extent in tensor.shape:
            count *= extent
        if tensor.place not in ("input", "output"):
            rows += count / tensor.shape[0] * shortness(tensor.shape[0])
            parameters[name] = parameters.get(name, 0.0) + count
    return n_bytes, parameters, rows


def shortness(width: int) -> float:
    """How much a row of so many elements falls short of WIDE; negative for what is longer."""
    return 1 - min(width / WIDE, _LONGEST)


def _factors(
    measured: Measured, device: str, spec: ModelSpec, build: int | None, *, itself: bool
) -> tuple[float, float] | None:
    """(seconds of a token, of a prompt's token) over those predicted, by the run nearest in size; None without one.

    `itself`: only runs of this model count.
    """
    near: list[tuple[bool, float, Run]] = []
    weights = max(weights_bytes(spec), 1)
    for run in measured.calibration.runs:
        ratio = max(run.weights_bytes / weights, weights / run.weights_bytes)
        if itself and (run.weights_bytes != weights or run.model != run_name(spec)):
            continue
        if run.device == device and run.quantization == spec.quantization and ratio <= measured.nearest_size_ratio:
            near.append((build is not None and run.build != build, ratio, run))
    if not near:
        return None
    run = min(near, key=lambda entry: entry[:2])[2]
    return tuple(median(factors) if factors else 1.0 for factors in (run.decode_factors, run.prefill_factors))  # type: ignore[return-value]


def run_name(spec: ModelSpec) -> str:
    """A model's name as runs are kept by."""
    return spec.name[:200]


def weights_bytes(spec: ModelSpec) -> int:
    """A model's size as runs are compared by."""
    return sum(tensor.n_bytes for tensor in spec.tensors if tensor.place != "skipped")


# ---------------------------------------------------------------- attention on the CPU


def host_attention_seconds(
    spec: ModelSpec, heads: Sequence[HeadTimes], plan: MemoryPlan, depth: int, measured: Measured
) -> float:
    """One token's attention in the blocks whose cache is in system memory."""
    pairs, rows = (1.0, 1.0) if plan.flash_attn else measured.no_flash
    if BY_NAME[plan.settings.cache_type_k.lower()].is_quantized:
        pairs, rows = pairs * measured.quantized_cache[0], rows * measured.quantized_cache[1]
    seconds = 0.0
    for layer in spec.layers:
        if layer.attention != "none" and (plan.placement[layer.il] == HOST or not plan.settings.kv_offload):
            pair, row, _ = _head_times(layer, heads)
            seconds += _cells(layer, plan.settings, depth) * (
                layer.n_head * pair * pairs + layer.n_head_kv * row * rows
            )
    return seconds


def _cells(layer: LayerSpec, settings: RunSettings, depth: int) -> int:
    """Tokens of the cache that take the threads their time.

    They share out the padded cache, and the slowest has nothing but tokens in its share: all of a long cache count, and
    of a block with a window those cells too that keep what the window has left behind.
    """
    cells = layer_cells(layer, settings)
    if layer.n_window and depth >= layer.n_window:
        return cells if cells >= SPLIT_FROM_CELLS else layer.n_window
    if depth < SPLIT_FROM_CELLS:
        return depth
    return min(round_up(depth + 1, CELLS_PADDING), max(cells, depth))


def _head_times(layer: LayerSpec, heads: Sequence[HeadTimes]) -> tuple[float, float, float]:
    """(a head and token, a key head and token, the former in a prompt) for this block's heads, between those tried.

    The keys of a single key head lie one after the other and come as fast as they are used.
    """
    size = (layer.head_size_k + layer.head_size_v) / 2
    below = max((entry for entry in heads if entry.head_size <= size), key=lambda e: e.head_size, default=None)
    above = min((entry for entry in heads if entry.head_size >= size), key=lambda e: e.head_size, default=None)
    low, high = below or above, above or below
    assert low is not None
    assert high is not None
    if below is None or above is None:  # beyond what was tried: in proportion
        share, scale = 0.0, size / low.head_size
    else:
        share = (size - low.head_size) / (high.head_size - low.head_size) if high is not low else 0.0
        scale = 1.0
    times = zip(low[1:], high[1:], strict=True)
    pair, row, prompt = (scale * ((a or 0.0) + ((b or 0.0) - (a or 0.0)) * share) for a, b in times)
    return pair, row if layer.n_head_kv > 1 else 0.0, prompt
