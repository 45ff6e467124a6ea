"""The cache is right or absent: every change of a file is seen, every broken database survived."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from advisor.stores import cache as module
from advisor.stores.cache import FILE, KEPT_PLAN_KEYS, Cache, cache_folder
from advisor.stores.types import Facts, FileIdentity, StoredModel
from tests.tools.stores import as_nobody

FACTS = Facts("model", "llama", "Größe \ud800 \x1b[31m", "Q4_K_M", 131072, 1 << 40)
OLD = FileIdentity(1, 2, 3, 4)


def model(path: str = "/m.gguf", *identity: FileIdentity) -> StoredModel:
    return StoredModel("folder", "m", path, (path,), 3, identity or (OLD,))


def filled(folder: Path) -> None:
    with Cache(str(folder)) as cache:
        cache.remember_facts(model(), FACTS, None)
        cache.remember_answer(model(), "key", {"verdict": "full"})
        cache.remember_note("note", [1, 2])


def is_filled(folder: Path) -> bool:
    """Whether everything is there; whatever is there is right."""
    with Cache(str(folder)) as cache:
        facts, answer, note = cache.facts(model()), cache.answer(model(), "key"), cache.note("note")
    assert facts in (None, (FACTS, None))
    assert answer in (None, {"verdict": "full"})
    assert note in (None, [1, 2])
    return None not in (facts, answer, note)


def works(folder: Path) -> bool:
    """Whether the cache can be written again after whatever happened."""
    filled(folder)
    return is_filled(folder)


def test_what_is_remembered_comes_back(tmp_path: Path) -> None:
    assert not is_filled(tmp_path)
    assert works(tmp_path)
    assert (tmp_path / FILE).stat().st_size < 1 << 20


@pytest.mark.parametrize("changed", range(4))
def test_every_part_of_the_identity_counts(changed: int, tmp_path: Path) -> None:
    filled(tmp_path)
    values = list(OLD)
    values[changed] += 1
    with Cache(str(tmp_path)) as cache:
        other = model("/m.gguf", FileIdentity(*values))
        assert (cache.facts(other), cache.answer(other, "key")) == (None, None)
        assert cache.facts(model("/other.gguf")) is None
        assert cache.answer(model(), "other key") is None
        assert cache.facts(model()) == (FACTS, None)


def test_every_part_of_a_split_model_counts(tmp_path: Path) -> None:
    parts = [FileIdentity(1 << 63, (1 << 64) - 1, n, -n) for n in range(40)]
    with Cache(str(tmp_path)) as cache:
        cache.remember_facts(model("/m", *parts), FACTS, None)
        cache.flush()
        assert cache.facts(model("/m", *parts)) == (FACTS, None)
        assert cache.facts(model("/m", *parts[:-1], OLD)) is None


def test_another_advisor_reads_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    monkeypatch.setattr(module, "__version__", "99")
    assert not is_filled(tmp_path)


def test_a_problem_of_a_file_that_is_being_written_is_not_kept(tmp_path: Path) -> None:
    young = FileIdentity(1, 2, 3, time.time_ns())
    future = FileIdentity(1, 2, 3, time.time_ns() + 10**18)
    with Cache(str(tmp_path)) as cache:
        for identity in (young, future):
            cache.remember_facts(model("/young", identity), None, "broken")
            cache.flush()
            assert cache.facts(model("/young", identity)) is None
            cache.remember_facts(model("/good", identity), FACTS, None)
            cache.flush()
            assert cache.facts(model("/good", identity)) == (FACTS, None)
        cache.remember_facts(model("/old"), None, "broken")
        cache.flush()
        assert cache.facts(model("/old")) == (None, "broken")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    odd = model(os.fsdecode(b"/\xff\n'\"/m.gguf"))
    with Cache(str(tmp_path)) as cache:
        cache.remember_facts(odd, FACTS, None)
        cache.flush()
        assert cache.facts(odd) == (FACTS, None)


def test_without_a_folder_nothing_is_kept() -> None:
    with Cache(None) as cache:
        cache.remember_facts(model(), FACTS, None)
        cache.remember_answer(model(), "key", {})
        cache.flush()
        assert (cache.facts(model()), cache.answer(model(), "key"), cache.note("x")) == (None, None, None)


def test_old_answers_are_let_go(tmp_path: Path) -> None:
    for number in range(KEPT_PLAN_KEYS + 3):
        with Cache(str(tmp_path)) as cache:
            cache.remember_answer(model(), f"key {number}", {"number": number})
    with Cache(str(tmp_path)) as cache:
        kept = [number for number in range(KEPT_PLAN_KEYS + 3) if cache.answer(model(), f"key {number}")]
    assert kept == list(range(3, KEPT_PLAN_KEYS + 3))


# ---------------------------------------------------------------- broken


@pytest.mark.parametrize("data", [b"", b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 5000, bytes(100_000)])
def test_a_file_that_is_no_database_is_rebuilt(data: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(data)
    assert not is_filled(tmp_path)
    assert works(tmp_path)


@pytest.mark.parametrize("offset", [0, 16, 28, 100, 1000, 4096, 4100, 8192, 9000])
def test_a_damaged_database_is_rebuilt(offset: int, tmp_path: Path) -> None:
    filled(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 64)
    is_filled(tmp_path)  # right or empty, never anything else
    assert works(tmp_path)


def test_a_cut_database_is_rebuilt(tmp_path: Path) -> None:
    filled(tmp_path)
    for n_bytes in (1, 50, 100, 4096, 5000, 10_000):
        os.truncate(tmp_path / FILE, n_bytes)
        is_filled(tmp_path)
        assert works(tmp_path)


def change(folder: Path, *statements: str) -> None:
    db = sqlite3.connect(folder / FILE)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE facts",
        "DROP TABLE notes",
        "ALTER TABLE facts RENAME COLUMN facts TO other",
        "PRAGMA user_version = 0",
    ],
)
def test_tables_of_another_shape_are_rebuilt(statement: str, tmp_path: Path) -> None:
    filled(tmp_path)
    change(tmp_path, statement)
    with Cache(str(tmp_path)) as cache:
        assert cache.facts(model()) is None
    assert works(tmp_path)


@pytest.mark.parametrize("text", ["''", "'{'", "'[]'", "'3'", "'{\"kind\": 3}'", "3", "x'ff'", "CAST(x'ff' AS TEXT)"])
def test_rows_of_another_shape_are_passed_over(text: str, tmp_path: Path) -> None:
    filled(tmp_path)
    change(tmp_path, f"UPDATE facts SET facts = {text}", f"UPDATE answers SET answer = {text}")
    with Cache(str(tmp_path)) as cache:
        assert cache.facts(model()) is None
        answer = cache.answer(model(), "key")
        assert answer is None or isinstance(answer, dict)
    assert works(tmp_path)


def test_a_newer_advisors_database_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    change(tmp_path, "PRAGMA user_version = 2")
    before = (tmp_path / FILE).read_bytes()
    assert not works(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_database_that_has_grown_too_large_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 1000)
    assert not is_filled(tmp_path)


# ---------------------------------------------------------------- out of reach


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not works(tmp_path / "file" / "below")
    (tmp_path / "folder" / FILE).mkdir(parents=True)
    assert not works(tmp_path / "folder")
    assert not works(Path("/proc/no"))


def test_a_database_that_may_only_be_read() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "advisor"
        filled(folder)
        for path, mode in ((place, 0o755), (folder, 0o555), (folder / FILE, 0o444)):
            os.chmod(path, mode)
        with as_nobody():
            with Cache(str(folder)) as cache:
                assert cache.facts(model()) == (FACTS, None)
                cache.remember_note("note", "new")
            assert is_filled(folder)
        os.chmod(folder, 0o755)


def test_a_database_that_somebody_keeps_locked(tmp_path: Path) -> None:
    filled(tmp_path)
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    start = time.monotonic()
    with Cache(str(tmp_path)) as cache:
        for number in range(100):
            assert cache.facts(model()) is None
            cache.remember_note(str(number), number)
    assert time.monotonic() - start < 3  # it waits once and not for every row
    other.execute("ROLLBACK")
    other.close()
    assert is_filled(tmp_path)


def test_a_database_that_vanishes_meanwhile(tmp_path: Path) -> None:
    filled(tmp_path)
    with Cache(str(tmp_path)) as cache:
        (tmp_path / FILE).unlink()
        cache.remember_note("note", 3)
    assert works(tmp_path)


_WRITER = """
import sys
from advisor.stores.cache import Cache
from tests.unit.stores.test_cache import FACTS, model
for turn in range(20):
    with Cache(sys.argv[1]) as cache:
        for number in range(50):
            cache.remember_facts(model(f"/{sys.argv[2]}/{number}"), FACTS, None)
            cache.remember_answer(model(f"/{sys.argv[2]}/{number}"), "key", {"turn": turn})
            cache.facts(model(f"/a/{number}"))
"""


def test_several_processes_at_once(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), name],
            cwd=Path(__file__).parents[3],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b", "c")
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert (writer.returncode, errors) == (0, "")
    with Cache(str(tmp_path)) as cache:
        for name in ("a", "b", "c"):
            for number in range(50):
                assert cache.facts(model(f"/{name}/{number}")) == (FACTS, None)
    db = sqlite3.connect(tmp_path / FILE)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_a_process_that_is_killed_while_it_writes(tmp_path: Path) -> None:
    for wait in (0.3, 0.35, 0.4, 0.5):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), "a"],
            cwd=Path(__file__).parents[3],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(wait)
        writer.kill()
        writer.wait()
        with Cache(str(tmp_path)) as cache:
            for number in range(50):
                assert cache.facts(model(f"/a/{number}")) in (None, (FACTS, None))
    assert works(tmp_path)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == "/c/advisor"
    assert cache_folder({"XDG_CACHE_HOME": "rel", "HOME": "/h"}) == "/h/.cache/advisor"
    assert cache_folder({"HOME": "/h"}) == "/h/.cache/advisor"
