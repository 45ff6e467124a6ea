"""No member sees a GPU that it has nothing on: the engine would open a context there, in memory that others have."""

from __future__ import annotations

import functools

import pytest

from advisor.app import App
from advisor.joint import options_of, plan_jointly
from advisor.outputs.registry import load
from advisor.outputs.types import OutputModel
from advisor.planner import Planner
from advisor.together.types import Together
from tests.tools.machines import machine
from tests.tools.together import member, over_budget, planned_anew, together

CARDS = ("RTX 3060", "RTX 4090", "RTX 4060")
MODELS = ("llama3-8b", "gemma3-12b", "qwen3moe-30b")


@functools.cache
def planned() -> tuple[Planner, Together, list[dict[str, str]]]:
    """The three models on the three cards, the first for long contexts, with each one's options."""
    app = App(None)
    planner = Planner(app, app.host(gpus=CARDS, ram=32 << 30), app.engine(None))
    members = [member(name, intent) for name, intent in zip(MODELS, ("context", "balanced", "balanced"), strict=True)]
    answer = plan_jointly(planner, members)
    return planner, answer, [dict(options or ()) for options in options_of(planner, answer)]


def used(answer: Together) -> list[list[str]]:
    """The GPUs that each member has blocks on, by its own plan."""
    found = []
    for seat in answer.seats:
        assert seat is not None
        places = set(seat.answer.chosen.plan.placement)
        found.append([card.id for index, card in enumerate(seat.host.devices) if index in places])
    return found


def test_options_name_the_cards_that_a_model_has_something_on_and_split_only_over_these():
    """They were -ts 0,14,19 and -ts 25,24,0 without --device."""
    _, answer, every = planned()
    cards = used(answer)
    assert all(len(names) == 2 for names in cards)
    for options, names in zip(every, cards, strict=True):
        assert options["device"].split(",") == names
        counts = [int(count) for count in options["tensor-split"].split(",")]
        assert len(counts) == len(names)
        assert 0 not in counts


def test_the_sentence_counts_the_cards_that_work():
    _, answer, _ = planned()
    notes = [note for seat in answer.seats if seat is not None for note in seat.answer.warnings]
    told = [note.text for note in notes if note.code == "pipeline_copies"]
    assert told
    assert all("so that 2 can work in turns" in text for text in told)


def test_the_rest_of_the_answer_is_of_the_same_cards():
    planner, answer, _ = planned()
    assert over_budget(answer, planner.host) == []
    for one, seat, names in zip(answer.members, answer.seats, used(answer), strict=True):
        assert seat is not None
        assert [card.id for card in seat.host.devices] == names
        assert [limit.id for limit in seat.answer.budget.devices] == names
        assert {card.id for card in seat.host.idle_devices} == {"CUDA0", "CUDA1", "CUDA2"} - set(names)
        assert planned_anew(one, seat) == seat.answer.chosen.plan
        assert seat.answer.chosen.fits


@pytest.mark.parametrize("form", ["llama-swap", "llama-server-preset"])
def test_configs_of_a_set_name_them_too(form):
    """What [[set]] writes: a group of llama-swap, sections of the router's preset."""
    _, answer, every = planned()
    models = [
        OutputModel(one.name, f"/m/{one.name}.gguf", seat.answer.chosen.plan, tuple(options.items()), 48)
        for one, seat, options in zip(answer.members, answer.seats, every, strict=True)
        if seat is not None
    ]
    output = load(form)
    slots = output.slots(models)
    for one, options, names in zip(answer.members, every, used(answer), strict=True):
        if form == "llama-swap":
            words = str(slots["models", one.name, "cmd"]).split()
            given = words[words.index("--device") + 1]
            split = words[words.index("--tensor-split") + 1]
        else:
            given, split = slots[one.name, "device"], slots[one.name, "tensor-split"]
        assert given == ",".join(names)
        assert split == options["tensor-split"]


@pytest.mark.parametrize("intent", ["balanced", "context"])
def test_a_model_that_is_partly_on_the_cpu_gets_no_empty_card_either(intent):
    """Its layers were dealt 9, 0 and 12 where another model has the card in the middle."""
    answer = together(machine(6, 12, 8, ram_gib=32), member("llama33-70b-q4_k_m", intent), member("ds2-lite", intent))
    first = answer.seats[0]
    assert first is not None
    assert first.answer.verdict == "partial"
    assert used(answer) == [[card.id for card in seat.host.devices] for seat in answer.seats if seat is not None]


def test_cards_that_settings_speak_of_by_number_stay():
    """-ts 0,1 counts the cards that the engine sees."""
    host = machine(12, 24, ram_gib=32)
    answer = together(host, member("llama3-8b", tensor_split=(0.0, 1.0)), "llama32-3b")
    first = answer.seats[0]
    assert first is not None
    assert [card.id for card in first.host.devices] == ["CUDA0", "CUDA1"]
    assert set(first.answer.chosen.plan.placement) == {1}
