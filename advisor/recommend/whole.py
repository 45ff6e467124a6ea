"""The answer as a person would have it: all of it on the GPUs, with everything else as chosen."""

from advisor.recommend.evaluate import Evaluator
from advisor.settings import RequestedSettings


def whole_request(evaluator: Evaluator, request: RequestedSettings, pinned: RequestedSettings) -> RequestedSettings:
    """`request` with every layer and all experts on the GPUs but for what is `pinned` away; the split is open again.

    Context, cache and a smaller micro-batch stay; a larger one than usual was for what is not on the GPUs.
    """
    usual = evaluator.engine.defaults["n_ubatch"]
    larger = pinned.n_ubatch is None and (request.n_ubatch or usual) > usual
    every = evaluator.spec.n_layer_all + 1 if pinned.n_gpu_layers is None else pinned.n_gpu_layers
    return request._replace(
        n_gpu_layers=every if evaluator.host.devices else 0,
        n_cpu_moe=pinned.n_cpu_moe,
        cpu_moe=pinned.cpu_moe,
        tensor_overrides=pinned.tensor_overrides,
        tensor_split=pinned.tensor_split,
        n_ubatch=None if larger else request.n_ubatch,
    )
