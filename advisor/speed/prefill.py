"""Seconds a prompt's token takes: 2 * active parameters / FLOP/s, attention, and what must be copied for each batch."""

from math import ceil
from operator import attrgetter

from advisor.memory.placement import HOST
from advisor.memory.types import MemoryPlan
from advisor.records import NamedTuple
from advisor.speed.constants import Constants, DeviceConstants
from advisor.speed.reads import ModelFacts, Placed, Work, attention_flops

_SMALLEST_OFFLOADED_BATCH = 32  # tokens from which a GPU takes products of host weights (ggml offload_op)

_FLOPS, _LINK = attrgetter("flops"), attrgetter("link_bytes_per_s")


class Prefill(NamedTuple):
    """Seconds for one token of a prompt."""

    seconds: float
    spread: float
    bound_by: str  # "compute" | "link" | "disk"


def prefill_of(
    facts: ModelFacts, constants: Constants, plan: MemoryPlan, placed: Placed,
    prompt_tokens: int, depth: int, host_cache_bytes: int, available_ram_bytes: int,
) -> Prefill:  # fmt: skip
    """A prompt of `prompt_tokens` (0 = one batch) with `depth` tokens before it.

    `host_cache_bytes`: cache in system memory at the middle of the prompt.
    """
    prompt = prompt_tokens or plan.settings.n_ubatch
    batch = min(plan.settings.n_ubatch, prompt)
    batches = ceil(prompt / batch) / prompt  # per token
    work = _work_of(facts, plan, placed, depth + prompt // 2)
    seconds = spread = 0.0
    rows = max(batch * facts.used_share, 1.0)  # of a batch that an expert gets, which keeps it from full speed
    for index, device in enumerate(constants.devices):
        computing = _products(facts, work.dense[index], work.experts[index], device, rows)
        # every expert is read for a batch, whatever a single token uses
        reading = plan.devices[index].weights_bytes * batches / device.read_bytes_per_s
        own = max(computing, reading) + work.attention[index] / device.attention_flops
        seconds += own
        spread += own * device.prefill_spread
    bound = "compute"
    if work.dense[HOST] or work.experts[HOST] or work.attention[HOST]:
        own, bound = _on_host(facts, constants, plan, work, batch, rows, batches, host_cache_bytes)
        if plan.host.weights_bytes + plan.host.cache_bytes > available_ram_bytes:
            own += plan.host.weights_bytes * batches / constants.host.disk_bytes_per_s
            bound = "disk"
        seconds += own
        spread += own * constants.host.spread
    return Prefill(max(seconds, 1e-9), spread / seconds if seconds else 0.5, bound)


def _on_host(
    facts: ModelFacts, constants: Constants, plan: MemoryPlan, work: Work, batch: int, rows: float,
    batches: float, cache_bytes: int,
) -> tuple[float, str]:  # fmt: skip
    """The host's part: copied to the fastest GPU for each batch where the engine does so, else on the CPU."""
    host, settings = constants.host, plan.settings
    fastest = max(constants.devices, key=_FLOPS, default=None)
    if fastest is None or not settings.op_offload or batch < _SMALLEST_OFFLOADED_BATCH:
        parameters = work.dense[HOST] * facts.dense_parameters + work.experts[HOST] * facts.expert_parameters
        return 2 * parameters / host.flops + work.attention[HOST] / host.attention_flops, "compute"
    link = max(map(_LINK, constants.devices))
    weights = max(plan.host.weights_bytes - facts.input_bytes, 0)
    seconds = weights * batches / link + _products(facts, work.dense[HOST], work.experts[HOST], fastest, rows)
    if not settings.kv_offload:
        return seconds + work.attention[HOST] / host.attention_flops, "link"
    # attention goes where the matrices around it go, and takes the cache along
    return seconds + cache_bytes * batches / link + work.attention[HOST] / fastest.attention_flops, "link"


def _products(facts: ModelFacts, dense: float, experts: float, device: DeviceConstants, rows: float) -> float:
    """Matrix products of one token; `rows`: tokens of a batch that an expert gets."""
    slower = 1 + device.expert_rows / rows
    return 2 * (dense * facts.dense_parameters + experts * slower * facts.expert_parameters) / device.flops


def _work_of(facts: ModelFacts, plan: MemoryPlan, placed: Placed, depth: int) -> Work:
    offload = plan.settings.kv_offload
    known = placed.work.get((depth, offload, plan.host_expert_blocks))
    if known is None:
        attention = [0.0] * len(placed.shares)
        for at, kind, count in placed.counts:
            attention[at if offload else HOST] += count * attention_flops(facts.blocks.kinds[kind], depth)
        # blocks whose experts alone are on the host are taken evenly from the GPUs
        kept = 1 - plan.host_expert_blocks / facts.expert_blocks if facts.expert_blocks else 1.0
        experts = [share * kept for share in placed.shares]
        experts[HOST] = 1 - sum(experts[:HOST])
        known = Work(placed.shares, tuple(experts), tuple(attention))
        placed.work[depth, offload, plan.host_expert_blocks] = known
    return known
