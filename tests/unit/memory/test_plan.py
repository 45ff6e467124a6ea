"""Weights, cache and placement from first principles, where no measured cell looks."""

from __future__ import annotations

import pytest

from advisor.errors import UsageError
from advisor.host import Device
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.memory.types import MemoryPlan
from advisor.settings import ALL_LAYERS, RequestedSettings, TensorOverride
from tests.tools.cells import engine, spec

GIB = 1 << 30


def plan(model: str, n_devices: int = 1, backend: str = "cuda", **settings: object) -> MemoryPlan:
    devices = [Device(f"D{i}", backend, "card", 80 * GIB, 80 * GIB) for i in range(n_devices)]
    asked = RequestedSettings(**settings)  # type: ignore[arg-type]
    run = resolve_settings(asked, spec(model), engine(), tool="server", n_devices=n_devices)
    return plan_memory(spec(model), run, engine(), devices)


def size(model: str, *names: str) -> int:
    """Bytes of the tensors whose names contain one of `names`; llama3-8b's need no padding on any device."""
    return sum(t.n_bytes for t in spec(model).tensors if any(name in t.name for name in names))


def test_one_layer_on_the_gpu_is_the_output() -> None:
    found = plan("llama3-8b", n_gpu_layers=1, load_mode="none")
    assert found.devices[0].weights_bytes == size("llama3-8b", "output.weight", "output_norm") - sum(
        t.n_bytes for t in spec("llama3-8b").tensors if "attn_output" in t.name
    )
    assert found.devices[0].cache_bytes == 0
    assert found.devices[0].layers is None
    assert found.devices[0].has_output


def test_the_last_blocks_go_first_and_the_table_stays_home() -> None:
    found = plan("llama3-8b", n_gpu_layers=3, load_mode="none")
    assert found.devices[0].layers == (30, 31)
    everything = plan("llama3-8b", n_gpu_layers=ALL_LAYERS, load_mode="none")
    assert everything.host.weights_bytes == size("llama3-8b", "token_embd")


def test_split_mode_none_uses_one_card() -> None:
    found = plan("llama3-8b", 2, split_mode="none", main_gpu=1)
    assert found.devices[0].weights_bytes == found.devices[0].cache_bytes == 0
    assert found.devices[1].n_layers == 32
    with pytest.raises(UsageError, match="-mg 2 names no GPU; with 2 of them give 0 to 1"):
        plan("llama3-8b", 2, split_mode="none", main_gpu=2)


def test_cpu_moe_and_n_cpu_moe_and_a_pattern_agree() -> None:
    flag = plan("qwen3moe-30b", cpu_moe=True)
    count = plan("qwen3moe-30b", n_cpu_moe=48)
    pattern = plan("qwen3moe-30b", tensor_overrides=(TensorOverride(r"ffn_(up|down|gate)_exps", "CPU"),))
    assert flag.devices == count.devices == pattern.devices
    experts = size("qwen3moe-30b", "ffn_up_exps", "ffn_gate_exps", "ffn_down_exps")
    assert flag.host.weights_bytes == experts + size("qwen3moe-30b", "token_embd")


def test_a_pattern_may_name_another_card() -> None:
    found = plan("qwen3moe-30b", 2, tensor_split=(1.0, 0.0), tensor_overrides=(TensorOverride("exps", "D1"),))
    assert found.devices[1].weights_bytes >= size("qwen3moe-30b", "exps")
    with pytest.raises(UsageError, match="this machine has CPU, D0"):
        plan("qwen3moe-30b", tensor_overrides=(TensorOverride("exps", "CUDA7"),))
    with pytest.raises(UsageError, match="not a regular expression"):
        plan("qwen3moe-30b", tensor_overrides=(TensorOverride("(", "CPU"),))


def test_mapped_bytes_span_the_file_from_first_to_last_host_tensor() -> None:
    """llama3-8b: the table, then norm and output, then the blocks in order; the hole in between is mapped too."""
    tensors = spec("llama3-8b").tensors
    found = plan("llama3-8b", n_gpu_layers=17, load_mode="mmap")
    last = max(t.offset + t.n_bytes for t in tensors if 0 <= t.block < 16)
    assert found.host.mapped_bytes == last - next(t.offset for t in tensors if t.name == "token_embd.weight")
    assert found.host.mapped_bytes > found.host.weights_bytes
    assert plan("llama3-8b", n_gpu_layers=17, load_mode="none").host.mapped_bytes == 0


