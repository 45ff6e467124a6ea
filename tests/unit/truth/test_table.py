"""tests/data/ACCURACY.md says what all measured cells say; about half a minute, every cell is planned again."""

from __future__ import annotations

from tests.truth import table
from tests.truth.report import Difference


def test_the_table_is_up_to_date() -> None:
    assert table.PATH.read_text(encoding="utf-8") == table.document(), "run: python -m tests.truth.table"


def test_a_field_names_the_worst_cell() -> None:
    items = [Difference("a", "compute", size, size / 1000) for size in (0, 20, -35)]
    assert table.field(items) == "3: -3.50% (-35)"
    assert table.field(items[:1]) == "1: exact"
    assert table.field([]) == "-"
