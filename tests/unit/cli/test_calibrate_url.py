"""`advisor calibrate --url`: a server that runs is asked twice, held against the prediction, and remembered."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from advisor.app import App
from advisor.calibrated import machine_of
from advisor.calibration import Calibration
from advisor.calibration_file import save_calibration
from advisor.cli.main import main
from tests.tools.engines import free_port
from tests.tools.fake_server import fake_server
from tests.tools.machines import machine
from tests.unit.cli.test_bad_input import advisor, assert_one_sentence
from tests.unit.cli.test_calibrate import real_model

METRICS = """llamacpp:prompt_tokens_total 1500
llamacpp:prompt_seconds_total 3
llamacpp:tokens_predicted_total 4000
llamacpp:tokens_predicted_seconds_total {seconds}
llamacpp:n_tokens_max {deepest}
llamacpp:n_busy_slots_per_decode {busy}
"""
ESTIMATE = ["-c", "512", "-np", "1", "--no-gpu", "--json"]


@pytest.fixture
def kept() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "advisor" / "calibration.json"


@pytest.fixture
def model(tmp_path) -> Path:
    return real_model(tmp_path / "models" / "m.gguf")


@pytest.fixture
def serve(tmp_path, model, kept) -> Iterator[Callable[..., str]]:
    """Starts a fake server and returns its address. Memory is said to be as fast as the server's tokens are."""
    remember_memory(kept.parent, 20 * 10**9)
    with contextlib.ExitStack() as stack:

        def start(*words: str, patch: tuple[str, str] | None = None, n_ctx: int = 4096, **options: Any) -> str:
            engine = fake_server(tmp_path, tmp_path / "starts", **options)
            if patch is not None:
                assert patch[0] in engine.read_text()
                engine.write_text(engine.read_text().replace(*patch))
            port = free_port()
            command = [str(engine), "-m", str(model), "-c", str(n_ctx), "--port", str(port), *words]
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.DEVNULL))
            stack.callback(process.kill)
            deadline = time.monotonic() + 20
            while True:
                with contextlib.suppress(OSError), contextlib.closing(connection(port)) as there:
                    there.request("GET", "/health")
                    if there.getresponse().status == 200:
                        return f"http://127.0.0.1:{port}"
                assert time.monotonic() < deadline
                time.sleep(0.02)

        yield start


def remember_memory(folder: Path, bytes_per_s: int) -> None:
    """A calibration of this machine that knows its memory alone."""
    calibration = Calibration(machine_of(App(None).host()), "2026-11-30", ram_bytes_per_s=bytes_per_s)
    assert save_calibration(str(folder), calibration) is None


def connection(port: int) -> Any:
    import http.client

    return http.client.HTTPConnection("127.0.0.1", port, timeout=5)


def learn(url: str, *words: object) -> dict[str, Any]:
    answer = advisor("calibrate", "--url", url, *words, "--json")
    assert (answer.status, answer.err) == (0, ""), answer
    document = json.loads(answer.out)
    assert document["schema"] == "advisor.calibrate/1"
    return document


def decode(model: Path) -> float:
    return float(json.loads(advisor("estimate", model, *ESTIMATE).out)["speed"]["decode_tokens_per_s"]["value"])


