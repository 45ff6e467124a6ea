"""What runs teach: the middle of them for each device, quantization and build; nothing where it cannot be true."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.app import App
from advisor.calibrated import machine_of
from advisor.calibration import CPU, Calibration, Run, to_json
from advisor.calibration_file import load_calibration, save_calibration
from advisor.cli.learning import Predictor, keep_run, learn
from advisor.engines.timings import Timing
from advisor.settings import RequestedSettings
from advisor.speed.measured import weights_bytes
from tests.tools.cells import spec
from tests.tools.machines import GIB, machine
from tests.unit.cli.test_bad_input import ROOT, advisor

MODEL = ROOT / "tests/data/zoo/llama3-1b.json.gz"
RUN = Run(CPU, "Q6_K", 11434, "llama3-1b", weights_bytes(spec("llama3-1b")), (2.0,), (), 1)
ESTIMATE = ["estimate", MODEL, "-c", "512", "-np", "1", "--no-gpu", "--json"]


def predicts(seconds: float = 0.01, prompt_seconds: float = 0.001, **facts: Any) -> Any:
    """A predictor of a model whose tokens take `seconds`, 1 % more for each 100 tokens before them."""
    return SimpleNamespace(**{
        "device": CPU, "spec": spec("llama3-1b"), "prompts_here": True,
        "decode_seconds": lambda depth: seconds * (1 + depth / 10_000),
        "prefill_seconds": lambda tokens, depth=0: prompt_seconds * (1 + depth / 10_000),
        **facts,
    })  # fmt: skip


def took(factor: float, *, steps: int = 100, depth: int | None = 1000, prompt: int = 0) -> Timing:
    """A request that took `factor` times what `predicts` says."""
    return Timing(prompt, factor * prompt * 0.001, steps, factor * steps * 0.01 * (1 + (depth or 0) / 10_000), depth)


# ---------------------------------------------------------------- one value from many requests


def test_the_middle_of_the_requests():
    learned = learn(predicts(), [took(1.0), took(1.3, depth=0), took(9.0, depth=5000)], 11434)
    assert learned.reason == ""
    assert learned.run == RUN._replace(decode_factors=(pytest.approx(1.3),), n_seen=3)


def test_requests_that_tell_little_are_left_out():
    short, untold = took(9.0, steps=7), took(9.0, depth=None)
    learned = learn(predicts(), [short, untold, took(1.5), short, untold], None)
    assert learned.run == RUN._replace(decode_factors=(pytest.approx(1.5),), build=None)
    assert learn(predicts(), [took(1.5, steps=63), short], 1).reason.startswith("63 tokens")
    assert learn(predicts(), [took(1.5, steps=32)] * 2, 1).run is not None
    assert learn(predicts(), [], 1).run is None
    assert learn(predicts(), [untold], 1).run is None


def test_prompts_are_held_against_what_was_before_them():
    """The prompt of 200 tokens begins 700 tokens deep: the middle of 100 steps is at 1000 - 50 - 200 behind it."""
    asked = []
    predictor = predicts(prefill_seconds=lambda tokens, depth=0: asked.append((tokens, depth)) or 0.001)
    learned = learn(predictor, [took(2.0, prompt=200), took(2.0, prompt=63)], 11434)
    assert asked == [(200, 750)]
    assert learned.run is not None
    assert learned.run.prefill_factors == pytest.approx((2.0,))
    beside = learn(predicts(prompts_here=False), [took(2.0, prompt=200)], 11434)
    assert beside.run is not None
    assert beside.run.prefill_factors == ()


@pytest.mark.parametrize("factor", [21.0, 0.049, 1e9, 1e-9])
def test_what_cannot_be_true_is_not_learned(factor):
    learned = learn(predicts(), [took(factor)] * 3, 11434)
    assert learned.run is None
    assert f"It took {factor:.2g} times the predicted time" in learned.reason
    prompts = learn(
        predicts(prefill_seconds=lambda *_: 0.001),
        [took(1.0, prompt=100)._replace(prompt_seconds=0.1 * factor)] * 3,
        11434,
    )
    assert prompts.run is None
    assert f"It took {factor:.2g} times the predicted time" in prompts.reason


@pytest.mark.parametrize("factor", [19.9, 0.051])
def test_what_is_just_possible_is_learned(factor):
    learned = learn(predicts(), [took(factor)], 11434)
    assert learned.run is not None
    assert learned.run.decode_factors == pytest.approx((factor,))


def test_a_model_in_several_places_teaches_nothing():
    assert "more than one place" in learn(predicts(device=None), [took(1.0)], 1).reason


@pytest.mark.parametrize(
    ("cards", "layers", "device"),
    [((), 0, CPU), ((24,), 0, CPU), ((24,), 99, "cuda card 0"), ((24,), 5, None), ((24, 24), 99, None)],
)
def test_where_a_model_runs(cards, layers, device):
    app = App(None)
    request = RequestedSettings(n_ctx=4096, n_parallel=1, n_gpu_layers=layers)
    predictor = Predictor(app, machine(*cards), spec("llama3-8b"), request, app.engine(None))
    assert predictor.device == device
    assert predictor.prompts_here is (device != CPU or not cards)


def test_a_prediction_leaves_earlier_runs_out():
    """Otherwise a second run would be held against the first and halve what it taught."""
    app = App(None)
    host = machine()
    request = RequestedSettings(n_ctx=4096, n_parallel=1, n_gpu_layers=0)
    plain, taught = (
        Predictor(app, host._replace(calibration=calibration), spec("llama3-1b"), request, app.engine(None))
        for calibration in (None, Calibration(machine_of(host), "2026-11-30", runs=(RUN,)))
    )
    assert taught.decode_seconds(100) == plain.decode_seconds(100)


# ---------------------------------------------------------------- kept from run to run


@pytest.fixture
def folder() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "advisor"


def runs(folder: Path) -> list[Run]:
    calibration, problem = load_calibration(str(folder))
    assert problem is None
    assert calibration is not None
    return list(calibration.runs)


def test_runs_are_kept_apart_by_device_quantization_build_and_model(folder):
    host = machine(24)
    others = [
        RUN._replace(device="cuda card 0"), RUN._replace(quantization="Q4_0"), RUN._replace(build=None),
        RUN._replace(build=11500), RUN._replace(model="other"), RUN._replace(weights_bytes=5 * GIB),
    ]  # fmt: skip
    for run in (RUN, *others, RUN._replace(decode_factors=(4.0,))):
        assert keep_run(str(folder), host, run) is None
    found = runs(folder)
    assert len(found) == 7
    assert found[-1] == RUN._replace(decode_factors=(2.0, 4.0), n_seen=2)


def decode(*words: object) -> float:
    speed = json.loads(advisor(*(words or ESTIMATE)).out)["speed"]
    return float(speed["decode_tokens_per_s"]["value"])


def test_the_running_median_is_what_counts(folder):
    host = App(None).host()
    before = decode()
    for factor, middle in ((2.0, 2.0), (8.0, 5.0), (3.0, 3.0), (1.0, 2.5)):
        assert keep_run(str(folder), host, RUN._replace(decode_factors=(factor,))) is None
        assert decode() == pytest.approx(before / middle, rel=1e-3)


def test_a_run_on_a_card_tells_of_that_card(folder):
    host = App(None).host()
    words = [*ESTIMATE[:-2], "-ngl", "99", "--json", "--gpu"]
    known, other = decode(*words, "RTX 3060"), decode(*words, "RTX 4090")
    name = json.loads(advisor("hardware", "--gpu", "RTX 3060", "--json").out)["devices"][0]["name"]
    assert keep_run(str(folder), host, RUN._replace(device=f"cuda {name}")) is None
    assert decode(*words, "RTX 3060") == pytest.approx(known / 2, rel=0.01)
    assert decode(*words, "RTX 4090") == other


# ---------------------------------------------------------------- a file that cannot be used


def files() -> dict[str, str]:
    host = App(None).host()
    whole = Calibration(machine_of(host), "2026-11-30", ram_bytes_per_s=10**9, runs=(RUN,))
    text = json.dumps(to_json(whole))
    return {
        "broken": text[:-20],
        "future": text.replace("advisor.calibration/1", "advisor.calibration/2"),
        "nonsense": text.replace(str(10**9), '"fast"'),
        "another machine": json.dumps(to_json(whole._replace(machine=whole.machine._replace(cpu="Another 9000")))),
        "more memory": json.dumps(
            to_json(whole._replace(machine=whole.machine._replace(ram_bytes=2 * whole.machine.ram_bytes)))
        ),
    }


@pytest.mark.parametrize("case", ["broken", "future", "nonsense", "another machine", "more memory"])
def test_a_calibration_that_cannot_be_used_is_said_and_kept(folder, case):
    before = decode()
    text = files()[case]
    folder.mkdir(parents=True)
    (folder / "calibration.json").write_text(text)
    assert decode() == before
    assert advisor("recommend", MODEL, "--no-gpu").status == 0
    (note,) = json.loads(advisor("hardware", "--json").out)["notes"]
    said = {"another machine": "other hardware", "more memory": "other hardware", "future": "a newer advisor"}
    assert said.get(case, "is broken and not used") in note
    assert "advisor calibrate" in note
    shown = advisor("hardware")
    assert (shown.status, shown.err) == (0, "")
    assert note in shown.out
    assert "measured 20" not in shown.out
    problem = keep_run(str(folder), App(None).host(), RUN)
    assert problem == f"Nothing is remembered: {note}"
    assert (folder / "calibration.json").read_text() == text
    if case == "future":
        assert advisor("calibrate", "--no-engine").err == f"advisor: {note}\n"
        assert (folder / "calibration.json").read_text() == text
        return
    # calibrating replaces it
    done = advisor("calibrate", "--no-engine", "--json")
    assert done.status == 0
    assert note in json.loads(done.out)["notes"]
    assert json.loads(advisor("hardware", "--json").out)["notes"] == []


def test_a_state_folder_that_takes_no_run(folder):
    folder.parent.mkdir(parents=True)
    folder.write_text("a file in its place")
    assert "cannot be" in str(keep_run(str(folder), machine(), RUN))
    assert save_calibration(str(folder), Calibration(machine_of(machine()), "2026-11-30")) is not None
