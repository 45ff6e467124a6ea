from __future__ import annotations

import os
import re

import pytest

from advisor.daemon.journal import Journal, Repeats
from advisor.watch.worker import DEBUG, ERROR, NOTICE


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def stream_of(descriptor):
    status = os.fstat(descriptor)
    return f"{status.st_dev}:{status.st_ino}"


def test_priorities_where_the_journal_reads(pipe):
    reading, writing = pipe
    journal = Journal({"JOURNAL_STREAM": stream_of(writing)}, writing)
    journal.log(ERROR, "bad")
    journal.log(NOTICE, "preset.ini: n_ctx 4096 -> 8192")
    journal.log(DEBUG, "x")
    journal.log(0, "no emergency")  # would be shown on every terminal
    assert os.read(reading, 4096).decode().splitlines() == [
        "<3>bad", "<5>preset.ini: n_ctx 4096 -> 8192", "<7>x", "<3>no emergency",
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [None, "", "1:2", "a:b", "99"])
def test_times_elsewhere(pipe, stream):
    reading, writing = pipe
    Journal({} if stream is None else {"JOURNAL_STREAM": stream}, writing).log(NOTICE, "hello")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} hello\n", os.read(reading, 4096).decode())


def test_text_from_files_is_one_plain_line(pipe):
    reading, writing = pipe
    journal = Journal({"JOURNAL_STREAM": stream_of(writing)}, writing)
    journal.log(NOTICE, "a\n<0>b\x1b[31m\udcff" + "x" * 100_000)
    line = os.read(reading, 1 << 20).decode()
    assert line.startswith("<5>a <0>b?[31m?x")
    assert line.count("\n") == 1
    assert len(line) < 3000


def test_a_stream_that_takes_nothing_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    Journal({}, writing).log(ERROR, "nobody listens")
    os.close(writing)
    Journal({}, writing).log(ERROR, "closed")


def test_what_repeats_is_said_ever_more_rarely():
    now = [0.0]
    repeats = Repeats(lambda: now[0])
    said = []
    while now[0] < 3 * 3600:
        line = repeats.to_log("kind", "bad disk")
        if line is not None:
            said.append((now[0], line))
        now[0] += 10
    times = [when for when, _ in said]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]  # noqa: RUF007
    assert said[0] == (0.0, "bad disk")
    assert said[1][1] == "bad disk (5 times more since)"
    assert gaps[:4] == [60, 120, 240, 480]
    assert max(gaps) <= 3600
    assert repeats.to_log("other", "news") == "news"
    repeats.forget()
    assert repeats.to_log("kind", "bad disk") == "bad disk"


def test_kinds_are_bounded():
    repeats = Repeats(lambda: 0.0)
    for i in range(10_000):
        assert repeats.to_log(str(i), "x") == "x"
    assert len(repeats._kinds) <= 200
