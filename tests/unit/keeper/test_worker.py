"""The daemon's worker: what each reason for a pass does, when files are written, and what is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from advisor.errors import ConfigError, HardwareError
from advisor.host import ProbeReport, ProcessUse
from advisor.keeper.models import ModelPlans, Planned, Wanted
from advisor.outputs.koboldcpp import KoboldCpp
from advisor.outputs.types import OutputModel
from advisor.slots import Slot, Value
from tests.tools.machines import machine
from tests.tools.tiny_models import tiny_model
from tests.unit.keeper.conftest import ROUTER, World, go, worker

KOBOLD = 'format = "koboldcpp"\npath = "~/kobold"'


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the models that are planned anew, in order."""
    names: list[str] = []
    real = ModelPlans._plan

    def counted(self: ModelPlans, wanted: Wanted) -> Planned:
        names.append(wanted.id)
        return real(self, wanted)

    monkeypatch.setattr(ModelPlans, "_plan", counted)
    return names


def test_files_are_followed_and_only_what_changed_is_planned(world: World, planned: list[str]) -> None:
    for name in ("a", "b"):
        world.add(f"{name}.gguf", tiny_model(name))
    world.configure(ROUTER, ROUTER.replace("models.ini", "second.ini"), KOBOLD)
    daemon = worker()
    first = go(daemon)
    assert sorted(planned) == ["a", "a", "b", "b"]  # for two engines
    texts = [change.text for change in first.changes]
    assert len(texts) == 2 * 2 + 2 + 2  # a line for each model in each preset and file, what to do by hand
    (line,) = (text for text in texts if text.startswith(f"{world.preset}: added a: "))
    assert f"model = {world.models}/a.gguf, ctx-size = 4096" in line
    assert (first.pending, first.pinned, first.failures) == ((), (), ())
    assert first.status_text == "2 models, 3 of 3 targets enabled"
    assert {str(world.preset), str(world.home / "kobold/a.kcpps")} <= daemon.watched().own.keys()
    del planned[:]
    assert go(daemon, "files").changes == ()
    assert go(daemon, "rescan").changes == ()
    assert planned == []
    world.add("b.gguf", tiny_model("b", n_ctx_train=8192))
    summary = go(daemon, "files")
    assert planned == ["b", "b"]
    assert [change.text for change in summary.changes if "models.ini" in change.text] == [
        f"{world.preset}: b.ctx-size 4096 -> 8192"
    ]


def test_hardware(world: World, planned: list[str]) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    daemon = worker()
    go(daemon)
    del planned[:]
    scans = world.n_probes
    quiet = go(daemon, "hardware")
    assert (quiet.changes, planned, world.n_probes) == ((), [], scans + 1)
    assert quiet.status_text == "1 model, 1 of 1 targets enabled"
    card = world.host.devices[0]
    world.host = world.host._replace(
        probes=(ProbeReport("system", "ok", "", 0.5),),
        devices=(card._replace(free_bytes=card.free_bytes - (100 << 20), processes=(ProcessUse(1, "x", 1, False),)),),
    )
    go(daemon, "hardware")
    assert planned == []
    world.host = machine(ram_gib=16)
    summary = go(daemon, "hardware")
    assert planned == ["m"]
    assert "m.n-gpu-layers" in summary.changes[0].text
    assert world.sections()["m"].get("n-gpu-layers", "0") == "0"


