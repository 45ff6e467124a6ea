"""Lies of engines: in logs, on standard output, over HTTP."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from advisor.engines.dry_run import ask_engine
from advisor.engines.find import EngineBinary
from advisor.engines.help_text import help_text
from advisor.engines.http import MAX_VALUES, TIME_LIMIT_S, Address, ask, parse_address
from advisor.engines.reload import create_ollama, delete_ollama, reload_llama_server, reload_localai
from advisor.hardware.engine_list import probe_engine_list
from advisor.settings import RequestedSettings
from tests.hostile.lies import MARK, READ, Case, Group, Lie, Made

SECONDS = 0.4
ASKED = RequestedSettings(n_ctx=512)


def _program(folder: Path, name: str, body: str) -> EngineBinary:
    (folder / name).mkdir()
    path = folder / name / "llama-server"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return EngineBinary(str(path), "server", "given")


def programs(folder: Path) -> Made:
    """Programs that are asked for their memory, their options or their devices."""

    def table(row: str) -> str:
        return f"echo 'x memory breakdown [MiB] |'; echo '{row}'; echo end"

    for number, (label, body, answer) in enumerate((
        ("says nothing", ":", "EngineError"), ("never ends", "sleep 30", "EngineError"), ("prints without end", "yes x", "EngineError"),
        ("prints one line without end", "yes x | tr -d '\\n'", "EngineError"), ("zeros", "cat /dev/zero", "EngineError"),
        ("dies", "kill -9 $$", "EngineError"), ("closes its output", "exec >&- 2>&-; sleep 30", "EngineError"),
        ("leaves a child", "sleep 30 & exit 0", "EngineError"), ("ignores signals", "trap '' TERM INT HUP; sleep 30", "EngineError"),
        ("bytes", "head -c 100000 /dev/urandom", "EngineError"),
        ("a table of digits that are none", table("|   - CUDA0 (x) | ² = ² + (1 = ² + ² + ²) + ² |"), "EngineError"),
        ("a table of huge figures", table(f"|   - CUDA0 (x) | 1 = 1 + (1 = {'9' * 40} + 1 + 1) + 1 |"), "EngineError"),
        ("a table without device", table("|   - (x) | 1 = 1 |"), "EngineError"),
    )):  # fmt: skip
        binary = _program(folder, str(number), body)
        environ = dict(os.environ)
        yield Case(label, lambda b=binary, e=environ: ask_engine((b,), "/m.gguf", ASKED, e, seconds=SECONDS), answer)
    script = _program(
        folder,
        "list",
        f"echo 'Available devices:'; echo '  CUDA0: x (² MiB, ² MiB free)'; echo '  {MARK}: y (1 MiB, 9 MiB free)'",
    )
    yield Case(
        "a list of devices that are none",
        lambda: probe_engine_list(environ=os.environ, program=script.path)[1].status,
        "ok",
    )
    slow = _program(folder, "slow", "exec sleep 30")
    yield Case(
        "a list that is slow",
        lambda: probe_engine_list(environ=os.environ, program=slow.path, time_limit_s=SECONDS)[1].status,
        "failed",
    )
    helpless = _program(folder, "help", "echo no options; exit 0")
    yield Case("a help without options", lambda: help_text(helpless.path, os.environ), "EngineError")
    text = folder / "text"
    text.write_text("no program")
    text.chmod(0o755)
    yield Case(
        "no program at all",
        lambda: ask_engine((EngineBinary(str(text), "server", "given"),), "/m", RequestedSettings(), {}),
        "EngineError",
    )


@contextmanager
def _server(serve: Callable[[socket.socket], object]) -> Iterator[Address]:
    """One connection, served as `serve` does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def work() -> None:
            try:
                connected, _ = listening.accept()
                with connected:
                    connected.settimeout(5)
                    connected.recv(65536)
                    serve(connected)
            except OSError:  # the client has had enough
                return

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listening.getsockname()[1], False, "")
        thread.join(5)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def _dripping(pieces: bytes) -> Callable[[socket.socket], object]:
    def serve(connected: socket.socket) -> None:
        for at in itertools.count():
            connected.sendall(pieces[at % len(pieces) : at % len(pieces) + 1])
            threading.Event().wait(0.05)

    return serve


def _endless(piece: bytes, start: bytes = b"") -> Callable[[socket.socket], object]:
    def serve(connected: socket.socket) -> None:
        connected.sendall(start)
        while True:
            connected.sendall(piece)

    return serve


