"""The table of cache types: each kind of row applies where its facts hold, and nowhere else; unknown is said."""

from __future__ import annotations

import pytest

from advisor.ggml_types import BY_NAME
from advisor.recommend.cache_notes import safety_notes
from advisor.recommend.cache_safety import rows_for
from advisor.recommend.policy import lossiness
from advisor.recommend.search import Search, Wishes
from advisor.settings import RequestedSettings
from tests.tools.cells import engine, spec
from tests.tools.machines import advise, evaluator, machine, policy

ROWS = policy().cache_safety
NUMBERS = (
    "floor_n_ctx", "comfortable_n_ctx", "context_exponent", "cache_types", "prompt_tokens", "depth_tokens",
    "answer_tokens", "least_tokens_per_s", "weights_exponent",
)  # fmt: skip


def applying(model, *backends, build=11434):
    return {row.name for row in rows_for(ROWS, spec(model), engine()._replace(build=build), backends)}


def test_every_row_names_known_things_and_its_source():
    assert len({row["name"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row["source"]
        assert all(name in BY_NAME for name in row["types"])
        assert set(row.get("backends", ())) <= set(engine().backends)
        assert (row["factor"] == 1.0) == (row["effect"] in ("fine", "unknown"))


@pytest.mark.parametrize(
    ("model", "backend", "build", "there", "absent"),
    [
        ("llama3-8b", "cuda", 11434, {"cuda_compiled_types", "cuda_other_types"}, {"qwen2_keys", "sycl"}),
        ("llama3-8b", "cuda", 10434, {"cuda_mixed_before", "cuda_other_types_before"}, {"cuda_mixed"}),
        ("llama3-8b", "cuda", 10434, {"cuda_mixed_before"}, {"cuda_other_types"}),
        ("llama3-8b", "rocm", 11434, {"cuda_mixed"}, {"cuda_mixed_before", "cuda_other_types_before"}),
        ("gemma3-12b", "cuda", 9000, {"cuda_head_256_before"}, set()),  # heads of 256
        ("gemma3-12b", "cuda", 10434, set(), {"cuda_head_256_before"}),
        ("llama3-8b", "cuda", 9000, set(), {"cuda_head_256_before"}),  # heads of 128
        ("llama3-8b", "rocm", 9000, {"rocm_before"}, {"rocm_now"}),
        ("llama3-8b", "rocm", 11434, {"rocm_now"}, {"rocm_before"}),
        ("llama3-8b", "metal", 10434, {"metal_before"}, {"metal_now"}),
        ("llama3-8b", "metal", 11434, {"metal_now"}, {"metal_before"}),
        ("llama3-8b", "vulkan", 11434, {"vulkan"}, {"rocm_now", "cuda_other_types"}),
        ("llama3-8b", "sycl", 11434, {"sycl"}, {"vulkan"}),
        ("qwen25-32b", "cuda", 11434, {"qwen2_keys"}, {"ling_keys"}),
        ("ling-mini", "cuda", 11434, {"ling_keys"}, {"qwen2_keys"}),
    ],
)  # fmt: skip
def test_rows_apply_by_backend_build_head_and_architecture(model, backend, build, there, absent):
    found = applying(model, backend, build=build)
    assert there <= found
    assert not absent & found


def test_a_row_counts_when_one_of_several_cards_is_meant():
    assert {"sycl", "vulkan"} <= applying("llama3-8b", "sycl", "vulkan")
    assert not {"sycl", "vulkan"} & applying("llama3-8b")


def search(model, backend, **pinned):
    return Search(
        evaluator(model, machine(16, backend=backend)), policy(), policy().intent("balanced"),
        Wishes(RequestedSettings(**pinned)),
    )  # fmt: skip


def test_a_slow_kernel_costs_what_its_row_says():
    plain, slow = search("llama3-8b", "cuda").policy, search("llama3-8b", "sycl").policy
    assert plain.key_factor["q8_0"] == policy().cache_factor["q8_0"]
    assert slow.key_factor["q8_0"] == pytest.approx(1.1 * policy().cache_factor["q8_0"])
    assert slow.key_factor["f16"] == 1.0


def test_keys_that_suffer_do_not_make_values_dearer():
    found = search("qwen25-32b", "vulkan").policy
    assert found.key_factor["q4_0"] == pytest.approx(4 * policy().cache_factor["q4_0"])
    assert found.value_factor["q4_0"] == policy().cache_factor["q4_0"]


def codes(model, backend, **pinned):
    given = search(model, backend, **pinned)
    judged = given.judge(given.base._replace(n_ctx=8192, **pinned))
    return [note.code for note in safety_notes(given.cache_rows, judged.plan, [backend])]


@pytest.mark.parametrize(
    ("model", "backend", "keys", "values", "expected"),
    [
        ("llama3-8b", "cuda", "f16", "f16", []),
        ("llama3-8b", "cuda", "q8_0", "q8_0", []),
        ("llama3-8b", "cuda", "q5_1", "q5_1", ["cache_type_slow_decode"]),
        ("llama3-8b", "cuda", "q8_0", "q5_1", ["cache_types_mixed_slow_decode"]),
        ("llama3-8b", "cuda", "q8_0", "f16", ["cache_types_mixed_slow_decode"]),
        ("llama3-8b", "vulkan", "q8_0", "f16", []),
        ("llama3-8b", "rocm", "q8_0", "q8_0", ["cache_type_unknown"]),
        ("llama3-8b", "vulkan", "q5_0", "q5_0", ["cache_type_unknown"]),
        ("qwen25-32b", "cuda", "q4_0", "q4_0", ["cache_type_lossy_keys"]),
        ("qwen25-32b", "cuda", "q8_0", "q4_0", ["cache_types_mixed_slow_decode"]),
        ("qwen25-32b", "vulkan", "q8_0", "q4_0", []),
        ("qwen25-32b", "vulkan", "q5_0", "q5_0", ["cache_type_lossy_keys", "cache_type_unknown"]),
    ],
)  # fmt: skip
def test_what_is_said_of_a_type(model, backend, keys, values, expected):
    assert codes(model, backend, cache_type_k=keys, cache_type_v=values) == expected


def noted(build, keys, values, flash="on"):
    """What is said with a build of that time: rows of the build, and a plan by its rules."""
    given = Search(
        evaluator("llama3-8b", machine(16), build=build), policy(), policy().intent("balanced"),
        Wishes(RequestedSettings(cache_type_k=keys, cache_type_v=values, flash_attn=flash)),
    )  # fmt: skip
    judged = given.judge(given.base._replace(n_ctx=8192, n_gpu_layers=33, cache_type_k=keys, cache_type_v=values))
    return {note.code: note.text for note in safety_notes(given.cache_rows, judged.plan, ["cuda"])}


@pytest.mark.parametrize(("keys", "values"), [("q8_0", "f16"), ("f16", "q8_0"), ("q4_0", "f16"), ("q8_0", "q4_0")])
def test_before_b11434_two_types_took_attention_to_the_cpu(keys, values):
    (text,) = noted(10434, keys, values).values()
    assert text.startswith(f"Keys in {keys} with values in {values} are slow here: ")
    assert "runs on the CPU" in text
    assert "runs on the CPU" not in noted(11434, keys, values)["cache_types_mixed_slow_decode"]


@pytest.mark.parametrize("kind", ["q4_1", "q5_0", "q5_1"])
def test_before_b11434_other_types_took_attention_to_the_cpu(kind):
    assert list(noted(10434, kind, kind)) == ["cache_type_on_cpu"]
    assert list(noted(11434, kind, kind)) == ["cache_type_slow_decode"]


@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "f16"])
def test_pairs_with_kernels_are_fine_in_every_build(kind):
    assert noted(10434, kind, kind) == noted(11434, kind, kind) == {}


def test_without_flash_attention_its_kernels_do_not_matter():
    assert noted(10434, "q8_0", "f16", flash=None) == {}  # "auto" turns itself off, which is told by itself


@pytest.mark.parametrize(
    ("model", "build", "keys", "values", "factor"),
    [
        ("gemma3-12b", 10000, "q8_0", "q8_0", 5.4),  # 29.9 tokens/s with f16, 5.5 with q8_0: the row's source
        ("gemma3-12b", 10434, "q8_0", "q8_0", 1.0),
        ("gemma3-12b", 10434, "q8_0", "q5_1", 6.7),  # 121 alike, 18 mixed
        ("llama3-8b", 10434, "q5_1", "q5_1", 7.7),  # 1,511 and 197
        ("llama3-8b", 11434, "q5_1", "q5_1", 1.0),
    ],
)
def test_speeds_carry_attention_on_the_cpu(model, build, keys, values, factor):
    """Value and lower bound are divided, the upper stays: the user's build may have all kernels."""
    host, intent = machine(24), policy().intent("balanced")
    plain, slow = evaluator(model, host, build=build), evaluator(model, host, build=build)
    given = Search(slow, policy(), intent, Wishes(RequestedSettings(cache_type_k=keys, cache_type_v=values)))
    request = given.base._replace(n_ctx=8192, n_gpu_layers=99, cache_type_k=keys, cache_type_v=values)
    judged = given.judge(request)
    before, after = (one.when_full(judged, one.speed(judged, intent)) for one in (plain, slow))
    for name in ("decode_tokens_per_s", "prefill_tokens_per_s", "when_full"):
        old, new = getattr(before, name), getattr(after, name)
        assert new.value == pytest.approx(old.value / factor)
        assert new.low == pytest.approx(old.low / factor)
        assert new.high == old.high
    assert after.turn_seconds.value == pytest.approx(before.turn_seconds.value * factor)
    assert slow.tokens_per_s(judged, 8192) == pytest.approx(after.when_full.value)
    if factor > 1:
        assert after.confidence == "low"
        notes = safety_notes(given.cache_rows, judged.plan, ["cuda"])
        assert any(f"divided by {factor:g} for that" in note.text for note in notes)
    on_host = given.judge(request._replace(n_gpu_layers=0))
    assert slow.speed(on_host, intent) == plain.speed(on_host, intent)


def test_a_speed_asked_for_is_not_promised_by_a_kernel_that_is_not_there():
    host = machine(12)
    given = Search(
        evaluator("gemma3-12b", host, build=10434), policy(), policy().intent("balanced"),
        Wishes(RequestedSettings(cache_type_k="q8_0", cache_type_v="q5_1"), min_tokens_per_s=30.0),
    )  # fmt: skip
    assert not given.fast_enough(given.run().pool[0].speed)


def test_two_types_cost_what_their_row_says():
    given = search("llama3-8b", "cuda").policy
    alike = lossiness(given, "q8_0", "q8_0")
    assert lossiness(given, "q8_0", "f16") == pytest.approx(1.2 * alike)


@pytest.mark.parametrize("asked", ["cache_type_k", "cache_type_v"])
def test_half_a_quantised_cache_says_what_the_other_half_would_save(asked):
    """32 blocks x 8 heads x 128 x (2 - 34/32) bytes a token."""
    answer = advise("llama3-8b", machine(12), **{asked: "q8_0"}, n_ctx=8192)
    (note,) = [note for note in answer.warnings if note.code == "cache_half_quantized"]
    other = "-ctv q8_0" if asked == "cache_type_k" else "-ctk q8_0"
    assert (
        f"with {other} too the cache takes 544 MiB instead of 784 MiB, 240 MiB less; that is near lossless."
        in note.text
    )
    both = advise("llama3-8b", machine(12), cache_type_k="q8_0", cache_type_v="q8_0", n_ctx=8192)
    assert not [note for note in both.warnings if note.code == "cache_half_quantized"]
    assert sum(device.cache_bytes for device in both.chosen.plan.devices) == 544 << 20


def test_the_answer_carries_the_warning():
    answer = advise("qwen25-32b", machine(24), cache_type_k="q4_0", cache_type_v="q4_0")
    (note,) = [note for note in answer.warnings if note.code == "cache_type_lossy_keys"]
    assert "gibberish" in note.text
    assert not [note for note in advise("llama3-8b", machine(12)).warnings if note.code.startswith("cache_type")]


@pytest.mark.parametrize("name", ["balanced", "context", "speed", "quality", "parallel"])
def test_every_number_of_an_intent_has_its_reason(name):
    table = policy().intents[name]
    assert table["maximises"]
    assert set(table["reasons"]) == set(NUMBERS)
