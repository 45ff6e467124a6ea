"""A store that cannot be looked into takes nothing out of the configs; a model that was deleted goes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.keeper import seen as seen_module
from tests.tools.stores import LIBRARY, as_nobody, download, pull
from tests.tools.tiny_models import tiny_model
from tests.unit.keeper.conftest import ROUTER, World, go, worker

TARGETS = (
    ROUTER,
    'format = "koboldcpp"\npath = "~/kobold"',
    'format = "llama-swap"\npath = "~/presets/swap.yaml"',
    'format = "text-generation-webui"\npath = "~/presets/config-user.yaml"',
    'format = "llama-cpp-python"\npath = "~/presets/server.json"',
)


def texts(world: World) -> dict[str, str]:
    """Every file that advisor wrote."""
    places = [*world.preset.parent.iterdir(), *(world.home / "kobold").iterdir()]
    return {path.name: path.read_text() for path in places}


def test_a_folder_that_is_moved_away_and_back(world: World) -> None:
    world.add("m.gguf")
    world.add("sub/n.gguf", tiny_model("n"))
    world.configure(*TARGETS)
    world.apply()
    before = texts(world)
    world.models.rename(world.home / "elsewhere")
    said = world.apply()
    assert said.count(f"{world.models} cannot be looked into now") == 1
    assert texts(world) == before
    assert world.json("diff")["away"] == [str(world.models)]
    (world.home / "elsewhere").rename(world.models)
    assert "cannot be looked into" not in world.apply()
    assert texts(world) == before
    (world.models / "sub/n.gguf").unlink()
    world.apply()
    assert set(world.sections()) == {"m"}
    assert os.listdir(world.home / "kobold") == ["m.kcpps"]
    assert not [name for name, text in texts(world).items() if "n.gguf" in text]


def test_ten_thousand_models_in_three_configs_are_remembered(tmp_path: Path) -> None:
    """What is not read back is forgotten, and then the models of a disk that is away go from the configs."""
    hub = "/home/somebody/.cache/huggingface/hub/models--org--some-model-with-a-long-name-GGUF/snapshots/" + "0" * 40
    models = {
        f"/home/somebody/.config/{target}": {
            f"some-model-{number}-Q4_K_M": seen_module.SeenModel(
                f"{hub}/some-model-{number}-Q4_K_M.gguf", (f"some-model-{number}-Q4_K_M",), "/mnt/models"
            )
            for number in range(9_500)
        }
        for target in ("models.ini", "swap.yaml", "server.json")
    }
    seen = seen_module.Seen({"/mnt/models": 5}, models, {"ollama": {"/a": "b:c"}})
    seen_module.write_seen(str(tmp_path), seen)
    assert seen_module.read_seen(str(tmp_path)) == seen
    (tmp_path / seen_module.FILE).write_text(
        '{"devices": {}, "models": {}, "owed": {' + '"a":{},' * 200_000 + '"b":{}}}'
    )
    assert seen_module.read_seen(str(tmp_path)) == seen_module.Seen()


def test_what_is_away_does_not_stop_the_others(world: World) -> None:
    world.add("m.gguf")
    hub = world.home / ".cache/huggingface/hub"
    download(hub, "org/repo", {"hub.gguf": tiny_model("hub")})
    world.configure(*TARGETS)
    world.apply()
    hub.rename(hub.with_name("away"))
    world.add("n.gguf", tiny_model("n"))
    (world.models / "m.gguf").unlink()
    world.apply()
    assert set(world.sections()) == {"hub", "n"}
    assert sorted(os.listdir(world.home / "kobold")) == ["hub.kcpps", "n.kcpps"]
    for name in ("swap.yaml", "config-user.yaml", "server.json"):
        text = (world.preset.parent / name).read_text()
        assert "hub" in text
        assert "m.gguf" not in text


def test_an_empty_mount_point(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add("m.gguf")
    world.configure(*TARGETS)
    world.apply()
    before, real = texts(world), os.stat
    shutil.rmtree(world.models)
    world.models.mkdir()

    def other_file_system(path: str) -> int | None:
        return real(path).st_dev + (1 if os.path.realpath(path) == os.path.realpath(world.models) else 0)

    monkeypatch.setattr(seen_module, "device_of", other_file_system)
    world.apply()
    assert texts(world) == before


def test_a_disk_that_is_mounted_further_down(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is empty then, while the folder that is watched still holds other models."""
    world.add("m.gguf")
    disk = world.add("disk/n.gguf", tiny_model("n")).parent
    world.configure(*TARGETS)
    mounted, real = {str(disk)}, os.path.ismount
    monkeypatch.setattr(seen_module.os.path, "ismount", lambda path: str(path) in mounted or real(path))
    world.apply()
    before = texts(world)
    data = (disk / "n.gguf").read_bytes()
    (disk / "n.gguf").unlink()
    mounted.clear()
    said = world.apply()
    assert texts(world) == before
    assert said.count("n: not within reach now") == 1
    mounted.add(str(disk))
    (disk / "n.gguf").write_bytes(data)
    assert "within reach" not in world.apply()
    assert texts(world) == before
    (disk / "n.gguf").unlink()  # the disk is there, the model is not
    world.apply()
    assert set(world.sections()) == {"m"}


