"""The loop turn by turn: real folders and events, a clock set by hand, a worker that does as it is told."""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path

import pytest

from advisor.daemon.journal import Journal
from advisor.daemon.loop import Daemon, Request
from advisor.daemon.notify import Notifier
from advisor.errors import ModelError, RuleError
from advisor.watch.events import Watcher
from advisor.watch.worker import ENGINE, FILES, HARDWARE, RELOAD, RESCAN, START, Change, Summary, Watched


class Told(Notifier):
    """Keeps what it would send."""

    def __init__(self, ping_s=None):
        super().__init__({})
        self.ping_s, self.sent = ping_s, []

    def _send(self, message):
        self.sent.append(message)


class Lines(Journal):
    def __init__(self):
        super().__init__({})
        self.lines = []

    def log(self, priority, text):
        self.lines.append((priority, text))


class FakeWorker:
    def __init__(self, watched):
        self.now_watched, self.passes, self.reloads = watched, [], 0
        self.summary, self.fails, self.reload_fails, self.during = Summary("2 models"), None, None, None

    def refresh(self, reason, changed, should_stop):
        self.passes.append((reason, changed))
        if self.during is not None:
            self.during(should_stop)
        if self.fails is not None:
            raise self.fails
        return self.summary

    def reload(self):
        self.reloads += 1
        if self.reload_fails is not None:
            raise self.reload_fails

    def watched(self):
        return self.now_watched

    def take(self):
        passes, self.passes = self.passes, []
        return passes


class Stage:
    def __init__(self, tmp_path, ping_s=None):
        self.models, self.config, self.rules = tmp_path / "models", tmp_path / "config.toml", tmp_path / "rules"
        self.engine = tmp_path / "bin/llama-server"
        for folder in (self.models, self.rules, self.engine.parent):
            folder.mkdir()
        self.now = 1000.0
        own = {str(self.models / "preset.ini"): sha256(b"x").hexdigest()}
        places = ((str(place),) for place in (self.models, self.config, self.rules, self.engine))
        self.worker = FakeWorker(Watched(*places, own))
        self.watcher, self.told, self.journal = Watcher(), Told(ping_s), Lines()
        self.folder = tmp_path / "run"
        self.daemon = Daemon(
            self.worker, self.watcher, self.told, self.journal, str(self.folder), clock=lambda: self.now
        )

    def run(self, seconds, step=0.1):
        """Turn for so many seconds of the clock; the passes that were made."""
        end = self.now + seconds
        while self.now < end:
            self.daemon.turn()
            self.now += step
        return self.worker.take()

    def started(self):
        self.daemon.begin()
        assert self.run(0.2) == [(START, None)]
        return self

    def status(self):
        return json.loads((self.folder / "status.json").read_text())


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path)
    yield stage
    stage.watcher.close()


def test_start(stage):
    stage.started()
    assert stage.worker.reloads == 1
    assert stage.told.sent[0] == "READY=1\nSTATUS=watching 1 folder"
    assert stage.told.sent[-1] == "STATUS=watching 1 folder, 2 models"
    status = stage.status()
    assert status["schema"] == "advisor.status/1"
    assert status["state"] == "idle"
    assert status["pid"] == os.getpid()
    assert {"path": str(stage.models), "how": "events"} in status["watching"]


def test_a_model_is_passed_on_within_three_seconds_and_once(stage):
    stage.started()
    model = stage.models / "m.gguf"
    model.write_bytes(b"x")
    written = stage.now
    while not stage.worker.passes:
        stage.daemon.turn()
        stage.now += 0.05
    assert stage.worker.take() == [(FILES, frozenset((str(model),)))]
    assert stage.now - written < 1.5
    assert stage.run(10) == []


def test_the_loop_sleeps_until_something_is_due(stage):
    stage.started()
    assert stage.daemon.turn() > 250  # until the hardware is looked at
    (stage.models / "m.gguf").write_bytes(b"x")
    assert stage.daemon.turn() == pytest.approx(0.5)


def test_settings_are_read_again_and_everything_is_planned(stage):
    stage.started()
    for path in (stage.config, stage.rules / "policy.toml"):
        path.write_text("x = 1\n")
        assert stage.run(3) == [(RELOAD, None)]
    assert stage.worker.reloads == 3
    sent = [message.partition("\n")[0] for message in stage.told.sent]
    assert sent.count("RELOADING=1") == 2
    assert sent[sent.index("RELOADING=1") :].count("READY=1") == 2
    times = [int(m.partition("MONOTONIC_USEC=")[2]) for m in stage.told.sent if m.startswith("RELOADING=1\n")]
    assert 0 <= time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6 - times[-1] < 60e6


