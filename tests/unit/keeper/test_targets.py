"""What can be wrong with a target: one clear sentence, nothing of the user's touched, and the other targets done."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from advisor.errors import OutputError
from advisor.keeper import read_settings
from advisor.keeper.keeper import Keeper, ledger_folder
from advisor.keeper.reload import BY_HAND
from advisor.managed.ledger import open_ledger
from tests.tools.stores import as_nobody
from tests.tools.tiny_models import tiny_model
from tests.unit.keeper.conftest import ROUTER, World, go, worker

SWAP = 'format = "llama-swap"\npath = "~/swap/advisor.yaml"'
KOBOLD = 'format = "koboldcpp"\npath = "~/kobold"'


def sentences(err: str) -> list[str]:
    """What was said, without the advice what to do after writing."""
    return [line for line in err.splitlines() if not any(advice in line for advice in BY_HAND.values())]


def refused(world: World, *words: str) -> str:
    """`apply` with exactly one complaint, which does not stop the router's preset; returns it."""
    status, _, err = world.run("apply", *words)
    assert status == 1
    assert "m" in world.sections()
    (sentence,) = sentences(err)
    assert sentence.startswith("advisor: bad: ")
    assert sentence.endswith(".")
    return sentence


def test_an_unknown_format_is_a_mistake_in_the_configuration(world: World) -> None:
    world.configure(ROUTER, 'format = "llama-swop"\npath = "~/x"')
    status, _, err = world.run("diff")
    assert status != 0
    assert "config.toml, line" in err
    assert "llama-swap" in err


def test_a_file_that_is_not_ours(world: World) -> None:
    world.add("m.gguf")
    other = world.home / "other.ini"
    other.write_text("version = 1\n[x]\nmodel = /x.gguf\n")
    world.configure(ROUTER, bad='format = "llama-server-preset"\npath = "~/other.ini"')
    assert "was not written by advisor and is left alone; --adopt" in refused(world)
    assert other.read_text() == "version = 1\n[x]\nmodel = /x.gguf\n"
    status, _, err = world.run("diff")
    assert (status, len(sentences(err))) == (1, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [\n", "no config of llama-swap"),
        ("models:\n  mine:\n    ttl: 3\n", "no cmd"),
        ("\udcff", "UTF-8"),
    ],
)
def test_a_file_of_ours_that_the_user_broke(world: World, text: str, words: str) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, bad=SWAP)
    (world.home / "swap").mkdir()
    world.apply()
    swap = world.home / "swap/advisor.yaml"
    swap.write_bytes(text.encode(errors="surrogateescape"))
    sentence = refused(world)
    assert words in sentence
    assert str(swap) in sentence
    assert swap.read_bytes() == text.encode(errors="surrogateescape")


def test_a_broken_file_of_llama_swap_beside_ours(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, bad=SWAP)
    (world.home / "swap").mkdir()
    (world.home / "swap/mine.yaml").write_text("models: [\n")
    assert str(world.home / "swap/mine.yaml") in refused(world)


def test_an_id_that_another_file_of_llama_swap_has(world: World) -> None:
    world.add("m.gguf")
    world.add("n.gguf", tiny_model("n"))
    world.configure(SWAP)
    (world.home / "swap").mkdir()
    (world.home / "swap/mine.yaml").write_text("models:\n  m:\n    cmd: x --port ${PORT}\n")
    status, _, err = world.run("apply")
    assert status == 0
    assert "m: llama-swap cannot take this model: its id stands in another file" in err
    assert {slot[1] for slot in world.slots(world.home / "swap/advisor.yaml", "llama-swap")} == {"n"}


def test_a_folder_that_is_missing_outside_of_the_home_is_not_made(world: World, tmp_path: Path) -> None:
    world.add("m.gguf")
    place = tmp_path / "not/mounted"
    world.configure(ROUTER, bad=f'format = "koboldcpp"\npath = "{place}"')
    assert str(place) in refused(world)
    assert not place.exists()


def test_a_folder_that_may_not_be_written(world: World) -> None:
    world.add("m.gguf")
    (world.home / "kobold").mkdir()
    world.configure(ROUTER, bad=KOBOLD)
    world.give_to_nobody()
    (world.home / "kobold").chmod(0o500)
    with as_nobody():
        status, _, err = world.run("apply")
    assert "m" in world.sections()
    assert (status, len(sentences(err))) == (1, 1)
    assert f"{world.home}/kobold" in err
    assert "permission denied" in err
    assert os.listdir(world.home / "kobold") == []


def test_the_path_is_a_folder_and_the_folder_a_file(world: World) -> None:
    world.add("m.gguf")
    (world.home / "here").mkdir()
    (world.home / "file").write_text("x")
    world.configure(ROUTER, bad='format = "llama-server-preset"\npath = "~/here"')
    refused(world)
    world.configure(ROUTER, bad='format = "koboldcpp"\npath = "~/file"')
    refused(world)
    assert (world.home / "file").read_text() == "x"


def test_a_path_with_a_number_sign_is_said_and_fits_other_formats(world: World) -> None:
    world.add("m.gguf")
    world.add("odd#dir/n.gguf", tiny_model("n"))
    world.configure(ROUTER, KOBOLD)
    said = world.apply()
    assert set(world.sections()) == {"m"}
    assert said.count("'#'") == 1
    assert sorted(os.listdir(world.home / "kobold")) == ["m.kcpps", "n.kcpps"]


