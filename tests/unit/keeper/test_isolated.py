"""An error of one target, or of one file, keeps no other from being written, taken back or told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from advisor.keeper import changes, keeper, passes
from advisor.managed import undo
from tests.unit.keeper.conftest import World, go, worker

DEEP = "l_:\n" + "".join(f"{' ' * (level + 1)}a:\n" for level in range(400))
PINS = '[[model]]\nmatch = "*"\npins = {{ batch-size = {} }}'


def two(world: World, batch: int) -> Path:
    """LocalAI's file beside the model, and llama-swap's."""
    world.configure(
        a=f'format = "localai"\npath = "{world.models}"',
        b='format = "llama-swap"\npath = "~/swap/50.yaml"',
        c='format = "env-file"\npath = "~/env"',
        more="",
    )
    config = world.home / ".config/advisor/config.toml"
    config.write_text(config.read_text() + "\n" + PINS.format(batch))
    return world.home / "swap/50.yaml"


def test_a_config_of_400_levels_stops_no_other_target(world: World):
    world.add("Tiny-Q8_0.gguf")
    swap = two(world, 512)
    daemon = worker()
    go(daemon)
    local = world.models / "Tiny-Q8_0.yaml"
    before = local.read_text()
    local.write_text(before + DEEP)
    two(world, 1024)
    daemon.reload()
    summary = go(daemon)
    assert [text.split(": ")[1].partition(" that")[0] for text in summary.failures] == ["this is no config of LocalAI"]
    assert str(local) in summary.failures[0]
    assert "nested more than 100 deep" in summary.failures[0]
    assert "1024" in swap.read_text()
    assert "1024" in (world.home / "env/Tiny-Q8_0.env").read_text()
    for verb in ("diff", "apply"):
        status, out, err = world.run(verb)
        assert status == 1
        assert err.count(f"{local}: this is no config of LocalAI that advisor changes: it is nested") == 1, out
    status, _, err = world.run("undo", "--all")
    assert status == 1
    assert f"{local}: this is no config of LocalAI" in err
    assert not swap.exists()
    assert not (world.home / "env/Tiny-Q8_0.env").exists()
    assert local.read_text() == before + DEEP
    local.write_text(before)
    assert world.run("undo", "--all")[0] == 0
    assert not local.exists()


def broken(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, part: str) -> None:
    """The function fails, in a way that nobody expects, for the file or target whose name holds `part`."""
    real = getattr(module, name)

    def fails(*args: Any, **named: Any) -> Any:
        return never() if part in str(args) else real(*args, **named)

    monkeypatch.setattr(module, name, fails)


def never() -> NoReturn:
    raise RecursionError("maximum\x1b recursion")


SENTENCE = r"this is a bug in advisor (RecursionError at test_isolated.py:"


@pytest.mark.parametrize(
    ("module", "name"), [(changes, "plan_change"), (changes, "apply_change"), (keeper, "tell_engine")]
)
def test_an_error_that_nobody_expected_is_one_files(world: World, monkeypatch, capsys, module, name):
    world.add("Tiny-Q8_0.gguf")
    swap = two(world, 512)
    broken(monkeypatch, module, name, "Tiny-Q8_0.yaml")
    summary = go(worker())
    failures = [text for text in summary.failures if SENTENCE in text]
    assert failures == list(summary.failures)
    assert len(failures) == 1
    assert name == "tell_engine" or failures[0].startswith(f"{world.models}/Tiny-Q8_0.yaml: ")
    assert "512" in swap.read_text()
    capsys.readouterr()
    from advisor.cli.main import main

    assert main(["apply"]) == 1
    assert SENTENCE in capsys.readouterr().err


def test_a_target_that_cannot_be_looked_at_is_one_of_several(world: World, monkeypatch):
    world.add("Tiny-Q8_0.gguf")
    swap = two(world, 512)
    broken(monkeypatch, passes, "files_beside", "localai")
    summary = go(worker())
    assert [text.partition(" at ")[0] for text in summary.failures] == ["a: this is a bug in advisor (RecursionError"]
    assert "512" in swap.read_text()


@pytest.mark.parametrize("words", [("--all",), ()])
def test_undo_goes_on_behind_an_error_that_nobody_expected(world: World, monkeypatch, capsys, words):
    world.add("Tiny-Q8_0.gguf")
    swap = two(world, 512)
    world.apply()
    broken(monkeypatch, undo, "_plan", "Tiny-Q8_0.yaml")
    from advisor.cli.main import main

    assert main(["undo", *words]) == 1
    assert capsys.readouterr().err.count(f"{world.models}/Tiny-Q8_0.yaml: {SENTENCE}") == 1
    assert not swap.exists()
    assert (world.models / "Tiny-Q8_0.yaml").exists()
