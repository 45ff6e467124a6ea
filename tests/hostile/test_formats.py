"""Names in every written format, read back by parsers that are not advisor's: the name stands there, or is refused."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import tomli
from ruamel.yaml import YAML

from advisor.errors import OutputError
from advisor.outputs.registry import OUTPUTS
from tests.hostile.texts import BROKEN, EVERYTHING, NASTY
from tests.unit.outputs.cases import fitting
from tests.unit.outputs.test_refusals import HOSTILE

TEXTS = [
    *HOSTILE,
    *NASTY.values(),
    EVERYTHING,
    BROKEN,
    "x" * 100_000,
    "%h/%i",
    "${HOME}",
    "a\\\nb",
    "\\x41",
    "a\\u0041",
]
JSON = ("llama-cpp-python", "koboldcpp", "lm-studio")
YAMLS = ("llama-swap", "localai", "text-generation-webui", "jan")


def strings(value: Any) -> Iterator[str]:
    """Every text in a document, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (*strings(key), *strings(item))
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def read_back(name: str, text: str) -> list[str]:
    """All texts of a file, by the reference parser of its format; commands as their words too."""
    if name in JSON:
        found = list(strings(json.loads(text)))
    elif name in YAMLS:
        found = list(strings(YAML(typ="safe", pure=True).load(text)))
    elif name == "ramalama":
        found = list(strings(tomli.loads(text)))
    elif name in ("llama-server-preset", "llama-config-ini"):
        parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=(";", "#"), strict=False)
        parser.read_string("[ ]\n" + text)
        found = [word for section in parser.sections() for word in (section, *dict(parser[section]).values())]
    elif name == "env-file":
        # systemd.exec(5): in double quotes a backslash takes the meaning of the character behind it
        found = [line.partition("=")[2] for line in text.split("\n") if line and line[0] not in "#;"]
        found = [re.sub(r"\\(.)", r"\1", line[1:-1]) if line[:1] == '"' else line.strip("'") for line in found]
    else:  # a Modelfile: an instruction a line
        found = [line.partition(" ")[2] for line in text.split("\n")]
    return found + [word for each in found if " --" in each for word in shlex.split(each)]


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("where", ["id", "model_path"])
def test_what_was_written_is_what_others_read(name: str, where: str) -> None:
    n_written = 0
    for text in TEXTS:
        output, asked = fitting(name)
        plain = read_back(name, output.edit(output.new_text, output.slots([asked], None)))
        change = {"id": text} if where == "id" else {"model_path": f"/srv/{text}.gguf"}
        asked = asked._replace(**change)
        try:
            written = output.edit(output.new_text, output.slots([asked], None))
        except OutputError:
            continue
        n_written += 1
        written.encode()
        found = read_back(name, written)
        assert len(found) == len(plain)  # nothing more and nothing less than with a plain name
        value = change.get("id") or change["model_path"]
        known = {"id": "qwen3", "model_path": "/srv/models/Qwen3-8B-Q4_K_M.gguf"}[where]
        if known in plain:
            assert value in found, (name, text)
    assert n_written > 3
