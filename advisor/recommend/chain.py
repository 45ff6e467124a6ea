"""In which order memory on the GPUs buys speed: whole layers first, and where blocks have experts, these last."""

import re
from collections.abc import Mapping

from advisor.memory.placement import EXPERTS
from advisor.model.spec import ModelSpec
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings, TensorOverride


class Chain(NamedTuple):
    """Requests numbered `low` .. `high`: a larger number puts more on the GPUs, so they need more and the host less.

    Up to `n_layers` it counts layers, with every expert on the CPU; beyond, experts that come to the GPUs: block by
    block, the last one first, and within a block `n_steps` times one more kind of tensor, the smallest first.
    """

    base: RequestedSettings
    n_blocks: int
    n_layers: int
    experts: bool  # blocks have experts that may move
    low: int
    high: int
    n_steps: int = 1
    kinds: Mapping[int, tuple[str, ...]] = {}  # of each block's experts, by size: "ffn_up_exps", ...

    def make(self, index: int) -> RequestedSettings:
        """The request of that number."""
        if not self.experts:
            return self.base if self.low == self.high else self.base._replace(n_gpu_layers=index)
        layers = min(index, self.n_layers)
        kept, more = divmod(max(index - self.n_layers, 0), self.n_steps)
        away = self.n_blocks - kept
        if kept and away <= self.n_blocks + 1 - layers:  # whole blocks are there by wish, and these are no more
            return self.base._replace(n_gpu_layers=layers)
        left = self.kinds.get(away - 1, ())[more:] if more else ()
        if not left:  # no part of a block
            return self.base._replace(n_gpu_layers=layers, n_cpu_moe=away - (more > 0))
        # as -ot, in an order with --n-cpu-moe that does not matter; a dot stands for itself well enough
        overrides = tuple(TensorOverride(f"blk.{away - 1}.{kind}", "CPU") for kind in left)
        return self.base._replace(n_gpu_layers=layers, n_cpu_moe=away - 1, tensor_overrides=overrides)


def chain_of(
    spec: ModelSpec, base: RequestedSettings, pinned: RequestedSettings,
    kinds: Mapping[int, tuple[str, ...]] | None = None,
) -> Chain:  # fmt: skip
    """Every way to keep a part on the CPU that `pinned` leaves open, with context, cache and micro-batch of `base`.

    `kinds`, of `expert_kinds`: experts move by kind of tensor; None = block by block.
    """
    n_blocks, every = spec.n_layer_all, spec.n_layer_all + 1
    experts = any(layer.n_ff_expert for layer in spec.layers)
    experts = experts and pinned.n_cpu_moe is None and not pinned.cpu_moe and not pinned.tensor_overrides
    experts = experts and pinned.n_gpu_layers not in (0, 1)  # of blocks on the CPU, all with these, they are there too
    steps = max((len(each) for each in kinds.values()), default=1) if kinds else 1
    low = layers = every
    if pinned.n_gpu_layers is None:
        low = 1
    elif pinned.n_gpu_layers >= 0:
        low = layers = min(pinned.n_gpu_layers, every)
    moves = steps * n_blocks - 1 if layers == every else steps * (layers - 1)  # the last of a chain leaves none away
    return Chain(base, n_blocks, layers, experts, low, layers + (moves if experts else 0), steps, kinds or {})


def expert_kinds(spec: ModelSpec) -> dict[int, tuple[str, ...]]:
    """By block the kinds of its experts' tensors, the smallest first: "ffn_up_exps", "ffn_down_exps" and so on."""
    sizes: dict[int, dict[str, int]] = {}
    for tensor in spec.tensors:
        found = re.search(EXPERTS, tensor.name) if "exps" in tensor.name and tensor.place != "skipped" else None
        if found is not None:
            kinds = sizes.setdefault(tensor.block, {})
            kind = found.group()[1:]
            kinds[kind] = kinds.get(kind, 0) + tensor.n_bytes
    return {block: tuple(sorted(kinds, key=lambda kind: (kinds[kind], kind))) for block, kinds in sizes.items()}
