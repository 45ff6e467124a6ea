"""`python -m tests.hostile.storm [FILES] [SECONDS]`: the real daemon under 10,000 random acts on files in 600 s.

Another process creates, half writes, finishes, renames, replaces and deletes models (tests/tools/storm.py), while wishes
and rules change every few seconds. At the end both targets must hold exactly the models that are whole.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import NamedTuple

from tests.hostile.longlife import CONTEXTS, a_home
from tests.tools.kept import ROOT
from tests.tools.real_daemon import memory_kib, n_descriptors, n_threads
from tests.tools.user_manager import wait_for

PATIENCE_S = 300
CHANGE_S = 7.0


class Counts(NamedTuple):
    """What came of it."""

    acts: int
    seconds: float
    changed_wishes: int
    models_left: int
    lost: int
    kib_before: int
    kib_most: int
    kib_after: int
    descriptors: tuple[int, int]  # before and after
    threads: tuple[int, int]


def run(n_acts: int = 10_000, seconds: float = 600.0) -> Counts:
    """Raises AssertionError when the end is not right."""
    with a_home() as home:
        home.model("calm")
        home.configure(CONTEXTS[0])
        home.daemon.start()
        wait_for(lambda: home.holds(["calm"], CONTEXTS[0]), "the first configs", PATIENCE_S)
        wait_for(home.daemon.idle, "rest", PATIENCE_S)
        pid, began, changes = home.daemon.pid, time.monotonic(), 0
        before = (n_descriptors(pid), n_threads(pid), memory_kib(pid, "VmRSS"))
        words = [sys.executable, "-m", "tests.tools.storm", str(home.models), str(n_acts), "1", str(seconds)]
        storm = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        n_ctx, due = CONTEXTS[0], began + CHANGE_S
        while storm.poll() is None:
            time.sleep(0.1)
            if time.monotonic() >= due:
                n_ctx, due, changes = CONTEXTS[changes % 2 == 0], due + CHANGE_S, changes + 1
                home.configure(n_ctx)
        assert storm.stdout is not None
        names = sorted(["calm", *json.loads(storm.stdout.read())])
        storm.stdout.close()
        wait_for(lambda: home.holds(names, n_ctx), "the right configs", PATIENCE_S)
        wait_for(home.daemon.idle, "rest", PATIENCE_S)
        after = (n_descriptors(pid), n_threads(pid), memory_kib(pid, "VmRSS"))
        most = memory_kib(pid, "VmHWM")
        status = home.daemon.status()
        assert (status["failures"], status["unexpected_errors"]) == ([], 0), status
        home.daemon.stop()
        assert home.leftovers() == []
        assert home.ledger_troubles() == []
    took = round(time.monotonic() - began, 1)
    return Counts(
        n_acts, took, changes, len(names), 0, before[2], most, after[2], (before[0], after[0]), (before[1], after[1])
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.storm", description="random acts on files of models")
    parser.add_argument("n_acts", metavar="ACTS", nargs="?", type=int, default=10_000, help="(default: 10000)")
    parser.add_argument("seconds", metavar="SECONDS", nargs="?", type=int, default=600, help="(default: 600)")
    asked = parser.parse_args()
    counts = run(asked.n_acts, asked.seconds)
    print(json.dumps(counts._asdict()))
    assert counts.descriptors[0] == counts.descriptors[1]
    assert counts.threads[0] == counts.threads[1]