def values(sent: Callable[[str, bytes, str], Case]) -> Made:
    """Answers of 4 MiB that take twenty times as much when they are read."""
    emoji = "\U0001f600"
    for label, piece, most in (
        ("lists", "[],", 1_300_000), ("texts", '"\u0100",', 830_000), ("texts of emoji", f'"{emoji}",', 590_000),
        ("numbers", "1e5,", 1_000_000), ("objects", "{},", 1_300_000),
    ):  # fmt: skip
        for count, answer in ((most, "EngineError"), (MAX_VALUES // 2 - 1, READ)):
            yield sent(f"{count:,} {label}", HEAD + b"\r\n[" + piece.encode() * count + b"1]", answer)
    for label, key, most in (
        ("keys", "", 420_000),
        ("keys of two bytes", "\u0100", 350_000),
        ("keys of emoji", emoji, 300_000),
    ):
        for count, answer in ((most, "EngineError"), (MAX_VALUES - 10, READ)):
            data = bytearray(HEAD + b'\r\n{"":1')
            for number in range(count):
                data += f',"{key}{number:x}":1'.encode()
            yield sent(f"{count:,} {label}", bytes(data + b"}"), answer)
    filler = "a" * (2 << 20)
    yield sent("a long text of emoji", f'{HEAD.decode()}\r\n["{emoji}{filler}{filler[:-99]}"]'.encode(), READ)


def http(_: Path) -> Made:
    """Servers that answer as no engine does."""

    def asked(label: str, serve: Callable[[socket.socket], object], answer: str, seconds: float = SECONDS) -> Case:
        def call() -> Any:
            with _server(serve) as address:
                return ask(address, "GET", "/models", seconds=seconds) and None

        return Case(label, call, answer)

    def sent(label: str, data: bytes, answer: str) -> Case:
        return asked(label, lambda connected: connected.sendall(data), answer)

    yield asked("says nothing", lambda _: threading.Event().wait(2 * SECONDS), "EngineError")
    yield asked("drips its status", _dripping(b"HTTP/1.1 200 OK" + b" " * 999), "EngineError")
    yield asked("drips headers", _dripping(HEAD + b"X: y\r\n" * 50), "EngineError")
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for label, piece, start in (
        ("continues for ever", b"HTTP/1.1 100 Continue\r\n\r\n", b""), ("headers without end", b"X-Y: z\r\n", HEAD),
        ("continues with headers", b"HTTP/1.1 100 Continue\r\n" + b"X: y\r\n" * 99 + b"\r\n", b""),
        ("a header without end", b"x" * 4096, HEAD + b"X: "), ("a body without end", b" " * 65536, HEAD + b"\r\n"),
        ("chunks without end", b"1\r\n \r\n", chunked), ("trailers without end", b"X: y\r\n", chunked + b"0\r\n"),
        ("long headers", b"X: " + b"y" * 60_000 + b"\r\n", HEAD), ("chunks with long sizes", b"1;" + b"x" * 60_000 + b"\r\n \r\n", chunked),
    ):  # fmt: skip
        yield asked(label, _endless(piece * (1 + 65536 // len(piece)), start), "EngineError", TIME_LIMIT_S)
    yield asked("drips its body", _dripping(HEAD + b"\r\n" + b" " * 99_999), "EngineError")
    for status in (301, 302, 303, 307, 308, 399):
        moved = f"HTTP/1.1 {status} Moved\r\nLocation: http://example.com/{MARK}\r\nContent-Length: 0\r\n\r\n"
        yield sent(f"redirects with {status}", moved.encode(), "EngineError")
    for label, data in (
        ("no HTTP", b"SSH-2.0-x\r\n\r\n"), ("nothing", b""), ("status -1", b"HTTP/1.1 -1 X\r\n\r\n"), ("status of digits", b"HTTP/1.1 99999999999 X\r\n\r\n"),
        ("bytes", bytes(range(256)) * 9), ("length too long", HEAD + b"Content-Length: 99\r\n\r\n[]"), ("chunk of no number", HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
        ("a chunk of 2^64", HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"),
    ):  # fmt: skip
        yield sent(label, data, "EngineError")
    for label, body in (
        ("no JSON", b"{"), ("NaN", b"NaN"), ("deep", b"[" * 100_000), ("digits", b"9" * 100_000), ("broken UTF-8", b'"\xff"'), ("negative length", b"[]"),
    ):  # fmt: skip
        length = -1 if label == "negative length" else len(body)
        yield sent(label, HEAD + f"Content-Length: {length}\r\n\r\n".encode() + body, READ)
    yield from values(sent)
    for body in (
        b"[]",
        b"null",
        b"5",
        b'{"data": 5}',
        b'{"data": [5, {"id": 5}, {"id": "a", "status": {"args": 5}}]}',
        b'{"error": {"message": []}}',
        b'{"parameters": 7}',
    ):
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        for name, told in (
            ("router", lambda a: reload_llama_server(a, {"a": {"ctx-size": "1"}})), ("LocalAI", reload_localai),
            ("Ollama removes", lambda a: delete_ollama(a, "t")),
        ):  # fmt: skip

            def call(told: Callable[[Address], object] = told, answer: bytes = answer) -> Any:
                with _server(lambda connected: connected.sendall(answer)) as address:
                    return told(address) and None

            yield Case(f"{name} is told {body[:20]!r}", call, READ)
    yield Case(
        "Ollama is not there", lambda: create_ollama(Address("127.0.0.1", 1, False, ""), "t", "b", {}), "EngineError"
    )
    for url in ("http://example.com", "http://127.0.0.1.evil.example", "http://localhost@evil.example", "http://[::ffff:8.8.8.8]", "file:///etc/passwd",
                "http://0.0.0.0", "http://2130706433", "gopher://127.0.0.1", "http://127.0.0.1:99999", "http://user:pw@127.0.0.1", "http://127.0.0.1/?a=b", "http://[", "http://"):  # fmt: skip
        yield Case(f"address {url}", lambda u=url: parse_address(u), "EngineError")


STDOUT = Group(
    "engine output", (Lie("programs", "an engine that hangs, floods, or leaves a child behind", programs),), ("run",)
)
HTTP = Group(
    "engine HTTP", (Lie("servers", "a range server that is slow for ever (huggingface.js#2028)", http),), ("connect",)
)