def test_tied_output_is_kept_twice_with_a_gpu() -> None:
    found = plan("gemma3-4b", n_gpu_layers=ALL_LAYERS)
    table = size("gemma3-4b", "token_embd.weight")
    assert found.host.weights_bytes == table
    assert found.devices[0].weights_bytes >= sum(t.n_bytes for t in spec("gemma3-4b").tensors)
    assert plan("gemma3-4b", 0).host.weights_bytes == sum(t.n_bytes for t in spec("gemma3-4b").tensors)


def test_slots_and_rounding() -> None:
    """-c 1000 is padded to 1,024; three slots of their own get 512 each; the server's default is four on one pool."""
    assert plan("llama3-8b", n_ctx=1000, n_parallel=1).settings.n_ctx == 1024
    split = plan("llama3-8b", n_ctx=1000, n_parallel=3).settings
    assert (split.n_ctx, split.n_ctx_seq, split.kv_unified) == (1536, 512, False)
    default = plan("llama3-8b", n_ctx=1000).settings
    assert (default.n_ctx, default.n_parallel, default.kv_unified, default.n_outputs) == (1024, 4, True, 4)


def test_recurrent_state_counts_every_slot() -> None:
    one, four = (plan("mamba2-7b", n_parallel=n, kv_unified=True).devices[0].cache_bytes for n in (1, 4))
    layer = 3 * (8192 + 2 * 8 * 128) + 128 * 8192  # convolution and state, 32-bit floats
    assert one == 64 * 4 * layer
    assert four == 4 * one


@pytest.mark.parametrize(
    ("model", "settings", "why"),
    [
        ("ds2-lite", {"cache_type_k": "q8_0"}, "must be equal"),
        ("llama3-8b", {"cache_type_v": "q8_0", "flash_attn": "off"}, "needs flash attention"),
        ("phi2", {"cache_type_k": "q8_0"}, "head size 80 is no multiple"),
        ("grok1", {"cache_type_v": "q8_0"}, "needs flash attention"),
    ],
)
def test_what_the_engine_refuses_is_said(model: str, settings: dict[str, str], why: str) -> None:
    refused = plan(model, **settings).refused
    assert refused is not None
    assert why in refused


@pytest.mark.parametrize("backend", ["cuda", "rocm", "vulkan", "metal", "sycl"])
def test_intervals_hold_their_value_and_unmeasured_backends_are_wider(backend: str) -> None:
    compute = plan("llama3-8b", backend=backend).devices[0].compute
    assert compute.low <= compute.value <= compute.high
    assert (compute.low == compute.high) == (backend == "cuda")


def test_builds_between_and_beyond_the_known_are_extrapolated() -> None:
    from advisor.memory.engine_spec import parse_engine
    from tests.tools.cells import RULES, tomli

    document = tomli.loads((RULES / "engines" / "llama_cpp.toml").read_text())
    known = [entry["build"] for entry in document["builds"]]
    assert parse_engine(document).build == max(known)
    assert all(parse_engine(document, build).confidence == "measured" for build in known)
    assert parse_engine(document, max(known) + 1).confidence == "extrapolated"
    assert parse_engine(document, 1).confidence == "extrapolated"


@pytest.mark.parametrize("main_gpu", [0, 1])
def test_split_mode_none_plans_as_if_the_other_card_were_not_there(main_gpu: int) -> None:
    # llama.cpp keeps only main_gpu in model.devices, so that there is no pipeline either
    both = plan("llama3-8b", 2, n_ctx=32768, n_gpu_layers=99, split_mode="none", main_gpu=main_gpu)
    one = plan("llama3-8b", 1, n_ctx=32768, n_gpu_layers=99)
    assert both.devices[main_gpu]._replace(id="D0") == one.devices[0]
    assert both.devices[1 - main_gpu].planned_bytes == 0
    assert both.host == one.host
    assert set(both.placement) == {main_gpu}
