"""What one token costs besides its weights: the cache it reads, the steps of each block, attention's arithmetic."""

from operator import ne

from advisor.ggml_types import BY_NAME, GGML_TYPES, row_bytes
from advisor.memory.placement import HOST
from advisor.memory.types import MemoryPlan
from advisor.model.alike import Alike
from advisor.model.spec import LayerSpec, ModelSpec
from advisor.records import NamedTuple
from advisor.settings import RunSettings


class Work(NamedTuple):
    """A prompt: what lies where, as shares of the model, and one token's attention in FLOP; the host last."""

    dense: tuple[float, ...]
    experts: tuple[float, ...]
    attention: tuple[float, ...]


class Placed:
    """What speed needs of a placement; what also depends on more is kept beside it, by that."""

    def __init__(self, placement: tuple[int, ...], blocks: Alike, n_devices: int) -> None:
        self.counts = blocks.counts(placement)  # (place, number of a kind, how many blocks)
        self.changes: int = sum(map(ne, placement, placement[1:]))  # neighbours on two devices
        self.n_on_devices = sum([place != HOST for place in placement[:-1]])
        blocks_of = [0] * (n_devices + 1)
        for place, _, count in self.counts:
            blocks_of[place] += count
        self.shares = tuple([count / len(blocks.of_layer) for count in blocks_of])  # of the blocks; the host last
        self.steps: dict[tuple[int, float], float] = {}
        self.reads: dict[tuple[int, str, str, bool], tuple[tuple[int, float], ...]] = {}
        self.work: dict[tuple[int, bool, int], Work] = {}


class ModelFacts(NamedTuple):
    """What speed needs of a model, whatever the plan. Parameters are those that one token multiplies."""

    dense_parameters: float  # without the output, which a prompt needs once
    expert_parameters: float
    expert_blocks: int
    used_share: float  # of the experts, by one token
    input_bytes: int  # looked up by row on the CPU, never read whole
    expert_stacks: dict[tuple[int, str], int]  # (block, type name) -> expert tensors
    blocks: Alike


def facts_of(spec: ModelSpec) -> ModelFacts:
    """Sum up the tensors once."""
    used = spec.n_expert_used / spec.n_expert if spec.n_expert else 1.0
    dense, experts, input_bytes = 0.0, 0.0, 0
    stacks: dict[tuple[int, str], int] = {}
    for tensor in spec.tensors:
        if tensor.place == "skipped":
            continue
        if tensor.place == "input":
            input_bytes += tensor.n_bytes
            continue
        count = 1
        for extent in tensor.shape:
            count *= extent
        if "exps." in tensor.name:
            experts += count * used
            key = (tensor.block, GGML_TYPES[tensor.ggml_type].name)
            stacks[key] = stacks.get(key, 0) + (len(tensor.shape) > 2)
        elif tensor.place != "output":
            dense += count
    return ModelFacts(
        dense_parameters=dense,
        expert_parameters=experts,
        expert_blocks=sum(1 for layer in spec.layers if layer.n_ff_expert),
        used_share=used,
        input_bytes=input_bytes,
        expert_stacks=stacks,
        blocks=Alike(spec.layers),
    )


def cache_read_bytes(layer: LayerSpec, settings: RunSettings, depth_tokens: int) -> int:
    """Bytes of this block's cache that one token reads at `depth_tokens`; state is read and written back."""
    total = 8 * (layer.recurrent_conv + layer.recurrent_state)
    if layer.attention == "none":
        return total
    per_cell = row_bytes(BY_NAME[settings.cache_type_k.lower()], layer.k_width + layer.indexer_head_size)
    per_cell += row_bytes(BY_NAME[settings.cache_type_v.lower()], layer.v_width)
    return total + cells_of(layer, depth_tokens) * per_cell


def cells_of(layer: LayerSpec, depth_tokens: int) -> int:
    """Tokens that this block attends to at that depth."""
    return min(depth_tokens, layer.n_window) if layer.n_window else depth_tokens


def attention_flops(layer: LayerSpec, depth_tokens: int) -> float:
    """Arithmetic of one token's attention in this block: scores and their sum over the values."""
    if layer.attention == "none":
        return 0.0
    return 2.0 * layer.n_head * (layer.head_size_k + layer.head_size_v) * cells_of(layer, depth_tokens)


def hops_of(placed: Placed, plan: MemoryPlan) -> int:
    """How often one token's activations go from one device to another or to the CPU and back."""
    hops = placed.changes + 2 * plan.host_expert_blocks
    return hops if plan.settings.kv_offload else hops + 2 * placed.n_on_devices
