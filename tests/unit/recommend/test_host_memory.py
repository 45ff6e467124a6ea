"""System memory is a budget too: what the server fills over time is told to stay within what the plan leaves."""

from __future__ import annotations

import json

import pytest

from advisor.cli.main import main
from advisor.cli.recommend import command
from advisor.host import Ram
from advisor.memory.server import checkpoints_of_slot
from advisor.recommend.budget import ServerCaches, host_over_bytes, make_budget, server_caches
from tests.tools.cells import DATA, engine
from tests.tools.machines import advise, evaluator, machine, policy

GIB = 1 << 30


def caches_of(answer):
    plan = answer.chosen.plan
    checkpoints = checkpoints_of_slot(plan.settings, engine())
    caches = server_caches(plan, answer.budget, checkpoints)
    return caches, caches.applied(plan.host.extras, checkpoints), -host_over_bytes(plan, answer.budget)


def test_what_ends_a_context_on_the_cpu_is_called_system_memory(capsys):
    model = str(DATA / "zoo/llama3-8b.json.gz")
    main(["recommend", model, "--no-gpu", "--ram", "8GiB"])
    assert "to spare in system memory, beyond what must stay free." in " ".join(capsys.readouterr().out.split())
    assert main(["check", model, "-c", "131072", "--no-gpu", "--ram", "8GiB"]) == 4
    assert " in system memory too much." in capsys.readouterr().out


@pytest.mark.parametrize("ram_gib", [6, 8, 12, 16, 24, 48, 128])
@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("gemma3-12b", {"n_ctx": 131072, "n_parallel": 4}),  # 32 checkpoints of 320 MiB for each slot
        ("qwen3next", {"n_ctx": 65536, "n_parallel": 2, "n_gpu_layers": 10}),
        ("llama3-8b", {"n_ctx": 16384}),  # nothing that cannot be rewound
    ],
)
def test_what_is_kept_never_fills_system_memory(model, settings, ram_gib):
    answer = advise(model, machine(24, ram_gib=ram_gib), **settings)
    caches, kept, left = caches_of(answer)
    if left < 0:  # it does not fit anyway
        assert caches == ServerCaches(None, None)
        return
    together = kept["prompt_cache_bytes"] + kept["context_checkpoints_bytes"]
    assert together <= left
    extras = answer.chosen.plan.host.extras
    if sum(extras.values()) <= left:
        assert caches == ServerCaches(None, None)  # the engine's defaults are well
    said = [note for note in answer.warnings if note.code.endswith("_fill_ram") or note.code.endswith("_fills_ram")]
    assert bool(said) == (caches != ServerCaches(None, None))
    for flag, value in (("--cache-ram", caches.cache_ram_mib), ("--ctx-checkpoints", caches.n_ctx_checkpoints)):
        assert any(f"{flag} {value}" in note.text for note in said) == (value is not None)


def test_checkpoints_are_kept_as_far_as_there_is_room():
    """gemma3 12B with four slots: 32 checkpoints of 320 MiB for each, 40 GiB."""
    answer = advise("gemma3-12b", machine(48, ram_gib=16), n_ctx=4 * 131072, n_parallel=4)
    plan = answer.chosen.plan
    assert checkpoints_of_slot(plan.settings, engine()) == 32
    caches, kept, left = caches_of(answer)
    assert caches.n_ctx_checkpoints is not None
    one_more = plan.host.extras["context_checkpoints_bytes"] // 32
    assert kept["context_checkpoints_bytes"] <= left // 2 < kept["context_checkpoints_bytes"] + one_more
    (note,) = [note for note in answer.warnings if note.code == "context_checkpoints_fill_ram"]
    assert f"--ctx-checkpoints {caches.n_ctx_checkpoints} keeps" in note.text


def test_what_was_asked_for_is_counted():
    plan = advise("gemma3-12b", machine(24, ram_gib=64), n_ctx=65536, cache_ram_mib=0, n_ctx_checkpoints=0).chosen.plan
    assert sum(plan.host.extras.values()) == 0
    budget = make_budget(machine(24, ram_gib=64), policy())
    assert server_caches(plan, budget, 0) == ServerCaches(None, None)


