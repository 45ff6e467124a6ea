"""Few kills and a small storm; the commands in SECURITY.md run the many."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from pathlib import Path

import pytest

from tests.hostile import kills, storm
from tests.hostile.longlife import a_home
from tests.tools.user_manager import wait_for


def test_killed_at_random_moments_it_loses_nothing() -> None:
    counts = kills.run(6, seed=random.Random().randrange(10**6))
    print(counts)
    assert (counts.kills, counts.lost) == (6, 0)
    assert counts.rests == 1


def test_a_storm_with_wishes_and_rules_changing() -> None:
    counts = storm.run(150, 8.0)
    print(counts)
    assert counts.changed_wishes >= 1
    assert counts.lost == 0
    assert counts.descriptors[0] == counts.descriptors[1]
    assert counts.threads[0] == counts.threads[1]
    assert counts.kib_after < counts.kib_before * 1.5


# ---------------------------------------------------------------- state that is broken, new or locked: no crash loop

CACHE, STATE = ".cache/advisor", ".local/state/advisor"
NOISE = os.urandom(4096)


def broken(home: Path, what: str) -> None:
    """Spoil what advisor keeps for itself."""
    state, cache = home / STATE, home / CACHE
    if what == "all of it is noise":
        for path in [*state.rglob("*"), *cache.rglob("*")]:
            if path.is_file() and "backups" not in path.parts:
                path.write_bytes(NOISE)
    elif what == "the cache is of a newer advisor":
        (database,) = cache.glob("*.sqlite")
        with sqlite3.connect(database) as db:
            db.execute("PRAGMA user_version = 9999")
        db.close()
    elif what == "the ledger is of a newer advisor":
        ledger = state / "managed/managed.json"
        ledger.write_text(ledger.read_text().replace("advisor.ledger/2", "advisor.ledger/99"))
    elif what == "folders are files":
        for folder in (cache, state):
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            folder.rmdir()
            folder.write_bytes(b"")
    elif what == "nothing may be written":
        for path in (state, cache):
            path.chmod(0o500)


@pytest.mark.parametrize(
    "what",
    [
        "all of it is noise", "the cache is of a newer advisor", "the ledger is of a newer advisor", "folders are files",
        "the cache is locked", "nothing may be written",
    ],
)  # fmt: skip
def test_the_daemon_lives_with_broken_state(what: str) -> None:
    with a_home() as home:
        home.model("calm")
        home.configure(512)
        home.daemon.start()
        wait_for(lambda: home.holds(["calm"], 512), "the first configs")
        home.daemon.stop()
        text = home.preset.read_text()
        lock = None
        if what == "the cache is locked":
            (database,) = (home.home / CACHE).glob("*.sqlite")
            lock = sqlite3.connect(database, isolation_level=None)
            lock.execute("BEGIN EXCLUSIVE")
        broken(home.home, what)
        try:
            home.daemon.start(first_pass=False)  # and it rests, whatever it has to say; at times no pass can be made
            wait_for(lambda: (now := home.daemon.status())["last_pass"] or now["failures"], "a pass")
            home.model("second")
            time.sleep(1.0)
            wait_for(lambda: home.daemon.status()["state"] == "idle", "rest")
            status = home.daemon.status()
            assert status["unexpected_errors"] == 0, home.daemon.log.read_text()
            for said in status["failures"]:
                assert said.isprintable()
                assert said.endswith(".")
            if what in ("the cache is of a newer advisor", "the cache is locked"):
                wait_for(lambda: home.holds(["calm", "second"], 512), "the new model")
                assert status["failures"] == []
            elif what == "folders are files":
                (said,) = status["failures"]
                assert "cannot be used for advisor's state" in said
            else:  # what it wrote is the user's now, or nothing can be noted: left as it was, and said
                assert home.preset.read_text().startswith(text[:40])
        finally:
            if lock is not None:
                lock.close()
            for path in (home.home / STATE, home.home / CACHE):
                if path.is_dir():
                    path.chmod(0o700)
        home.daemon.stop()
