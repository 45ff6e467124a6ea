"""Telling engines to reload, against stand-ins that answer as the engines' documentation says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from advisor.engines.http import Address, ask, parse_address
from advisor.engines.reload import create_ollama, delete_ollama, reload_llama_server, reload_localai
from advisor.errors import EngineError
from tests.tools.stand_in import Handler, StandIn, stand_in


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture
def address(server: StandIn) -> Address:
    return parse_address(server.url)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1", "127.0.0.1:8080", "http://", "http://user:secret@127.0.0.1:1", "http://127.0.0.1:99999",
        "http://192.168.1.2:8080", "http://models.example:8080", "http://127.0.0.1/?x=1", "file:///etc/passwd", "",
    ],
)  # fmt: skip
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(EngineError) as caught:
        parse_address(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost:8080/v1/", "http://[::1]:8080"])
def test_this_machine_is_always_allowed(url: str) -> None:
    assert parse_address(url).port == 8080


def test_another_machine_only_where_it_is_meant() -> None:
    assert parse_address("https://models.example", allow_remote=True) == Address("models.example", 443, True, "")


LISTED = {
    "data": [
        {"id": "a", "status": {"value": "unloaded", "args": ["llama-server", "--ctx-size", "4096", "--kv-unified"]}},
        {"id": "b", "status": {"value": "loaded"}},
    ]
}


def test_a_router_reloads_and_is_read_back(server: StandIn, address: Address) -> None:
    server.answers["GET", "/models?reload=1"] = (200, LISTED)
    done = reload_llama_server(address, {"a": {"ctx-size": "4096", "kv-unified": "true"}, "b": {"ctx-size": "1"}})
    assert done.differs == ()
    assert "2 models" in done.text
    done = reload_llama_server(address, {"a": {"ctx-size": "8192"}, "c": {}})
    assert [text.split(" ")[0] for text in done.differs] == ["a:", "c"]


def test_a_refused_preset_says_so(server: StandIn, address: Address) -> None:
    server.answers["GET", "/models?reload=1"] = (500, {"error": {"message": "unknown key 'x'"}})
    with pytest.raises(EngineError, match=r"unknown key 'x'.*advisor undo"):
        reload_llama_server(address, {})


def test_localai(server: StandIn, address: Address) -> None:
    server.answers["POST", "/models/reload"] = (200, {})
    assert "read its model files again" in reload_localai(address).text
    server.answers["POST", "/models/reload"] = (401, {"error": {"message": "admin only"}})
    with pytest.raises(EngineError, match="admin only"):
        reload_localai(address)


def test_an_ollama_tag_is_made_read_back_and_removed(server: StandIn, address: Address) -> None:
    server.answers["POST", "/api/create"] = (200, {"status": "success"})
    server.answers["POST", "/api/show"] = (200, {"parameters": 'num_ctx                        32768\nstop "x"'})
    server.answers["DELETE", "/api/delete"] = (200, b"")
    done = create_ollama(address, "q-advisor", "q", {"num_ctx": 32768})
    assert done.differs == ()
    assert server.asked[0][2] == {"model": "q-advisor", "from": "q", "parameters": {"num_ctx": 32768}, "stream": False}
    assert create_ollama(address, "q-advisor", "q", {"num_ctx": 1, "num_gpu": 2}).differs == (
        "q-advisor: num_ctx is 32768 instead of 1",
        "q-advisor: num_gpu is not set instead of 2",
    )
    delete_ollama(address, "q-advisor")
    assert server.asked[-1] == ("DELETE", "/api/delete", {"model": "q-advisor"})


def flood(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b" " * (1 << 20))


def drip(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        time.sleep(0.1)


def cut(handler: Handler) -> None:
    handler.wfile.write(b"nonsense\r\n\r\n")


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [(302, {}, "elsewhere"), (200, flood, "4 MiB"), (200, drip, "did not answer"), (200, cut, "cannot be asked")],
)
def test_answers_that_cannot_be_used(server: StandIn, address: Address, status: int, content: Any, words: str) -> None:
    server.answers["GET", "/models"] = (status, content)
    started = time.monotonic()
    with pytest.raises(EngineError, match=words):
        ask(address, "GET", "/models", seconds=0.5)
    assert time.monotonic() - started < 3


def test_nobody_there() -> None:
    with pytest.raises(EngineError, match="nothing listens"):
        ask(parse_address("http://127.0.0.1:9"), "GET", "/")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"[" * 100_000, {"data": 3}, {"data": [3, {"id": 4}]}])
def test_bodies_of_other_shapes_are_no_models(server: StandIn, address: Address, body: Any) -> None:
    server.answers["GET", "/models?reload=1"] = (200, body)
    assert "lists 0 models" in reload_llama_server(address, {}).text
