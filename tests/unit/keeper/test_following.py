"""Models come, change and go, and the files follow; what the user wrote stays; undo and back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.tools.tiny_models import tiny_model
from tests.unit.keeper.conftest import ROUTER, World

KOBOLD = 'format = "koboldcpp"\npath = "~/kobold"'
LOCALAI = 'format = "localai"\npath = "~/models"'
SWAP = 'format = "llama-swap"\npath = "~/swap/advisor.yaml"'


def test_a_model_is_added_changed_renamed_and_removed(world: World) -> None:
    world.add("m.gguf", tiny_model(n_ctx_train=4096))
    world.configure(ROUTER, KOBOLD, LOCALAI)
    world.apply()
    kobold, localai = world.home / "kobold", world.models
    assert world.sections()["m"]["ctx-size"] == "4096"
    world.add("m.gguf", tiny_model(n_ctx_train=8192))
    world.apply()
    assert world.sections()["m"]["ctx-size"] == "8192"
    assert world.slots(kobold / "m.kcpps", "koboldcpp")["contextsize",] == 8192
    (world.models / "m.gguf").rename(world.models / "n.gguf")
    world.apply()
    assert set(world.sections()) == {"n"}
    assert os.listdir(kobold) == ["n.kcpps"]
    assert sorted(os.listdir(localai)) == ["n.gguf", "n.yaml"]
    (world.models / "n.gguf").unlink()
    world.apply()
    assert world.sections() == {}
    assert os.listdir(kobold) == os.listdir(localai) == []


def test_nothing_is_written_twice(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, KOBOLD)
    world.apply()
    state = sorted((world.home / ".local/state/advisor").rglob("*.json"))
    files = [world.preset, world.home / "kobold/m.kcpps", *state]
    before = [file.stat() for file in files]
    assert len(state) >= 2
    ram = world.host.ram
    for change in (-300, 250, -100, 0):
        world.host = world.host._replace(
            ram=ram._replace(available_bytes=ram.available_bytes + (change << 20)),
            devices=(
                world.host.devices[0]._replace(
                    free_bytes=world.host.devices[0].total_bytes - (max(-change, 0) // 2 << 20)
                ),
            ),
        )
        world.apply()
    assert [(file.stat().st_mtime_ns, file.stat().st_ino) for file in files] == [
        (b.st_mtime_ns, b.st_ino) for b in before
    ]


EDITED = """; mine: do not touch
version = 1

[*]
; for all
threads = 7

[mine]
model = /my/own.gguf   
ctx-size=123
"""


def test_the_users_own_lines_stay_byte_for_byte(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    world.apply()
    world.preset.write_text(EDITED + world.preset.read_text().split("version = 1\n")[1])
    world.add("n.gguf", tiny_model("n"))
    world.apply()
    assert set(world.sections()) == {"*", "mine", "m", "n"}
    for name in ("m", "n"):
        (world.models / f"{name}.gguf").unlink()
    world.apply()
    assert world.preset.read_text().rstrip("\n") == EDITED.rstrip("\n")


def test_a_value_that_the_user_changed_stays_and_the_rest_follows(world: World) -> None:
    world.add("m.gguf", tiny_model(n_ctx_train=4096))
    world.configure(ROUTER)
    world.apply()
    world.preset.write_text(world.preset.read_text().replace("ctx-size = 4096", "ctx-size = 777"))
    world.add("m.gguf", tiny_model(n_layer=3, n_ctx_train=8192))
    said = world.apply()
    found = world.sections()["m"]
    assert (found["ctx-size"], found["n-gpu-layers"]) == ("777", "4")
    assert "m.ctx-size is yours and stays" in said
    (entry,) = world.json("diff")["targets"][0]["files"][0]["pinned"]
    assert entry == {"slot": ["m", "ctx-size"], "yours": "777", "advisors": "8192"}
    world.apply("--adopt")
    assert world.sections()["m"]["ctx-size"] == "8192"


def test_what_the_user_changed_is_there_again_with_the_model(world: World) -> None:
    path = world.add("m.gguf", tiny_model(n_ctx_train=4096))
    world.add("other.gguf")
    world.configure(ROUTER, KOBOLD, LOCALAI, SWAP)
    (world.home / "swap").mkdir()
    world.apply()
    kobold, localai, swap = (
        world.home / "kobold/m.kcpps",
        world.models / "m.yaml",
        world.home / "swap/advisor.yaml",
    )
    world.preset.write_text(world.preset.read_text().replace("[m]\n", "[m]\nalias = mine\n"))
    kobold.write_text(kobold.read_text().replace('"contextsize": 4096', '"contextsize": 512'))
    localai.write_text(localai.read_text() + "known_usecases:\n- chat\n")
    swap.write_text(swap.read_text().replace("  m:\n", "  m:\n    ttl: 300\n"))
    assert "ttl: 300" in swap.read_text()
    data = path.read_bytes()
    path.unlink()
    world.add("new.gguf", tiny_model("new"))
    said = world.apply()
    assert "[new]" in world.preset.read_text()
    assert "new:" in swap.read_text()  # one model's leftovers do not hold up the others
    assert "ttl: 300" in swap.read_text()
    assert "the model is gone" in said
    assert world.apply().count("the model is gone") == 2  # once for each of the two files
    world.add("m.gguf", data)
    world.apply()
    assert world.sections()["m"]["alias"] == "mine"
    assert world.sections()["m"]["ctx-size"] == "4096"
    assert world.slots(kobold, "koboldcpp")["contextsize",] == 512
    assert world.slots(kobold, "koboldcpp")["model_param",] == str(path)
    assert "- chat" in localai.read_text()
    assert "context_size: 4096" in localai.read_text()
    assert "the model is gone" not in world.apply()


def test_a_model_that_is_downloaded_anew_in_place(world: World) -> None:
    """Nobody can load it meanwhile, so it is not offered; the user's own values wait for it."""
    world.add("m.gguf", tiny_model(n_ctx_train=4096))
    world.add("other.gguf")
    world.configure(ROUTER)
    world.apply()
    world.preset.write_text(world.preset.read_text().replace("ctx-size = 4096", "ctx-size = 777", 1))
    first = next(iter(world.sections()))
    whole = tiny_model(n_layer=3, n_ctx_train=8192)
    world.add(f"{first}.gguf", whole[:-4096])
    world.apply()
    assert "model" not in world.sections().get(first, {})
    world.add(f"{first}.gguf", whole)
    world.apply()
    assert (world.sections()[first]["ctx-size"], world.sections()[first]["n-gpu-layers"]) == ("777", "4")


