"""The watcher on real folders. Network file systems are stood in for by a written mountinfo."""

from __future__ import annotations

import errno
import os
import select
import shutil
import time
from pathlib import Path

import pytest

from advisor.watch.events import Watcher, look
from advisor.watch.inotify import Inotify
from advisor.watch.observed import Observed
from advisor.watch.roots import MAX_NOTED, Noticed
from advisor.watch.worker import Watched


def never():
    return False


class Watching:
    """A watcher and what it has noticed."""

    def __init__(self, watcher: Watcher, watched: Watched) -> None:
        self.watcher, self.everything, self.paths, self.warnings = watcher, False, {}, []
        self.update(watched)

    def update(self, watched: Watched) -> bool:
        return self.watcher.update(watched, never, time.monotonic())

    def see(self, *, wait_s: float = 0.3, now: float | None = None) -> dict[str, bool]:
        """Path -> gone, of what comes until nothing has come for `wait_s`."""
        paths: dict[str, bool] = {}
        poller = select.poll()
        for descriptor, events in self.watcher.descriptors():
            poller.register(descriptor, events)
        while True:
            ready = [descriptor for descriptor, _ in poller.poll(wait_s * 1000)]
            noticed = self.watcher.collect(time.monotonic() if now is None else now, never, ready)
            self.everything |= noticed.everything
            self.warnings += noticed.warnings
            paths.update(noticed.paths)
            if not ready:
                return paths

    def how(self) -> dict[str, str]:
        return {place.path: place.how for place in self.watcher.places()}


@pytest.fixture
def watch():
    watchers = []

    def start(watched: Watched, **arguments) -> Watching:
        watchers.append(Watcher(**arguments))
        return Watching(watchers[-1], watched)

    yield start
    for watcher in watchers:
        watcher.close()


def test_files_at_any_depth_come_change_and_go(watch, tmp_path):
    (tmp_path / "org/repo").mkdir(parents=True)
    seen = watch(Watched((str(tmp_path),)))
    model = tmp_path / "org/repo/m.gguf"
    model.write_bytes(b"x")
    assert seen.see() == {str(model): False}
    os.truncate(model, 100)
    with open(model, "ab") as file:
        file.write(b"y")
    assert seen.see() == {str(model): False}
    model.unlink()
    assert seen.see() == {str(model): True}
    assert seen.how() == {str(tmp_path): "events"}
    assert seen.watcher.next_due() is None  # nothing to wake up for


