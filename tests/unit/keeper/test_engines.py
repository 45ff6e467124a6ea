"""Engines after their config changed. The engines are stand-ins written by hand after their documentation."""

from __future__ import annotations

import json
import os
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest

from advisor.watch.worker import START
from tests.tools.stand_in import Handler, StandIn
from tests.tools.stores import LIBRARY, pull
from tests.tools.tiny_models import tiny_model
from tests.unit.keeper.conftest import ROUTER, World, go, worker

HELP = Path(__file__).resolve().parents[2] / "data/llama_server_help/b10434.txt"
OLLAMA = 'format = "ollama"\npath = "~/modelfiles"'
RELOAD = ("GET", "/models?reload=1")


def program(path: Path, text: str) -> Path:
    """A llama-server that only knows --help."""
    (path.with_suffix(".help")).write_text(text)
    path.write_text(f'#!/bin/sh\n# {len(text)}\ncat "{path.with_suffix(".help")}"\n')
    path.chmod(0o755)
    return path


def engine(name: str, **keys: str) -> str:
    return "\n".join([f'[engine."{name}"]', *(f'{key} = "{value}"' for key, value in keys.items())])


# ---------------------------------------------------------------- the user's own binary


def test_keys_follow_the_help_of_the_binary(world: World) -> None:
    world.add("m.gguf")
    text = HELP.read_text()
    binary = program(world.home / "llama-server", text)
    world.configure(ROUTER, more=engine("llama.cpp", binary=str(binary)))
    daemon = worker()
    assert go(daemon).failures == ()
    assert daemon.watched().engines == (str(binary),)
    assert world.sections()["m"]["fit"] == "off"
    older = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("-fit", "--fit")))
    assert older != text
    program(binary, older)
    summary = go(daemon, "engine")
    assert "fit" not in world.sections()["m"]
    assert any("m.fit = off taken out" in change.text for change in summary.changes)
    without = "\n".join(line for line in older.splitlines() if "--ubatch-size" not in line)
    program(binary, without)
    (note,) = go(daemon, "engine").notes
    assert "m: your llama-server has no --ubatch-size" in note
    assert world.sections() == {}


@pytest.mark.parametrize("kind", ["absent", "folder", "other", "failing", "not executable"])
def test_a_binary_that_cannot_be_asked(world: World, kind: str) -> None:
    world.add("m.gguf")
    binary = world.home / "llama-server"
    if kind == "folder":
        binary.mkdir()
    elif kind != "absent":
        program(binary, "usage: other")
        if kind == "failing":
            binary.write_text("#!/bin/sh\nexit 3\n")
        if kind == "not executable":
            binary.chmod(0o644)
    world.configure(ROUTER, 'format = "koboldcpp"\npath = "~/kobold"', more=engine("llama.cpp", binary=str(binary)))
    status, _, err = world.run("apply")
    assert status == 1
    assert err.count(str(binary)) == 1
    assert err.startswith("advisor: t0: ")
    assert not world.preset.exists()
    assert os.listdir(world.home / "kobold") == ["m.kcpps"]


# ---------------------------------------------------------------- llama-server's router


def listed(world: World) -> dict[str, object]:
    """What a router says after it read the preset."""
    return {
        "data": [
            {
                "id": name,
                "status": {
                    "args": ["llama-server", *(word for key, value in keys.items() for word in (f"--{key}", value))]
                },
            }
            for name, keys in world.sections().items()
        ]
    }


def answer(handler: Handler, body: object) -> None:
    """An answer that is made when it is asked for."""
    data = json.dumps(body).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def test_the_router_is_told_once(world: World, server: StandIn) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, more=engine("llama.cpp", url=server.url))
    server.answers[RELOAD] = (200, lambda handler: answer(handler, listed(world)))
    said = world.apply()
    assert "lists 1 model." in said
    assert "not in force" not in said
    world.apply()
    assert [asked[:2] for asked in server.asked] == [RELOAD]
    world.add("m.gguf", tiny_model(n_ctx_train=8192))
    world.apply()
    assert len(server.asked) == 2


