"""The table of cache types: each kind of row applies where its facts hold, and nowhere else; unknown is said."""

from __future__ import annotations

import pytest

from advisor.ggml_types import BY_NAME
from advisor.recommend.cache_notes import safety_notes
from advisor.recommend.cache_safety import rows_for
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
    return [note.code for note in safety_notes(given.cache_rows, judged.plan.settings, [backend])]


@pytest.mark.parametrize(
    ("model", "backend", "keys", "values", "expected"),
    [
        ("llama3-8b", "cuda", "f16", "f16", []),
        ("llama3-8b", "cuda", "q8_0", "q8_0", []),
        ("llama3-8b", "cuda", "q5_1", "q5_1", ["cache_type_slow_decode"]),
        ("llama3-8b", "cuda", "q8_0", "q5_1", ["cache_type_slow_decode"]),
        ("llama3-8b", "rocm", "q8_0", "q8_0", ["cache_type_unknown"]),
        ("llama3-8b", "vulkan", "q5_0", "q5_0", ["cache_type_unknown"]),
        ("qwen25-32b", "cuda", "q4_0", "q4_0", ["cache_type_lossy_keys"]),
        ("qwen25-32b", "cuda", "q8_0", "q4_0", []),
        ("qwen25-32b", "vulkan", "q5_0", "q5_0", ["cache_type_lossy_keys", "cache_type_unknown"]),
    ],
)  # fmt: skip
def test_what_is_said_of_a_type(model, backend, keys, values, expected):
    assert codes(model, backend, cache_type_k=keys, cache_type_v=values) == expected


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
