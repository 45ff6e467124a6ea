"""The architecture rules: complete, well-formed, and honest about what was measured."""

from __future__ import annotations

import pytest
import tomli

from tests.tools.cells import DATA, RULES, cells, spec

FILES = sorted((RULES / "arch").glob("*.toml"))
# every name of llama.cpp b11434's table that loads as a language model by itself (clip and gptj do not)
FAMILIES = (DATA / "architectures.txt").read_text().split()


def test_every_architecture_of_the_engine_has_a_rule() -> None:
    assert sorted(path.stem for path in FILES) == sorted(FAMILIES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_rule_names_its_architecture(path) -> None:
    assert tomli.loads(path.read_text())["architecture"] == path.stem


def test_measured_means_that_cells_were_measured() -> None:
    measured = {
        spec(model).architecture
        for name in ("grid", "grid-cpu", "small", "wide", "fresh")
        for model in {cell["model"] for cell in cells(name) if "error" not in cell}
    }
    claimed = {path.stem for path in FILES if tomli.loads(path.read_text())["checked"] == "measured"}
    assert claimed == measured
