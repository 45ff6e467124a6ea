"""What is loaded beside a model: measured with llama.cpp b11434's own loader, or summed by hand."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import ModelError
from advisor.gguf_header import read_snapshot
from advisor.host import Device
from advisor.memory.extras import Beside
from advisor.memory.plan import Planner, plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import Extra, Interval, MemoryPlan
from advisor.model.beside import read_adapter, read_projector
from advisor.model.spec import ModelSpec
from advisor.settings import RequestedSettings
from advisor.stores.resolve import load_header
from tests.tools.cells import DATA, describe_header, engine, header, spec
from tests.tools.projectors import write_lora, write_projector

GIB = 1 << 30


def cards(n: int, backend: str = "cuda", capability: str | None = None) -> list[Device]:
    return [Device(f"D{i}", backend, "card", 900 * GIB, 900 * GIB, compute_capability=capability) for i in range(n)]


def plan(model: ModelSpec, n: int = 1, beside: Beside | None = None, **settings: Any) -> MemoryPlan:
    run = resolve_settings(RequestedSettings(load_mode="none", **settings), model, engine(), tool="server", n_devices=n)
    return plan_memory(model, run, engine(), cards(n), beside=beside)


def figure(extras: tuple[Extra, ...], *names: str) -> int:
    """The sum of the figures whose names contain one of `names`, which must be exact."""
    found = [extra.n_bytes for extra in extras if any(name in extra.name for name in names)]
    assert all(low == value == high for low, value, high in found)
    return sum(value for _, value, _ in found)


# ---------------------------------------------------------------- the model's own draft head


def mtp_model(name: str) -> ModelSpec:
    path = DATA / "mtp" / f"{name}.json.gz"
    if path.is_file():
        return describe_header(read_snapshot(gzip.decompress(path.read_bytes()), name), load_mtp=True)
    return spec(name, load_mtp=True)


# settings -> weights, cache and compute of the GPU that has the NextN block, compute on the host (main context, with
# 3 drafted tokens); then cache, compute and host compute of the MTP context (oracle: mtp=1 rs=3 and ctxt=mtp).
MTP = [
    ("qwen35moe-35b-mtp", 1, {"n_ctx": 8192, "n_parallel": 1},
     (22750245376, 431226880, 83906816, 25190464), (16777216, 75513984, 16795680)),
    ("qwen35moe-35b-mtp", 1, {"n_ctx": 8192, "n_parallel": 4},
     (22750245376, 1221591040, 117854464, 25190496), (16777216, 75513984, 16795680)),
    ("qwen35moe-35b-mtp", 1, {"n_ctx": 32768, "n_parallel": 4}, None, (67108864, 79708288, 41961504)),
    ("qwen35moe-35b-mtp", 1, {"n_ctx": 32768, "n_parallel": 4, "flash_attn": "off"}, None,
     (67108864, 1176514688, 77608992)),
    ("qwen35moe-35b-mtp", 1,
     {"n_ctx": 32768, "n_parallel": 4, "kv_unified": False, "n_ubatch": 1024, "draft_cache_type_k": "q8_0",
      "draft_cache_type_v": "q8_0"}, None, (35651584, 184860800, 33869856)),
    ("qwen35moe-35b-mtp", 1, {"n_ctx": 32768, "n_parallel": 4, "n_gpu_layers": 20}, None,
     (67108864, 79708288, 41961504)),
    ("qwen35moe-35b-mtp", 2, {"n_ctx": 32768, "n_parallel": 4}, None, (67108864, 235995648, 155263104)),
    ("qwen35", 1, {"n_ctx": 8192, "n_parallel": 1},
     (17239996416, 1164443648, 157307136, 50356288), (33554432, 136331392, 29378592)),
    ("qwen35", 1, {"n_ctx": 32768, "n_parallel": 4, "n_ubatch": 256, "flash_attn": "off"}, None,
     (134217728, 870324352, 46144544)),
    ("glm4moe", 1, {"n_ctx": 8192, "n_parallel": 1},
     (78820693376, 1543503872, 178272384, 41961504), (33554432, 161491072, 25178144)),
    ("glm4moe", 1, {"n_ctx": 32768, "n_parallel": 4, "n_ubatch": 256, "flash_attn": "off"}, None,
     (134217728, 3290434688, 44044320)),
    ("deepseek3", 1, {"n_ctx": 8192, "n_parallel": 1},
     (442347470848, 575668224, 419440768, 67123232), (9437184, 393222272, 37756960)),
    ("deepseek3", 1, {"n_ctx": 32768, "n_parallel": 4, "n_ubatch": 256, "flash_attn": "off"}, None,
     (37748736, 4520938624, 48238624)),
    ("qwen3next", 1, {"n_ctx": 8192, "n_parallel": 1},
     (53312764928, 280363008, 98580736, 25184320), (16777216, 50342016, 16789536)),
    ("qwen3next", 1, {"n_ctx": 32768, "n_parallel": 4, "n_ubatch": 256, "flash_attn": "off"}, None,
     (67108864, 588254336, 38801440)),
]  # fmt: skip


@pytest.mark.parametrize(("model", "n", "settings", "main", "head"), MTP)
def test_the_draft_context_is_the_engines_to_the_byte(
    model: str, n: int, settings: dict[str, Any], main: tuple[int, ...] | None, head: tuple[int, ...]
) -> None:
    found = plan(mtp_model(model), n, spec_type=("draft-mtp",), **{"kv_unified": True, **settings})
    device = found.devices[-1]
    assert found.refused is None
    if main is not None:
        measured = (device.weights_bytes, device.cache_bytes, device.compute.value, found.host.compute.value)
        assert measured == main
    assert (
        figure(device.extras, "MTP cache"),
        figure(device.extras, "MTP compute"),
        figure(found.host.beside, "MTP compute"),
    ) == head
    assert all(not other.extras for other in found.devices[:-1])
    assert device.extras_bytes == head[0] + head[1]
    own = device.weights_bytes + device.cache_bytes + device.compute.high + device.overhead_bytes
    assert device.planned_bytes == own + head[0] + head[1]


def test_the_draft_head_on_the_cpu_alone() -> None:
    found = plan(
        mtp_model("qwen35moe-35b-mtp"), 0, spec_type=("draft-mtp",), n_ctx=32768, n_parallel=4, kv_unified=True
    )
    assert figure(found.host.beside, "MTP cache") == 67108864
    assert figure(found.host.beside, "MTP compute") == 79710240


def test_a_file_of_next_n_blocks_alone_drafts_for_another() -> None:
    """The engine's own figures for qwen35moe-35b-mtp without its first 40 blocks."""
    whole = header("qwen35moe-35b-mtp")
    kept = tuple(t for t in whole.tensors if not t.name.startswith("blk.") or t.name.startswith("blk.40."))
    alone = whole._replace(tensors=kept)
    draft = describe_header(alone, load_mtp=True, draft=True)
    found = plan(
        spec("llama3-8b"), 1, Beside(draft=draft), n_ctx=8192, n_parallel=1, kv_unified=True, draft_model="d.gguf",
        spec_type=("draft-mtp",),
    )  # fmt: skip
    assert found.refused is None
    extras, host = found.devices[0].extras, found.host.beside
    assert (figure(extras, "draft weights"), figure(host, "draft weights")) == (963618816, 417177600)
    assert (figure(extras, "MTP cache"), figure(extras, "MTP compute")) == (16777216, 75513984)
    assert figure(host, "MTP compute") == 16795680
    with pytest.raises(ModelError, match="no tensors of block 0"):
        describe_header(alone, load_mtp=True)


