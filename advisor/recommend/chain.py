"""In which order memory on the GPUs buys speed: whole layers first, and where blocks have experts, these last."""

from advisor.model.spec import ModelSpec
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings


class Chain(NamedTuple):
    """Requests numbered `low` .. `high`: a larger number puts more on the GPUs, so they need more and the host less.

    Up to `n_layers` it counts layers, with every expert on the CPU; beyond, blocks that keep their experts on the GPUs.
    """

    base: RequestedSettings
    n_blocks: int
    n_layers: int
    experts: bool  # blocks have experts that may move
    low: int
    high: int

    def make(self, index: int) -> RequestedSettings:
        """The request of that number."""
        if not self.experts:
            return self.base if self.low == self.high else self.base._replace(n_gpu_layers=index)
        layers, kept = min(index, self.n_layers), max(index - self.n_layers, 0)
        return self.base._replace(n_gpu_layers=layers, n_cpu_moe=self.n_blocks - kept)


def chain_of(spec: ModelSpec, base: RequestedSettings, pinned: RequestedSettings) -> Chain:
    """Every way to keep a part on the CPU that `pinned` leaves open, with context, cache and micro-batch of `base`."""
    n_blocks, every = spec.n_layer_all, spec.n_layer_all + 1
    experts = any(layer.n_ff_expert for layer in spec.layers)
    experts = experts and pinned.n_cpu_moe is None and not pinned.cpu_moe and not pinned.tensor_overrides
    if pinned.n_gpu_layers is not None:
        layers = every if pinned.n_gpu_layers < 0 else min(pinned.n_gpu_layers, every)
        return Chain(base, n_blocks, layers, experts, layers, layers + (n_blocks - 1 if experts else 0))
    return Chain(base, n_blocks, every, experts, 1, every + (n_blocks - 1 if experts else 0))
