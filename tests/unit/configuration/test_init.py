"""The documented file and the schema are the same list of keys."""

from __future__ import annotations

import os
import re

import tomli

from advisor.configuration import values
from advisor.configuration.formats import FORMATS
from advisor.configuration.init_text import init_text
from advisor.configuration.read import load_configuration
from advisor.configuration.schema import TABLES, TOP
from advisor.configuration.types import (
    Budget,
    Configuration,
    Daemon,
    Defaults,
    Engine,
    ModelRule,
    ModelSet,
    Target,
)
from advisor.outputs.registry import OUTPUTS, load
from tests.tools.readme import README

FILE = "config.toml"


def uncommented() -> str:
    return re.sub(r"(?m)^# (?=[\[a-z])", "", init_text())


def test_as_it_is_it_sets_nothing(tmp_path):
    loaded = load_configuration(str(tmp_path), texts={str(tmp_path / FILE): init_text()})
    assert loaded.configuration == Configuration()


def test_every_key_of_the_schema_is_in_it_and_nothing_else():
    document = tomli.loads(uncommented())
    for table in TABLES:
        value = document.pop(table.name)
        if table.kind == "named":
            (value,) = value.values()
        elif table.kind == "list":
            (value,) = value
        assert list(value) == [key.name for key in table.keys]
    assert list(document) == [key.name for key in TOP.keys]


def test_every_example_is_allowed_and_every_key_is_explained(tmp_path):
    loaded = load_configuration(str(tmp_path), texts={str(tmp_path / FILE): uncommented()})
    whole = loaded.configuration
    assert len(whole.models) == len(whole.targets) == len(whole.sets) == 1
    lines = init_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"# [a-z_-]+ = ", line):
            assert lines[number - 1].startswith("## ")
    assert max(map(len, lines)) <= 120


def test_every_format_is_listed_with_the_path_that_it_wants():
    assert list(FORMATS) == list(OUTPUTS)
    for name, wants in FORMATS.items():
        assert ("folder" in wants.what) is load(name).per_model
        assert ("file" in wants.what.replace("Modelfiles", "")) is not load(name).per_model
        assert os.path.isabs(values.path(wants.usual))
        line = next(line for line in init_text().splitlines() if line.startswith(f"##   {name} "))
        assert line.endswith(f" {wants.what} {wants.usual}")


def test_the_readme_has_the_same_list():
    section = README.read_text().partition("## Keeping configs right")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:3] == "| `"
    ]
    assert {row[0]: row[2] for row in rows} == {
        f"`{name}`": f"{wants.what} `{wants.usual}`" for name, wants in FORMATS.items()
    }


def test_keys_with_a_default_show_it():
    document = tomli.loads(uncommented())
    defaults = Configuration()
    assert document["stores"] == defaults.stores
    assert document["daemon"]["rescan_s"] == defaults.daemon.rescan_s
    assert document["daemon"]["debounce_s"] == defaults.daemon.debounce_s
    assert document["defaults"]["intent"] == defaults.defaults.intent
    (target,) = document["target"].values()
    for name in ("enabled", "mode", "reload"):
        assert target[name] == Target._field_defaults[name]
    assert tuple(target["models"]) == Target._field_defaults["models"]
    (engine,) = document["engine"].values()
    assert engine["allow_remote"] is Engine._field_defaults["allow_remote"]


def test_the_schema_fills_every_field():
    fields = {
        "engine": Engine._fields[1:],
        "target": Target._fields[1:],
        "defaults": Defaults._fields,
        "model": ModelRule._fields,
        "set": ModelSet._fields,
        "budget": tuple(name.removesuffix("_bytes") for name in Budget._fields),
        "daemon": Daemon._fields,
        "stores": tuple(Configuration().stores),
    }
    assert {table.name: {key.name for key in table.keys} for table in TABLES} == {
        name: set(each) for name, each in fields.items()
    }
