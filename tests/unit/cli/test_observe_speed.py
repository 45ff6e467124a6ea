"""`advisor observe` on logs with timings: what ran alone on this machine teaches, everything else does not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.app import App
from advisor.cli.main import main
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.fake_engine import program
from tests.tools.machines import machine
from tests.unit.cli.test_bad_input import SHIPPED, advisor, assert_one_sentence
from tests.unit.cli.test_calibrate import real_model
from tests.unit.cli.test_calibrate_url import remember_memory
from tests.unit.engines.test_load_log import CUDA

STEPS = 20


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return real_model(tmp_path_factory.mktemp("model") / "m.gguf")


@pytest.fixture
def kept() -> Path:
    """Memory is known: 20 GB/s, so that predictions are alike on all machines that run this test."""
    path = Path(os.environ["XDG_STATE_HOME"]) / "advisor" / "calibration.json"
    remember_memory(path.parent, 20 * 10**9)
    return path


@pytest.fixture
def observe(tmp_path) -> Callable[..., dict[str, Any]]:
    def run(text: str, *words: object, status: int = 0) -> dict[str, Any]:
        log = tmp_path / "log"
        log.write_text(text)
        answer = advisor("observe", log, *words, "--json")
        assert (answer.status, answer.err) == (status, ""), answer
        document: dict[str, Any] = json.loads(answer.out)
        return document

    return run


def request(number: int, ms: float, *, slot: int = 0, depth: int = 112, prompt_ms: float | None = None) -> str:
    """A request of 21 tokens, so of 20 steps, that are `depth` tokens deep in their middle."""
    timed = f"slot print_timing: id  {slot} | task {number} |"
    prompt = f"{timed} prompt eval time = {prompt_ms} ms / 100 tokens\n" if prompt_ms is not None else ""
    return (
        f"slot launch_slot_: id  {slot} | task {number} | processing task, is_child = 0\n{prompt}"
        f"{timed}        eval time = {ms:.2f} ms / 21 tokens (1 ms per token, 1 tokens per second)\n"
        f"slot release: id  {slot} | task {number} | stop processing: n_tokens = {depth + STEPS // 2}, truncated = 0\n"
    )


def beginning(model: object, threads: int | None = None) -> str:
    threads = App(None).host().cpu.logical_cores if threads is None else threads
    return (
        f"srv    load_model: loading model '{model}'\n"
        f"system info: n_threads = 1, n_threads_batch = 1, total_threads = {threads}\n"
    )


def predicted(model: Path) -> float:
    """Seconds of a token 112 tokens deep."""
    words = ["estimate", model, "-c", "512", "-np", "1", "--no-gpu", "--json"]
    decode = json.loads(advisor(*words).out)["speed"]["decode_tokens_per_s"]
    assert decode["at_depth"] == 112
    return 1 / float(decode["value"])


# ---------------------------------------------------------------- what is learned


def test_requests_that_ran_alone(model, kept, observe, tmp_path):
    before = predicted(model)
    ms = [10 * STEPS, 16 * STEPS, 12 * STEPS, 50 * STEPS]
    text = beginning(model) + "".join(request(number, value) for number, value in enumerate(ms))
    document = observe(text)
    factor = 0.014 / before  # the middle of 10, 12, 16 and 50 ms
    assert document["speed"]["requests"] == 4
    run = document["speed"]["learned"]
    assert run["decode_factors"] == [pytest.approx(factor, rel=1e-3)]
    assert (run["device"], run["model"], run["quantization"], run["build"]) == ("cpu", "m", "Q8_0", None)
    assert (run["n_seen"], run["prefill_factors"]) == (4, [])
    assert json.loads(kept.read_text())["runs"] == [run]
    assert predicted(model) == pytest.approx(0.014, rel=2e-3)
    speed = json.loads(advisor("estimate", model, "-c", "512", "-np", "1", "--no-gpu", "--json").out)["speed"]
    assert speed["confidence"] == "calibrated"
    answer = advisor("observe", tmp_path / "log")
    assert f"Speed: 4 of 4 requests decoded at {1 / factor:.2f} times the predicted pace" in " ".join(
        answer.out.split()
    )
    assert "remembered for Q8_0 models of about this size on cpu." in " ".join(answer.out.split())
    assert "m Q8_0 on cpu: " in advisor("hardware").out


def test_the_running_median(model, kept, observe):
    """Each log is one value; the middle of all counts."""
    before = predicted(model)
    for ms, middle in ((10, 10), (40, 25), (16, 16), (12, 14)):
        observe(beginning(model) + "".join(request(number, ms * STEPS) for number in range(4)))
        assert predicted(model) == pytest.approx(middle / 1000, rel=2e-3)
    (run,) = json.loads(kept.read_text())["runs"]
    assert run["decode_factors"] == pytest.approx([ms / 1000 / before for ms in (10, 40, 16, 12)], rel=1e-3)
    assert run["n_seen"] == 16


def test_prompts(model, kept, observe):
    words = ["estimate", model, "-c", "512", "-np", "1", "--no-gpu", "--json"]
    before = json.loads(advisor(*words).out)["speed"]["prefill_tokens_per_s"]["value"]
    text = beginning(model) + "".join(request(number, 10 * STEPS, prompt_ms=100.0) for number in range(4))
    (factor,) = observe(text)["speed"]["learned"]["prefill_factors"]
    assert factor == pytest.approx(before / 1000, rel=0.05)  # 1 ms a token; deeper prompts take a little longer
    after = json.loads(advisor(*words).out)["speed"]["prefill_tokens_per_s"]["value"]
    assert after == pytest.approx(before / factor, rel=0.01)


def test_requests_that_share_the_engine_are_not_counted(model, kept, observe):
    both = "".join(f"slot launch_slot_: id  {slot} | task {slot} | processing task\n" for slot in (0, 1))
    both += "".join(request(slot, 999.0 * STEPS, slot=slot).split("\n", 1)[1] for slot in (0, 1))
    alone = "".join(request(number, 10 * STEPS) for number in range(10, 14))
    document = observe(beginning(model) + both + alone)
    assert document["speed"]["requests"] == 4
    assert predicted(model) == pytest.approx(0.010, rel=2e-3)
    kept.unlink()
    document = observe(beginning(model) + both)
    assert document["speed"] == {"requests": 0, "learned": None}
    assert "Every request shared the engine with others, so their speed teaches nothing." in document["notes"]
    assert not kept.exists()


# ---------------------------------------------------------------- what is not


def four(model: object, ms: float = 10.0, **more: Any) -> str:
    return beginning(model, **more) + "".join(request(number, ms * STEPS) for number in range(4))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (lambda model: beginning(model) + request(0, 200), "20 tokens that were decoded alone are too few"),
        (lambda model: four(model, ms=1e6), "times the predicted time"),
        (lambda model: four(model, ms=1e-3), "times the predicted time"),
        (lambda model: four(model, threads=999), "of a machine with 999 threads"),
        (lambda model: four("/gone/away.gguf"), "teach nothing without the model; give it with --model"),
        (lambda model: four(model.name), "teach nothing without the model; give it with --model"),
    ],
)
def test_logs_that_teach_nothing(model, kept, observe, tmp_path, text, told):
    document = observe(text(model))
    assert document["speed"]["learned"] is None
    assert any(told in note for note in document["notes"]), document["notes"]
    assert json.loads(kept.read_text())["runs"] == []
    assert "remembered for" not in advisor("observe", tmp_path / "log").out


def test_a_foreign_log_with_a_model_that_is_here(model, kept, observe):
    for text in (four("/gone/away.gguf"), "".join(request(number, 200) for number in range(4))):
        document = observe(text, "--model", model)
        assert document["speed"]["learned"] is None
        assert any("may be of another machine" in note for note in document["notes"])
    assert json.loads(kept.read_text())["runs"] == []


def test_the_journal_is_this_machines(model, kept, tmp_path, monkeypatch):
    text = "".join(request(number, 10 * STEPS) for number in range(4))
    program(tmp_path, f"sys.stdout.write({text!r} if '--user' in sys.argv else '')", "journalctl")
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = advisor("observe", "--unit", "llama.service", "--model", model, "--json")
    assert answer.status == 0, answer
    assert json.loads(answer.out)["speed"]["learned"]["n_seen"] == 4


def test_a_log_without_requests(model, kept, observe):
    text = CUDA.replace("/m/Llama 3 8B.gguf", "/gone/away.gguf")
    assert observe(text)["speed"] is None


def test_a_model_that_is_broken(kept, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF no")
    (tmp_path / "log").write_text(four(tmp_path / "broken.gguf"))
    assert "broken.gguf" in assert_one_sentence(advisor("observe", tmp_path / "log"), 1)


@pytest.mark.parametrize("text", ["", "{", '{"schema": "advisor.calibration/9"}'], ids=["empty", "half", "future"])
def test_a_file_that_cannot_be_used_stays(model, kept, observe, text):
    kept.write_text(text)
    document = observe(four(model))
    assert document["speed"] == {"requests": 4, "learned": None}
    said = "newer advisor" if "/9" in text else "broken and not used"
    assert any("Nothing is remembered: " in note and said in note for note in document["notes"])
    assert kept.read_text() == text


# ---------------------------------------------------------------- on a GPU


def on_card(capsys, monkeypatch, tmp_path, text: str, name: str) -> dict[str, Any]:
    cards = machine(24)
    cards = cards._replace(devices=(cards.devices[0]._replace(name=name),), cpu=cards.cpu._replace(logical_cores=16))
    monkeypatch.setattr("advisor.app.App.host", lambda *_, **__: cards)
    (tmp_path / "log").write_text(text)
    assert main(["observe", str(tmp_path / "log"), "--json"]) in (0, 5)  # whose memory is not of this model
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize(("name", "learned"), [("NVIDIA GeForce RTX 3060", True), ("NVIDIA H200", False)])
def test_a_load_on_a_card(capsys, monkeypatch, tmp_path, name, learned):
    model = tmp_path / "llama-3-8b.gguf"
    write_empty_gguf(SHIPPED, model)
    device = "common_param:   - CUDA0 : NVIDIA GeForce RTX 3060 (12037 MiB, 11802 MiB free)\n"
    requests = "".join(request(number, 14 * STEPS, prompt_ms=200.0) for number in range(4))
    text = "build: 11434 (7e4c0a9) with GNU\n" + device + CUDA.replace("/m/Llama 3 8B.gguf", str(model)) + requests
    speed = on_card(capsys, monkeypatch, tmp_path, text, name)["speed"]
    if learned:
        assert speed["learned"]["device"] == "cuda NVIDIA GeForce RTX 3060"
        assert speed["learned"]["build"] == 11434
        # by hand: 4,616 MB of weights at 360 GB/s are 12.8 ms and more
        assert 0.5 < speed["learned"]["decode_factors"][0] < 1.2
    else:
        assert speed["learned"] is None


def test_requests_alone_do_not_say_what_was_on_the_card(capsys, monkeypatch, tmp_path, model):
    document = on_card(capsys, monkeypatch, tmp_path, four(model, threads=16), "card 0")
    assert document["speed"]["learned"] is None
    assert any("does not say what was on the GPU" in note for note in document["notes"])