def test_a_driver_that_does_not_answer_moves_nothing_to_the_cpu(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    daemon = worker()
    go(daemon)
    before, seen = world.preset.read_bytes(), world.host
    world.host = machine(ram_gib=16)._replace(probes=(ProbeReport("nvidia_nvml", "failed", "version mismatch", 0.1),))
    for again in (daemon, worker()):
        with pytest.raises(HardwareError, match=r"CUDA0 cannot be seen.*version mismatch"):
            go(again, "hardware" if again is daemon else "start")
    assert world.run("apply")[0] == 1
    assert world.preset.read_bytes() == before
    world.host = seen
    assert go(daemon, "hardware").changes == ()
    world.host = machine(ram_gib=16)  # it was taken out of the machine
    assert "m.n-gpu-layers" in go(daemon, "hardware").changes[0].text


def test_files_that_changed_while_the_hardware_was_to_be_probed(world: World) -> None:
    """Requests that meet become one, under the weightier reason."""
    world.configure(ROUTER)
    daemon = worker()
    go(daemon)
    path = world.add("m.gguf")
    daemon.refresh("hardware", frozenset((str(path),)), lambda: False)
    assert set(world.sections()) == {"m"}


def test_a_configuration_that_breaks_leaves_the_old_one(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    daemon = worker()
    go(daemon)
    config = world.home / ".config/advisor/config.toml"
    good = config.read_text()
    config.write_text(good + "\n[daemon]\nrescan_s = 'often'\n")
    with pytest.raises(ConfigError, match="line"):
        daemon.reload()
    assert str(config) in daemon.watched().settings
    world.add("n.gguf", tiny_model("n"))
    go(daemon, "reload")
    assert set(world.sections()) == {"m", "n"}
    config.write_text(good + '\n[[model]]\nmatch = "n"\nexclude = true\n')
    daemon.reload()
    go(daemon, "reload")
    assert set(world.sections()) == {"m"}


def test_a_configuration_that_is_broken_from_the_start(world: World) -> None:
    config = world.home / ".config/advisor/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("nonsense = 1\n")
    daemon = worker()
    with pytest.raises(ConfigError):
        daemon.reload()
    assert str(config.parent) in daemon.watched().settings_folders
    with pytest.raises(ConfigError):
        go(daemon)
    world.add("m.gguf")
    world.configure(ROUTER)
    daemon.reload()
    go(daemon)
    assert set(world.sections()) == {"m"}


def test_what_is_not_enabled_is_only_said(world: World) -> None:
    world.add("m.gguf")
    world.configure(f"{ROUTER}\nenabled = false", KOBOLD)
    daemon = worker()
    summary = go(daemon)
    assert summary.pending == (f"{world.preset}: added m (10 values) (target t0 is not enabled)",)
    assert not world.preset.exists()
    assert (world.home / "kobold/m.kcpps").exists()
    assert summary.status_text == "1 model, 1 of 2 targets enabled"


def test_quiet_hours(world: World) -> None:
    world.add("m.gguf")
    now = time.localtime()
    minute = now.tm_hour * 60 + now.tm_min
    start, stop = ((minute + shift) % 1440 for shift in (-60, 60))
    hours = f'"{start // 60:02}:{start % 60:02}-{stop // 60:02}:{stop % 60:02}"'
    world.configure(ROUTER, more=f"[daemon]\nquiet_hours = {hours}")
    daemon = worker()
    (text,) = go(daemon).pending
    assert text.endswith("(waits for the end of the quiet hours)")
    assert not world.preset.exists()
    world.configure(ROUTER)
    daemon.reload()
    summary = go(daemon, "rescan")
    assert summary.pending == ()
    assert set(world.sections()) == {"m"}


def test_a_pass_that_is_stopped_in_the_middle(world: World, planned: list[str]) -> None:
    for number in range(6):
        world.add(f"m{number}.gguf", tiny_model(f"m{number}"))
    world.configure(ROUTER)
    daemon = worker()
    calls = iter(range(100))
    summary = daemon.refresh("start", None, lambda: next(calls) >= 9)
    assert 0 < len(planned) < 6
    assert not world.preset.exists()
    assert summary.changes == ()
    go(daemon, "rescan")
    assert len(world.sections()) == 6


def test_a_pass_is_stopped_between_files(world: World) -> None:
    """systemd's watchdog hears of each; a file that was begun is brought to its end, and told, the others come next."""
    for number in range(6):
        world.add(f"m{number}.gguf", tiny_model(f"m{number}"))
    world.configure(KOBOLD)
    daemon = worker()
    n_written: list[int] = []

    def progress() -> bool:
        folder = world.home / "kobold"
        n_written.append(len(os.listdir(folder)) if folder.exists() else 0)
        return n_written[-1] >= 2

    stopped = daemon.refresh("start", None, progress)
    assert set(n_written) == {0, 1, 2}
    assert sorted(os.listdir(world.home / "kobold")) == ["m0.kcpps", "m1.kcpps"]
    assert len(stopped.changes) == 2
    summary = go(daemon, "rescan")
    assert len(summary.changes) == 4 + 1  # and that KoboldCpp is to be started
    assert len(os.listdir(world.home / "kobold")) == 6
    assert go(daemon, "files").changes == ()


def test_a_pass_in_which_nothing_changed_reads_no_config(
    world: World, monkeypatch: pytest.MonkeyPatch, planned: list[str]
) -> None:
    for name in ("a", "b"):
        world.add(f"{name}.gguf", tiny_model(name))
    world.configure(ROUTER, KOBOLD)
    daemon = worker()
    go(daemon)
    rendered: list[str] = []
    real = KoboldCpp.one

    def counted(self: KoboldCpp, model: OutputModel, supported: frozenset[str] | None = None) -> dict[Slot, Value]:
        rendered.append(model.id)
        return real(self, model, supported)

    monkeypatch.setattr(KoboldCpp, "one", counted)
    for reason in ("files", "engine", "hardware"):
        assert go(daemon, reason).changes == ()
    assert rendered == []
    kept = world.home / "kobold/a.kcpps"
    kept.write_text(kept.read_text().replace("4096", "512"))
    assert len(go(daemon, "files").pinned) == 1
    assert rendered == ["a", "b"]
    world.run("undo")  # by another process
    assert go(daemon, "files").pinned
    assert rendered == ["a", "b"] * 2
    go(daemon, "rescan")
    assert rendered == ["a", "b"] * 3, "everything is looked at in between"


def test_a_changed_wish_plans_only_its_models(world: World, planned: list[str]) -> None:
    for name in ("a", "b"):
        world.add(f"{name}.gguf", tiny_model(name))
    world.configure(ROUTER)
    daemon = worker()
    go(daemon)
    del planned[:]
    world.configure(ROUTER, more='[[model]]\nmatch = "a"\npins = { ctx-size = "512" }')
    daemon.reload()
    go(daemon, "reload")
    assert planned == ["a"]
    assert world.sections()["a"]["ctx-size"] == "512"
    world.configure(ROUTER, more='[budget]\nkeep_free_ram = "2 GiB"')
    daemon.reload()
    go(daemon, "reload")
    assert planned == ["a", "a", "b"]


def test_pinned_values_are_told(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    daemon = worker()
    go(daemon)
    world.preset.write_text(
        world.preset.read_text().replace("ctx-size = 4096", "ctx-size = 512").replace("flash-attn = on\n", "")
    )
    summary = go(daemon, "files")
    assert f"{world.preset}: m.ctx-size stays 512, advisor would write 4096." in summary.pinned
    assert summary.failures == ()
    world.run("undo")
    assert not [failure for failure in go(daemon, "files").failures if "undo" in failure]


def test_what_is_remembered_does_not_grow(world: World) -> None:
    world.configure(ROUTER, KOBOLD)
    daemon = worker()
    sizes = []
    for round_ in range(4):
        for number in range(4):
            world.add(f"r{round_}-{number}.gguf", tiny_model(f"{round_}-{number}"))
        go(daemon, "files")
        sizes.append(remembered(daemon))
        for path in world.models.iterdir():
            path.unlink()
    assert max(sizes) <= 2 * 4
    go(daemon, "files")
    assert remembered(daemon) == 0


def remembered(daemon: object) -> int:
    """Plans in the memory of a worker."""
    passes = daemon._keeper._passes  # type: ignore[attr-defined]
    return sum(len(plans._known) + len(plans._used) for plans in passes._plans.values())


def test_rules_that_changed_without_an_event_count_at_the_next_full_look(world: World, planned: list[str]) -> None:
    world.add("m.gguf", tiny_model(n_ctx_train=16384))
    world.configure(ROUTER)
    daemon = worker()
    go(daemon)
    rule = world.home / ".config/advisor/rules/arch/llama.toml"
    rule.parent.mkdir(parents=True)
    rule.write_text("schema_version = 1\n")
    del planned[:]
    go(daemon, "files")
    assert planned == []
    go(daemon, "rescan")
    assert planned == ["m"]
    go(daemon, "rescan")
    assert planned == ["m"]


def test_once(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    (world.home / "run").mkdir(exist_ok=True)
    assert world.run("daemon", "--once")[0] == 0
    assert set(world.sections()) == {"m"}
    world.add("a#b.gguf")
    assert [world.run(*words)[0] for words in (("daemon", "--once"), ("apply",))] == [0, 0], "left out and named"
    world.preset.unlink()
    world.preset.mkdir()
    assert [world.run(*words)[0] for words in (("daemon", "--once"), ("apply",))] == [1, 1]
    world.configure(f"{ROUTER}\nnonsense = 1")
    assert world.run("daemon", "--once")[0] == 1


def test_the_state_folder_cannot_be_used(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    state = Path(os.environ["XDG_STATE_HOME"])
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text("a file")
    status, _, err = world.run("apply")
    assert status == 1
    assert str(state) in err
    assert not world.preset.exists()


def test_what_somebody_takes_for_an_evening_shrinks_nothing(world: World, planned: list[str]) -> None:
    world.add("m.gguf")
    world.configure(ROUTER)
    daemon = worker()
    go(daemon)
    before = world.preset.read_text()
    del planned[:]
    card = world.host.devices[0]
    world.host = world.host._replace(devices=(card._replace(free_bytes=64 << 20),))
    assert go(daemon, "hardware").changes == ()
    assert planned == []
    world.apply()  # another process comes to the same
    assert world.preset.read_text() == before
