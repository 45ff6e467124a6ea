"""README.md's table and the tests say the same: every situation has tests, every test a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
SITUATIONS = (3, 4, 5, 6, 7, 8, 10, 11, 12, 14, 15, 16, 18, 21, 22, 23, 25, 28, 30, 31, 32, 35, 36, 38, 40, 41, 43, 44,
              46, 48, 49, 50)  # fmt: skip


def rows() -> dict[int, list[str]]:
    """number -> cells of each row of the tables."""
    found = {}
    for line in (FOLDER / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0].strip().isdigit():
            found[int(cells[0])] = cells
    return found


def written() -> list[str]:
    """Every test of a situation in this folder."""
    return [
        node.name
        for path in sorted(FOLDER.glob("test_[a-e]_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_all_32_situations_have_a_row_and_a_test() -> None:
    assert len(SITUATIONS) == 32
    assert tuple(rows()) == SITUATIONS
    assert {int(name.split("_")[1]) for name in written()} == set(SITUATIONS)


def test_the_table_names_every_test_and_no_other() -> None:
    tests = written()
    assert len(set(tests)) == len(tests)
    named = [(number, name) for number, cells in rows().items() for name in re.findall(r"`(test_\w+)`", cells[-1])]
    assert all(int(name.split("_")[1]) == number for number, name in named)
    assert sorted(name for _, name in named) == sorted(tests)


def test_every_row_is_filled() -> None:
    for number, cells in rows().items():
        assert len(cells) == 5, number
        assert all(len(cell) > 5 for cell in cells[1:]), number


def test_groups_stand_in_their_files() -> None:
    for path in FOLDER.glob("test_[a-e]_*.py"):
        letter = path.name[5].upper()
        text = (FOLDER / "README.md").read_text().partition(f"## {letter}.")[2].partition("\n## ")[0]
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert f"`{node.name}`" in text, (path.name, node.name)
