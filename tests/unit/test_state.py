"""The state folder and the remembered differences, with files that are broken in every way."""

from __future__ import annotations

import json
import os
import stat

import pytest

from advisor.state import FILE, KEPT, MAX_FILE_BYTES, SCHEMA, Residual, load_residuals, remember, state_folder


def residual(n_bytes: int, component: str = "compute", build: int | None = 11434, source: str = "engine") -> Residual:
    return Residual("llama", build, "cuda", component, source, n_bytes)


def test_where_the_state_is():
    assert state_folder({"XDG_STATE_HOME": "/s"}) == "/s/advisor"
    assert state_folder({"HOME": "/home/x"}) == "/home/x/.local/state/advisor"
    assert state_folder({"HOME": "/home/x", "XDG_STATE_HOME": "relative"}) == "/home/x/.local/state/advisor"


def test_last_median_and_count_per_key(tmp_path):
    folder = str(tmp_path / "state" / "advisor")
    for value in (5, 1, 9):
        _, note = remember(folder, [residual(value), residual(-value, "cache")])
        assert note is None
    remember(folder, [residual(7, build=None), residual(8, source="observed")])
    records, note = load_residuals(folder)
    assert note is None
    by_key = {(record.component, record.build, record.source): record for record in records}
    assert len(records) == len(by_key) == 4
    compute = by_key["compute", 11434, "engine"]
    assert (compute.last_bytes, compute.median_bytes, compute.n_seen, compute.recent_bytes) == (9, 5, 3, (5, 1, 9))
    assert by_key["cache", 11434, "engine"].median_bytes == -5
    assert by_key["compute", None, "engine"].last_bytes == 7
    assert os.listdir(folder) == [FILE]
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert json.loads((tmp_path / "state" / "advisor" / FILE).read_text())["schema"] == SCHEMA


def test_the_median_is_of_the_last_ones(tmp_path):
    for value in range(KEPT + 10):
        remember(str(tmp_path), [residual(value)])
    (record,), _ = load_residuals(str(tmp_path))
    assert record.n_seen == KEPT + 10
    assert record.recent_bytes == tuple(range(10, KEPT + 10))
    assert record.median_bytes == (10 + KEPT + 9) // 2


GOOD = {
    "architecture": "llama", "build": 1, "backend": "cuda", "component": "cache", "source": "engine", "last_bytes": 1,
    "median_bytes": 1, "n_seen": 1, "recent_bytes": [1],
}  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\0\0",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b'{"schema": "advisor.residuals/9", "records": []}',
        b'{"schema": "advisor.residuals/1"}',
        b'{"schema": "advisor.residuals/1", "records": 3}',
        b'{"schema": "advisor.residuals/1", "records": [1]}',
        *[
            json.dumps({"schema": SCHEMA, "records": [{**GOOD, **bad}]}).encode()
            for bad in (
                {"recent_bytes": []},
                {"recent_bytes": ["1"]},
                {"recent_bytes": [10**400]},
                {"recent_bytes": [1.5]},
                {"architecture": 3},
                {"architecture": "x" * 300},
                {"build": "1"},
                {"n_seen": None},
            )
        ],
        b'{"schema": "advisor.residuals/1", "records": []}' + b" " * MAX_FILE_BYTES,
    ],
)
def test_a_broken_file_is_set_aside_and_said(content, tmp_path):
    (tmp_path / FILE).write_bytes(content)
    path, note = remember(str(tmp_path), [residual(4)])
    assert note is not None
    assert f"{path} was broken and is now {path}.broken" in note
    assert (tmp_path / f"{FILE}.broken").read_bytes() == content
    records, note = load_residuals(str(tmp_path))
    assert [record.last_bytes for record in records] == [4]
    assert note is None


def test_a_good_file_is_not_set_aside(tmp_path):
    (tmp_path / FILE).write_text(json.dumps({"schema": SCHEMA, "records": [GOOD]}))
    records, note = load_residuals(str(tmp_path))
    assert note is None
    assert records[0].recent_bytes == (1,)


def test_a_folder_that_cannot_be_made_is_a_note(tmp_path):
    (tmp_path / "file").write_text("")
    _, note = remember(str(tmp_path / "file" / "advisor"), [residual(1)])
    assert note is not None
    assert "cannot be" in note
    (tmp_path / FILE).mkdir()
    _, note = remember(str(tmp_path), [residual(1)])
    assert note is not None
    assert "left as it is" in note
    assert (tmp_path / FILE).is_dir()
