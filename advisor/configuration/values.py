"""Reading single values of the configuration. Each reader raises ValueError for a value that is not allowed."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from advisor.configuration.types import QuietHours
from advisor.errors import UsageError
from advisor.excerpts import excerpt
from advisor.llama_flags import BY_NAME, Flag, bare_value, parse_value, takes_value
from advisor.settings import RequestedSettings
from advisor.units import parse_size

Reader = Callable[[object], Any]
_TIME = r"([01]?\d|2[0-3]):([0-5]\d)"
# llama-server's options that say which model, not how
_MODEL_PINS = ("model", "m", "model-url", "mu", "hf-repo", "hf", "hfr", "hf-file", "hff", "docker-repo", "dr")
_INTENT = re.compile(r"[a-z][a-z0-9_-]*(:[1-9]\d{0,2})?")


class PinError(ValueError):
    """A pin that is not allowed; the text says why."""


class SecretError(ValueError):
    """A value that holds a secret, which no message may repeat; the text says what is wrong with it."""


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def text(value: object) -> str:
    """A text that is not empty, without control characters."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    return value


def path(value: object) -> str:
    """An absolute path; ~ is the home folder. There is no folder from which a service could begin a relative one."""
    expanded = os.path.expanduser(text(value))
    if not os.path.isabs(expanded):
        raise ValueError
    return os.path.normpath(expanded)


def listed(reader: Reader) -> Reader:
    """A list of such values."""

    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError
        return tuple(map(reader, value))

    return read


def filled(reader: Reader) -> Reader:
    """A list of such values with something in it."""
    read = listed(reader)

    def some(value: object) -> tuple[Any, ...]:
        found: tuple[Any, ...] = read(value)
        if not found:
            raise ValueError
        return found

    return some


def whole(low: int, high: int) -> Reader:
    """A whole number from `low` to `high`."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return value

    return read


def number(low: float, high: float) -> Reader:
    """A number from `low` to `high`."""

    def read(value: object) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return float(value)

    return read


def one_of(*words: str) -> Reader:
    """One of some words."""

    def read(value: object) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return read


def size(value: object) -> int:
    """A size in bytes, such as "1GiB"."""
    try:
        return parse_size(text(value))
    except UsageError:
        raise ValueError from None


def intent(value: object) -> str:
    """The name of an intent, with a count for parallel."""
    if not _INTENT.fullmatch(text(value)):
        raise ValueError
    return str(value)


def url(value: object) -> str:
    """An http or https address without a user's name in it. Raises SecretError for one with it."""
    try:
        parts = urlsplit(text(value))  # ValueError for a broken port or bracket
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
        if wrong or parts.username is not None:
            raise ValueError
    except ValueError:
        if "@" in str(value):  # a password can be anything, so wherever the rest of the address seems to be wrong
            raise SecretError("it holds a user's name or a password; leave away what stands before the @") from None
        raise ValueError from None
    return str(value).rstrip("/")


def is_loopback(address: str) -> bool:
    """Whether a `url` leads to this machine and nowhere else. Names other than localhost are not looked up."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def quiet_hours(value: object) -> QuietHours:
    """FROM-TO in hours and minutes of the local time."""
    match = re.fullmatch(f"{_TIME} *- *{_TIME}", text(value), re.ASCII)
    if match is None:
        raise ValueError
    start, stop = (int(match[i]) * 60 + int(match[i + 1]) for i in (1, 3))
    if start == stop:
        raise ValueError
    return QuietHours(start, stop)


def pins(value: object) -> RequestedSettings:
    """llama.cpp's own options without dashes, such as { ctx-size = 32768 }. Raises PinError."""
    if not isinstance(value, Mapping):
        raise PinError("it is a table, such as { ctx-size = 32768 }")
    chosen: dict[str, Any] = {}
    for key, given in value.items():
        if key in _MODEL_PINS:
            raise PinError(f"{key} is no setting: a pin holds for the models that match names, whichever they are")
        option = BY_NAME.get(f"--{key}") or BY_NAME.get(f"-{key}")
        if option is None:
            raise PinError(f"llama.cpp's option {excerpt(key)!r} is not known here{_nearest(key)}")
        read = _pin(option, key, given)
        if chosen.get(option.field, read) != read:
            raise PinError(f"{key} contradicts another pin")
        chosen[option.field] = read
    return RequestedSettings(**chosen)


def _pin(option: Flag, key: str, given: object) -> object:
    if not takes_value(option):
        if given is not True:
            raise PinError(f"{key} takes no value, write {key} = true or leave it away")
        return bare_value(option)
    if isinstance(given, bool):
        given = "on" if given else "off"
    if not isinstance(given, (str, int, float)):
        raise PinError(f"{key} is one value, a number or a text")
    try:
        return parse_value(option, str(given), key)
    except UsageError as error:
        raise PinError(str(error).rstrip(".")) from None


def _nearest(key: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(f"--{key[:80]}", [name for name in BY_NAME if name.startswith("--")], 1, 0.6)
    return f"; did you mean {close[0].removeprefix('--')}" if close else ""
