"""`python -m tests.hostile.kills [N] [SEED]`: kill -9 of the real daemon at N random moments (500), and its restarts.

Before each start something changes (a wish, a rule, a model comes, goes or is half there), so that there is something to
write. After each kill every config must be whole, with what the user wrote into it; after every tenth restart the daemon
is left to come to rest, and configs, ledger and folders must be right.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from typing import NamedTuple

from tests.hostile.longlife import CONTEXTS, THOUGHT, Home, a_home
from tests.tools.kept import ROOT
from tests.tools.user_manager import wait_for

PATIENCE_S = 180
EVERY = 10


class Counts(NamedTuple):
    """What came of it."""

    kills: int
    while_starting: int  # before the daemon said that it works
    while_working: int
    while_idle: int
    rests: int
    left_by_a_kill: int  # temporary files, which the next start takes away
    lost: int
    seconds: float


def run(n_kills: int, seed: int = 1) -> Counts:
    """Raises AssertionError with the moment at which something was lost."""
    chance, began = random.Random(seed), time.monotonic()
    states = {"starting": 0, "working": 0, "idle": 0}
    rests = left = 0
    with a_home() as home:
        names, n_ctx = {"calm"}, CONTEXTS[0]
        home.model("calm")
        home.configure(n_ctx)
        home.daemon.start()
        wait_for(lambda: home.holds(["calm"], CONTEXTS[0]), "the first configs", PATIENCE_S)
        home.daemon.stop()
        with home.preset.open("a") as file:
            file.write(THOUGHT)
        for number in range(n_kills):
            n_ctx = _change(home, chance, names, n_ctx)
            state = _killed(home, chance.uniform(0.0, 0.6), early=chance.random() < 0.2)
            states[state] += 1
            left += len(home.leftovers())
            text = home.preset.read_text()
            assert THOUGHT in text, f"kill {number}: what the user wrote is gone"
            for contexts in (home.contexts(), home.kobolds()):
                assert set(contexts.values()) <= {str(each) for each in CONTEXTS}, f"kill {number}: {contexts}"
            if number % EVERY == EVERY - 1 or number == n_kills - 1:
                _rest(home, sorted(names), n_ctx)
                rests += 1
    return Counts(n_kills, *states.values(), rests, left, 0, round(time.monotonic() - began, 1))


def _change(home: Home, chance: random.Random, names: set[str], n_ctx: int) -> int:
    act = chance.randrange(4)
    if act == 0:
        n_ctx = CONTEXTS[1] if n_ctx == CONTEXTS[0] else CONTEXTS[0]
        home.configure(n_ctx)
    elif act == 1 or len(names) < 3:
        name = f"m{chance.randrange(10**6)}"
        home.model(name)
        names.add(name)
    elif act == 2:
        name = chance.choice(sorted(names - {"calm"}))
        (home.models / f"{name}.gguf").unlink()
        names.discard(name)
    else:
        home.model(f"half{chance.randrange(10**6)}", whole=False)
    return n_ctx


def _killed(home: Home, after_s: float, early: bool) -> str:
    """Start the daemon, kill it that time after it says that it works (`early`: after its start), say what it did."""
    command = [sys.executable, "-m", "advisor", "daemon"]
    with open(home.daemon.log, "ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=home.environ, stdin=subprocess.DEVNULL, stderr=log)
    home.daemon.process = process
    if not early:
        wait_for(lambda: home.daemon.status().get("pid") == process.pid, "a word of the daemon", PATIENCE_S)
    time.sleep(after_s)
    status = home.daemon.status()
    assert process.poll() is None, home.daemon.log.read_text()[-2000:]
    process.kill()
    process.wait()
    if status.get("pid") != process.pid:
        return "starting"
    return "idle" if status.get("state") == "idle" else "working"


def _rest(home: Home, names: list[str], n_ctx: int) -> None:
    home.daemon.start()
    wait_for(lambda: home.holds(names, n_ctx), "the right configs", PATIENCE_S)
    wait_for(home.daemon.idle, "rest", PATIENCE_S)
    status = home.daemon.status()
    assert (status["failures"], status["unexpected_errors"]) == ([], 0), status
    home.daemon.stop()
    assert home.leftovers() == []
    assert home.ledger_troubles() == []
    assert THOUGHT in home.preset.read_text()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.kills", description="kill -9 of the daemon")
    parser.add_argument("n_kills", metavar="N_KILLS", nargs="?", type=int, default=500, help="(default: 500)")
    parser.add_argument("seed", metavar="SEED", nargs="?", type=int, default=1, help="of the moments (default: 1)")
    asked = parser.parse_args()
    counts = run(asked.n_kills, asked.seed)
    print(json.dumps(counts._asdict()))