def test_an_idle_server_teaches(serve, model, kept):
    url = serve(slower=2.0)
    before = decode(model)
    document = learn(url)
    assert set(document) == {"schema", "url", "model", "build", "device", "figures", "learned", "notes"}
    assert (document["url"], document["build"], document["device"]) == (url, 11434, "cpu")
    assert document["model"]["path"] == str(model)
    empty, deep = document["figures"]
    pace = 10e9 / model.stat().st_size
    assert [empty["measured_tokens_per_s"], deep["measured_tokens_per_s"]] == pytest.approx(
        [pace / 1.002, pace / 2], rel=1e-3
    )
    # by hand: the middle of both, predicted over measured
    factor = median(figure["before_tokens_per_s"] / figure["measured_tokens_per_s"] for figure in (empty, deep))
    (run,) = json.loads(kept.read_text())["runs"]
    assert run == document["learned"]
    assert run["decode_factors"] == [pytest.approx(factor, rel=1e-3)]
    assert (run["device"], run["quantization"], run["build"], run["n_seen"]) == ("cpu", "Q8_0", 11434, 2)
    assert len(run["prefill_factors"]) == 1
    assert [figure["after_tokens_per_s"] for figure in document["figures"]] == pytest.approx(
        [figure["before_tokens_per_s"] / factor for figure in document["figures"]], rel=1e-3
    )
    assert decode(model) == pytest.approx(before / factor, rel=1e-3)
    assert document["notes"] == []
    text = advisor("calibrate", "--url", url)
    assert text.status == 0
    for word in (f"{url} on cpu", "m Q8_0, tokens/s", "answering after 12 tokens", "Remembered for models of this"):
        assert word in text.out
    (run,) = json.loads(kept.read_text())["runs"]
    assert (len(run["decode_factors"]), run["n_seen"]) == (2, 4)
    assert "m Q8_0 on cpu b11434" in advisor("hardware").out


def test_a_short_context_is_asked_once(serve, model):
    document = learn(serve(n_ctx=512))
    assert [figure["tokens"] for figure in document["figures"]] == [12]


def test_a_busy_server_is_left_alone(serve, kept):
    before = kept.read_text()
    line = assert_one_sentence(advisor("calibrate", "--url", serve(busy=True)), 1)
    assert "is answering somebody else" in line
    assert kept.read_text() == before


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        (('"timings"', '"other"'), "gives no timing"),
        (('"predicted_n": n,', '"draft_n": 3, "predicted_n": n,'), "it drafts several tokens a step; start it"),
        (('"predicted_ms": ', '"predicted_ms": 1e-300 * '), "gives no timing"),
        (('200, {"content"', '503, {"error": {"message": "no slot"}, "content"'), "no slot"),
        (('"model_path": path', '"model_path": "/gone/away.gguf"'), "give its file as MODEL"),
        (('"model_path": path', '"model_path": ["x"]'), "give its file as MODEL"),
        (('"total_slots": 1', '"total_slots": 0'), "does not answer like a llama-server"),
        (('"total_slots": 1', '"total_slots": True'), "does not answer like a llama-server"),
        (('"n_ctx": int(value("-c", "4096"))', '"n_ctx": 0'), "does not answer like a llama-server"),
        (('"n_ctx": int(value("-c", "4096"))', '"n_ctx": 10 ** 30'), "does not answer like a llama-server"),
        (('"n_ctx": int(value("-c", "4096"))', '"n_ctx": "4096"'), "does not answer like a llama-server"),
    ],
)  # fmt: skip
def test_a_server_that_tells_nothing(serve, kept, patch, told):
    before = kept.read_text()
    assert told in assert_one_sentence(advisor("calibrate", "--url", serve(patch=patch)), 1)
    assert kept.read_text() == before


def test_a_model_that_is_given(serve, model, tmp_path):
    url = serve(patch=('"model_path": path', '"model_path": "/gone/away.gguf"'))
    assert learn(url, model)["learned"]["model"] == "m"
    assert "does not exist" in assert_one_sentence(advisor("calibrate", "--url", url, tmp_path / "none.gguf"), 1)


def test_a_server_of_another_pace_than_any_processor(serve, kept):
    document = learn(serve(slower=1000.0))
    assert document["learned"] is None
    assert any("times the predicted time" in note for note in document["notes"])
    assert json.loads(kept.read_text())["runs"] == []
    (first, *_) = document["figures"]
    assert first["after_tokens_per_s"] == first["before_tokens_per_s"]


@pytest.mark.parametrize(
    ("figures", "told", "learned"),
    [
        ({"seconds": 20}, "/metrics: 4,000 tokens at 200.0 tokens/s", 3),
        ({"seconds": 20, "busy": 1.5}, "of several slots at once; not learned from", 2),
        ({"seconds": 20, "deepest": 100_000}, "at up to 100,000 tokens of context; not learned from", 2),
        ({"seconds": 20, "deepest": 0}, "at depths that are not told; not learned from", 2),
        ({"seconds": 0}, "too few tokens", 2),
    ],
)
def test_metrics(serve, figures, told, learned):
    metrics = METRICS.format(**{"seconds": 20, "deepest": 100, "busy": 1, **figures})
    document = learn(serve(metrics=metrics))
    (note,) = document["notes"]
    assert told in note
    assert document["learned"]["n_seen"] == learned