def test_an_upgraded_engine_is_told(stage):
    stage.started()
    stage.engine.write_text("#!")
    (stage.models / "m.gguf").touch()
    assert stage.run(3) == [(ENGINE, frozenset((str(stage.engine), str(stage.models / "m.gguf"))))]


def test_own_files_are_no_news_until_somebody_edits_them(stage):
    stage.started()
    preset = stage.models / "preset.ini"
    preset.write_text("x")
    (stage.models / ".advisor-preset.ini").write_text("x")
    assert stage.run(3) == []
    preset.write_text("y")
    assert stage.run(3) == [(FILES, frozenset((str(preset),)))]
    preset.unlink()
    assert stage.run(3) == [(FILES, frozenset((str(preset),)))]
    preset.write_text("y")  # as editors do it: away, and back in a moment
    preset.unlink()
    preset.write_text("x")
    assert stage.run(3) == []


def test_a_config_file_elsewhere_is_watched_too_also_behind_a_link(stage, tmp_path):
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "engine").mkdir()
    real, link = tmp_path / "dotfiles/engine.ini", tmp_path / "engine/engine.ini"
    real.write_text("x")
    link.symlink_to(real)
    own = {str(link): sha256(b"x").hexdigest(), str(tmp_path / "none/yet.ini"): None}
    stage.worker.now_watched = stage.worker.now_watched._replace(own=own)
    stage.started()
    assert stage.run(3) == []
    real.write_text("y")
    assert stage.run(3) == [(FILES, frozenset((str(link),)))]
    real.write_text("x")
    assert stage.run(3) == []
    (tmp_path / "none").mkdir()
    (tmp_path / "none/yet.ini").write_text("z")
    assert stage.run(3) == [(FILES, frozenset((str(tmp_path / "none/yet.ini"),)))]
    (tmp_path / "none/other.ini").write_text("z")
    assert stage.run(3) == []
    more = {**own, str(tmp_path / "none/other.ini"): None}  # another file in the same folder needs no new watch
    stage.worker.now_watched = stage.worker.now_watched._replace(own=more)
    (stage.models / "m.gguf").touch()
    assert len(stage.run(3)) == 1
    (tmp_path / "none/other.ini").write_text("zz")
    assert stage.run(3) == [(FILES, frozenset((str(tmp_path / "none/other.ini"),)))]


def test_a_config_file_among_the_settings_does_not_reload_them(stage):
    preset = stage.rules / "preset.ini"
    own = {str(preset): sha256(b"x").hexdigest()}
    stage.worker.now_watched = stage.worker.now_watched._replace(own=own)
    stage.started()
    preset.write_text("x")
    assert stage.run(3) == []
    preset.write_text("y")
    assert stage.run(3) == [(FILES, frozenset((str(preset),)))]
    assert stage.worker.reloads == 1


def test_timers(stage):
    stage.started()
    passes = stage.run(1000, step=1)
    assert [reason for reason, _ in passes] == [HARDWARE, HARDWARE, RESCAN]  # the rescan looks at the hardware, too
    assert passes[0][1] == frozenset()
    assert passes[-1][1] is None


def test_requests_that_meet_become_one():
    files, other = Request(FILES, frozenset("a")), Request(ENGINE, frozenset("b"))
    assert files.with_other(other) == Request(ENGINE, frozenset("ab"))
    assert other.with_other(Request(RESCAN, None)) == Request(RESCAN, None)
    assert Request(RELOAD, None).with_other(files) == Request(RELOAD, None)


def test_what_happens_during_a_pass_is_one_pass_after_it(stage):
    stage.started()

    def busy(should_stop):
        for i in range(300):
            (stage.models / f"{len(stage.worker.passes)}-{i}.gguf").touch()
        stage.now += 5
        stage.worker.during = None

    stage.worker.during = busy
    (stage.models / "first.gguf").touch()
    passes = stage.run(20)
    assert [len(changed) for _, changed in passes] == [1, 300]


def test_a_worker_error_is_logged_once_and_tried_again_ever_more_rarely(stage):
    stage.worker.fails = ModelError("x.gguf cannot be read; check the disk.")
    stage.daemon.begin()
    passes = stage.run(200, step=1)
    assert [reason for reason, _ in passes] == [START, RESCAN, RESCAN, RESCAN, RESCAN]  # after 10, 20, 40, 80 s
    lines = [text for priority, text in stage.journal.lines if priority == 3]
    assert lines[0] == "x.gguf cannot be read; check the disk."
    assert len(lines) <= 3
    assert stage.status()["failures"] == ["x.gguf cannot be read; check the disk."]
    stage.worker.fails = None
    stage.run(200, step=1)
    assert stage.status()["failures"] == []
    assert "failure" not in stage.status()["status_text"]


