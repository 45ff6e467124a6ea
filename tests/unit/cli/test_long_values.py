"""Numbers and texts of thousands of characters: a sentence with the cure at its end, never a bug."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.errors import UsageError
from advisor.excerpts import excerpt, line_of_long_number
from advisor.units import parse_size
from advisor.whole_numbers import read_whole
from tests.tools.tiny_models import tiny_model, write

NINES = "9" * 5000
HEX = "0x" + "f" * 5000
TARGETS = "".join(f'[target.t{n}]\nformat = "localai"\npath = "/x{n}"\n' for n in range(65))


@pytest.mark.parametrize(
    "value",
    [
        int(HEX, 16), -int(HEX, 16), [1, int(HEX, 16)], {"a": int(HEX, 16)}, 10**4000, "x" * 10**7, 1e308, b"x", None,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_an_excerpt_never_fails(value):
    assert 1 <= len(excerpt(value)) <= 81
    assert excerpt(value).isprintable()


def test_an_excerpt_of_lists_without_end():
    nested: list[object] = []
    for _ in range(2 * sys.getrecursionlimit()):
        nested = [nested]
    assert len(excerpt(nested)) <= 81


def test_excerpts_say_what_stands_there():
    assert excerpt(-(2**64)) == "-18446744073709551616"
    assert excerpt(int(HEX, 16)).startswith("0xffff")
    assert excerpt("a\nb\x1b") == "a b?"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"a = 1\nb = {HEX}", 2), ("0b" + "1" * 1000, 1), ("0o" + "7_" * 500, 1), ("0x" + "f" * 999, None),
        ("a = 1", None),
    ],
)  # fmt: skip
def test_lines_of_long_numbers(text, line):
    assert line_of_long_number(text) == line


@pytest.mark.parametrize("text", [f"{NINES}GiB", f"{NINES}.5GiB", f"{'9' * 400}.5GiB", NINES, f"{NINES}x"])
def test_sizes_of_thousands_of_digits(text):
    with pytest.raises(UsageError) as error:
        parse_size(text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", [NINES, "-" + NINES, f"{NINES}k", "999," * 2000 + "999", "x" * 10**6])
def test_whole_numbers_of_thousands_of_digits(text):
    with pytest.raises(UsageError) as error:
        read_whole(text, "-c", 0)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "words",
    [
        ("--gpu", f"cuda:{NINES}GiB"), ("--gpu", f"RTX 3090@{NINES}GiB"), ("--gpu", f"cuda:{NINES}.5GiB"),
        ("--gpu", f"x{NINES}:1GiB"), ("--gpu", f"x{NINES}"), ("--keep-free", f"{NINES}MiB"), ("--ram", f"{NINES}GiB"),
        ("--ctx-size", NINES), ("-b", NINES), ("-ngl", NINES), ("--ctx-size", "999," * 2000 + "999"),
        ("--for", f"parallel:{NINES}"), ("--for", NINES), ("--engine", f"llama.cpp@b{NINES}"), ("-ts", f"x{NINES}"),
        ("-ctk", NINES), ("-ot", NINES), ("--" + NINES, "1"), ("--seed", NINES), ("--rules", NINES),
    ],
    ids=lambda words: f"{words[0]} {words[1][:14]}",
)  # fmt: skip
def test_options_of_thousands_of_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str], words):
    model = write(tmp_path / "m.gguf", tiny_model("Tiny"))
    assert main(["recommend", str(model), *words]) in (1, 2)
    err = capsys.readouterr().err
    assert "bug in advisor" not in err
    assert len(err) < 900
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"folders = {HEX}", ", line 1: no configuration looks like this"),
        ("x" * 200_000 + " = 1", "known here: folders"),
        (f"folders = {'[' * 90}'{'x' * 100_000}'{']' * 90}", "is [[...]], allowed is a list of absolute paths"),
        (TARGETS, ", line 194: these are more than 64 targets"),
    ],
)  # fmt: skip
def test_the_reason_stands_at_the_end(home: Path, capsys: pytest.CaptureFixture[str], text, told):
    write(home / ".config/advisor/config.toml", text.encode())
    assert main(["config", "check"]) == 1
    err = capsys.readouterr().err
    assert told in err
    assert len(err) < 900


@pytest.mark.parametrize("line", [f"family = {HEX}", f"schema_version = {HEX}", f"[window]\nperiod = {HEX}"])
def test_rules_with_numbers_of_thousands_of_digits(home: Path, capsys: pytest.CaptureFixture[str], line):
    model = write(home / "m.gguf", tiny_model("Tiny"))
    rule = write(home / ".config/advisor/rules/arch/llama.toml", line.encode())
    assert main(["inspect", str(model)]) == 1
    err = capsys.readouterr().err
    assert f"{rule}, line {1 + line.count(chr(10))}: no rule file looks like this" in err