def test_a_cgroup_is_the_memory_there_is():
    """A container of 6 GiB on a machine of 64: the probe takes the limit for what is available, so the advice does."""
    host = machine(24, ram_gib=64)
    inside = host._replace(ram=Ram(6 * GIB, 5 * GIB, cgroup_limit_bytes=6 * GIB))
    answer = advise("llama3-8b", inside, n_ctx=8192)
    caches, kept, left = caches_of(answer)
    assert caches.cache_ram_mib is not None
    assert kept["prompt_cache_bytes"] <= left < 5 * GIB
    assert caches_of(advise("llama3-8b", host, n_ctx=8192))[0] == ServerCaches(None, None)


def test_weights_on_the_cpu_take_from_it():
    """Experts in system memory leave less for saved prompts."""
    sizes = {"n_ctx": 8192, "cpu_moe": True}
    small, large = (advise("qwen3moe-30b", machine(12, ram_gib=ram), **sizes) for ram in (26, 64))
    assert small.verdict == "partial"
    assert caches_of(small)[0].cache_ram_mib is not None
    assert caches_of(large)[0] == ServerCaches(None, None)


def test_other_programs_take_from_it():
    host = machine(12, ram_gib=32)
    busy = host._replace(ram=host.ram._replace(available_bytes=6 * GIB))
    judge = evaluator("llama3-8b", busy)
    assert judge.budget.ram_usable_bytes == 5 * GIB
    assert caches_of(advise("llama3-8b", busy, n_ctx=8192))[0].cache_ram_mib is not None


def test_the_json_shows_the_limits_that_the_command_sets(capsys):
    words = [str(DATA / "zoo" / "llama3-8b.json.gz"), "--gpu", "RTX 3060", "--ram", "8GiB", "--json"]
    command.main(args=words, standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    told = document["command"].split()
    said = int(told[told.index("--cache-ram") + 1])
    assert document["host"]["extras"]["prompt_cache_bytes"] == said << 20
    assert document["settings"]["cache_ram_mib"] == said
    assert document["settings"]["n_ctx_checkpoints"] is None  # nothing of it cannot be rewound
    words = [str(DATA / "zoo" / "gemma3-12b.json.gz"), "--gpu", "cuda:24GiB", "--ram", "8GiB", "--json"]
    command.main(args=[*words, "-np", "4", "-c", "131072"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    told = document["command"].split()
    assert document["settings"]["n_ctx_checkpoints"] == int(told[told.index("--ctx-checkpoints") + 1])


@pytest.mark.parametrize("ram", [("256MiB", 256 << 20), ("1GiB", 1 << 30), ("2GiB", 2 << 30)])
def test_what_is_lacking_is_what_would_have_to_be_added(ram, capsys):
    """1 GiB stays free: with less than that, what is lacking of it is lacking too."""
    text, n_bytes = ram
    model = str(DATA / "zoo" / "llama3-8b.json.gz")
    words = ["estimate", model, "--no-gpu", "-c", "4096", "-np", "1", "--ram"]
    assert main([*words, text, "--json"]) == 4
    need = json.loads(capsys.readouterr().out)["host"]["planned_bytes"]
    assert main([*words, text]) == 4
    lacking = need - (n_bytes - GIB)
    assert f"{lacking / GIB:.2f} GiB too much" in capsys.readouterr().out
    assert main([*words, f"{n_bytes + lacking}B"]) == 0
    assert main([*words, f"{n_bytes + lacking - 1}B"]) == 4


def test_a_card_below_its_margin_lacks_that_too(capsys):
    words = ["estimate", str(DATA / "zoo" / "llama3-8b.json.gz"), "-c", "4096", "-np", "1", "--ram", "64GiB", "--gpu"]
    assert main([*words, "cuda:8GiB@100MiB", "--json"]) == 4
    need = json.loads(capsys.readouterr().out)["devices"][0]["planned_bytes"]
    assert main([*words, "cuda:8GiB@100MiB"]) == 4
    assert f"{(need + (412 << 20)) / GIB:.2f} GiB too much" in capsys.readouterr().out  # 512 MiB stay free
