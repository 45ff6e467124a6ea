from __future__ import annotations

import itertools

import pytest

from advisor.watch.settle import Settler


class Files:
    """Path -> facts, and how often each was looked at."""

    def __init__(self, **facts):
        self.facts = facts
        self.looks = []

    def look(self, path):
        self.looks.append(path)
        return self.facts.get(path)


def run(settler, files, until, step=0.05, events=()):
    """(time, batch) of everything that is handed out up to `until`; `events` are (time, path, gone)."""
    batches, now, events = [], 0.0, sorted(events)
    while now <= until:
        while events and events[0][0] <= now:
            _, path, gone = events.pop(0)
            settler.note(path, now, gone=gone)
        batch = settler.take(now, files.look)
        if batch is not None:
            batches.append((round(now, 2), batch.paths))
        now = round(now + step, 6)
    return batches


def test_a_file_settles_a_second_after_its_last_event():
    files = Files(a=(10, 1))
    batches = run(Settler(), files, 5, events=[(0, "a", False), (0.6, "a", False)])
    assert len(batches) == 1
    when, paths = batches[0]
    assert paths == {"a"}
    assert 1.6 <= when <= 1.6 + 1.0  # the config must stand within 3 s of the last byte
    assert files.looks == ["a", "a", "a"]  # the first look was before the second event


def test_a_file_that_changes_between_the_looks_has_not_settled():
    settler, files = Settler(), Files(a=(10, 1))
    settler.note("a", 0.0)
    assert settler.take(0.5, files.look) is None
    files.facts["a"] = (20, 2)
    assert settler.take(1.0, files.look) is None
    assert settler.take(2.0, files.look) is None  # the same twice: settled, and gathered
    assert settler.take(2.2, files.look).paths == {"a"}


def test_looks_at_a_growing_file_become_rare_and_its_last_event_ends_that():
    settler, times, now, sizes = Settler(), [], 0.0, itertools.count(1)
    settler.note("a", 0.0)
    while now < 200:
        now = settler.next_due()
        times.append(now)
        assert settler.take(now, lambda path: next(sizes)) is None
    gaps = [round(b - a, 3) for a, b in itertools.pairwise(times)]
    assert gaps == sorted(gaps)
    assert max(gaps) == 30
    assert len(times) < 15
    settler.note("a", now)  # its writer closed it
    assert settler.next_due() == pytest.approx(now + 0.5)


def test_what_is_gone_needs_no_look():
    files = Files()
    batches = run(Settler(), files, 2, events=[(0, "a", True)])
    assert batches == [(0.2, {"a"})]
    assert files.looks == []


def test_a_file_that_goes_while_it_settles_is_handed_out():
    batches = run(Settler(), Files(), 3, events=[(0, "a", False)])
    assert [paths for _, paths in batches] == [{"a"}]


def test_a_file_that_is_replaced_is_handed_out_once_and_settled():
    files = Files(a=(1, 1))
    batches = run(Settler(), files, 4, events=[(0, "a", True), (0.05, "a", False)])
    assert [paths for _, paths in batches] == [{"a"}]
    assert batches[0][0] >= 1.05


def test_a_burst_is_one_batch():
    names = [f"f{i}" for i in range(10_000)]
    files = Files(**dict.fromkeys(names, (1, 1)))
    batches = run(Settler(), files, 5, events=[(i * 0.7 / 10_000, name, False) for i, name in enumerate(names)])
    assert [len(paths) for _, paths in batches] == [10_000]


def test_a_folder_that_never_rests_holds_nothing_up_for_long():
    files = Files(a=(1, 1), noise=(1, 1))
    events = [(0, "a", False)] + [(i * 0.1, "noise", False) for i in range(100)]
    when, paths = run(Settler(), files, 10, events=events)[0]
    assert "a" in paths
    assert when <= 2.1


def test_too_many_paths_become_everything_and_are_forgotten():
    settler = Settler(max_paths=100)
    for i in range(1000):
        settler.note(f"f{i}", 0.0)
    assert settler.take(0.9, lambda path: (1,)) is None
    assert settler.take(1.0, lambda path: (1,)).paths is None
    assert settler.next_due() is None
    settler.note("a", 2.0)
    assert settler.take(2.5, lambda path: (1,)) is None
    assert settler.take(3.0, lambda path: (1,)) is None
    assert settler.take(3.2, lambda path: (1,)).paths == {"a"}


def test_everything_does_not_wait_for_ever_either():
    settler = Settler(max_paths=1)
    now, batch = 0.0, None
    while batch is None and now < 10:
        settler.note_everything(now)
        now += 0.1
        batch = settler.take(now, lambda path: None)
    assert 1.9 <= now <= 2.2


def test_nothing_to_do_is_said():
    settler = Settler()
    assert settler.next_due() is None
    assert settler.take(0.0, lambda path: None) is None