def deny(path: Path) -> Callable[[], None]:
    mode = path.stat().st_mode
    path.chmod(0)
    return lambda: path.chmod(mode)


@pytest.mark.parametrize("closed", ["", "sub", "sub/n.gguf"])
def test_permission_lost(world: World, closed: str) -> None:
    world.add("sub/n.gguf", tiny_model("n"))
    world.configure(*TARGETS)
    world.give_to_nobody()
    with as_nobody():
        world.apply()
        before = texts(world)
        allow = deny(world.models / closed)
        try:
            status, _, err = world.run("apply")
            assert status == int(closed.endswith(".gguf")), "what is there and cannot be looked at is a failure"
            assert err
            assert texts(world) == before
        finally:
            allow()
        world.apply()
        assert texts(world) == before
        (world.models / "sub/n.gguf").unlink()
        world.apply()
        assert world.sections() == {}


def test_ids_wait_for_their_models(world: World) -> None:
    """Two models of one name: while the first is away, the second does not take its name."""
    store = world.home / "usb"
    (store).mkdir()
    (store / "m.gguf").write_bytes(tiny_model("usb"))
    world.configure(ROUTER)
    config = world.home / ".config/advisor/config.toml"
    config.write_text(config.read_text().replace('folders = ["', f'folders = ["{store}", "'))
    world.add("m.gguf")
    world.apply()
    before = {name: each["model"] for name, each in world.sections().items()}
    assert before == {"m": str(store / "m.gguf"), "models-m": str(world.models / "m.gguf")}
    store.rename(world.home / "unplugged")
    world.add("other/m.gguf", tiny_model("third"))
    world.apply()
    assert {name: each["model"] for name, each in world.sections().items()} == {
        **before, "other-m": str(world.models / "other/m.gguf"),
    }  # fmt: skip


def test_an_ollama_store_that_is_away(world: World) -> None:
    store = world.home / ".ollama/models"
    pull(store, f"{LIBRARY}/q/8b")
    world.configure(ROUTER, 'format = "ollama"\npath = "~/modelfiles"')
    world.apply()
    store.rename(store.with_name("gone"))
    world.apply()
    assert set(world.sections()) == {"q-8b"}
    assert os.listdir(world.home / "modelfiles") == ["q-8b.Modelfile"]
    store.with_name("gone").rename(store)
    (store / "manifests" / LIBRARY / "q/8b").unlink()
    world.apply()
    assert world.sections() == {}
    assert os.listdir(world.home / "modelfiles") == []


def test_rules_that_are_broken_for_a_while_take_nothing_out(world: World) -> None:
    world.add("m.gguf")
    world.configure(*TARGETS)
    daemon = worker()
    assert go(daemon).failures == ()
    before = texts(world)
    rule = world.home / ".config/advisor/rules/arch/llama.toml"
    rule.parent.mkdir(parents=True)
    rule.write_text("schema_version = 1\nnonsense = 1\n")
    daemon.reload()
    failures = go(daemon, "reload").failures
    assert len(failures) == 1
    assert "nonsense" in failures[0]
    assert texts(world) == before
    rule.unlink()
    daemon.reload()
    assert go(daemon, "reload").failures == ()


def test_a_lost_or_broken_memory_of_what_was_seen(world: World) -> None:
    world.add("m.gguf")
    world.configure(*TARGETS)
    world.apply()
    before = texts(world)
    (memory,) = (world.home / ".local/state").rglob("seen.json")
    for broken in (b"", b"{}", b"[" * 100_000, b'{"devices": {"a": "b"}, "models": [], "owed": {}}', b"\xff"):
        memory.write_bytes(broken)
        world.apply()
        assert texts(world) == before
    memory.unlink()
    world.apply()
    assert memory.exists()