def test_links_as_the_hugging_face_cache_makes_them(watch, tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots/abc").mkdir(parents=True)
    seen = watch(Watched((str(tmp_path),)))
    (tmp_path / "blobs/0123.incomplete").write_bytes(b"x")
    os.rename(tmp_path / "blobs/0123.incomplete", tmp_path / "blobs/0123")
    (tmp_path / "snapshots/abc/m.gguf").symlink_to("../../blobs/0123")
    os.link(tmp_path / "blobs/0123", tmp_path / "hard.gguf")
    paths = seen.see()
    for name in ("snapshots/abc/m.gguf", "blobs/0123", "hard.gguf"):
        assert paths[str(tmp_path / name)] is False
    assert paths[str(tmp_path / "blobs/0123.incomplete")] is True


def test_new_folders_are_watched_and_what_came_before_the_watch_is_seen(watch, tmp_path):
    seen = watch(Watched((str(tmp_path / "models"),)))
    for i in range(20):
        folder = tmp_path / f"models/a{i}/b/c"
        folder.mkdir(parents=True)
        (folder / "m.gguf").write_bytes(b"x")
    paths = seen.see()
    assert {str(tmp_path / f"models/a{i}/b/c/m.gguf") for i in range(20)} <= paths.keys()
    late = tmp_path / "models/a3/b/c/late.gguf"
    late.write_bytes(b"x")
    assert seen.see() == {str(late): False}


def test_a_folder_that_is_missing_at_several_levels_is_picked_up(watch, tmp_path):
    place = tmp_path / "a/b/c/models"
    seen = watch(Watched((str(place),)))
    assert seen.how() == {str(place): "missing"}
    assert seen.watcher.next_due() is None
    (tmp_path / "a").mkdir()
    seen.see()
    (tmp_path / "a/b").mkdir()
    seen.see()
    (tmp_path / "other").touch()
    assert seen.see() == {}
    place.mkdir(parents=True)
    seen.see()
    assert seen.how() == {str(place): "events"}
    (place / "m.gguf").touch()
    assert seen.see() == {str(place / "m.gguf"): False}


def test_a_folder_deleted_and_created_again(watch, tmp_path):
    place = tmp_path / "models"
    place.mkdir()
    (place / "m.gguf").touch()
    seen = watch(Watched((str(place),)))
    for _ in range(3):
        shutil.rmtree(place)
        assert seen.see()[str(place)] is True
        assert seen.how() == {str(place): "missing"}
        place.mkdir()
        seen.see()
        (place / "m.gguf").touch()
        assert seen.see() == {str(place / "m.gguf"): False}
        assert seen.how() == {str(place): "events"}


def test_a_root_renamed_away_is_gone(watch, tmp_path):
    place = tmp_path / "models"
    place.mkdir()
    seen = watch(Watched((str(place),)))
    place.rename(tmp_path / "elsewhere")
    assert seen.see()[str(place)] is True
    (tmp_path / "elsewhere/m.gguf").touch()
    assert seen.see() == {}


def test_a_folder_renamed_inside_reports_under_its_new_name_only(watch, tmp_path):
    (tmp_path / "old/sub").mkdir(parents=True)
    (tmp_path / "old/sub/m.gguf").touch()
    seen = watch(Watched((str(tmp_path),)))
    (tmp_path / "old").rename(tmp_path / "new")
    assert seen.see() == {str(tmp_path / "old"): True, str(tmp_path / "new/sub/m.gguf"): False}
    (tmp_path / "new/sub/n.gguf").touch()
    assert seen.see() == {str(tmp_path / "new/sub/n.gguf"): False}


def test_links_to_folders_are_followed_and_rings_end(watch, tmp_path):
    disk, home = tmp_path / "disk", tmp_path / "home"
    disk.mkdir()
    home.mkdir()
    (home / "loop").symlink_to(home)
    (home / "itself").symlink_to("itself")
    seen = watch(Watched((str(home),)))
    (home / "big").symlink_to(disk)
    seen.see()
    (disk / "m.gguf").touch()
    assert seen.see() == {str(home / "big/m.gguf"): False}


def test_hidden_files_are_passed_over(watch, tmp_path):
    seen = watch(Watched((str(tmp_path),)))
    (tmp_path / ".advisor-1234").write_text("x")
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks/m.lock").touch()
    assert seen.see() == {}


def test_single_files_through_links_and_editors(watch, tmp_path):
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "dotfiles/config.toml").write_text("a = 1\n")
    config = tmp_path / "config/config.toml"
    config.symlink_to("../dotfiles/config.toml")
    binary = tmp_path / "bin/llama-server"
    seen = watch(Watched(settings=(str(config),), engines=(str(binary),)))
    (tmp_path / "dotfiles/config.toml").write_text("a = 2\n")
    assert seen.see() == {str(config): False}
    (tmp_path / "config/new").write_text("a = 3\n")
    assert seen.see() == {}
    os.replace(tmp_path / "config/new", config)
    assert seen.see() == {str(config): False}
    binary.parent.mkdir()
    seen.see()
    binary.write_text("#!")
    assert seen.see() == {str(binary): False}
    assert seen.how() == {}  # only folders of models are worth telling while all is well


def test_a_configuration_folder_that_goes_takes_its_file_along(watch, tmp_path):
    config = tmp_path / "config/config.toml"
    config.parent.mkdir()
    config.touch()
    seen = watch(Watched(settings=(str(config),)))
    config.parent.rename(tmp_path / "elsewhere")
    assert seen.see() == {str(config): True}
    (tmp_path / "elsewhere").rename(config.parent)
    assert seen.see() == {str(config): False}


