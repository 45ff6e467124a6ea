"""[[set]]: its models get settings with which all of them fit at the same time, and llama-swap a group."""

from __future__ import annotations

import json

import pytest

from tests.tools.machines import machine
from tests.tools.tiny_models import tiny_model
from tests.unit.keeper.conftest import ROUTER, World, go, worker

SWAP = 'format = "llama-swap"\npath = "~/swap/advisor.yaml"'
DAILY = '[[set]]\nname = "daily"\nmodels = ["b.gguf", "a*"]'
# each model takes all of the card that it gets; alone it could take half the micro-batch too, which sets do not try
LONG = '[defaults]\nintent = "context"\n[[model]]\nmatch = "*"\npins = { n-gpu-layers = "all", ubatch-size = 512 }'
GROUP = ("routing", "router", "settings", "groups", "daily")


def add(world: World, *names: str) -> None:
    """Models whose cache alone could fill the card of 8 GiB."""
    (world.home / "swap").mkdir(exist_ok=True)
    for name in names:
        world.add(name, tiny_model(name, n_ctx_train=1 << 24))


def contexts(world: World) -> dict[str, int]:
    return {name: int(section["ctx-size"]) for name, section in world.sections().items()}


def test_the_models_of_a_set_fit_at_the_same_time(world: World) -> None:
    add(world, "a.gguf", "b.gguf")
    world.configure(ROUTER, more=LONG)
    world.apply()
    alone = contexts(world)
    assert alone["a"] == alone["b"]
    world.configure(ROUTER, more=f"{LONG}\n{DAILY}")
    world.apply()
    together = contexts(world)
    assert 0.9 * alone["a"] < sum(together.values()) < alone["a"]
    assert together["b"] > together["a"] >= 8192  # the first that is named gets what is left


def test_llama_swap_gets_a_group_and_undo_restores_every_byte(world: World) -> None:
    add(world, "a.gguf", "b.gguf", "other.gguf")
    swap = world.home / "swap/advisor.yaml"
    world.configure(SWAP, more=LONG)
    world.apply()
    mine = "# mine\nlogLevel:  debug   # stays\nrouting:   # mine too\n  scheduler: {use: fifo}\n"
    swap.write_text(f"{mine}{swap.read_text()}")
    before = swap.read_bytes()
    world.apply()
    assert swap.read_bytes() == before
    world.configure(SWAP, more=f"{LONG}\n{DAILY}")
    world.apply()
    slots = world.slots(swap, "llama-swap")
    assert slots[(*GROUP, "members")] == ["b", "a"]
    assert (slots[(*GROUP, "swap")], slots[(*GROUP, "exclusive")]) == (False, True)
    assert swap.read_text().startswith(mine.removesuffix("  scheduler: {use: fifo}\n"))
    world.apply()
    status, out, _ = world.run("diff")
    assert (status, out) == (0, "Everything stands as advisor would write it.\n")
    world.configure(SWAP, more=LONG)  # without the set everything is as it was
    world.apply()
    assert swap.read_bytes() == before
    world.run("undo", "--all")
    assert swap.read_text() == f"{mine}# managed by advisor; edits are detected and kept\n"


def test_the_daemon_writes_the_same_and_then_rests(world: World) -> None:
    add(world, "a.gguf", "b.gguf")
    world.configure(ROUTER, SWAP, more=f"{LONG}\n{DAILY}")
    daemon = worker()
    summary = go(daemon)
    assert summary.failures == ()
    assert any("--models-max 2" in text for text in summary.notes)
    assert world.slots(world.home / "swap/advisor.yaml", "llama-swap")[(*GROUP, "members")] == ["b", "a"]
    written = (world.preset.read_bytes(), (world.home / "swap/advisor.yaml").read_bytes())
    assert "up to date" in world.apply()
    assert go(daemon).changes == ()
    assert (world.preset.read_bytes(), (world.home / "swap/advisor.yaml").read_bytes()) == written


def test_the_router_is_told_by_an_option_what_a_preset_cannot_say(world: World) -> None:
    add(world, "a.gguf", "b.gguf")
    world.configure(ROUTER, more=DAILY)
    said = world.apply()
    assert "--models-max 2 (or LLAMA_ARG_MODELS_MAX=2)" in said
    assert "models-max" not in world.preset.read_text()
    document = world.json("diff")
    assert [len(target["notes"]) for target in document["targets"]] == [1]


def test_llama_cpps_own_config_says_how_many_stay_loaded_and_undo_restores_it(world: World) -> None:
    add(world, "a.gguf", "b.gguf")
    config = world.home / ".config/llama.cpp/config.ini"
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n[*]\nthreads = 4  ; stays\n")
    world.configure(f'format = "llama-config-ini"\npath = "{config}"', more=DAILY)
    world.apply()
    assert "models-max = 2" in config.read_text()
    assert world.slots(config, "llama-config-ini")[("*", "threads")] == "4"
    world.run("undo", "--all")
    assert config.read_text() == "# mine\n[*]\nthreads = 4  ; stays\n"


