"""Seconds a prompt's token takes: 2 * active parameters / FLOP/s, attention, and what must be copied for each batch."""

from math import ceil

from advisor.memory.placement import HOST
from advisor.memory.types import MemoryPlan
from advisor.records import NamedTuple
from advisor.speed.constants import Constants, DeviceConstants
from advisor.speed.reads import ModelFacts, attention_flops

_SMALLEST_OFFLOADED_BATCH = 32  # tokens from which a GPU takes products of host weights (ggml offload_op)


class Prefill(NamedTuple):
    """Seconds for one token of a prompt."""

    seconds: float
    spread: float
    bound_by: str  # "compute" | "link" | "disk"


class _Work(NamedTuple):
    """What lies where, as shares of the model, and one token's attention in FLOP; the host last."""

    dense: tuple[float, ...]
    experts: tuple[float, ...]
    attention: tuple[float, ...]


def prefill_of(
    facts: ModelFacts, constants: Constants, plan: MemoryPlan, prompt_tokens: int, depth: int,
    host_cache_bytes: int, available_ram_bytes: int,
) -> Prefill:  # fmt: skip
    """A prompt of `prompt_tokens` (0 = one batch) with `depth` tokens before it.

    `host_cache_bytes`: cache in system memory at the middle of the prompt.
    """
    prompt = prompt_tokens or plan.settings.n_ubatch
    batch = min(plan.settings.n_ubatch, prompt)
    batches = ceil(prompt / batch) / prompt  # per token
    work = _work_of(facts, plan, depth + prompt // 2)
    seconds = spread = 0.0
    for index, device in enumerate(constants.devices):
        computing = _products(facts, work.dense[index], work.experts[index], device, batch)
        # every expert is read for a batch, whatever a single token uses
        reading = plan.devices[index].weights_bytes * batches / device.read_bytes_per_s
        own = max(computing, reading) + work.attention[index] / device.attention_flops
        seconds += own
        spread += own * device.prefill_spread
    bound = "compute"
    if work.dense[HOST] or work.experts[HOST] or work.attention[HOST]:
        own, bound = _on_host(facts, constants, plan, work, batch, batches, host_cache_bytes)
        if plan.host.weights_bytes + plan.host.cache_bytes > available_ram_bytes:
            own += plan.host.weights_bytes * batches / constants.host.disk_bytes_per_s
            bound = "disk"
        seconds += own
        spread += own * constants.host.spread
    return Prefill(max(seconds, 1e-9), spread / seconds if seconds else 0.5, bound)


def _on_host(
    facts: ModelFacts, constants: Constants, plan: MemoryPlan, work: _Work, batch: int, batches: float,
    cache_bytes: int,
) -> tuple[float, str]:  # fmt: skip
    """The host's part: copied to the fastest GPU for each batch where the engine does so, else on the CPU."""
    host, settings = constants.host, plan.settings
    fastest = max(constants.devices, key=lambda device: device.flops, default=None)
    if fastest is None or not settings.op_offload or batch < _SMALLEST_OFFLOADED_BATCH:
        parameters = work.dense[HOST] * facts.dense_parameters + work.experts[HOST] * facts.expert_parameters
        return 2 * parameters / host.flops + work.attention[HOST] / host.attention_flops, "compute"
    link = max(device.link_bytes_per_s for device in constants.devices)
    weights = max(plan.host.weights_bytes - facts.input_bytes, 0)
    seconds = weights * batches / link + _products(facts, work.dense[HOST], work.experts[HOST], fastest, batch)
    if not settings.kv_offload:
        return seconds + work.attention[HOST] / host.attention_flops, "link"
    # attention goes where the matrices around it go, and takes the cache along
    return seconds + cache_bytes * batches / link + work.attention[HOST] / fastest.attention_flops, "link"


def _products(facts: ModelFacts, dense: float, experts: float, device: DeviceConstants, batch: int) -> float:
    """Matrix products of one token; an expert gets only some tokens of a batch, which keeps it from full speed."""
    rows = max(batch * facts.used_share, 1.0)
    slower = 1 + device.expert_rows / rows
    return 2 * (dense * facts.dense_parameters + experts * slower * facts.expert_parameters) / device.flops


def _work_of(facts: ModelFacts, plan: MemoryPlan, depth: int) -> _Work:
    n_devices, n_blocks = len(plan.devices), len(facts.blocks.of_layer)
    counts = [0] * (n_devices + 1)
    attention = [0.0] * (n_devices + 1)
    for at, kind, count in facts.blocks.counts(plan.placement):
        counts[at] += count
        flops = attention_flops(facts.blocks.kinds[kind], depth)
        attention[at if plan.settings.kv_offload else HOST] += count * flops
    # blocks whose experts alone are on the host are taken evenly from the GPUs
    kept = 1 - plan.host_expert_blocks / facts.expert_blocks if facts.expert_blocks else 1.0
    dense = [count / n_blocks for count in counts]
    experts = [share * kept for share in dense]
    experts[HOST] = 1 - sum(experts[:HOST])
    return _Work(tuple(dense), tuple(experts), tuple(attention))
