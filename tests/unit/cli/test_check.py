"""`advisor check`, made for ExecStartPre=: one line and an exit status, for what is free at this moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.app import App
from advisor.cli.main import main
from tests.tools.machines import GIB, machine
from tests.tools.tiny_models import tiny_model, write

CARD = ["--gpu", "cuda:8GiB", "--ram", "16GiB"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write(tmp_path / "m.gguf", tiny_model("A model", n_ctx_train=1 << 20)))


def test_it_fits(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model, "-c", "4096", *CARD]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("A model fits: CUDA0 ")
    assert (out.count("\n"), err) == (1, "")


def test_it_does_not_fit(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model, "-c", "1000000000", "-ngl", "99", *CARD]) == 4
    out, err = capsys.readouterr()
    assert "A model does not fit now: " in out
    assert "on CUDA0 too much" in out or "on CUDA0 and" in out
    assert (out.count("\n"), err) == (1, "")


def test_the_command_of_a_unit(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    pasted = [
        "/usr/bin/llama-server",
        "-m",
        model,
        "--ctx-size",
        "4096",
        "-ngl",
        "3",
        "--host",
        "0.0.0.0",
        "--port",
        "1",
    ]
    assert main(["check", *CARD, "--", *pasted]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("A model fits")
    assert err == "advisor: Not used for these figures: --host 0.0.0.0, --port 1\n"
    assert main(["check", *CARD, "--json", "--", *pasted]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["ignored"], err) == (["--host 0.0.0.0", "--port 1"], "")


def test_what_others_hold_counts(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Elsewhere advisor plans for the machine at rest; a service that starts now needs what is free now."""
    full = machine(8)
    taken = full.devices[0]._replace(free_bytes=GIB // 4)
    monkeypatch.setattr(App, "host", lambda *_, **__: full._replace(devices=(taken,)))
    assert main(["check", model, "-c", "4096", "-ngl", "99"]) == 4
    monkeypatch.setattr(App, "host", lambda *_, **__: full)
    assert main(["check", model, "-c", "4096", "-ngl", "99"]) == 0
    capsys.readouterr()
    held = full.devices[0]._replace(free_bytes=GIB // 4, used_by_engines_bytes=7 * GIB)  # by an engine that runs
    monkeypatch.setattr(App, "host", lambda *_, **__: full._replace(devices=(held,)))
    assert main(["check", model, "-c", "4096", "-ngl", "99"]) == 4


def test_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model, "-c", "1000000000", "-ngl", "99", *CARD, "--json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["model"], answer["fits"]) == ("advisor.check/1", model, False)
    assert {short["device"] for short in answer["short"]} >= {"CUDA0"}
    assert all(short["over_bytes"] > 0 for short in answer["short"])
    places = {place["id"]: place for place in answer["devices"]}
    assert places.keys() == {"CUDA0", "host"}
    card = places["CUDA0"]
    assert card["free_bytes"] == 8 * GIB
    assert card["over_bytes"] == card["planned_bytes"] - card["free_bytes"] + card["margin_bytes"] > 0
    assert main(["check", model, "-c", "4096", *CARD, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["short"] == []
    assert [place["over_bytes"] for place in answer["devices"]] == [0, 0]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 2), (("/no/such.gguf",), 1), (("MODEL", "-c", "many"), 2), (("MODEL", "-ctk", "q9_9"), 2),
        (("--", "llama-server", "-c", "4096"), 2), (("MODEL", "-ctk", "f16", "-ctv", "q8_0", "-fa", "off"), 2),
    ],
)  # fmt: skip
def test_wrong_words(words: tuple[str, ...], status: int, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *(model if word == "MODEL" else word for word in words), *CARD[:0]]) == status
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "bug" not in err


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            (),
            [
                "Environment=OLLAMA_FLASH_ATTENTION=1",
                "Environment=OLLAMA_KV_CACHE_TYPE=q8_0",
                "Environment=OLLAMA_NUM_PARALLEL=1",
            ],
        ),
        (
            ("--cache-type", "f16", "--parallel", "4", "--cache-ram", "2048"),
            ["Environment=OLLAMA_NUM_PARALLEL=4", "Environment=LLAMA_ARG_CACHE_RAM=2048"],
        ),
    ],
)
def test_ollamas_drop_in(words: tuple[str, ...], lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["service", "ollama", *words]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == ["[Service]", *lines]
    assert "sudo systemctl restart ollama" in err
    assert "/etc/systemd/system/ollama.service.d/" in err


@pytest.mark.parametrize("words", [("--cache-type", "q9"), ("--parallel", "0"), ("--cache-ram", "-1"), ("extra",)])
def test_ollamas_drop_in_with_wrong_words(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["service", "ollama", *words]) in (1, 2)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