def test_undo_stays_undone_until_it_is_adopted(world: World) -> None:
    world.add("m.gguf", tiny_model(n_ctx_train=4096))
    world.configure(ROUTER, KOBOLD)
    world.apply()
    world.add("m.gguf", tiny_model(n_ctx_train=8192))
    world.apply()
    status, out, err = world.run("undo", world.preset)
    assert (status, out) == (0, "")
    assert "is as it was before" in err
    assert world.sections()["m"]["ctx-size"] == "4096"
    assert "m.ctx-size is yours and stays" in world.apply()
    assert world.sections()["m"]["ctx-size"] == "4096"
    world.apply("--adopt")
    assert world.sections()["m"]["ctx-size"] == "8192"


def test_a_file_that_undo_took_away_stays_away_and_that_is_no_error(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    world.apply()
    assert world.run("undo")[0] == 0
    assert not world.preset.exists()
    said = world.apply()
    assert not world.preset.exists()
    assert said.count("stays away") == 1
    status, out, err = world.run("diff")
    assert (status, err.count("stays away")) == (0, 1)
    assert "up to date" not in said + out
    assert "Everything stands" not in out
    world.apply("--adopt")
    assert set(world.sections()) == {"m"}


def test_undo_to_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.configure(ROUTER)
    clock = time.time()
    for number, hour in enumerate((-3, -2, -1)):
        world.add("m.gguf", tiny_model(n_ctx_train=4096 + 1024 * number))
        monkeypatch.setattr("advisor.cli.apply.time.time", lambda hour=hour: clock + 3600 * hour)
        world.apply()
        monkeypatch.undo() if False else None
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(clock - 2.5 * 3600))
    assert world.run("undo", "--to", when)[0] == 0
    assert world.sections()["m"]["ctx-size"] == "4096"


@pytest.mark.parametrize("words", [("--to", "yesterday"), ("--to", ""), ("--all", "--to", "18:00")])
def test_undo_with_words_that_make_no_sense(world: World, words: tuple[str, ...]) -> None:
    assert world.run("undo", *words)[0] == 2


def test_undo_of_nothing(world: World) -> None:
    assert world.run("undo") == (0, "", "advisor: advisor has changed no files.\n")
    status, _, err = world.run("undo", "/not/ours")
    assert status == 1
    assert "no change by advisor" in err


def test_undo_all_leaves_everything_as_before_advisor(world: World) -> None:
    world.add("m.gguf")
    swap = world.home / "swap"
    mine = {
        world.preset: EDITED,
        swap / "mine.yaml": "models:\n  mine:\n    cmd: x --port ${PORT}\n",
        world.home / "webui/config-user.yaml": "# mine\nother$:\n  loader: x\n",
    }
    for path, text in mine.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    world.configure(ROUTER, SWAP, KOBOLD, 'format = "text-generation-webui"\npath = "~/webui/config-user.yaml"')
    assert world.run("apply")[0] == 1  # the preset is not ours yet
    world.apply("--adopt")
    world.add("m.gguf", tiny_model(n_ctx_train=8192))
    world.add("n.gguf", tiny_model("n"))
    world.apply()
    assert {"m", "n", "mine"} <= set(world.sections())
    assert world.run("undo", "--all")[0] == 0
    assert {path: path.read_text() for path in mine} == mine
    assert os.listdir(swap) == ["mine.yaml"]
    assert os.listdir(world.home / "kobold") == []
    assert world.run("undo") == (0, "", "advisor: advisor has changed no files.\n")


def test_a_file_that_the_user_removed_is_made_again(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, KOBOLD)
    world.apply()
    world.preset.unlink()
    (world.home / "kobold/m.kcpps").unlink()
    world.apply()
    assert set(world.sections()) == {"m"}
    assert Path(world.home / "kobold/m.kcpps").exists()


def test_a_section_that_is_left_without_its_model_is_named(world: World) -> None:
    """It does where the user set something for it, which waits for it; that is said as long as it is so."""
    world.add("m.gguf")
    world.add("n.gguf", tiny_model("n"))
    world.configure(ROUTER)
    world.apply()
    world.preset.write_text(world.preset.read_text().replace("[m]\n", "[m]\ntemp = 0.5\n"))
    for name in "mn":
        (world.models / f"{name}.gguf").unlink()
    sentence = "the model is gone; what you set for m stays for when it comes back, else take it out."
    assert sentence in world.apply()
    assert world.sections() == {"m": {"temp": "0.5"}}
    assert sentence in world.apply()
    world.preset.write_text(world.preset.read_text().replace("temp = 0.5\n", ""))
    assert "the model is gone" not in world.apply()
    assert world.sections() == {}