@pytest.mark.parametrize("architecture", ["eagle3", "dflash"])
def test_a_draft_head_is_weights_and_a_bound(architecture: str) -> None:
    """Its graph is not modelled: the weights are its tensors, compute an interval."""
    whole = header("llama3-1b")
    values = {key.replace("llama.", f"{architecture}.", 1): value for key, value in whole.metadata.items()}
    head = whole._replace(metadata={**values, "general.architecture": architecture})
    draft = describe_header(head, draft=True)
    found = plan(spec("llama3-8b"), 1, Beside(draft=draft), n_ctx=8192, draft_model="d.gguf")
    by_name = {extra.name: extra.n_bytes for extra in found.devices[0].extras}
    assert by_name["draft weights"].low == by_name["draft weights"].high >= 832303104 - whole.n_vocab * 2048 * 2
    assert by_name["draft compute"].low < by_name["draft compute"].high
    with pytest.raises(ModelError, match="draft head"):
        describe_header(head)


def test_next_n_weights_and_kept_states_come_with_it() -> None:
    """35B-A3B: 521 MiB of weights; the recurrent state once more for each of the drafted tokens."""
    without = plan(spec("qwen35moe-35b-mtp"), n_ctx=8192, n_parallel=1)
    with_it = plan(mtp_model("qwen35moe-35b-mtp"), n_ctx=8192, n_parallel=1, spec_type=("draft-mtp",))
    assert (with_it.devices[0].weights_bytes - without.devices[0].weights_bytes) >> 20 == 521
    state = 30 * 4 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096)  # 30 blocks, 32-bit floats, one slot
    grown = with_it.devices[0].cache_bytes - without.devices[0].cache_bytes
    assert grown == 3 * state
    eight = plan(mtp_model("qwen35moe-35b-mtp"), n_ctx=8192, n_parallel=1, spec_type=("draft-mtp",), draft_n_max=8)
    assert eight.devices[0].cache_bytes - without.devices[0].cache_bytes == 8 * state
    assert (eight.settings.n_outputs, eight.settings.n_rollback) == (9, 8)