def test_a_value_that_the_user_changed_is_no_difference(world: World, server: StandIn) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, more=engine("llama.cpp", url=server.url))
    server.answers[RELOAD] = (200, lambda handler: answer(handler, listed(world)))
    world.apply()
    world.preset.write_text(world.preset.read_text().replace("ctx-size = 4096", "ctx-size = 512"))
    world.add("n.gguf", tiny_model("n"))
    assert "not in force" not in world.apply()


def test_a_router_with_another_command_line_is_noticed(world: World, server: StandIn) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, more=engine("llama.cpp", url=server.url))
    server.answers[RELOAD] = (200, {"data": [{"id": "m", "status": {"args": ["llama-server", "--ctx-size", "1"]}}]})
    assert "m: --ctx-size 4096 is not in force" in world.apply()
    world.add("n.gguf", tiny_model("n"))
    assert "n is not listed" in world.apply()


def test_a_router_that_refuses_or_does_not_answer_is_told_again(world: World, server: StandIn) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, 'format = "koboldcpp"\npath = "~/kobold"', more=engine("llama.cpp", url=server.url))
    server.answers[RELOAD] = (500, {"error": {"message": "bad key"}})
    status, out, err = world.run("apply")
    assert status == 1
    assert "wrote" in out
    assert err.count("refused the changed preset (status 500: bad key)") == 1
    assert os.listdir(world.home / "kobold") == ["m.kcpps"]
    daemon = worker()
    first, second = go(daemon), go(daemon)
    assert first.failures == second.failures != ()
    assert [change.text for change in first.changes if "refused" in change.text]
    assert second.changes == ()  # the journal has it once
    server.answers[RELOAD] = (200, lambda handler: answer(handler, listed(world)))
    assert go(daemon).failures == ()
    assert go(daemon).changes == ()
    assert world.run("apply")[0] == 0


def test_nobody_listens(world: World) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, more=engine("llama.cpp", url="http://127.0.0.1:9"))
    status, _, err = world.run("apply")
    assert (status, err.count("nothing listens at http://127.0.0.1:9")) == (1, 1)
    assert set(world.sections()) == {"m"}
    world.configure(f"{ROUTER}\nreload = false", more=engine("llama.cpp", url="http://127.0.0.1:9"))
    world.apply()


# ---------------------------------------------------------------- Ollama


@pytest.fixture
def ollama(world: World, server: StandIn) -> StandIn:
    world.configure(OLLAMA, ROUTER, more=engine("ollama", url=server.url))

    def show(handler: Handler) -> None:
        """Only what was made before is there."""
        tag = server.asked[-1][2]["model"]
        if any(path == "/api/create" and body["model"] == tag for _, path, body in server.asked):
            answer(handler, {"parameters": "num_ctx 4096\nnum_gpu 3\nnum_batch 512"})
        else:
            handler.send_error(404)

    server.answers.update({
        ("POST", "/api/create"): (200, {"status": "success"}), ("POST", "/api/show"): (200, show),
        ("DELETE", "/api/delete"): (200, b""),
    })  # fmt: skip
    return server


def made(server: StandIn) -> list[tuple[str, str, int]]:
    """Tags that were made: (tag, base, num_ctx)."""
    return [
        (body["model"], body["from"], body["parameters"]["num_ctx"])
        for _, path, body in server.asked if path == "/api/create"
    ]  # fmt: skip


def removed(server: StandIn) -> list[str]:
    return [body["model"] for method, _, body in server.asked if method == "DELETE"]


