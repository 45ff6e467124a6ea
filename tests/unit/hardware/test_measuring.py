"""Measuring memory and disks: real, bounded, and a reason where it cannot be done."""

from __future__ import annotations

import os
import threading
import time

import pytest

from advisor.hardware import disk_speed, ram_speed
from advisor.hardware.disk_speed import DiskSpeed, measure_file
from advisor.hardware.ram_speed import last_cache_bytes, measure_ram

MIB = 1 << 20


def test_memory_is_measured_in_a_second():
    started = time.monotonic()
    rate = measure_ram(2, 8 << 30)
    assert time.monotonic() - started < 5  # under a second on a machine at rest
    assert rate is not None
    assert 10**9 < rate < 10**13


def test_memory_is_measured_as_a_copy_says():
    """Reading is no slower than half of what copying moves, and not ten times faster either."""
    source = bytearray(os.urandom(MIB)) * 128
    best = min(timed(lambda: bytearray(source)) for _ in range(5))
    copied = 2 * len(source) / best
    rate = measure_ram(1, 8 << 30, seconds=0.3)
    assert rate is not None
    assert copied / 4 < rate < copied * 20


def timed(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@pytest.mark.parametrize("available", [0, MIB, 4 * MIB])
def test_a_machine_without_room(available):
    assert measure_ram(4, available) is None


def test_many_threads_share_the_buffer():
    assert measure_ram(100_000, 8 << 30, seconds=0.05) is not None
    assert threading.active_count() < 20


def test_a_library_without_the_functions(monkeypatch):
    monkeypatch.setattr(ram_speed.ctypes, "CDLL", lambda name: object())
    assert measure_ram(2, 8 << 30) is None


@pytest.mark.parametrize(
    ("sizes", "found"),
    [(("512K", "32768K", None), 32 * MIB), (("1M", None, None), MIB), ((None, None, None), 32 * MIB),
     (("x", "", "99999999999K"), 32 * MIB)],
)  # fmt: skip
def test_the_last_cache(monkeypatch, sizes, found):
    monkeypatch.setattr(ram_speed, "read_text", lambda path, limit: sizes[int(path.split("index")[1][0]) - 2])
    assert last_cache_bytes() == found


# ---------------------------------------------------------------- disks


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "folder" / "model.gguf"
    path.parent.mkdir()
    with path.open("wb") as file:
        for _ in range(40):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
    return path


def test_a_file_is_read_and_nothing_is_written(model):
    before = (os.stat(model.parent).st_mtime_ns, os.stat(model).st_mtime_ns, os.listdir(model.parent))
    speed = measure_file(str(model))
    assert speed.reason == ""
    assert speed.bytes_per_s is not None
    assert 10**5 < speed.bytes_per_s < 10**12
    assert before == (os.stat(model.parent).st_mtime_ns, os.stat(model).st_mtime_ns, os.listdir(model.parent))


def test_it_stops_when_time_is_up(model, monkeypatch):
    real, seen = os.preadv, []

    def slow(*arguments):
        time.sleep(0.02)
        seen.append(1)
        return real(*arguments)

    monkeypatch.setattr(disk_speed.os, "preadv", slow)
    speed = measure_file(str(model), seconds=0.05)
    assert speed.bytes_per_s is not None
    assert speed.bytes_per_s <= 4 * MIB / 0.02
    assert len(seen) < 10


def test_no_more_than_the_limit_is_read(model, monkeypatch):
    monkeypatch.setattr(disk_speed, "MAX_BYTES", 20 * MIB)
    real, seen = os.preadv, []

    def counted(*arguments):
        got = real(*arguments)
        seen.append(got)
        return got

    monkeypatch.setattr(disk_speed.os, "preadv", counted)
    assert measure_file(str(model)).bytes_per_s is not None
    assert sum(got for got in seen if got > 1) == 20 * MIB


def test_a_file_system_without_direct_reads(model, monkeypatch):
    """The pages are dropped first; where they stay, nothing is measured."""
    real = os.open

    def refuses(path, flags, *rest):
        if flags & getattr(os, "O_DIRECT", 0):
            raise OSError(22, "Invalid argument")
        return real(path, flags, *rest)

    monkeypatch.setattr(disk_speed.os, "open", refuses)
    measured = measure_file(str(model))
    assert (measured.bytes_per_s is not None) != ("stays in memory" in measured.reason)
    monkeypatch.setattr(disk_speed, "_evicted", lambda descriptor: False)
    assert "stays in memory" in measure_file(str(model)).reason


def test_what_cannot_be_measured(tmp_path, model):
    small = tmp_path / "small"
    small.write_bytes(b"x" * 1000)
    holes = tmp_path / "holes"
    with holes.open("wb") as file:
        file.truncate(64 * MIB)
    for path, word in ((small, "too small"), (holes, "not all on the disk"), (tmp_path / "none", "cannot be read"),
                       (tmp_path / "nul\0", "cannot be read")):  # fmt: skip
        speed = measure_file(str(path))
        assert speed.bytes_per_s is None
        assert word in speed.reason


def test_a_disk_that_hangs_is_left(model, monkeypatch):
    monkeypatch.setattr(disk_speed, "_PATIENCE_S", 0.1)
    release = threading.Event()
    monkeypatch.setattr(disk_speed, "_measure", lambda path, seconds: release.wait(20) and DiskSpeed(1, ""))
    started = time.monotonic()
    speed = measure_file(str(model), seconds=0.1)
    release.set()
    assert time.monotonic() - started < 5
    assert speed.bytes_per_s is None
    assert "did not come" in speed.reason