def test_a_draft_cache_has_its_own_type() -> None:
    found = plan(
        mtp_model("qwen35moe-35b-mtp"), n_ctx=8192, spec_type=("draft-mtp",), cache_type_k="q8_0", cache_type_v="q8_0"
    )
    assert figure(found.devices[0].extras, "MTP cache") == 8192 * 2 * 2 * 256 * 2  # K and V, 2 heads of 256, f16


@pytest.mark.parametrize("model", ["llama3-8b", "ling-mini-mtp"])
def test_models_that_cannot_draft_are_refused(model: str) -> None:
    """bailingmoe2 has the block but no graph for it: the engine fails to make the context."""
    found = plan(mtp_model(model), spec_type=("draft-mtp",))
    assert found.refused is not None
    assert "leave --spec-type draft-mtp away" in found.refused
    assert found.devices[0].extras == ()


def test_drafting_without_a_model_only_adds_rows_of_logits() -> None:
    found = plan(spec("llama3-8b"), spec_type=("ngram-mod",), n_parallel=2)
    assert found.settings.n_outputs == 2 * (1 + 64)
    assert found.devices[0].extras == ()


# ---------------------------------------------------------------- a draft model


@pytest.mark.parametrize(
    ("kind", "cache", "compute", "host"),
    [("f16", 268435456, 75511936, 25184288), ("q8_0", 142606336, 75544704, 25217056)],
)
def test_a_draft_model_is_a_second_model_with_the_targets_context(
    kind: str, cache: int, compute: int, host: int
) -> None:
    """llama3-1b at 8,192 tokens as the engine measures it alone."""
    beside = Beside(draft=spec("llama3-1b"))
    found = plan(
        spec("llama3-8b"), 1, beside, n_ctx=8192, cache_type_k="q4_0", cache_type_v="q4_0",
        draft_cache_type_k=kind, draft_cache_type_v=kind, draft_model="d.gguf", spec_type=("draft-simple",),
    )  # fmt: skip
    extras = found.devices[0].extras
    assert figure(extras, "draft weights") == 832303104
    assert figure(extras, "draft cache") == cache
    assert figure(extras, "draft compute") == compute
    assert figure(found.host.beside, "draft compute") == host
    assert figure(found.host.beside, "draft weights") == 215470080
    assert found.settings.n_outputs == 4 * (1 + 3)


def test_a_draft_model_goes_where_the_target_leaves_room() -> None:
    target, draft = spec("llama3-8b"), spec("llama3-1b")
    run = resolve_settings(
        RequestedSettings(n_ctx=4096, tensor_split=(1.0, 0.0), draft_model="d.gguf"), target, engine(),
        tool="server", n_devices=2,
    )  # fmt: skip
    given = plan_memory(target, run, engine(), cards(2), beside=Beside(draft=draft))
    assert given.devices[1].extras == ()  # a split that is given holds for both
    full = [Device("D0", "cuda", "card", 8 * GIB, 8 * GIB), Device("D1", "cuda", "card", 8 * GIB, 1)]
    alone = plan_memory(target, run._replace(tensor_split=None), engine(), full, beside=Beside(draft=draft))
    assert alone.devices[0].extras_bytes > 800 << 20
    host = plan(target, 1, Beside(draft=draft), n_ctx=4096, draft_model="d.gguf", draft_n_gpu_layers=0)
    assert figure(host.devices[0].extras, "draft weights", "draft cache") == 0
    assert figure(host.host.beside, "draft cache") == 16 * 4096 * 2 * 512 * 2