def test_a_tag_comes_is_renewed_and_goes_with_its_base(world: World, ollama: StandIn) -> None:
    store = world.home / ".ollama/models"
    world.add("not-ollamas.gguf")
    pull(store, f"{LIBRARY}/q/8b", tiny_model("q", n_ctx_train=4096))
    world.apply()
    assert made(ollama) == [("q:8b-advisor", "q:8b", 4096)]
    assert set(world.sections()) == {"q-8b", "not-ollamas"}
    pull(store, f"{LIBRARY}/q/8b-advisor", tiny_model("q", n_ctx_train=4096))  # as Ollama then has it
    world.apply()
    assert len(made(ollama)) == 1
    assert set(world.sections()) == {"q-8b", "not-ollamas"}
    pull(store, f"{LIBRARY}/q/8b", tiny_model("q", n_ctx_train=8192))  # pulled again, the tag still has the old one
    world.apply()
    assert made(ollama)[1:] == [("q:8b-advisor", "q:8b", 8192)]
    assert set(world.sections()) == {"q-8b", "not-ollamas"}
    assert removed(ollama) == []
    (store / "manifests" / LIBRARY / "q/8b").unlink()
    world.apply()
    assert removed(ollama) == ["q:8b-advisor"]
    assert os.listdir(world.home / "modelfiles") == []
    assert set(world.sections()) == {"not-ollamas"}
    world.apply()
    assert (len(made(ollama)), len(removed(ollama))) == (2, 1)


def test_a_base_with_other_weights_and_the_same_settings(world: World, ollama: StandIn) -> None:
    store = world.home / ".ollama/models"
    pull(store, f"{LIBRARY}/q/8b", tiny_model("one"))
    world.apply()
    pull(store, f"{LIBRARY}/q/8b", tiny_model("two"))
    world.apply()
    assert [tag for tag, *_ in made(ollama)] == ["q:8b-advisor"] * 2


def test_ollama_that_is_not_running_gets_its_tags_later(world: World, ollama: StandIn) -> None:
    store = world.home / ".ollama/models"
    for name in ("q", "r"):
        pull(store, f"{LIBRARY}/{name}/8b", tiny_model(name))
    ollama.answers["POST", "/api/create"] = (500, {"error": "no space left on device"})
    status, _, err = world.run("apply")
    assert (status, err.count("no space left on device")) == (1, 1)
    del ollama.asked[:]
    ollama.answers["POST", "/api/create"] = (200, {})
    world.apply()
    assert sorted(tag for tag, *_ in made(ollama)) == ["q:8b-advisor", "r:8b-advisor"]
    (store / "manifests" / LIBRARY / "q/8b").unlink()
    ollama.answers["DELETE", "/api/delete"] = (500, {"error": "busy"})
    assert world.run("apply")[0] == 1
    del ollama.asked[:]
    ollama.answers["DELETE", "/api/delete"] = (200, b"")
    world.apply()
    assert removed(ollama) == ["q:8b-advisor"]


def test_what_the_user_changed_in_a_modelfile_is_in_the_tag(world: World, ollama: StandIn) -> None:
    store = world.home / ".ollama/models"
    pull(store, f"{LIBRARY}/q/8b", tiny_model("one", n_ctx_train=4096))
    world.apply()
    modelfile = world.home / "modelfiles/q-8b.Modelfile"
    modelfile.write_text(modelfile.read_text().replace("num_ctx 4096", "num_ctx 777"))
    pull(store, f"{LIBRARY}/q/8b", tiny_model("two", n_layer=4, n_ctx_train=8192))
    world.apply()
    assert made(ollama)[-1] == ("q:8b-advisor", "q:8b", 777)
    for n_layer, wrong in ((5, "--5"), (6, "9" * 5000)):  # no numbers: Ollama is given the words
        modelfile.write_text(re.sub(r"num_ctx \S+", f"num_ctx {wrong}", modelfile.read_text()))
        pull(store, f"{LIBRARY}/q/8b", tiny_model("two", n_layer=n_layer, n_ctx_train=8192))
        assert "bug in advisor" not in world.run("apply")[2]
        assert made(ollama)[-1] == ("q:8b-advisor", "q:8b", wrong)


