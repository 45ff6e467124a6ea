"""Lies in what is written by hand: rules and configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from advisor.app import App, check
from advisor.configuration.check import Known
from advisor.configuration.read import load_configuration
from advisor.errors import ConfigError, RuleError
from advisor.outputs.registry import OUTPUTS
from advisor.rule_folders import RuleFolders
from tests.fuzz.seeds import CONFIG, RULE_FOLDER
from tests.hostile.lies import MARK, READ, Case, Group, Lie, Made

DEEP = "a = " + "[" * 20_000
HEX = f"0x{'f' * 5000}"
BROKEN: tuple[tuple[str, bytes], ...] = (
    ("not UTF-8", b"a = '\xff'"), ("NUL", b"a = 1\0"), ("half a table", b"[a"), ("no value", b"a ="), ("twice", b"a = 1\na = 2\n"),
    ("deep", DEEP.encode()), ("deep tables", b"a = " + b"{a=" * 20_000), ("long dotted key", b".".join([b"a"] * 3000) + b" = 1"),
    ("digits", b"a = " + b"1" * 5000), ("a line of 1 MiB", b"a = '" + b"x" * ((1 << 20) - 9) + b"'"), ("larger", b"#" * (2 << 20)),
    ("many tables", b"".join(b"[t%d]\n" % n for n in range(60_000))), ("many lists", b"a = [" + b"[]," * 300_000 + b"]"),
    ("escape codes", b'"\x1b[2J" = 1'), ("bidi", '"\u202e" = 1'.encode()), ("YAML", b"a: 1\nb:\n  - c\n"), ("JSON", b'{"a": 1}'),
)  # fmt: skip
VALUES = (
    "-1",
    "0",
    "1e999",
    "nan",
    "inf",
    '""',
    '"x"',
    "[]",
    "{}",
    "true",
    "1979-05-27",
    f'"../../{MARK}"',
    '"\\u0000"',
    '"\\u001b[2J"',
    "99999999999999999999",
)


SAMPLES = 6  # keys of each file


def rules(folder: Path) -> Made:
    """Files in a folder of rules."""

    def given(label: str, name: str, content: bytes, answer: str) -> Case:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return Case(label, lambda: _ruled(folder, name), answer)

    for label, content in BROKEN:
        yield given(f"arch: {label}", "arch/llama.toml", content, "RuleError")
    for line in (
        f"family = {HEX}",
        f"[window]\nperiod = {HEX}",
        f"[[graph]]\nname = {HEX}",
        "family = 0b" + "1" * 9000,
    ):
        yield given(f"arch: {line[:12]!r} of thousands of digits", "arch/llama.toml", line.encode(), "RuleError")
    yield given(
        "arch: a version of thousands of digits", "arch/llama.toml", f"schema_version = {HEX}".encode(), "RuleError"
    )
    yield given(
        "arch: a name of 500 KB", "arch/llama.toml", b"schema_version = 1\n" + b"x" * 500_000 + b" = 1", "RuleError"
    )
    for name in ("arch/gemma3.toml", "engines/llama_cpp.toml", "policy.toml", "speed.toml", "quants.toml"):
        lines = (RULE_FOLDER / name).read_text().split("\n")
        numbers = [at for at, line in enumerate(lines) if " = " in line and line[0].isalpha()]
        for place in range(SAMPLES):
            at = numbers[place * len(numbers) // SAMPLES]
            for value in VALUES:
                changed = [*lines[:at], f"{lines[at].partition(' = ')[0]} = {value}", *lines[at + 1 :]]
                label = f"{name}: line {at + 1} is {value[:12]}"
                yield given(label, name, "\n".join(changed).encode(), "taken or refused")
        (folder / name).unlink()
    os.mkfifo(folder / "arch/mamba.toml")
    yield Case("a pipe", lambda: _ruled(folder, "arch/mamba.toml"), "RuleError")
    (folder / "arch/rwkv6.toml").symlink_to("/dev/zero")
    yield Case("/dev/zero", lambda: _ruled(folder, "arch/rwkv6.toml"), "RuleError")
    for name in (
        "../x.toml",
        f"arch/../../{MARK}",
        "/etc/passwd",
        "arch/.hidden",
        "arch/a\0b.toml",
        "arch/\u202e.toml",
        "a\\b.toml",
    ):
        yield Case(f"asked for {name!r}", lambda n=name: RuleFolders(str(folder)).document(n), "RuleError")
    yield Case("no folder", lambda: RuleFolders(str(folder / "no")), "UsageError")


def _ruled(folder: Path, name: str) -> str:
    try:
        document = App(str(folder)).rules.document(name)
        assert document is not None
        check(document)
    except RuleError as error:
        if name in ("arch/llama.toml", "arch/mamba.toml", "arch/rwkv6.toml"):
            raise
        return "taken or refused" if str(error).isprintable() else "no plain sentence"
    return "taken or refused"


def configuration(folder: Path) -> Made:
    """config.toml and what lies beside it."""
    known = Known(formats=tuple(OUTPUTS), intents=("balanced", "speed"))
    config = folder / "config.toml"

    def read() -> Any:
        return load_configuration(str(folder), known) and None

    def either() -> str:
        try:
            read()
        except ConfigError as error:
            return "taken or refused" if str(error).startswith(f"{config}, line ") else "without its place"
        return "taken or refused"

    def given(label: str, content: bytes, answer: str) -> Case:
        config.write_bytes(content)
        return Case(label, read if answer != "taken or refused" else either, answer)

    yield given("good", CONFIG.encode(), READ)
    for label, content in BROKEN:
        yield given(label, content, "ConfigError")
    lines = [line for line in CONFIG.split("\n") if " = " in line]
    for line in lines:
        for value in VALUES:
            yield given(
                f"{line[:30]} is {value[:12]}",
                CONFIG.replace(line, f"{line.partition(' = ')[0]} = {value}", 1).encode(),
                "taken or refused",
            )
    for line in ('[engine."a\\u0000b"]\nkind = "ollama"', '[nosuch]\na = 1', '[engine.ollama]\nurl = "http://user:secret@127.0.0.1"',
                 '[engine.ollama]\nurl = "http://example.com"', 'folders = ["a\\u0000b"]', '[target."../x"]\nformat = "jan"\npath = "x"'):  # fmt: skip
        yield given(line[:40], line.encode(), "ConfigError")
    for line in ("folders = {}", "[daemon]\nquiet_hours = {}", '[engine."llama.cpp"]\nurl = {}', '[[model]]\nmatch = "*"\npins = {{ctx-size = {}}}',
                 '[target.x]\nformat = "localai"\npath = "/x"\nenabled = {}', "folders = [{}]", "[stores]\nollama = {}", "keep_free = {}"):  # fmt: skip
        for kind, value in (
            ("digits", HEX),
            ("octal digits", "0o" + "7" * 9000),
            ("lists", "[" * 100 + "'x'," * 9000 + "]" * 100),
        ):
            yield given(f"{line[:30]!r} of {kind}", line.format(value).encode(), "ConfigError")
    long = "x" * 200_000
    for line in (f"{long} = 1", f"[target.{long}]\nformat = 1", f"[target.{long}]\nformat = 'localai'", f"[[model]]\nmatch = 1\n{long} = 1",
                 f"[daemon]\nquiet_hours = '{long}'", f"[engine.{long}]\nurl = 1", f"[[model]]\nmatch = '*'\npins = {{{long} = 1}}",
                 f"[[set]]\nname = '{long}'\nmodels = ['*']\ntargets = ['{long}']", f"[[model]]\nmatch = '*'\npins = {{ctx-size = '{long}'}}",
                 f"folders = {'[' * 90}'{long}'{']' * 90}"):  # fmt: skip
        config.write_text(line)
        yield Case(
            f"200 KB in {line.replace(long, '...')[:40]!r}", lambda: _short(str(folder), known), "a sentence to the end"
        )
    for n_targets, answer in ((64, READ), (65, "ConfigError"), (4500, "ConfigError")):
        config.write_text("".join(f'[target.t{n}]\nformat = "localai"\npath = "/tmp/x{n}"\n' for n in range(n_targets)))
        yield Case(f"{n_targets} targets", read, answer)
    for label, line, times, answer in (
        ("12,000 models", '[[model]]\nmatch = "*"\n', 11_000, READ), ("tables", "[x]\n", 60_000, "ConfigError"),
        ("lists of lines", "folders = [\n" + "'/a',\n" * 480 + "]\n", 60, "ConfigError"), ("one list of lines", "folders = [\n" + "'/a',\n" * 30_000 + "]\n", 1, READ),
        ("numbers", "a = [" + "1," * 120_000 + "1]\n", 1, "ConfigError"), ("more than 256 KiB", "#\n", 140_000, "ConfigError"),
        ("maps in maps", "a = [" + "{a.b.c=1}," * 25_000 + "1]\n", 1, "ConfigError"),
    ):  # fmt: skip
        config.write_text(line * times)
        yield Case(label, read, answer)
    (folder / "conf.d").mkdir()
    for number in range(3):
        (folder / f"conf.d/{number}.toml").write_text("#" * 100_000)
    config.write_text("")
    yield Case("many files", read, "ConfigError")
    for number in range(3):
        (folder / f"conf.d/{number}.toml").unlink()
    (folder / "conf.d").rmdir()
    config.unlink()
    os.mkfifo(config)
    yield Case("a pipe", read, "ConfigError")
    config.unlink()
    config.symlink_to("/dev/zero")
    yield Case("/dev/zero", read, "ConfigError")
    config.unlink()
    config.symlink_to("config.toml")
    yield Case("a link to itself", read, "ConfigError")
    config.unlink()
    (folder / "conf.d").mkdir()
    (folder / "conf.d/x.toml").mkdir()
    yield Case("conf.d/x.toml is a folder", read, "ConfigError")


def _short(folder: str, known: Known) -> str:
    """Whether the sentence is one that the command line does not cut before its cure."""
    try:
        load_configuration(folder, known)
    except ConfigError as error:
        return "a sentence to the end" if len(str(error)) < 800 else f"{len(str(error))} characters"
    return READ


RULES = Group(
    "rules", (Lie("files of a folder of rules", "a parser's recursion; names out of model files as paths", rules),)
)
CONFIGURATION = Group(
    "configuration", (Lie("config.toml and conf.d", "a typo that is taken for nothing", configuration),)
)