def test_nested_roots_both_work(watch, tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    seen = watch(Watched((str(tmp_path), str(tmp_path / "a")), settings=(str(tmp_path / "a/config.toml"),)))
    (tmp_path / "a/config.toml").touch()
    (tmp_path / "a/b/m.gguf").touch()
    assert seen.see() == {str(tmp_path / "a/config.toml"): False, str(tmp_path / "a/b/m.gguf"): False}
    assert seen.update(Watched((str(tmp_path / "a"),))) is False
    (tmp_path / "m.gguf").touch()
    (tmp_path / "a/n.gguf").touch()
    assert seen.see() == {str(tmp_path / "a/n.gguf"): False}
    assert seen.update(Watched((str(tmp_path / "a"), str(tmp_path)))) is True


def test_an_overflow_of_the_kernels_queue_means_everything_and_folders_made_then_are_watched(watch, tmp_path):
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    seen = watch(Watched((str(tmp_path),)))
    for i in range(limit // 2 + 200):  # two events each
        (tmp_path / f"{i % 100}").touch()
        (tmp_path / f"{i % 100}").unlink()
    (tmp_path / "new").mkdir()  # nobody tells
    seen.see()
    assert seen.everything
    (tmp_path / "new/m.gguf").touch()
    assert str(tmp_path / "new/m.gguf") in seen.see()


def test_notes_are_bounded():
    noticed = Noticed()
    for i in range(MAX_NOTED + 1):
        noticed.note(str(i))
    assert noticed.everything
    assert noticed.paths == {}


# ---------------------------------------------------------------- polling


def mountinfo(tmp_path: Path, fs_type: str, point: Path) -> str:
    file = tmp_path / "mountinfo"
    file.write_text(f"22 1 259:2 / / rw - ext4 /dev/sda rw\n64 22 0:52 / {point} rw - {fs_type} nas:/m rw\n")
    return str(file)


def test_a_network_folder_has_events_and_is_polled(watch, tmp_path):
    place = tmp_path / "nas"
    (place / "sub").mkdir(parents=True)
    (place / "old.gguf").touch()
    seen = watch(Watched((str(place), str(tmp_path))), mountinfo=mountinfo(tmp_path, "nfs4", place))
    assert seen.how() == {str(place): "events and polling", str(tmp_path): "events and polling"}
    assert 50 < seen.watcher.next_due() - time.monotonic() <= 60


@pytest.fixture
def no_instances():
    def refuse():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    return refuse


def test_without_instances_everything_is_polled_after_one_warning(watch, tmp_path, no_instances):
    place, late, config = tmp_path / "models", tmp_path / "late", tmp_path / "config.toml"
    (place / "sub").mkdir(parents=True)
    (place / "sub/old.gguf").touch()
    (place / "sub/loop").symlink_to(place)
    seen = watch(Watched((str(place), str(late)), settings=(str(config),)), source=no_instances)
    assert seen.how()[str(place)] == "polling"
    start = time.monotonic()
    assert seen.see(wait_s=0) == {}
    assert len(seen.warnings) == 1
    assert "max_user_instances" in seen.warnings[0]
    (place / "sub/m.gguf").touch()
    (place / ".hidden").touch()
    (place / "sub/old.gguf").write_bytes(b"x")
    config.touch()
    late.mkdir()
    (late / "n.gguf").touch()
    assert seen.see(wait_s=0, now=start + 30) == {}
    assert seen.see(wait_s=0, now=start + 61) == {
        str(place / "sub/m.gguf"): False, str(place / "sub/old.gguf"): False, str(config): False,
        str(late / "n.gguf"): False,
    }  # fmt: skip
    assert seen.see(wait_s=0, now=start + 122) == {}
    (place / "sub/m.gguf").unlink()
    shutil.rmtree(late)
    assert seen.see(wait_s=0, now=start + 183) == {str(place / "sub/m.gguf"): True, str(late): True}
    assert len(seen.warnings) == 1


def test_too_few_watches_fall_back_to_polling_with_one_warning(watch, tmp_path, monkeypatch):
    real, left = Inotify.add, [3]

    def add(self, folder):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        return real(self, folder)

    monkeypatch.setattr(Inotify, "add", add)
    for name in ("a", "b"):
        for i in range(5):
            (tmp_path / name / str(i)).mkdir(parents=True)
    seen = watch(Watched((str(tmp_path / "a"), str(tmp_path / "b"))))
    start = time.monotonic()
    assert set(seen.how().values()) == {"polling"}
    assert seen.see(wait_s=0) == {}
    assert len(seen.warnings) == 1
    assert "max_user_watches" in seen.warnings[0]
    paths = {str(tmp_path / name / str(i) / "m.gguf"): False for name in ("a", "b") for i in range(5)}
    for path in paths:
        Path(path).touch()
    found = {**seen.see(wait_s=0), **seen.see(wait_s=0, now=start + 61)}
    assert found == paths


def test_an_unreadable_folder_is_said_and_picked_up_later(watch, tmp_path, monkeypatch):
    real, closed = Inotify.add, [True]

    def add(self, folder):  # tests may run as root, whom no mode keeps out
        if closed[0]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(self, folder)

    monkeypatch.setattr(Inotify, "add", add)
    seen = watch(Watched((str(tmp_path),)))
    start = time.monotonic()
    assert seen.how() == {str(tmp_path): "unreadable"}
    closed[0] = False
    (tmp_path / "m.gguf").touch()
    assert seen.see(wait_s=0, now=start + 61) == {str(tmp_path): False, str(tmp_path / "m.gguf"): False}
    assert seen.how() == {str(tmp_path): "events"}


def test_a_file_system_mounted_over_a_folder_is_looked_at_anew(watch, tmp_path):
    place = tmp_path / "models"
    place.mkdir()
    written = mountinfo(tmp_path, "ext4", Path("/elsewhere"))
    seen = watch(Watched((str(place),)), mountinfo=written)
    assert seen.how() == {str(place): "events"}
    Path(written).write_text(Path(written).read_text() + f"70 22 0:60 / {place} rw - cifs //nas/m rw\n")
    (place / "m.gguf").touch()
    seen.see()
    ready = [descriptor for descriptor, events in seen.watcher.descriptors() if events == select.POLLPRI]
    noticed = seen.watcher.collect(time.monotonic(), never, ready)
    assert noticed.paths == {str(place): False, str(place / "m.gguf"): False}  # others may be covered now
    assert seen.how() == {str(place): "events and polling"}


def test_recheck_finds_a_link_that_leads_elsewhere_now(watch, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two/m.gguf").touch()
    (tmp_path / "models").symlink_to("one")
    seen = watch(Watched((str(tmp_path / "models"),)))
    (tmp_path / "new").symlink_to("two")
    os.replace(tmp_path / "new", tmp_path / "models")
    assert seen.see() == {}
    noticed = Noticed()
    seen.watcher.recheck(noticed, never)
    assert noticed.paths == {str(tmp_path / "models"): False, str(tmp_path / "models/m.gguf"): False}


def test_look(tmp_path):
    (tmp_path / "a").write_bytes(b"xyz")
    assert look(str(tmp_path / "a"))[0] == 3
    (tmp_path / "dangling").symlink_to("none")
    assert look(str(tmp_path / "dangling")) is None
    assert look("a\0b") is None


# ---------------------------------------------------------------- other systems: watchdog's observer


def test_the_observer_reports_the_same(watch, tmp_path):
    place, config = tmp_path / "models", tmp_path / "config.toml"
    (place / "sub/.hidden").mkdir(parents=True)
    (place / "sub/old.gguf").touch()
    seen = watch(Watched((str(place), str(tmp_path / "late")), settings=(str(config),)), source=Observed)
    assert seen.how() == {str(place): "events", str(tmp_path / "late"): "missing"}
    (place / "sub/m.gguf").write_bytes(b"x")
    (place / "sub/.hidden/no").touch()
    config.touch()
    (place / "sub/old.gguf").unlink()
    assert seen.see(wait_s=1) == {
        str(place / "sub/m.gguf"): False, str(place / "sub/old.gguf"): True, str(config): False
    }  # fmt: skip
    shutil.rmtree(place)
    assert seen.see(wait_s=1)[str(place)] is True
    assert seen.how()[str(place)] == "missing"
