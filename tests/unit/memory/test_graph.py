"""The graph model against a seeded sample of the measured cells: every byte of every compute buffer."""

from __future__ import annotations

import random

import pytest

from advisor.memory.graph import (
    CPU,
    GraphModel,
    GraphPlacement,
    GraphSettings,
    UnmodelledGraphError,
    compute_bytes,
    flash_attention,
)
from tests.tools.cells import cells, engine, graph_inputs

CUDA = (engine().backends["cuda"],)


@pytest.fixture(scope="module")
def sample() -> list[dict]:
    """A few accepted cells of every model, seeded."""
    by_model: dict[str, list[dict]] = {}
    for cell in (*cells("grid"), *cells("grid-cpu")):
        if "bufs" in cell:
            by_model.setdefault(cell["model"], []).append(cell)
    chooser = random.Random(11434)
    return [cell for name in sorted(by_model) for cell in chooser.sample(by_model[name], 1)]


def test_fewer_blocks_give_the_bytes_of_all_blocks(sample):
    for cell in sample:
        inputs = graph_inputs(cell)
        values = (inputs.model.graph, inputs.settings, inputs.placement, inputs.devices, inputs.model.hyper)
        assert compute_bytes(*values) == compute_bytes(*values, full=True), cell


def test_another_context_or_placement_gives_the_bytes_of_all_blocks(sample):
    """What is known of the same blocks is stretched and re-used; it must be what building everything gives."""
    chooser = random.Random(2048)
    for cell in chooser.sample(sample, 45):
        inputs = graph_inputs(cell)
        model, settings, placement = inputs.model.graph, inputs.settings, inputs.placement
        for n_ctx in chooser.sample([256 * n for n in (2, 8, 16, 33, 64, 137, 300)], 4):
            streams = 1 if settings.unified else settings.n_seq
            asked = settings._replace(n_ctx=n_ctx * streams, n_ctx_seq=n_ctx)
            layers = list(placement.layers)
            if placement.n_gpu and chooser.random() < 0.5:
                first = chooser.randrange(len(layers))
                layers[:first] = [CPU] * first
            moved = placement._replace(layers=tuple(layers))
            values = (model, asked, moved, inputs.devices, inputs.model.hyper)
            assert compute_bytes(*values) == compute_bytes(*values, full=True), (cell, n_ctx, layers)


def test_attention_that_no_card_runs_comes_back_to_the_host_in_every_block(sample):
    """Two cache types that differ: flash attention falls to the CPU, so every block begins splits of its own."""
    chooser = random.Random(512)
    for cell in chooser.sample(sample, 45):
        inputs = graph_inputs(cell)
        n_layer = inputs.model.hyper.n_layer_all
        cut = chooser.randrange(1, n_layer)
        for n_gpu in (1, 2):
            layers = tuple(0 if i < cut or n_gpu == 1 else 1 for i in range(n_layer + 1))
            asked = inputs.settings._replace(flash="on", type_k=8, type_v=2, kv_offload=True)
            placement = GraphPlacement(n_gpu, layers)
            values = (inputs.model.graph, asked, placement, CUDA * n_gpu, inputs.model.hyper)
            assert compute_bytes(*values) == compute_bytes(*values, full=True), (cell, n_gpu, cut)


def plain_model(arch: str, **extra: object) -> GraphModel:
    meta = {
        "general.architecture": arch,
        f"{arch}.block_count": 4,
        f"{arch}.embedding_length": 512,
        f"{arch}.feed_forward_length": 1024,
        f"{arch}.attention.head_count": 8,
        f"{arch}.attention.head_count_kv": 4,
        **{f"{arch}.{k}": v for k, v in extra.items()},
    }
    tensors: dict[str, tuple[tuple[int, ...], int]] = {
        "token_embd.weight": ((512, 1000), 14),
        "output_norm.weight": ((512,), 0),
    }
    shapes = {
        "attn_norm": (512,),
        "attn_q": (512, 512),
        "attn_k": (512, 256),
        "attn_v": (512, 256),
        "attn_output": (512, 512),
        "ffn_norm": (512,),
        "ffn_up": (512, 1024),
        "ffn_gate": (512, 1024),
        "ffn_down": (1024, 512),
    }
    for i in range(4):
        for name, shape in shapes.items():
            tensors[f"blk.{i}.{name}.weight"] = (shape, 12 if len(shape) > 1 else 0)
    return GraphModel(meta, tensors, 1000)


