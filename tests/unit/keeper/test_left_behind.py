"""Targets that leave the configuration, or move: what they leave is said, with the command that takes it back."""

from __future__ import annotations

import json
import shlex

from tests.tools.tiny_models import tiny_model
from tests.unit.keeper.conftest import ROUTER, World, go, worker

KOBOLD = 'format = "koboldcpp"\npath = "~/kobold folder"'


def said(world: World) -> list[str]:
    """What apply, diff, status and the daemon say; the same everywhere."""
    start = "still hold"
    notes = [text for text in go(worker()).notes if start in text]
    for words in (("apply",), ("diff",)):
        lines = world.run(*words)[2].splitlines()
        assert [line.removeprefix("advisor: ") for line in lines if start in line] == notes
    (world.home / "run").mkdir(exist_ok=True)
    status, out, _ = world.run("status", "--json")
    assert status == 3
    assert json.loads(out)["notes"] == notes
    flat = " ".join(world.run("status")[1].split())
    assert all(" ".join(text.split()) in flat for text in notes)
    return notes


def test_a_target_that_is_taken_out_or_moves(world: World) -> None:
    for name in "abcd":
        world.add(f"{name}.gguf", tiny_model(name))
    world.configure(ROUTER, KOBOLD)
    world.apply()
    assert said(world) == []
    moved = world.home / "presets/moved.ini"
    world.configure(ROUTER.replace("models.ini", "moved.ini"))
    before = world.preset.read_text()
    world.apply()
    assert (moved.exists(), world.preset.read_text()) == (True, before)
    one, many = said(world)
    assert one.startswith(f"{world.preset} still holds what advisor wrote")
    assert many.startswith(f"4 files in {world.home}/kobold folder still hold what advisor wrote")
    assert world.json("apply")["left_behind"] == [
        str(world.preset), *(f"{world.home}/kobold folder/{name}.kcpps" for name in "abcd")
    ]  # fmt: skip
    for text in (one, many):
        words = shlex.split(text.partition(": advisor ")[2])
        assert words[:2] == ["undo", "--all"]
        assert world.run(*words)[0] == 0
    assert not world.preset.exists()
    assert not list((world.home / "kobold folder").iterdir())
    assert said(world) == []
    assert moved.exists()


def test_what_was_undone_or_deleted_is_not_named(world: World) -> None:
    world.add("m.gguf")
    second = ROUTER.replace("models.ini", "second.ini")
    world.configure(ROUTER, second)
    world.apply()
    world.run("undo", world.preset)
    (world.home / "presets/second.ini").unlink()
    world.configure(KOBOLD)
    assert said(world) == []


def test_the_daemon_says_it_once(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, KOBOLD)
    daemon = worker()
    assert go(daemon).notes == ()
    world.configure(KOBOLD)
    daemon.reload()
    (note,) = go(daemon, "reload").notes
    assert str(world.preset) in note


def test_undo_tells_in_json_too(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, KOBOLD)
    world.apply()
    document = world.json("undo", world.home / "kobold folder", "/not/ours")
    assert document["schema"] == "advisor.undo/1"
    assert [(each["path"], each["error"]) for each in document["files"]] == [
        (f"{world.home}/kobold folder/m.kcpps", None),
        ("/not/ours", "/not/ours has no change by advisor that could be undone."),
    ]
    assert document["files"][0]["text"].endswith("was removed, advisor had made it.")
    assert world.json("undo", "--all", world.preset)["files"][0]["error"] is None
    assert world.json("undo")["notes"] == ["everything was taken back already."]


def test_one_pass_tells_in_json_too(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    (world.home / "run").mkdir(exist_ok=True)
    status, out, _ = world.run("daemon", "--once", "--json")
    document = json.loads(out)
    assert (status, document["schema"], document["failures"]) == (0, "advisor.daemon/1", [])
    assert document["changes"][0].startswith(f"{world.preset}: added m: model = ")
    assert world.run("daemon", "--json")[0] == 2


def test_an_unknown_intent_is_a_mistake_with_its_line(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, more='[[model]]\nmatch = "m"\nintent = "warp"')
    expected = world.run("config", "check")
    assert expected[0] == 1
    (world.home / "run").mkdir(exist_ok=True)
    for words in (("apply",), ("diff",), ("daemon", "--once", "--json")):
        status, out, err = world.run(*words)
        err = json.loads(out)["failures"][0] if out else err
        assert status == 1
        assert ", line 4: " in err
        assert "warp" in err
        assert expected[2].removeprefix("advisor: ").strip() in err
    assert not world.preset.exists()


def test_tabs_in_a_diff_are_tabs(world: World) -> None:
    world.add("m.gguf")
    world.preset.write_text("version = 1\n[mine]\nmodel =\t/x.gguf\n")
    world.configure(ROUTER)
    assert " model =\t/x.gguf\n" in world.run("diff", "--adopt")[1]
