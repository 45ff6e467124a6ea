"""ADVISOR_REQUIRE_ENGINES=1 turns a skipped engine test into a failure; tests/conftest.py holds the rule."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "[pytest]\nmarkers = engine: starts an engine\n"
PASSES = "@pytest.mark.engine\ndef test_passes(): pass\n"
SKIPS = """
@pytest.mark.engine
def test_skips(): pytest.skip("no engine")

@pytest.mark.skipif(True, reason="no engine")
@pytest.mark.engine
def test_is_marked_to_skip(): pass
"""
FINE = """
def test_other(): pytest.skip("not an engine")

@pytest.mark.engine
@pytest.mark.xfail
def test_known(): assert 0
"""


def outcome(folder: Path, source: str, require: str, *options: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text(CONFIG)
    (folder / "test_it.py").write_text(f"import pytest\n{source}")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ADVISOR_REQUIRE_ENGINES": require}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *options]
    result = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout + result.stderr


def test_a_skipped_engine_test_fails_where_engines_are_required(tmp_path):
    code, output = outcome(tmp_path, PASSES + SKIPS + FINE, "1")
    assert (code, "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in output) == (1, True), output
    code, output = outcome(tmp_path, PASSES + SKIPS + FINE, "0")
    assert (code, "1 passed, 3 skipped, 1 xfailed" in output) == (0, True), output


def test_no_engine_test_at_all_fails_too(tmp_path):
    code, output = outcome(tmp_path, "def test_other(): pass\n", "1")
    assert (code, "no test marked 'engine' passed" in output) == (1, True), output


def test_parallel_workers_see_only_their_share(tmp_path):
    code, output = outcome(tmp_path, PASSES, "1", "-n", "2")
    assert (code, "1 passed" in output) == (0, True), output