def test_only_in_the_targets_that_it_names(world: World) -> None:
    add(world, "a.gguf", "b.gguf")
    world.configure(more=f'{LONG}\n{DAILY}\ntargets = ["swap"]', swap=SWAP, router=ROUTER)
    world.apply()
    assert world.slots(world.home / "swap/advisor.yaml", "llama-swap")[(*GROUP, "members")] == ["b", "a"]
    assert len(set(contexts(world).values())) == 1


@pytest.mark.parametrize(
    ("names", "sets", "said"),
    [
        (["a.gguf"], DAILY, "the set daily needs two models: of its own only a is here."),
        (["c.gguf"], DAILY, "the set daily needs two models: of its own none is here."),
        (
            ["a.gguf", "b.gguf", "c.gguf"], DAILY + '\n[[set]]\nname = "more"\nmodels = ["c*", "a*"]',
            "the set more goes without a, which has its settings from the set daily.",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_a_set_that_is_not_whole(world: World, names: list[str], sets: str, said: str) -> None:
    add(world, *names)
    world.configure(ROUTER, more=sets)
    assert said in world.apply()
    assert set(world.sections()) == {name.removesuffix(".gguf") for name in names}


def test_who_does_not_fit_beside_the_others_is_planned_alone(world: World) -> None:
    world.host = machine(ram_gib=8)
    add(world, "a.gguf", "b.gguf", "c.gguf")
    pins = "\n".join(f'[[model]]\nmatch = "{name}.gguf"\npins = {{ ctx-size = 4194304 }}' for name in "bc")
    world.configure(SWAP, more=f'{pins}\n[[set]]\nname = "daily"\nmodels = ["b.gguf", "c.gguf", "a.gguf"]')
    said = world.apply()
    assert "the set daily goes without c, which is planned alone: c does not fit beside b, a: " in said
    assert said.count("planned alone") == 1
    slots = world.slots(world.home / "swap/advisor.yaml", "llama-swap")
    assert slots[(*GROUP, "members")] == ["b", "a"]
    assert "--ctx-size 4194304" in str(slots["models", "c", "cmd"])


def test_a_member_whose_settings_are_refused_is_no_matter_of_memory(world: World) -> None:
    add(world, "a.gguf", "b.gguf", "c.gguf")
    pins = '[[model]]\nmatch = "c.gguf"\npins = { flash-attn = "off", cache-type-v = "q8_0" }'
    world.configure(SWAP, more=f'{LONG}\n{pins}\n[[set]]\nname = "daily"\nmodels = ["c*", "b*", "a*"]')
    said = world.apply()
    assert "the set daily goes without c, which is planned alone: c: llama.cpp refuses these settings: a quant" in said
    assert "too little" not in said
    assert ".;" not in said
    assert world.slots(world.home / "swap/advisor.yaml", "llama-swap")[(*GROUP, "members")] == ["b", "a"]


def test_a_broken_member_does_not_take_the_others_along(world: World) -> None:
    add(world, "a.gguf", "b.gguf", "c.gguf")
    draft = '[[model]]\nmatch = "c.gguf"\npins = { spec-draft-model = "/no/such.gguf" }'
    world.configure(ROUTER, more=f'{LONG}\n{draft}\n[[set]]\nname = "daily"\nmodels = ["c*", "b*", "a*"]')
    _, _, err = world.run("apply")
    assert "/no/such.gguf" in err
    together = contexts(world)
    assert set(together) == {"a", "b"}
    assert together["b"] > 100 * together["a"]


def test_safe_mode_knows_of_no_other_model(world: World) -> None:
    add(world, "a.gguf", "b.gguf")
    world.configure(SWAP + '\nmode = "safe"', more=DAILY)
    assert "the set daily is not planned together: mode safe leaves the layers to the engine" in world.apply()
    assert not any(slot[0] == "routing" for slot in world.slots(world.home / "swap/advisor.yaml", "llama-swap"))


def test_a_group_of_the_users_is_left_to_him(world: World) -> None:
    add(world, "a.gguf", "b.gguf")
    (world.home / "swap/mine.yaml").write_text("groups:\n  mine:\n    members: [a]\n")
    world.configure(SWAP, more=DAILY)
    said = world.apply()
    assert "llama-swap gets no group for the set daily: a is in your group mine" in said
    assert {slot[0] for slot in world.slots(world.home / "swap/advisor.yaml", "llama-swap")} == {"models"}
    json.dumps(world.json("diff"))