def test_a_failed_pass_is_made_up_for_although_another_one_went_well(stage):
    stage.started()
    stage.worker.fails = ModelError("no.")
    (stage.models / "a.gguf").touch()
    assert len(stage.run(2)) == 1
    stage.worker.fails = None
    (stage.models / "b.gguf").touch()
    assert stage.run(3) == [(FILES, frozenset((str(stage.models / "b.gguf"),)))]
    assert stage.status()["failures"] == ["no."]
    assert stage.run(10) == [(RESCAN, None)]
    assert stage.status()["failures"] == []


def test_what_may_go_well_later_is_tried_again_within_a_minute(stage):
    stage.worker.summary = Summary("2 models", failures=("x cannot be written.",), again=True)
    stage.started()
    passes = stage.run(200, 1)
    assert len(passes) >= 5
    assert set(passes) == {(RESCAN, None)}
    stage.worker.summary = Summary("2 models")
    stage.run(61, 1)
    assert stage.run(200, 1) == []
    assert stage.status()["failures"] == []


def test_a_bug_in_the_worker_ends_nothing(stage):
    stage.worker.fails = ZeroDivisionError("division by zero")
    stage.daemon.begin()
    stage.run(15)
    ((priority, text),) = [line for line in stage.journal.lines if "bug" in line[1]]
    assert priority == 3
    assert "ZeroDivisionError at test_loop.py:" in text
    assert stage.status()["unexpected_errors"] == 2
    stage.worker.fails = None
    assert stage.run(30) == [(RESCAN, None)]


def test_broken_settings_keep_the_old_ones_and_are_said_until_they_are_right(stage):
    stage.started()
    stage.worker.reload_fails = RuleError("config.toml, line 3: unknown key.")
    stage.config.write_text("x")
    assert stage.run(3) == [(RELOAD, None)]
    assert (3, "config.toml, line 3: unknown key. What was in force before stays in force.") in stage.journal.lines
    assert stage.status()["failures"] == ["config.toml, line 3: unknown key."]
    assert stage.told.sent[-1].endswith("1 failure")
    stage.worker.reload_fails = None
    stage.config.write_text("y")
    stage.run(3)
    assert stage.status()["failures"] == []


def test_settings_that_are_broken_from_the_start_are_said_and_listed_once(stage):
    """As the real worker does it: without settings a pass tries to read them, and fails as reading them did."""
    sentence = "config.toml, line 3: unknown key."
    stage.worker.reload_fails = stage.worker.fails = RuleError(sentence)
    stage.started()
    assert len(stage.run(1000, step=10)) >= 3
    errors = [text for priority, text in stage.journal.lines if priority == 3]
    assert errors == [f"{sentence} Until that is put right nothing is done."]
    assert stage.status()["failures"] == [sentence]
    assert stage.told.sent[-1].endswith("1 failure")
    stage.config.write_text("x")  # saved, and still wrong: said again
    stage.run(3)
    assert [text for priority, text in stage.journal.lines if priority == 3] == 2 * errors
    stage.worker.reload_fails = stage.worker.fails = None  # such as by a chmod, of which no event tells
    stage.run(1000, step=10)
    assert stage.status()["failures"] == []
    stage.worker.reload_fails = RuleError(sentence)
    stage.daemon.reload()
    stage.run(1)
    assert stage.journal.lines[-1] == (3, f"{sentence} What was in force before stays in force.")


def test_a_bug_while_reading_settings_is_said_until_they_can_be_read(stage):
    stage.worker.reload_fails = KeyError("folders")
    stage.started()
    assert "KeyError" in stage.status()["failures"][0]
    stage.run(1000, step=10)
    assert len(stage.status()["failures"]) == 1
    stage.worker.reload_fails = None
    stage.daemon.reload()
    stage.run(1)
    assert stage.status()["failures"] == []


def test_changes_and_failures_go_to_the_journal_once(stage):
    stage.worker.summary = Summary(
        "1 model", (Change("preset.ini: n_ctx 4096 -> 8192"),), ("b.gguf is still growing",), ("c: n_ctx",), ("d bad",)
    )
    stage.started()
    stage.worker.summary = stage.worker.summary._replace(changes=())
    stage.run(1000, step=1)
    assert stage.journal.lines[1:] == [(5, "preset.ini: n_ctx 4096 -> 8192"), (5, "c: n_ctx"), (4, "d bad")]
    status = stage.status()
    assert [said["text"] for said in status["last_changes"]] == ["preset.ini: n_ctx 4096 -> 8192", "d bad"]
    assert (status["pending"], status["pinned"], status["failures"]) == (
        ["b.gguf is still growing"], ["c: n_ctx"], ["d bad"],
    )  # fmt: skip