# ---------------------------------------------------------------- LoRA

RANK = 16


def adapter(tmp_path: Path) -> Beside:
    pairs = [(f"blk.{i}.attn_q.weight", 4096, 4096) for i in range(32)]
    path = write_lora(tmp_path / "a.gguf", "llama", [*pairs, ("output.weight", 4096, 128256)], RANK)
    return Beside(adapters=(read_adapter(load_header(str(path)), spec("llama3-8b")),))


def test_both_halves_lie_with_the_matrix_they_adapt(tmp_path: Path) -> None:
    """20 of 33 layers: the output and the last 19 blocks are on the GPU."""
    beside = adapter(tmp_path)
    pair, head = 2 * 4096 * RANK * 4, (4096 + 128256) * RANK * 4
    found = plan(spec("llama3-8b"), 1, beside, n_gpu_layers=20)
    assert sizes(found.devices[0].extras) == {"LoRA a.gguf": 19 * pair + head}
    assert sizes(found.host.beside) == {"LoRA a.gguf": 13 * pair}
    two = plan(spec("llama3-8b"), 2, beside, tensor_split=(1.0, 1.0))
    assert [sizes(device.extras)["LoRA a.gguf"] for device in two.devices] == [17 * pair, 15 * pair + head]
    moved = plan(spec("llama3-8b"), 1, beside, n_gpu_layers=0)
    assert moved.devices[0].extras == ()
    assert sizes(moved.host.beside) == {"LoRA a.gguf": 32 * pair + head}


def sizes(extras: tuple[Extra, ...]) -> dict[str, int]:
    return {extra.name: extra.n_bytes.value for extra in extras if "compute" not in extra.name}


@pytest.mark.parametrize(
    ("architecture", "pairs", "sentence"),
    [
        ("qwen2", [("blk.0.attn_q.weight", 4096, 4096)], "adapts a model of architecture 'qwen2'"),
        ("llama", [("blk.99.attn_q.weight", 4096, 4096)], "adapts 'blk.99.attn_q.weight', which"),
    ],
)
def test_an_adapter_of_another_model_is_refused(
    tmp_path: Path, architecture: str, pairs: list[tuple[str, int, int]], sentence: str
) -> None:
    path = write_lora(tmp_path / "other.gguf", architecture, pairs, RANK)
    with pytest.raises(ModelError, match=sentence):
        read_adapter(load_header(str(path)), spec("llama3-8b"))


# ---------------------------------------------------------------- projectors

QWEN3VL = {"image": 768, "patch": 16, "out": 4096, "merge": 2}
QWEN3VL_2B = {**QWEN3VL, "d": 1024, "ff": 4096, "n_layer": 24, "out": 2048}
LLAVA = {"d": 1024, "ff": 4096, "n_layer": 23, "image": 336, "patch": 14, "out": 4096}
# mtmd_get_memory_usage: weights and compute on the GPU with flash attention and without, the picture on the host.
PROJECTORS = [
    ("gemma3", {}, None, 977011136, 2036859328, 9633792),
    ("qwen3vl_merger", QWEN3VL, 1024, 1341526976, 2434143168, 12648448),
    ("qwen3vl_merger", QWEN3VL, None, 1536165056, 6160082112, 26136832),
    ("qwen3vl_merger", QWEN3VL_2B, 1024, 983019520, 2073538560, 12648448),
    ("qwen3vl_merger", QWEN3VL_2B, None, 1157529856, 5777113344, 26136832),
    ("mlp", LLAVA, None, 650563200, 660086528, 1359392),
]


