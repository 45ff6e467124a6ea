"""The ledger: broken ones, two writers, and what a cut-off change leaves."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from advisor.errors import OutputError
from advisor.managed.change import apply_change, plan_change
from advisor.managed.ledger import FILE, LOCK, SCHEMA, Ledger, open_ledger, read_ledger
from advisor.managed.records import from_json, to_json
from tests.unit.managed.conftest import Desk
from tests.unit.managed.dying import dies_at
from tests.unit.managed.formats import Lines


def test_what_is_remembered_is_read_back(own):
    own.write("threads = 8\n")
    own.apply(ctx="1", threads="4", adopt=True)
    own.apply(ctx="2", threads="4")
    own.write(own.text.replace("threads = 4", "threads = 7"))
    own.apply(ctx="3", threads="4")
    own.undo()
    with open_ledger(own.state) as ledger:
        (record,) = ledger.files.values()
    assert from_json(json.loads(json.dumps(to_json(record)))) == record
    assert [entry.kind for entry in record.history] == ["apply", "apply", "apply", "undo"]
    assert [entry.sequence for entry in record.history] == [1, 2, 3, 4]
    assert [entry.time_s for entry in record.history] == [1_000_060.0, 1_000_120.0, 1_000_180.0, 1_000_240.0]
    folder = Path(own.state)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in (FILE, LOCK)} == {0o600}


# as advisor wrote it before it remembered how values had been written: threads = 8 became 4, then 5, then 4 by undo
FIRST_SCHEMA = {
    "format": "lines",
    "created": False,
    "held": False,
    "wrote": [[["ctx"], "2"], [["threads"], "4", "8"]],
    "pinned": [[["ctx"], ["7"], ["3"]], [["threads"], ["4"], ["5"]]],
    "history": [
        {
            "sequence": 1, "time_s": 1000060.0, "kind": "apply", "backup": "c6" * 32, "sha_after": "34" * 32,
            "clean": True, "undone": False, "changes": [[["ctx"], [], ["1"]], [["threads"], ["8"], ["4"]]],
            "wrote_before": [[["ctx"]], [["threads"]]],
        },
        {
            "sequence": 2, "time_s": 1000120.0, "kind": "apply", "backup": "34" * 32, "sha_after": "c0" * 32,
            "clean": True, "undone": True, "changes": [[["ctx"], ["1"], ["2"]], [["threads"], ["4"], ["5"]]],
            "wrote_before": [[["ctx"], "1"], [["threads"], "4", "8"]],
        },
        {
            "sequence": 3, "time_s": 1000240.0, "kind": "undo", "backup": "9a" * 32, "sha_after": "42" * 32,
            "clean": False, "undone": False, "changes": [[["threads"], ["5"], ["4"]]],
            "wrote_before": [[["threads"], "5", "8"]],
        },
    ],
}  # fmt: skip


def test_a_ledger_of_the_first_schema_is_read_and_goes_on(own):
    own.write("threads = 4\nctx = 7\n")
    os.makedirs(own.state)
    document = {
        "schema": "advisor.ledger/1", "sequence": 3, "intent": None, "files": {str(own.file): FIRST_SCHEMA},
    }  # fmt: skip
    (Path(own.state) / FILE).write_text(json.dumps(document))
    planned = own.apply(ctx="3", threads="6", adopt=True)
    assert [change[:3] for change in planned.changes] == [(("ctx",), "7", "3"), (("threads",), "4", "6")]
    assert json.loads((Path(own.state) / FILE).read_text())["schema"] == SCHEMA == "advisor.ledger/2"
    own.write("# thought\n" + own.text)
    own.uninstall()
    assert own.text == "# thought\nthreads = 8\nctx = 7\n"


def broken(document: dict, *place, value) -> bytes:
    """The document with another value at a place."""
    copy = json.loads(json.dumps(document))
    at = copy
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return json.dumps(copy).encode()


def ledgers(own: Desk) -> list[bytes]:
    own.apply(ctx="1")
    own.apply(ctx="2")
    good = json.loads((Path(own.state) / FILE).read_bytes())
    file = str(own.file)
    record = ("files", file)
    entry = (*record, "history", 0)
    return [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"schema": "advisor.ledger/1"}',
        broken(good, "schema", value="advisor.ledger/3"),
        broken(good, "sequence", value=-1),
        broken(good, "sequence", value=10.5),
        broken(good, "files", value=[1]),
        broken(good, "intent", value={"path": 1}),
        broken(good, *record, value=None),
        broken(good, *record, "format", value=3),
        broken(good, *record, "held", value=0),
        broken(good, *record, "ours", value=[[["ctx"]]]),
        broken(good, *record, "ours", value=[[[], {"ctx": []}]]),
        broken(good, *record, "ours", value=[[[1], {"ctx": [1]}]]),
        broken(good, *record, "pinned", value=[[["ctx"], 1, 2]]),
        broken(good, *entry, "backup", value="../../../etc/passwd"),
        broken(good, *entry, "kind", value="x"),
        broken(good, *entry, "time_s", value="yesterday"),
        broken(good, *entry, "details", value=[[["ctx"], []]]),
    ]


@pytest.mark.parametrize("index", range(23))
def test_a_broken_ledger_is_set_aside_and_its_files_are_nobodys(index, own):
    content = ledgers(own)[index]
    path = Path(own.state) / FILE
    path.write_bytes(content)
    assert "broken or from another version" in read_ledger(own.state).notes[0]
    assert path.read_bytes() == content
    for number in (1, 2):
        with open_ledger(own.state) as ledger:
            assert f"is now {path}.broken{number}; the files that advisor changed count as yours" in ledger.notes[0]
            assert ledger.files == {}
        assert Path(f"{path}.broken{number}").read_bytes() == content
        path.write_bytes(content)
    path.unlink()
    text = own.text
    with pytest.raises(OutputError, match="not written by advisor"):
        own.apply(ctx="3")
    assert own.text == text
    own.apply(ctx="3", adopt=True)
    assert own.text == text.replace("2", "3")


def test_a_damaged_note_of_an_earlier_change_holds_up_undo_alone(own):
    own.apply(ctx="1")
    own.apply(ctx="2")
    own.write(own.text + "# a thought\n")
    path = Path(own.state) / FILE
    good = json.loads(path.read_bytes())
    path.write_bytes(broken(good, "files", str(own.file), "history", 1, "details", value="[[1"))
    with pytest.raises(OutputError, match=r"is damaged; 'advisor undo --all FILE' takes back all of them"):
        own.undo()
    own.uninstall()
    assert own.text == "# made by advisor\n# a thought\n"


def test_every_kind_of_broken_ledger_was_tried(own):
    assert len(ledgers(own)) == 23
    assert SCHEMA in (Path(own.state) / FILE).read_text()


def test_two_writers_wait_for_each_other(own):
    own.apply(ctx="1")
    with open_ledger(own.state):
        start = time.monotonic()
        with (
            pytest.raises(OutputError, match="another advisor is changing config files"),
            open_ledger(own.state, wait_s=0.1),
        ):
            pass
        assert 0.05 < time.monotonic() - start < 3
        assert read_ledger(own.state).files, "readers need not wait"
        entered = []
        other = threading.Thread(target=lambda: (own.apply(ctx="2"), entered.append(1)))
        other.start()
        time.sleep(0.2)
        assert entered == []
    other.join()
    assert own.text.endswith("ctx = 2\n")


def test_a_lock_file_that_was_removed_is_no_second_key(own):
    with open_ledger(own.state):
        pass
    with open_ledger(own.state) as ledger:
        os.unlink(os.path.join(own.state, LOCK))
        assert ledger.files == {}
    with open_ledger(own.state), pytest.raises(OutputError), open_ledger(own.state, wait_s=0):
        pass


def test_a_state_folder_that_cannot_be_used(own, tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(OutputError, match="set XDG_STATE_HOME"):
        own.apply(ctx="1")
    assert not own.file.exists()


def test_a_ledger_that_cannot_be_read_is_said(own):
    os.makedirs(os.path.join(own.state, FILE))
    with pytest.raises(OutputError, match="not a regular file"):
        own.apply(ctx="1")
    assert not own.file.exists()


@pytest.mark.parametrize("edited", [False, True])
def test_a_change_that_died_at_any_step_is_settled(edited, own):
    """Every call of the system in turn is the last one; then the user may edit the file, and advisor runs again."""
    own.write("# mine\nthreads = 8\n")
    own.apply(ctx="0", threads="1", adopt=True)
    made = set()
    for step in range(1, 200):
        before = own.text
        if not dies_at(step, partial(own.apply, ctx=f"9{step}", threads=f"8{step}")):
            break
        after = own.text
        assert after in (before, f"# mine\nthreads = 8{step}\nctx = 9{step}\n")
        made.add(after != before)
        if edited:
            own.write(f"# thought {step}\n" + after)
        looked_at = read_ledger(own.state)
        planned = own.apply(ctx=f"{step}", threads=f"{step}")
        assert (planned.pinned, planned.unpinned) == ((), ()), "what was ours is ours"
        assert own.text == (f"# thought {step}\n" if edited else "") + f"# mine\nthreads = {step}\nctx = {step}\n"
        with open_ledger(own.state) as ledger:
            assert ledger.notes == []
            assert ledger.intent is None
            assert looked_at.sequence <= ledger.sequence
        for folder in (own.file.parent, own.state, os.path.join(own.state, "backups")):
            assert [name for name in os.listdir(folder) if name.startswith(".advisor-")] == []
        if edited:
            own.write(own.text.partition("\n")[2])
    assert made == {True, False}
    assert 10 < step < 199
    own.uninstall()
    assert own.text == "# mine\nthreads = 8\n"


def test_a_removal_that_died_at_any_step_is_settled(own):
    removed = set()
    for step in range(1, 100):
        own.apply(ctx="1", adopt=True)
        if not dies_at(step, own.undo):
            break
        removed.add(not own.file.exists())
        with open_ledger(own.state) as ledger:
            planned = plan_change(str(own.file), Lines(), {("ctx",): "1"}, ledger)
        assert (planned.refused is not None) == (not own.file.exists())
    assert removed == {True, False}
    assert 5 < step < 99


def test_the_note_says_whether_the_change_was_made(own):
    own.apply(ctx="1")
    notes = set()
    for step in range(1, 100):
        if not dies_at(step, partial(own.apply, ctx=f"1{step}")):
            break
        with open_ledger(own.state) as ledger:
            notes |= {note.partition(" was cut off and ")[2] for note in ledger.notes}
    assert notes == {"was made; the ledger is right again.", "was not made; the ledger is right again."}


@pytest.mark.parametrize("edited", [False, True])
def test_a_first_change_that_died_leaves_nothing_behind(edited, own):
    for step in range(1, 100):
        if not dies_at(step, partial(own.apply, ctx="1")):
            break
        if edited and own.file.exists():
            own.write(own.text + "# a thought\n")
        with open_ledger(own.state) as ledger:
            assert all("the ledger is right again" in note for note in ledger.notes)
            known = str(own.file) in ledger.files
        assert [name for name in os.listdir(own.file.parent) if name.startswith(".advisor-")] == []
        assert own.file.exists() == known, "a file of ours is known as ours"
        if known:
            own.uninstall()
            assert own.file.exists() == edited
            own.file.unlink(missing_ok=True)
    assert 10 < step < 99


def test_a_file_that_the_user_made_where_ours_had_been_for_a_moment_is_the_users(own):
    n_open = 0
    for step in range(1, 100):
        if not dies_at(step, partial(own.apply, ctx="1")):
            break
        if own.file.exists() and json.loads((Path(own.state) / FILE).read_bytes())["intent"] is not None:
            n_open += 1
            own.file.unlink()
            own.write("# mine\nctx = 1\n")  # by chance what advisor wrote
            own.uninstall_everything()
            assert own.text == "# mine\nctx = 1\n"
        own.uninstall_everything()
        own.file.unlink(missing_ok=True)
    assert n_open > 1


def test_a_full_disk_after_the_change_is_repaired_by_the_next_run(own, monkeypatch):
    own.apply(ctx="1")
    with open_ledger(own.state) as ledger:
        planned = plan_change(str(own.file), own.format, {("ctx",): "2"}, ledger)
        real, calls = Ledger.save, []

        def save(self):
            calls.append(1)
            if len(calls) == 2:  # after the announcement, and when the file is already changed
                raise OutputError("the disk is full.")
            real(self)

        monkeypatch.setattr(Ledger, "save", save)
        with pytest.raises(OutputError, match="full"):
            apply_change(planned, ledger, now_s=0)
    monkeypatch.setattr(Ledger, "save", real)
    assert own.text.endswith("ctx = 2\n")
    with open_ledger(own.state) as ledger:
        assert "was made" in ledger.notes[0]
    assert own.apply(ctx="3").pinned == ()
    assert own.text.endswith("ctx = 3\n")


def test_a_lock_file_that_is_noise_holds_nothing_up(own):
    own.write("threads = 8\n")
    own.apply(ctx="1", adopt=True)
    (Path(own.state) / LOCK).write_bytes(b"/a\0b" + bytes(range(256)))
    with open_ledger(own.state) as ledger:
        assert len(ledger.files) == 1