def test_two_targets_of_one_place(world: World) -> None:
    for name in ("m", "n"):
        world.add(f"{name}.gguf", tiny_model(name))
    world.configure(ROUTER, KOBOLD + '\nmodels = ["m"]', bad=KOBOLD + '\nmodels = ["n"]')
    assert "is the target t1 too" in refused(world)
    assert os.listdir(world.home / "kobold") == ["m.kcpps"]
    status, _, err = world.run("apply", "bad")
    assert (status, "is the target t1 too" in err) == (1, True)
    (world.home / "kobold/deeper").mkdir()
    world.configure(
        ROUTER,
        KOBOLD,
        deep=KOBOLD.replace("kobold", "kobold/deeper", 1)
        .replace("kobold/deepercpp", "koboldcpp")
        .replace("~/kobold", "~/kobold/deeper"),
    )
    world.apply()
    world.apply()
    assert sorted(os.listdir(world.home / "kobold")) == ["deeper", "m.kcpps", "n.kcpps"]
    assert sorted(os.listdir(world.home / "kobold/deeper")) == ["m.kcpps", "n.kcpps"]


def test_targets_with_the_same_models_go_their_own_ways(world: World) -> None:
    for name in ("ab", "bc"):
        world.add(f"{name}.gguf", tiny_model(name))
    second = world.preset.with_name("second.ini")
    world.configure(
        f'{ROUTER}\nmodels = ["*b*"]', ROUTER.replace("models.ini", "second.ini") + '\nmodels = ["a*", "c*"]'
    )
    world.apply()
    assert set(world.sections()) == {"ab", "bc"}
    assert {slot[0] for slot in world.slots(second)} == {"default", "ab"}
    world.configure(f'{ROUTER}\nmodels = ["bc"]', ROUTER.replace("models.ini", "second.ini"))
    world.apply()
    assert set(world.sections()) == {"bc"}
    assert {slot[0] for slot in world.slots(second)} == {"default", "ab", "bc"}


# ---------------------------------------------------------------- what is meant, and statuses


def test_which_targets_are_meant(world: World) -> None:
    world.add("m.gguf")
    assert world.run("apply")[0] == 2  # no configuration
    world.configure(f"{ROUTER}\nenabled = false", f"{KOBOLD}\nenabled = false")
    assert world.run("apply", "nobody")[0] == 2
    status, _, err = world.run("apply")
    assert status == 2
    assert "t0, t1" in err
    assert world.run("diff")[0] == 0
    assert not world.preset.exists()
    assert not (world.home / "kobold").exists()
    world.apply("t1")
    assert not world.preset.exists()
    assert (world.home / "kobold/m.kcpps").exists()
    world.apply("--all")
    assert world.preset.exists()


def test_the_shape_of_diff_and_apply(world: World) -> None:
    world.add("m.gguf")
    world.add("a#b.gguf")
    world.configure(ROUTER)
    answer = world.json("diff")
    assert answer["schema"] == "advisor.diff/1"
    (target,) = answer["targets"]
    assert {k: target[k] for k in ("name", "format", "enabled", "failure")} == {
        "name": "t0", "format": "llama-server-preset", "enabled": True, "failure": None,
    }  # fmt: skip
    assert [problem["model"] for problem in target["problems"]] == ["a#b"]
    (file,) = target["files"]
    assert set(file) == {"path", "changes", "pinned", "refused", "diff"}
    assert {"slot": ["m", "ctx-size"], "old": None, "new": "4096"} in file["changes"]
    assert file["diff"].startswith("--- /dev/null\n+++ ")
    assert not world.preset.exists()
    answer = world.json("apply")
    assert answer["schema"] == "advisor.apply/1"
    (file,) = answer["targets"][0]["files"]
    assert (file["path"], file["written"], file["error"]) == (str(world.preset), True, None)
    assert set(answer["targets"][0]["engine"]) == {"text", "differs", "error"}
    (file,) = world.json("apply")["targets"][0]["files"]
    assert (file["written"], file["changes"], file["diff"]) == (False, [], "")


def test_two_at_once_make_one_right_file(world: World) -> None:
    for number in range(12):
        world.add(f"m{number}.gguf", tiny_model(f"m{number}"))
    world.configure(ROUTER, KOBOLD)
    errors: list[Exception] = []

    def one(name: str) -> None:
        try:
            keeper = Keeper(read_settings(os.environ), os.environ)
            chosen = [target for target in keeper.settings.targets if target.name == name]
            look = keeper.look(chosen)
            with open_ledger(keeper.ledger_folder) as ledger:
                told = keeper.apply(look, keeper.changes(look, ledger), ledger, time.time())
            assert not [each.error for one in told for each in one.applied if each.error]
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(name,)) for name in ("t0", "t1", "t0", "t1")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(world.sections()) == len(os.listdir(world.home / "kobold")) == 12
    world.models.rename(world.home / "away")  # both were remembered
    world.apply()
    assert len(world.sections()) == len(os.listdir(world.home / "kobold")) == 12


def test_apply_while_another_advisor_changes_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    monkeypatch.setattr("advisor.managed.ledger.open_ledger.__wrapped__.__kwdefaults__", {"wait_s": 0.1})
    with open_ledger(ledger_folder(os.environ)):
        status, out, err = world.run("apply")
        assert (status, out) == (1, "")
        assert "another advisor is changing config files right now" in err
        with pytest.raises(OutputError, match="another advisor"):
            go(worker())
        assert world.run("diff")[0] == 0
    assert not world.preset.exists()
    world.apply()


def test_what_cannot_be_written_is_tried_again(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    world.preset.mkdir()
    daemon = worker()
    assert go(daemon).again
    world.preset.rmdir()
    assert not go(daemon, "rescan").again
    assert world.sections()["m"]


def test_a_target_without_models_says_so(world: World) -> None:
    world.add("m.gguf")
    world.configure(router=ROUTER, jan='format = "jan"\npath = "~/jan"')
    assert "jan: no model is there for it." in world.run("diff")[2]
