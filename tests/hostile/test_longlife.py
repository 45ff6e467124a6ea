"""Few kills and a small storm; the commands in SECURITY.md run the many."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
from pathlib import Path

import pytest

from advisor.managed.ledger import open_ledger
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
