"""Header snapshots of published models that no rule was fitted to, made from their public configurations."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

from tests.truth.shapes.build import Row, build
from tests.truth.shapes.dense import ROWS as DENSE
from tests.truth.shapes.experts import ROWS as EXPERTS
from tests.truth.shapes.other import ROWS as OTHER
from tests.truth.shapes.t5 import SIZES as T5
from tests.truth.shapes.t5 import t5_snapshot

_DATA = Path(__file__).parents[2] / "data"


@functools.cache
def _rows() -> dict[str, Row]:
    return {row.name: row for row in (*DENSE, *EXPERTS, *OTHER)}


def fresh() -> list[str]:
    """Names of all shapes of the table."""
    return [*_rows(), *T5]


@functools.cache
def _small() -> dict[str, Any]:
    return json.loads(gzip.decompress((_DATA / "small.json.gz").read_bytes()))


def fresh_snapshot(name: str) -> dict[str, Any]:
    """The header snapshot of one of them; KeyError for other names."""
    if name in T5:
        return t5_snapshot(name)
    row = _rows()[name]
    path = _DATA / "zoo" / f"{row.template}.json.gz"
    template = json.loads(gzip.decompress(path.read_bytes())) if path.is_file() else _small()[row.template]
    return build(row, template)
