from __future__ import annotations

import json
import os

import pytest

from advisor.daemon.lock import DaemonLock
from advisor.daemon.status import FILE, Said, Status, read_status, remove_status, write_status
from advisor.watch.events import Place

STATUS = Status(
    1, "2026-11-30T08:00:00+0000", "0.1.0", "idle", "watching", (Place("/m", "events"),), None,
    (Said("2026-11-30T08:00:01+0000", 5, "a -> b"),), ("p",), (), ("f",), ("n",), 0,
)  # fmt: skip


@pytest.fixture
def running(tmp_path):
    with DaemonLock(str(tmp_path)):
        yield tmp_path


def test_what_is_written_is_read(running):
    write_status(str(running), STATUS)
    read = read_status(str(running))
    assert read["running"] is True
    assert read["watching"] == [{"path": "/m", "how": "events"}]
    assert read["last_changes"] == [{"time": "2026-11-30T08:00:01+0000", "priority": 5, "text": "a -> b"}]
    assert (running / FILE).stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(running)) == ["daemon.lock", FILE]


def test_text_from_files_is_cleaned_and_bounded(running):
    evil = "\x1b]0;owned\x07\udcff" + "x" * 10_000
    write_status(str(running), STATUS._replace(failures=(evil,) * 10_000, watching=(Place(evil, "events"),)))
    read = read_status(str(running))
    assert len(read["failures"]) == 200
    assert all(text.isprintable() and len(text) <= 500 for text in [*read["failures"], read["watching"][0]["path"]])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": "other/1"}', b"\xff", b"[" * 100_000])
def test_a_broken_file_is_a_daemon_that_has_told_nothing(running, content):
    (running / FILE).write_bytes(content)
    read = read_status(str(running))
    assert (read["running"], read["pid"]) == (True, None)


def test_a_file_without_a_daemon_does_not_count(tmp_path):
    write_status(str(tmp_path), STATUS)
    assert read_status(str(tmp_path)) == {
        "schema": "advisor.status/1", "running": False, **dict.fromkeys(Status._fields)
    }  # fmt: skip
    remove_status(str(tmp_path))
    remove_status(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_every_field_is_json(running):
    write_status(str(running), STATUS)
    assert set(json.loads((running / FILE).read_text())) == {"schema", "running", *Status._fields}
