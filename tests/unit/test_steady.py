"""Memory at rest for configs that are to last."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from advisor.host import HostSnapshot
from advisor.steady import at_rest
from advisor.stores.cache import Cache
from tests.tools.machines import machine

GIB = 1 << 30
DAY = 86400.0


def with_free(vram_gib: float, ram_gib: float) -> HostSnapshot:
    host = machine(12.0, ram_gib=64)
    device = host.devices[0]._replace(free_bytes=int(vram_gib * GIB))
    return host._replace(devices=(device,), ram=host.ram._replace(available_bytes=int(ram_gib * GIB)))


def rest(folder: Path, host: HostSnapshot, now_s: float) -> tuple[float, float]:
    """(GPU, RAM) at rest in GiB, as a process that starts now sees them."""
    with Cache(str(folder)) as cache:
        found = at_rest(host, cache, now_s)
    assert found.devices[0].used_by_engines_bytes == 0
    return round(found.devices[0].free_bytes / GIB, 6), round(found.ram.available_bytes / GIB, 6)


def test_what_somebody_takes_for_an_evening_does_not_count(tmp_path: Path) -> None:
    assert rest(tmp_path, with_free(11, 60), 0) == (11, 60)
    assert rest(tmp_path, with_free(2, 30), DAY / 2) == (11, 60)
    assert rest(tmp_path, with_free(11.5, 30), DAY) == (11.5, 60)


def test_what_is_taken_all_the_time_does(tmp_path: Path) -> None:
    rest(tmp_path, with_free(11, 60), 0)
    for day in (1, 2):
        assert rest(tmp_path, with_free(8, 50), day * DAY) == (11, 60)
    assert rest(tmp_path, with_free(8, 50), 3 * DAY) == (8, 50)


def test_small_differences_change_nothing(tmp_path: Path) -> None:
    assert rest(tmp_path, with_free(11, 60), 0) == (11, 60)
    for day, (vram, ram) in enumerate([(11.1, 60.3), (10.9, 59.8), (11.2, 60.4), (10.8, 59.6), (10.8, 59.6)]):
        assert rest(tmp_path, with_free(vram, ram), day * DAY) == (11, 60)
    assert rest(tmp_path, with_free(11.5, 60), 5 * DAY) == (11.5, 60)


def test_another_machine_and_a_clock_set_back_begin_anew(tmp_path: Path) -> None:
    rest(tmp_path, with_free(11, 60), 10 * DAY)
    assert rest(tmp_path, with_free(8, 50), 2 * DAY) == (8, 50)
    with Cache(str(tmp_path)) as cache:
        assert at_rest(machine(24.0, ram_gib=64), cache, 10 * DAY).devices[0].free_bytes == 24 * GIB


def test_engines_that_will_be_replaced_do_not_count(tmp_path: Path) -> None:
    host = with_free(3, 40)
    host = host._replace(devices=(host.devices[0]._replace(used_by_engines_bytes=8 * GIB),))
    assert rest(tmp_path, host, 0) == (11, 40)


@pytest.mark.parametrize("note", ["x", [1], [[0, "a", 2]], [[0, 1, 2, 3]], None, [[-1, True, 2]], {}])
def test_a_broken_note_is_none(tmp_path: Path, note: object) -> None:
    rest(tmp_path, with_free(11, 60), 0)
    (database,) = tmp_path.glob("*.sqlite")
    with sqlite3.connect(database) as connection:
        assert connection.execute("UPDATE notes SET text = ?", (json.dumps(note),)).rowcount == 1
    connection.close()
    assert rest(tmp_path, with_free(8, 50), 0) == (8, 50)
