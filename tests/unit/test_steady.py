"""Memory at rest for configs that are to last."""

from __future__ import annotations

from pathlib import Path

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


def free(host: HostSnapshot) -> tuple[float, float]:
    return host.devices[0].free_bytes / GIB, host.ram.available_bytes / GIB


def test_what_somebody_takes_for_an_evening_does_not_count(tmp_path: Path) -> None:
    with Cache(str(tmp_path)) as cache:
        assert free(at_rest(with_free(11, 60), cache, 0)) == (11, 60)
        assert free(at_rest(with_free(2, 30), cache, DAY / 2)) == (11, 60)
        assert free(at_rest(with_free(11.5, 30), cache, DAY)) == (11.5, 60)


def test_what_is_taken_all_the_time_does(tmp_path: Path) -> None:
    with Cache(str(tmp_path)) as cache:
        at_rest(with_free(11, 60), cache, 0)
        for day in (1, 2):
            assert free(at_rest(with_free(8, 50), cache, day * DAY)) == (11, 60)
        assert free(at_rest(with_free(8, 50), cache, 3 * DAY)) == (8, 50)


def test_another_machine_and_a_clock_set_back_begin_anew(tmp_path: Path) -> None:
    with Cache(str(tmp_path)) as cache:
        at_rest(with_free(11, 60), cache, 10 * DAY)
        assert free(at_rest(with_free(8, 50), cache, 2 * DAY)) == (8, 50)
        other = machine(24.0, ram_gib=64)
        assert at_rest(other, cache, 10 * DAY).devices[0].free_bytes == 24 * GIB


def test_engines_that_will_be_replaced_and_broken_notes(tmp_path: Path) -> None:
    host = with_free(3, 40)
    host = host._replace(devices=(host.devices[0]._replace(used_by_engines_bytes=8 * GIB),))
    with Cache(str(tmp_path)) as cache:
        assert free(at_rest(host, cache, 0)) == (11, 40)
        for note in ("x", [1], [[0, "a", 2]], [[0, 1, 2, 3]], None):
            for name in list(notes(cache)):
                cache.remember_note(name, note)
            assert free(at_rest(host, cache, 0)) == (11, 40)


def notes(cache: Cache) -> list[str]:
    """The one name that at_rest uses here."""
    seen: list[str] = []
    real = cache.note
    cache.note = lambda name: seen.append(name) or real(name)  # type: ignore[method-assign, func-returns-value]
    at_rest(with_free(3, 40), cache, 0)
    cache.note = real  # type: ignore[method-assign]
    return seen
