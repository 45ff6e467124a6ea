"""What the README shows is what advisor says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli.main import VERBS
from advisor.llama_flags import FLAGS
from tests.tools.readme import README, blocks, make_models, run_block


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    make_models(path)
    return path


@pytest.mark.parametrize("index", range(len(blocks())))
def test_console_blocks(index: int, folder: Path) -> None:
    block = blocks()[index]
    assert run_block(block, folder) == block


def test_there_are_blocks() -> None:
    assert len(blocks()) >= 5


def test_every_command_is_in_the_readme_and_in_the_help() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "advisor", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for verb in VERBS:
        assert f"`advisor {verb}" in README.read_text()
        assert re.search(rf"^  {verb}\s", help_text, re.MULTILINE)


def test_flags_of_the_readme_exist() -> None:
    text = README.read_text()
    flags = {name for flag in FLAGS for name in flag.names}
    listed = re.search(r"llama\.cpp's own names: `([^`]*)`", text, re.DOTALL)
    assert listed is not None
    for name in listed.group(1).split():
        assert name in flags, name


def test_counts_in_the_readme() -> None:
    import tomli

    from advisor.hardware.gpu_table import GpuTable

    rules = README.parent / "rules"
    table = GpuTable.from_mapping(tomli.loads((rules / "gpus.toml").read_text()))
    assert f"{len(table.parts)} cards" in README.read_text()