SETTINGS = GraphSettings(
    n_ctx=4096, n_ctx_seq=4096, n_batch=2048, n_ubatch=512, n_seq=1, unified=True, flash="on", type_k=1, type_v=1,
    n_outputs=1,
)  # fmt: skip


def test_unknown_architecture_of_known_parts_is_a_plain_transformer():
    placement = GraphPlacement(1, (0,) * 5)
    known = compute_bytes(plain_model("llama"), SETTINGS, placement, CUDA)
    assert compute_bytes(plain_model("never-seen"), SETTINGS, placement, CUDA) == known
    mask = 2 * 512 * 4096
    feed_forward = 4 * 512 * (3 * 1024 + 4 * 512)
    assert mask + feed_forward <= known[0] <= mask + feed_forward + 40 * 1024
    assert known[CPU] >= mask


def test_what_is_not_modelled_is_refused():
    placement = GraphPlacement(1, (0,) * 5)
    broken = plain_model("llama")
    unknown = GraphModel(broken.meta, broken.tensors, 1000, modelled=False)
    with pytest.raises(UnmodelledGraphError):
        compute_bytes(unknown, SETTINGS, placement, CUDA)
    tensors = {k: v for k, v in broken.tensors.items() if "ffn_down" not in k}
    with pytest.raises(UnmodelledGraphError, match="ffn_down"):
        compute_bytes(GraphModel(broken.meta, tensors, 1000), SETTINGS, placement, CUDA)


def test_flash_attention_needs_a_supported_head_size():
    placement = GraphPlacement(1, (0,) * 5)
    auto = SETTINGS._replace(flash="auto")
    assert flash_attention(plain_model("llama"), auto, placement, CUDA)
    odd = plain_model("llama", **{"attention.key_length": 60, "attention.value_length": 60})
    assert not flash_attention(odd, auto, placement, CUDA)
    assert flash_attention(odd, auto, GraphPlacement(1, (CPU,) * 5), CUDA)  # the host runs any
    assert flash_attention(odd, SETTINGS, placement, CUDA)  # asked for: it falls back to the host, node by node


def test_ties_to_devices_can_be_kept():
    model = plain_model("llama")
    placement = GraphPlacement(2, (0, 0, 1, 1, 1))
    assert set(compute_bytes(model, SETTINGS, placement, CUDA * 2, pins=True)) == {0, 1, CPU}


def test_a_longer_context_never_needs_less():
    model = plain_model("llama")
    last = 0
    for n_ctx in (1024, 8192, 65536):
        used = compute_bytes(model, SETTINGS._replace(n_ctx=n_ctx, n_ctx_seq=n_ctx), GraphPlacement(1, (0,) * 5), CUDA)[
            0
        ]
        assert used > last
        last = used


def test_overrides_send_tensors_to_the_host_or_another_gpu():
    model, layers = plain_model("llama"), (0,) * 5
    small = SETTINGS._replace(n_ubatch=32)  # weights outweigh what flows between them

    def used(*overrides: tuple[str, int], n_gpu: int = 2) -> dict[int, int]:
        return compute_bytes(model, small, GraphPlacement(n_gpu, layers, overrides), CUDA * n_gpu)

    assert used((r"ffn_up", CPU), n_gpu=1)[0] > used(n_gpu=1)[0]  # a host weight is copied in for a large batch
    assert used((r"blk\.9\.", CPU))[1] == 0
    assert used((r"ffn_(up|gate|down)", 1))[1] > 4 * 32 * 1024  # the feed-forward part runs there
    assert used((r"blk\.0\.ffn_down", 1), (r"ffn_down", CPU))[1] > 0  # the first pattern decides