def test_the_end_of_a_failure_and_a_reload_are_said(stage):
    stage.worker.summary = Summary("2 models", failures=("x cannot be written.",), notes=("y does not fit.",))
    stage.started()
    stage.worker.summary = Summary("2 models")
    stage.daemon.reload()
    assert stage.run(1) == [(RELOAD, None)]
    assert stage.journal.lines[1:] == [
        (5, "y does not fit."), (4, "x cannot be written."),
        (6, "the configuration and the rules were read again."), (5, "over: x cannot be written."),
    ]  # fmt: skip
    stage.worker.reload_fails = RuleError("config.toml, line 3: unknown key.")
    stage.daemon.reload()
    stage.run(1)
    stage.worker.reload_fails = None
    stage.daemon.reload()
    stage.run(1)
    assert [text for _, text in stage.journal.lines[-3:]] == [
        "config.toml, line 3: unknown key. What was in force before stays in force.",
        "the configuration and the rules were read again.",
        "over: config.toml, line 3: unknown key.",
    ]


def test_a_pass_that_is_cut_short_ends_no_failure(stage):
    stage.worker.summary = Summary("2 models", failures=("x cannot be written.",))
    stage.started()
    stage.worker.summary, stage.worker.during = Summary("stopped"), lambda _: stage.daemon.reload()
    (stage.models / "m.gguf").touch()
    stage.run(2)
    stage.worker.during = None
    assert not [text for _, text in stage.journal.lines if text.startswith("over")]


def test_a_thousand_failures_are_no_flood(stage):
    stage.worker.summary = Summary("", failures=tuple(f"model {i} is bad" for i in range(1000)))
    stage.started()
    stage.run(2000, step=10)
    assert len(stage.journal.lines) < 30
    assert len(stage.status()["failures"]) == 200


def test_new_folders_that_the_worker_finds_are_watched_and_looked_at_once_more(stage, tmp_path):
    stage.started()
    (tmp_path / "store").mkdir()
    stage.worker.now_watched = stage.worker.now_watched._replace(folders=(str(stage.models), str(tmp_path / "store")))
    (stage.models / "m.gguf").touch()
    passes = stage.run(5)
    assert [reason for reason, _ in passes] == [FILES, RESCAN]
    (tmp_path / "store/n.gguf").touch()
    assert stage.run(5) == [(FILES, frozenset((str(tmp_path / "store/n.gguf"),)))]


def test_a_reload_cuts_a_long_pass_short(stage):
    stage.started()
    stopped = []

    def long(should_stop):
        stage.daemon.reload()
        stopped.append(should_stop())
        stage.worker.during = None

    stage.worker.during = long
    (stage.models / "m.gguf").touch()
    passes = stage.run(3)
    assert stopped == [True]
    assert [reason for reason, _ in passes] == [FILES, RELOAD]


def test_stop_is_passed_on_and_ends_the_loop(stage):
    stage.worker.during = lambda should_stop: stage.daemon.stop() or stage.worker.passes.append(should_stop())
    reading, _ = os.pipe()
    stage.daemon.run(reading)
    assert stage.worker.passes == [(START, None), True]
    assert stage.told.sent[-1] == "STOPPING=1\nSTATUS=stopping"
    assert stage.status()["state"] == "stopping"


# ---------------------------------------------------------------- the systemd watchdog


def pings(stage):
    return stage.told.sent.count("WATCHDOG=1")


def test_pings_come_at_half_the_time_while_idle(tmp_path):
    stage = Stage(tmp_path, ping_s=60.0)
    stage.started()
    before = pings(stage)
    assert stage.daemon.turn() <= 60
    stage.run(600, step=1)
    assert 9 <= pings(stage) - before <= 11
    stage.watcher.close()


def test_a_long_pass_that_makes_progress_pings_and_one_that_hangs_does_not(tmp_path):
    stage = Stage(tmp_path, ping_s=60.0)
    stage.started()

    def long(should_stop):
        for _ in range(600):
            stage.now += 1
            should_stop()

    def hung(should_stop):
        stage.now += 600

    for during, expected in ((long, 10), (hung, 0)):
        stage.worker.during = during
        stage.daemon.reload()
        stage.daemon._reload()
        before = pings(stage)
        stage.daemon._pass(Request(RELOAD, None))
        # the end of the pass itself is progress
        assert expected <= pings(stage) - before <= expected + 1
    stage.watcher.close()


def test_a_status_that_cannot_be_written_is_one_warning(stage):
    stage.folder.touch()
    stage.started()
    stage.run(400, step=1)
    warnings = [text for priority, text in stage.journal.lines if priority == 4]
    assert len(warnings) == 1
    assert "status.json cannot be written" in warnings[0]


def test_ten_thousand_files_are_one_pass(stage):
    stage.started()
    for i in range(8000):  # as many as the kernel's queue of 16,384 takes
        Path(stage.models / f"{i}.gguf").touch()
    passes = stage.run(4, step=0.05)
    assert [len(changed) for _, changed in passes] == [8000]
