"""Thousands of orders in which a user and advisor may come to the same file. ADVISOR_LONG=1 tries 10,000 of them."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from advisor.managed.ledger import open_ledger
from advisor.slots import Slot, Value
from tests.unit.managed.conftest import Desk
from tests.unit.managed.dying import dies_after
from tests.unit.managed.formats import Flat, Lines
from tests.unit.managed.machine import machine
from tests.unit.managed.machine_case import Case

LONG = os.environ.get("ADVISOR_LONG", "") not in ("", "0")  # read at start: the tests' environment is a clean one
SLOTS: tuple[Slot, ...] = tuple((name,) for name in ("ctx", "ngl", "ub", "threads", "mmap"))


def lines_texts() -> st.SearchStrategy[str]:
    keys = st.sampled_from(["ctx", "ngl", "threads", "alias", "port"])
    line = st.one_of(
        st.just(""),
        st.sampled_from(["# notes", "#", "#  ctx = 5", "# größe"]),
        st.builds("{}{}{}{}".format, keys, st.sampled_from([" = ", "=", "  = "]), st.sampled_from(["1", "x y", ""]),
                  st.sampled_from(["", "  # mine"])),
    )  # fmt: skip
    unique = st.lists(line, max_size=6, unique_by=lambda text: text.split("=")[0].strip() or text)
    return st.builds(lambda lines, end: "\n".join(lines) + end, unique, st.sampled_from(["", "\n", "\n\n"]))


def mark_line(text: str, at: int, word: str) -> str:
    lines = text.split("\n")
    lines.insert(at % len(lines), f"# {word}")
    return "\n".join(lines)


def json_texts() -> st.SearchStrategy[str]:
    import json

    objects = st.dictionaries(
        st.sampled_from(["ctx", "ngl", "theme", 'ä"quote']),
        st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.just("x,}"), st.just([1, {"a": [2]}])),
        max_size=4,
    )
    return st.builds(
        lambda value, indent, ascii_, end: json.dumps(value, indent=indent, ensure_ascii=ascii_) + end,
        objects, st.sampled_from([None, 0, 2, "\t"]), st.booleans(), st.sampled_from(["", "\n"]),
    )  # fmt: skip


def texts_of(_: Slot) -> st.SearchStrategy[Value]:
    return st.sampled_from(["1", "2", "4096", "a b"])


def json_of(_: Slot) -> st.SearchStrategy[Value]:
    return st.one_of(st.integers(0, 3), st.booleans(), st.none(), st.sampled_from(["x", [1], {"k": 2}]))


CASES = {
    "own lines": Case(Lines("own"), lines_texts(), SLOTS, texts_of, mark_line),
    "shared lines": Case(Lines("merge"), lines_texts(), SLOTS, texts_of, mark_line),
    "own json": Case(Flat("own"), json_texts(), SLOTS, json_of),
    "shared json": Case(Flat("merge"), json_texts(), SLOTS, json_of),
}


@pytest.mark.parametrize("name", CASES)
def test_no_byte_of_the_users_is_lost(name, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power cuts here, and it is most of the time
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_state_machine_as_test(
        machine(CASES[name]),
        settings=settings(
            max_examples=10_000 // len(CASES) if LONG else 25,
            stateful_step_count=30,
            derandomize=not LONG,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_killed_at_any_moment(tmp_path):
    """200 runs of a writer that is killed by SIGKILL at a random time; the file is always a whole one."""
    desk = Desk(tmp_path, Lines())
    desk.write("# mine\nport = 80\n")
    desk.apply(a="0", b="0", adopt=True)

    def work() -> None:
        for number in range(1000):
            desk.apply(a=str(number), b=str(number))
            if number % 5 == 4:
                desk.undo()
                desk.apply(a=str(number), b=str(number), adopt=True)

    n_killed, n_settled, start = 0, 0, time.monotonic()
    chance = random.Random(4)
    for _ in range(2000 if LONG else 200):
        n_killed += dies_after(chance.uniform(0, 0.03), work)
        lines = desk.text.splitlines()
        assert lines[:2] == ["# mine", "port = 80"]
        values = Lines().parse(desk.text)
        assert values["a",] == values["b",], "half of a change"
        with open_ledger(desk.state) as ledger:
            n_settled += len(ledger.notes)
            assert all("was cut off and was" in note for note in ledger.notes)
            assert list(ledger.files) == [str(desk.file)]
        desk.apply(a="next", b="next", adopt=True)
        assert desk.text == "# mine\nport = 80\na = next\nb = next\n"
        for folder in (desk.file.parent, Path(desk.state)):
            assert [name for name in os.listdir(folder) if name.startswith(".advisor-")] == []
        if not LONG and n_killed >= 50 and time.monotonic() - start > 20:
            break
    assert n_killed >= 50
    assert n_settled > 0
    desk.uninstall()
    assert desk.text == "# mine\nport = 80\n"
