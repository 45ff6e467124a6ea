"""Speaking to an engine's HTTP interface: only where the user said it is, bounded in time and size, no redirects."""

import contextlib
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from advisor.errors import EngineError
from advisor.records import NamedTuple

TIME_LIMIT_S = 10.0
MAX_ANSWER_BYTES = 4 << 20
# Commas and brackets of an answer, those in its texts among them: a key and its value take up to 200 bytes, so many
# some 30 MiB. A router lists 1,800 models with 80 values each before its answer is longer than 4 MiB.
MAX_VALUES = 150_000
_LOOK_AGAIN_S = 0.2


class Address(NamedTuple):
    """Where an engine listens; `path` stands before every path that is asked for."""

    host: str
    port: int
    tls: bool
    path: str

    @property
    def shown(self) -> str:
        """As a person writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


class Answer(NamedTuple):
    """The status and the parsed body, None where it is empty or no JSON; then `text` is what came."""

    status: int
    body: Any
    text: str = ""


def parse_address(url: str, *, allow_remote: bool = False) -> Address:
    """The address in `url`.

    Raises EngineError for anything but http and https, for a password in it, and, unless `allow_remote`, for a host
    that is not this machine.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise EngineError(f"'{url:.100}' is no address; give one like http://127.0.0.1:8080.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.hostname.isprintable():
        raise EngineError(f"'{url:.100}' is no address of an engine; give one like http://127.0.0.1:8080.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise EngineError(f"the address of {parts.hostname} must be plain, without user, password or query.")
    if not allow_remote and not is_this_machine(parts.hostname):
        raise EngineError(
            f"{parts.hostname} is another machine; set allow_remote = true for this engine if that is meant."
        )
    return Address(parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/"))


def is_this_machine(host: str) -> bool:
    """Whether `host` is a loopback address or the name "localhost"; other names are not looked up."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def ask(
    address: Address,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    seconds: float = TIME_LIMIT_S,
    waiting: Callable[[], object] | None = None,
) -> Answer:
    """One request and its answer, in all within `seconds`. Raises EngineError when there is none that can be used.

    `waiting` is called a few times a second until then; once it returns something true the answer is given up.
    """
    if waiting is None:
        return _ask(address, method, path, body, seconds)
    results: list[Answer | BaseException] = []

    def work() -> None:
        try:
            results.append(_ask(address, method, path, body, seconds))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)  # it ends within its time, also when nobody waits any more
    thread.start()
    while thread.is_alive():
        if waiting():
            raise EngineError(f"{address.shown} was not waited for; it is told at the next pass.")
        thread.join(_LOOK_AGAIN_S)
    (result,) = results
    if isinstance(result, BaseException):
        raise result
    return result


def _ask(address: Address, method: str, path: str, body: Mapping[str, Any] | None, seconds: float) -> Answer:
    import http.client

    from advisor.engines.http_answer import Answer as Bounded
    from advisor.engines.http_answer import FloodError

    deadline = time.monotonic() + seconds
    kind = http.client.HTTPSConnection if address.tls else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=seconds)
    connection.response_class = Bounded
    cut: threading.Timer | None = None
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"} if data is not None else {}
    try:
        connection.connect()
        cut = threading.Timer(max(deadline - time.monotonic(), 0), _cut, (connection.sock,))
        cut.daemon = True
        cut.start()
        connection.request(method, address.path + path, body=data, headers={**headers, "Accept": "application/json"})
        answer = connection.getresponse()
        content = bytearray()
        while piece := answer.read1(1 << 16):
            content += piece
            if len(content) > MAX_ANSWER_BYTES:
                raise EngineError(
                    f"{address.shown} answers with more than {MAX_ANSWER_BYTES >> 20} MiB; it is no engine."
                )
        if time.monotonic() >= deadline:  # cut off
            raise TimeoutError
        if answer.length:
            raise http.client.IncompleteRead(b"", answer.length)
    except ConnectionRefusedError:
        raise EngineError(f"nothing listens at {address.shown}; start the engine or correct its url.") from None
    except FloodError:
        raise EngineError(f"{address.shown} answers without end or in crumbs; it is no engine.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, TimeoutError) or time.monotonic() >= deadline:
            raise EngineError(f"{address.shown} did not answer within {seconds:.0f} s; is the engine busy?") from None
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise EngineError(f"{address.shown} cannot be asked ({reason}).") from None
    finally:
        if cut is not None:
            cut.cancel()
        connection.close()
    if 300 <= answer.status < 400:
        raise EngineError(f"{address.shown} sends its visitors elsewhere, which is not followed; correct its url.")
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise EngineError(f"{address.shown} answers with more than {MAX_VALUES:,} values; it is no engine.")
    try:
        return Answer(answer.status, json.loads(content) if content else None)
    except (ValueError, RecursionError):
        return Answer(answer.status, None, content.decode("utf-8", "replace"))


def _cut(connected: socket.socket) -> None:
    """End a connection whose time is over: a timeout of the socket counts from each byte, and bytes may drip."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
