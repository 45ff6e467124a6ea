"""Models that stay loaded together: llama-swap's groups, and what llama-server's preset cannot say.

Format facts: llama-swap v250 (internal/config/load.go and merge.go, docs/kb/guides/routing/groups-and-matrix.md): a
group with `swap: false` keeps its members loaded, `exclusive: true` unloads the others; groups stand below
routing.router.settings or, as they did before, at the top, never in both places of one config; a group's name and a
model's membership are its own. llama.cpp b11434 (tools/server/server-models.cpp, unset_reserved_args): `models-max` is
taken out of every section of a preset.
"""

from __future__ import annotations

import time

import pytest

from advisor.errors import OutputError
from advisor.outputs.llama_swap import Beside, LlamaSwap
from advisor.outputs.registry import OUTPUTS, load
from advisor.outputs.types import GONE

SETS = {"daily": ["qwen", "embed"]}
MODELS = "models:\n  qwen: {cmd: x}\n  embed: {cmd: y}\n"
ROUTING = ("routing", "router", "settings", "groups", "daily")


def beside(*texts: str) -> LlamaSwap:
    """llama-swap's format in a folder with these other files."""
    found = Beside()
    for text in texts:
        found = found.and_in(text)
    return LlamaSwap("llama-server", found)


def test_a_group_keeps_its_models_and_unloads_others():
    slots, said = beside().grouped(SETS)
    assert said == []
    assert slots == {
        (*ROUTING, "swap"): False,
        (*ROUTING, "exclusive"): True,
        (*ROUTING, "members"): ["qwen", "embed"],
    }
    text = LlamaSwap().edit(MODELS, slots)
    assert text == MODELS + (
        "routing:\n  router:\n    settings:\n      groups:\n        daily:\n          swap: false\n"
        '          exclusive: true\n          members: ["qwen", "embed"]\n'
    )
    LlamaSwap().validate(text)


def test_taking_the_last_group_out_takes_its_tables_out():
    slots, _ = beside().grouped(SETS)
    text = LlamaSwap().edit(MODELS, slots)
    assert LlamaSwap().edit(text, dict.fromkeys(slots, GONE), LlamaSwap().spelled(MODELS)) == MODELS


def test_groups_stand_where_the_users_stand():
    slots, _ = beside("groups:\n  mine: {members: [other]}\n").grouped(SETS)
    assert {slot[:2] for slot in slots} == {("groups", "daily")}
    slots, _ = beside("routing: {router: {settings: {groups: {mine: {members: [other]}}}}}\n").grouped(SETS)
    assert {slot[:5] for slot in slots} == {ROUTING}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups:\n  daily: {members: [other]}\n", "a group of that name stands in another file"),
        ("groups:\n  mine: {members: [embed]}\n", "embed is in your group mine, and a model can be in one only"),
        ("matrix: {vars: {}, sets: {}}\n", "routes by a matrix; add qwen & embed to its sets yourself"),
        ("routing: {router: {use: matrix}}\n", "routes by a matrix"),
    ],
)
def test_what_would_stop_llama_swap_is_not_written(text, said):
    slots, notes = beside(text).grouped(SETS)
    assert slots == {}
    assert len(notes) == 1
    assert notes[0].startswith("llama-swap gets no group for the set daily: ")
    assert said in notes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups: {a: {members: [qwen]}}\nrouting: {router: {settings: {groups: {b: {members: []}}}}}\n", "at the top"),
        ("groups: {a: {members: [qwen]}, b: {members: [qwen]}}\n", "'qwen' is in two groups"),
    ],
)
def test_a_file_that_llama_swap_would_refuse(text, said):
    with pytest.raises(OutputError, match=said):
        LlamaSwap().validate(MODELS + text)


@pytest.mark.parametrize("members", ["5", "{qwen: 1}", "qwen", "", "[[qwen], [qwen]]"])
def test_members_that_are_no_names_are_llama_swaps_business(members):
    LlamaSwap().validate(f"{MODELS}groups: {{a: {{members: {members}}}}}\n")


def test_a_group_of_very_many_is_counted_once():
    began = time.process_time()
    names = ", ".join(f"m{number}" for number in range(50_000))
    LlamaSwap().validate(f"{MODELS}groups:\n  g:\n    members: [{names}]\n")
    assert time.process_time() - began < 3  # each looked for among all took 20 s


def test_groups_are_no_models():
    assert beside(MODELS + "groups: {g: {members: [qwen]}}\n").grouped({})[0] == {}
    assert Beside().and_in("groups: {g: {members: [qwen]}}\n").ids == frozenset()


def test_the_preset_says_which_option_the_router_needs():
    slots, (said,) = load("llama-server-preset").grouped({"a": ["x", "y"], "daily": ["x", "y", "z"]})
    assert slots == {}
    assert "--models-max 3 (or LLAMA_ARG_MODELS_MAX=3)" in said
    assert "set daily" in said
    assert load("llama-server-preset").grouped({}) == ({}, [])


def test_llama_cpps_own_config_can_say_it():
    """common/arg.cpp applies its [*] to every option of every tool, models-max of the router among them."""
    output = load("llama-config-ini")
    slots, said = output.grouped({"a": ["x", "y"], "daily": ["x", "y", "z"]})
    assert (slots, said) == ({("*", "models-max"): "3"}, [])
    assert output.grouped({}) == ({}, [])
    assert output.edit("[*]\nthreads = 4\n", slots) == "[*]\nthreads = 4\nmodels-max = 3\n"


@pytest.mark.parametrize("name", sorted(set(OUTPUTS) - {"llama-swap", "llama-server-preset", "llama-config-ini"}))
def test_other_programs_load_what_they_are_asked_for(name):
    assert load(name).grouped(SETS) == ({}, [])
