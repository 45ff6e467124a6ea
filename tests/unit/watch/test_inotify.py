from __future__ import annotations

import os
import struct

import pytest

from advisor.watch import inotify
from advisor.watch.inotify import Inotify, RawEvent, parse_events


def test_events_are_read_as_the_kernel_packs_them():
    data = struct.pack("iIII", 3, inotify.CREATE | inotify.ISDIR, 0, 16) + b"folder".ljust(16, b"\0")
    data += struct.pack("iIII", -1, inotify.Q_OVERFLOW, 0, 0)
    data += struct.pack("iIII", 4, inotify.CLOSE_WRITE, 0, 16) + b"caf\xe9".ljust(16, b"\0")
    assert parse_events(data) == [
        RawEvent(3, inotify.CREATE | inotify.ISDIR, "folder"),
        RawEvent(-1, inotify.Q_OVERFLOW, ""),
        RawEvent(4, inotify.CLOSE_WRITE, "caf\udce9"),
    ]


@pytest.fixture
def watch(tmp_path):
    watch = Inotify()
    watch.add(str(tmp_path))
    yield watch
    watch.close()


def masks(watch, name):
    return [event.mask for event in watch.read() if event.name == name]


def test_what_a_download_a_rename_and_links_give(watch, tmp_path):
    with open(tmp_path / "a", "wb") as file:
        for _ in range(5):
            file.write(b"x" * 100_000)
    assert masks(watch, "a") == [inotify.CREATE, inotify.CLOSE_WRITE]
    os.rename(tmp_path / "a", tmp_path / "b")
    assert masks(watch, "b") == [inotify.MOVED_TO]
    os.link(tmp_path / "b", tmp_path / "hard")
    assert inotify.CREATE in masks(watch, "hard")
    os.symlink("b", tmp_path / "soft")
    assert masks(watch, "soft") == [inotify.CREATE]
    (tmp_path / "b").read_bytes()
    assert watch.read() == []  # reading is no event


def test_errors_have_their_number(watch, tmp_path):
    with pytest.raises(FileNotFoundError):
        watch.add(str(tmp_path / "none"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        watch.add(str(tmp_path / "file"))


def test_children_do_not_inherit_the_descriptor(watch):
    assert not os.get_inheritable(watch.fileno)


def test_a_link_to_a_folder_is_followed(watch, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert watch.add(str(tmp_path / "link")) == watch.add(str(tmp_path / "real"))