def test_a_file_that_is_another_machines_stays(serve, kept):
    url = serve()
    document = json.loads(kept.read_text())
    document["machine"]["cpu"] = "Another 9000"
    kept.write_text(json.dumps(document))
    before = kept.read_text()
    answer = learn(url)
    assert answer["learned"] is None
    assert any("other hardware" in note for note in answer["notes"])
    assert kept.read_text() == before
    assert "Remembered" not in advisor("calibrate", "--url", url).out


# ---------------------------------------------------------------- what is no such server


@contextlib.contextmanager
def answering(routes: Mapping[str, Any]) -> Iterator[str]:
    """A program that answers every path of `routes` with its value, and all others with a page."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            body = json.dumps(routes[self.path]).encode() if self.path in routes else b"<html>hello</html>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# what llama-server answers to /props in router mode
ROUTER = {"role": "router", "max_instances": 4, "model_path": "none", "default_generation_settings": {
    "params": None, "n_ctx": 0}}  # fmt: skip


@pytest.mark.parametrize("routes", [{}, {"/props": ROUTER}, {"/props": {**ROUTER, "total_slots": 1}}, {"/props": []},
                                    {"/props": {"default_generation_settings": 1}}])  # fmt: skip
def test_another_program(routes):
    with answering(routes) as url:
        line = assert_one_sentence(advisor("calibrate", "--url", url), 1)
    assert "does not answer like a llama-server with a model" in line
    assert "router" in line


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:1", "127.0.0.1:1"), ("ftp://127.0.0.1", "no address"), ("hello", "no address"),
        ("http://127.0.0.1:99999", "no address"), ("http://192.0.2.7:8080", "192.0.2.7 is another machine"),
        ("http://user:secret@127.0.0.1", "without user"), ("", "no address"),
    ],
)  # fmt: skip
def test_addresses(url, told):
    line = assert_one_sentence(advisor("calibrate", "--url", url), 1)
    assert told in line
    assert "allow_remote" not in line
    assert "secret" not in line


# ---------------------------------------------------------------- a machine with GPUs


@pytest.mark.parametrize(
    ("flags", "device", "told"),
    [
        (["-ngl", "99", "--device", "CUDA0"], "cuda card 0", ""),
        (["--device", "CUDA1"], "cuda card 1", "all of them are taken to be there"),
        (["-ngl", "99"], None, "in more than one place"),  # shared out by layers
        (["--device", "none"], "cpu", ""),
        (["-ngl", "0"], "cpu", ""),
        (["-ngl", "99", "--device", "Vulkan0"], None, "What runs on the GPU is not known"),
        (["-ngl", "1", "--device", "CUDA0"], None, "in more than one place"),
        (None, None, "What runs on the GPU is not known"),
    ],
)
def test_where_the_server_runs_its_model(serve, model, kept, monkeypatch, capsys, flags, device, told):
    url = serve(slower=0.2)  # between what a processor and a card are taken for
    cards = machine(24, 24)
    cards = cards._replace(devices=(cards.devices[0], cards.devices[1]._replace(id="CUDA1", name="card 1")))
    kept.unlink()
    monkeypatch.setattr("advisor.app.App.host", lambda *_, **__: cards)
    words = None if flags is None else ["llama-server", "-m", str(model), *flags]
    monkeypatch.setattr("advisor.hardware.engine_processes.command_line_at", lambda *_: words)
    assert main(["calibrate", "--url", url, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert told in " ".join(document["notes"])
    if device is None:
        assert document["learned"] is None
        assert not kept.exists()
    else:
        assert document["learned"]["device"] == document["device"] == device
        (run,) = json.loads(kept.read_text())["runs"]
        assert run == document["learned"]
        # with a GPU that it may use, prompts are not read on the CPU
        assert bool(run["prefill_factors"]) == (flags != ["-ngl", "0"])
