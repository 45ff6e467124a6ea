"""An engine's server started for a moment: found, asked, gone; and every way in which it does not come up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.engines import serve
from advisor.engines.find import EngineBinary
from advisor.engines.http import ask
from advisor.engines.serve import find_servers, running
from advisor.engines.trial import build_of, complete, prompt, run_trial, step_seconds, time_model, typical
from advisor.errors import EngineError
from advisor.speed.trials import Trial
from tests.tools.fake_engine import program
from tests.tools.fake_server import BYTES_PER_S, fake_server

ROOT = Path(__file__).resolve().parents[3]
TRIAL = Trial("type", "q8_0", "q8_0", 1, 256, 256, 4, 4, 64, 512)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "starts"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes(20_000_000 - 4))
    return path


def binary(path: Path) -> EngineBinary:
    return EngineBinary(str(path), "server", "given")


def starts(log: Path) -> list[tuple[int, list[str], list[str]]]:
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z"):
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_it_runs_answers_and_is_gone(tmp_path, log, model):
    environ = {**os.environ, "LLAMA_ARG_CTX_SIZE": "9"}
    with running(binary(fake_server(tmp_path, log)), str(model), 512, environ) as address:
        assert address.host == "127.0.0.1"
        assert ask(address, "GET", "/health").status == 200
        assert build_of(address) == 11434
        timing = complete(address, prompt(50), 11)
        assert (timing.prompt_tokens, timing.steps, timing.depth) == (50, 10, 55)
        assert step_seconds(timing) == pytest.approx(20e6 / BYTES_PER_S * 1.05)
    ((pid, words, settings),) = starts(log)
    assert gone(pid)
    assert settings == []
    assert words[:4] == ["-m", str(model), "-c", "512"]
    assert words[-4:] == ["-ngl", "0", "--device", "none"]


def test_layers_for_a_gpu(tmp_path, log, model):
    engine = binary(fake_server(tmp_path, log))
    with running(engine, str(model), 512, os.environ, layers=9, device="CUDA1"):
        pass
    with running(engine, str(model), 512, os.environ, layers=9):
        pass
    assert [words[words.index("-ngl") :] for _, words, _ in starts(log)] == [
        ["-ngl", "9", "--device", "CUDA1"], ["-ngl", "9"]]  # fmt: skip


def test_a_model_is_timed_empty_and_deep(tmp_path, log, model):
    with running(binary(fake_server(tmp_path, log)), str(model), 4096, os.environ) as address:
        found, longest = time_model(address, (0, 1000))
    second = 20e6 / BYTES_PER_S
    assert [at.depth for at in found] == [12, 1012]
    assert [at.seconds for at in found] == pytest.approx([second * 1.002, second * 2])
    assert longest.prompt_tokens >= 900
    assert longest.prompt_seconds == pytest.approx(longest.prompt_tokens * second / 10)


def test_a_trial_leaves_no_file(tmp_path, log):
    folder = tmp_path / "room"
    folder.mkdir()
    timed, build = run_trial(binary(fake_server(tmp_path, log)), TRIAL, str(folder), os.environ)
    assert build == 11434
    assert timed.trial == TRIAL
    assert timed.prefill_s == pytest.approx(timed.decode_s / 10, rel=0.01)
    assert timed.deep_s is None
    assert os.listdir(folder) == []
    deep, _ = run_trial(binary(fake_server(tmp_path, log)), TRIAL._replace(what="apart"), str(folder), os.environ)
    assert deep.deep_s == pytest.approx(deep.decode_s * 2 / 1.002)
    assert deep.deep_prefill_s is not None


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("sys.exit('error: no such option')", "no such option"),
        ("os.kill(os.getpid(), 4)", "instructions that this processor does not have"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("time.sleep(60)", "was not ready"),
    ],
)
def test_an_engine_that_does_not_come_up(tmp_path, log, model, monkeypatch, trouble, words):
    monkeypatch.setattr(serve, "START_LIMIT_S", 1.5)
    engine = binary(fake_server(tmp_path, log, trouble=trouble))
    with pytest.raises(EngineError, match=words), running(engine, str(model), 512, os.environ):
        pass
    assert all(gone(pid) for pid, *_ in starts(log))


def test_an_engine_that_dies_when_asked(tmp_path, log, model):
    engine = fake_server(tmp_path, log)
    engine.write_text(engine.read_text().replace("global cache", "global cache; os.kill(os.getpid(), 4)"))
    with (
        pytest.raises(EngineError, match="instructions that this processor"),
        running(binary(engine), str(model), 512, os.environ) as address,
    ):
        complete(address, prompt(2), 4)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"timings"', '"other"', "no timing"),
        (
            'self.answer(200, {"content"',
            'self.answer(500, {"error": {"message": "out of memory"}, "content"',
            "out of memory",
        ),
        ("(n - 1) * second * 1000 * depth", "0", "nothing was timed"),
        ('"predicted_n": n', '"predicted_n": 1', "nothing was timed"),
    ],
)
def test_answers_that_tell_nothing(tmp_path, log, model, old, new, words):
    engine = fake_server(tmp_path, log)
    assert old in engine.read_text()
    engine.write_text(engine.read_text().replace(old, new))
    with (
        pytest.raises(EngineError, match=words),
        running(binary(engine), str(model), 512, os.environ) as address,
    ):
        step_seconds(complete(address, prompt(2), 4))


def test_it_ends_with_advisor(tmp_path, log, model):
    """Killed without a chance to clean up, advisor leaves no engine behind."""
    engine = fake_server(tmp_path, log)
    code = (
        "import os, sys, time; from advisor.engines.find import EngineBinary\n"
        "from advisor.engines.serve import running\n"
        f"with running(EngineBinary({str(engine)!r}, 'server', 'given'), {str(model)!r}, 512, os.environ):\n"
        "    print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as advisor:
        assert advisor.stdout is not None
        assert advisor.stdout.readline() == b"up\n"
        advisor.send_signal(signal.SIGKILL)
    ((pid, *_),) = starts(log)
    assert gone(pid)


def test_a_program_that_is_none(tmp_path, model):
    path = tmp_path / "llama-server"
    path.write_bytes(b"\x7fELF nothing")
    path.chmod(0o755)
    with pytest.raises(EngineError), running(binary(path), str(model), 512, os.environ):
        pass


# ---------------------------------------------------------------- which engine


def test_engines_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    path = program(tmp_path, "pass")
    program(tmp_path, "pass", "llama-fit-params")
    environ = {"PATH": str(tmp_path)}
    assert [found.path for found in find_servers(None, environ)] == [str(path)]
    assert find_servers(str(path), {})[0].origin == "given"
    with pytest.raises(EngineError, match="no llama-server was found"):
        find_servers(None, {"PATH": str(tmp_path / "none")})
    with pytest.raises(EngineError, match="pip install xllamacpp"):
        find_servers("xllamacpp", environ)
    with pytest.raises(EngineError, match="does not exist"):
        find_servers(str(tmp_path / "none"), environ)


def test_the_package_comes_last(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "xllamacpp" else None)
    program(tmp_path, "pass")
    assert [found.kind for found in find_servers(None, {"PATH": str(tmp_path)})] == ["server", "xllamacpp"]
    assert [found.kind for found in find_servers("xllamacpp", {"PATH": str(tmp_path)})] == ["xllamacpp"]


# ---------------------------------------------------------------- what counts of several times


def test_the_typical_time_of_a_slow_engine(monkeypatch):
    """What takes long is not done fifteen times."""
    monkeypatch.setattr("advisor.engines.trial._PATIENCE_S", 0.05)
    values = iter([3.0, 9.0, 5.0, 1.0])
    assert typical(lambda: time.sleep(0.02) or next(values)) == 5.0
    slow = iter([3.0])
    assert typical(lambda: time.sleep(0.06) or next(slow)) == 3.0


def test_the_typical_time():
    quiet = iter([1.0, 1.001, 1.002, 1.003, 1.004])
    assert typical(lambda: next(quiet)) == 1.002
    busy = iter([1.0, 3.0, 1.5, 2.0, 1.2] + [2.0] * 10)
    assert typical(lambda: next(busy)) == 2.0
    settling = iter([1.0, 3.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.01, 1.01])
    assert typical(lambda: next(settling)) == 1.01
    outlier = iter([9.0, 1.0, 1.0, 1.0, 1.0])
    assert typical(lambda: next(outlier)) == 1.0
