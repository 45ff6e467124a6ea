"""The file chosen among quantizations is the cheapest of all, each asked about alone (as tests.bench.siblings does)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.sibling_cases import ask, draw

CASES = {case.text: case for case in draw(10, 77)}


@pytest.mark.parametrize("text", CASES)
def test_no_other_is_cheaper(text: str, tmp_path: Path) -> None:
    found = ask(CASES[text], tmp_path)
    assert set(found.costs) == set(CASES[text].names)
    assert not found.wrong, found
