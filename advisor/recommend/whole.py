"""The answer as a person would have it: all of it on the GPUs, with everything else as chosen."""

from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.search import Search
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


def verdict_of(judged: Judged, fits: bool) -> str:
    """full, partial, cpu or does_not_fit."""
    settings = judged.plan.settings
    if not fits:
        return "does_not_fit"
    if not judged.plan.devices or settings.n_gpu_layers == 0:
        return "cpu"
    whole = all(place >= 0 for place in judged.plan.placement) and not judged.plan.host_expert_blocks
    return "full" if whole and settings.kv_offload else "partial"


def step_from(search: Search, chosen: Judged) -> RequestedSettings:
    """The choice as what one more step is tried from: with everything on the GPUs each gets a split of its own."""
    return search.open_split(chosen.request) if verdict_of(chosen, True) == "full" else chosen.request