def test_without_an_url_a_person_is_told_what_to_do(world: World) -> None:
    pull(world.home / ".ollama/models", f"{LIBRARY}/q/8b")
    world.configure(OLLAMA)
    assert "ollama create" in world.apply()
    assert "ollama create" not in world.apply()


def test_undo_tells_ollama_and_what_is_not_heard_is_told_later(world: World, ollama: StandIn) -> None:
    pull(world.home / ".ollama/models", f"{LIBRARY}/q/8b")
    world.apply()
    ollama.answers["DELETE", "/api/delete"] = (500, {"error": "busy"})
    status, _, err = world.run("undo")
    assert status == 0
    assert "did not remove q:8b-advisor (status 500: busy)" in err
    ollama.answers["DELETE", "/api/delete"] = (200, b"")
    world.apply()
    assert removed(ollama) == ["q:8b-advisor"] * 2
    assert len(made(ollama)) == 1
    world.apply("--adopt")
    assert len(made(ollama)) == 2
    assert "no longer holds q:8b-advisor" in world.run("undo", "--all")[2]


def test_undo_tells_the_router(world: World, server: StandIn) -> None:
    world.add("m.gguf", tiny_model(n_ctx_train=4096))
    world.configure(ROUTER, more=engine("llama.cpp", url=server.url))
    server.answers[RELOAD] = (200, lambda handler: answer(handler, listed(world)))
    world.apply()
    world.add("m.gguf", tiny_model(n_ctx_train=8192))
    world.apply()
    _, _, err = world.run("undo")
    assert "read the preset again" in err
    assert "not in force" not in err
    assert len(server.asked) == 3
    (world.home / ".config/advisor/config.toml").write_text("nonsense = 1")
    status, _, err = world.run("undo")
    assert (status, "nonsense" in err) == (0, True)  # undone all the same
    assert not world.preset.exists()
    assert "everything was taken back already" in world.run("undo")[2]


def test_a_tag_is_removed_by_hand_without_an_url(world: World) -> None:
    pull(world.home / ".ollama/models", f"{LIBRARY}/q/8b")
    world.configure(OLLAMA)
    world.apply()
    assert "ollama rm q:8b-advisor" in world.run("undo")[2]


def test_localai(world: World, server: StandIn) -> None:
    world.add("m.gguf")
    world.configure('format = "localai"\npath = "~/models"', more=engine("localai", url=server.url))
    assert world.run("apply")[0] == 1
    server.answers["POST", "/models/reload"] = (200, {})
    assert "read its model files again" in world.apply()
    world.apply()
    assert len(server.asked) == 2


def test_a_tag_that_somebody_else_made_is_left_alone(world: World, server: StandIn) -> None:
    pull(world.home / ".ollama/models", f"{LIBRARY}/tiny/latest", tiny_model("tiny"))
    world.configure('format = "ollama"\npath = "~/ollama"', more=engine("ollama", url=server.url))
    server.answers["POST", "/api/show"] = (200, {"parameters": "temperature 1"})
    server.answers["POST", "/api/create"] = (200, {"status": "success"})
    server.answers["DELETE", "/api/delete"] = (200, None)
    for _ in range(2):
        assert "tiny:latest-advisor that advisor did not make" in world.run("apply")[2]
    world.run("undo", "--all")
    assert {asked[:2] for asked in server.asked} == {("POST", "/api/show")}


def test_a_hung_engine_holds_nobody_up(world: World, server: StandIn) -> None:
    world.add("m.gguf")
    world.configure(ROUTER, more=engine("llama.cpp", url=server.url))
    server.answers[RELOAD] = (200, lambda handler: time.sleep(3))
    daemon, calls = worker(), []

    def should_stop() -> bool:
        calls.append(time.monotonic())
        return bool(server.asked)

    daemon.reload()
    started = time.monotonic()
    summary = daemon.refresh(START, None, should_stop)
    assert time.monotonic() - started < 2
    assert any("was not waited for" in text for text in summary.failures)
    assert summary.again
    assert max(after - before for before, after in pairwise(calls)) < 1