@pytest.mark.parametrize(("kind", "shape", "max_tokens", "flash", "plain", "picture"), PROJECTORS)
def test_projectors_as_the_engine_measures_them(
    tmp_path: Path, kind: str, shape: dict[str, int], max_tokens: int | None, flash: int, plain: int, picture: int
) -> None:
    path = write_projector(tmp_path / "p.gguf", kind, **shape)
    beside = Beside(projector=read_projector(load_header(str(path))))
    model = spec("llama3-8b")
    asked = RequestedSettings(image_max_tokens=max_tokens, mmproj="p.gguf")
    run = resolve_settings(asked, model, engine(), tool="server", n_devices=1)
    for capability, measured in (("8.6", flash), (None, flash), ("6.0", plain)):
        found = plan_memory(model, run, engine(), cards(1, capability=capability), beside=beside)
        weights, compute = (extra.n_bytes for extra in found.devices[0].extras)
        assert weights.low == weights.high
        assert weights.low + compute.low <= measured <= weights.high + compute.high
        assert abs(weights.value + compute.value - measured) <= 0.015 * measured
        (host,) = found.host.beside
        assert abs(host.n_bytes.value - picture) <= 0.01 * picture


def test_a_projector_may_stay_in_system_memory_and_large_images_cost(tmp_path: Path) -> None:
    path = write_projector(tmp_path / "p.gguf", "qwen3vl_merger", **QWEN3VL)
    beside = Beside(projector=read_projector(load_header(str(path))))
    off = plan(spec("llama3-8b"), 1, beside, mmproj="p.gguf", mmproj_offload=False)
    assert off.devices[0].extras == ()
    assert {extra.name for extra in off.host.beside} == {f"mmproj p.gguf{end}" for end in ("", " compute", " picture")}
    whole = plan(spec("llama3-8b"), 1, beside, mmproj="p.gguf").devices[0].extras[1].n_bytes
    capped = plan(spec("llama3-8b"), 1, beside, mmproj="p.gguf", image_max_tokens=256).devices[0].extras[1].n_bytes
    assert whole.high > whole.value * 1.9  # 4,096 tokens are 16,384 patches; the warm-up picture has 8,464
    assert capped.high < whole.low / 7


def test_an_audio_encoder_is_an_interval(tmp_path: Path) -> None:
    path = write_projector(tmp_path / "p.gguf", "gemma3")
    projector = read_projector(load_header(str(path)))._replace(vision=None, audio=True)
    (weights, compute) = plan(spec("llama3-8b"), 1, Beside(projector=projector), mmproj="p").devices[0].extras
    assert weights.n_bytes.low == weights.n_bytes.high == sum(-(-t.n_bytes // 128) * 128 for t in projector.tensors)
    assert compute.n_bytes.low < compute.n_bytes.value < compute.n_bytes.high


# ---------------------------------------------------------------- the server's own caches, overhead


def test_prompt_cache_and_checkpoints_as_asked() -> None:
    default = plan(spec("gemma3-12b"), n_ctx=65536, n_parallel=1).host.extras
    assert default["prompt_cache_bytes"] == 8 << 30
    asked = plan(spec("gemma3-12b"), n_ctx=65536, n_parallel=1, cache_ram_mib=512, n_ctx_checkpoints=2).host.extras
    assert asked["prompt_cache_bytes"] == 512 << 20
    # every message of a user may make one: 32 of them by default, whatever the context
    assert asked["context_checkpoints_bytes"] * 16 == default["context_checkpoints_bytes"]
    none = plan(spec("gemma3-12b"), n_ctx=65536, cache_ram_mib=0, n_ctx_checkpoints=0).host.extras
    assert none == {"prompt_cache_bytes": 0, "context_checkpoints_bytes": 0}
    assert plan(spec("gemma3-12b"), cache_ram_mib=-1).host.extras["prompt_cache_bytes"] == -1


def test_an_observed_overhead_replaces_the_rules() -> None:
    model = spec("llama3-8b")
    run = resolve_settings(RequestedSettings(), model, engine(), tool="server", n_devices=1)
    rules = engine().backends["cuda"]
    plain = Planner(model, engine(), cards(1)).plan(run).devices[0]
    assert plain.overhead == Interval(rules.overhead_low_bytes, rules.overhead_bytes, rules.overhead_high_bytes)
    assert (plain.overhead_source, plain.overhead_bytes) == ("rules", rules.overhead_bytes)
    seen = Planner(model, engine(), cards(1), overheads={("cuda", "card"): 123 << 20}).plan(run).devices[0]
    assert (seen.overhead_source, seen.overhead_bytes) == ("observed", 123 << 20)
    assert plain.planned_bytes - seen.planned_bytes == rules.overhead_bytes - (123 << 20)
    other = Planner(model, engine(), cards(1), overheads={("vulkan", "card"): 1 << 20}).plan(run).devices[0]
    assert other.overhead_source == "rules"
