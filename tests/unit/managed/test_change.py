"""Plans and changes of one file, and taking them back."""

from __future__ import annotations

import json
import os
import stat

import pytest

from advisor.errors import OutputError
from advisor.managed.change import apply_change, plan_change
from advisor.managed.ledger import open_ledger
from advisor.slots import GONE
from tests.unit.managed.formats import NOTHING, Lines

USERS = "# my notes\nthreads = 8   # all of them\n"


def test_a_file_of_ours_is_made_changed_and_taken_back(own):
    planned = own.apply(ctx="4096", ngl="20")
    assert own.text == "# made by advisor\nctx = 4096\nngl = 20\n"
    assert planned.before is None
    assert "--- /dev/null" in planned.diff
    assert "+ctx = 4096" in planned.diff
    assert [change[:3] for change in planned.changes] == [(("ctx",), GONE, "4096"), (("ngl",), GONE, "20")]
    own.apply(ctx="8192")
    assert own.text == "# made by advisor\nctx = 8192\n"
    own.undo()
    assert own.text == "# made by advisor\nctx = 4096\nngl = 20\n"
    own.undo()
    assert not own.file.exists()
    with pytest.raises(OutputError, match="no change by advisor that could be undone"):
        own.undo()


def test_no_write_when_nothing_changed(own):
    own.apply(ctx="4096")
    before = os.stat(own.file)
    planned = own.apply(ctx="4096")
    assert (planned.changes, planned.diff) == ((), "")
    after = os.stat(own.file)
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_nothing_wanted_makes_no_file(own):
    assert own.apply().after is None
    assert not own.file.exists()


def test_a_file_that_is_not_ours_is_left_alone(own):
    own.write(USERS)
    assert "not written by advisor and is left alone" in (own.plan(ctx="1").refused or "")
    with pytest.raises(OutputError, match="not written by advisor"):
        own.apply(ctx="1")
    assert own.text == USERS
    own.apply(ctx="1", adopt=True)
    assert own.text == USERS + "ctx = 1\n"
    assert "is as it was before" in own.uninstall()
    assert own.text == USERS


def test_a_shared_file_is_edited_but_not_made(shared):
    with pytest.raises(OutputError, match="does not exist"):
        shared.apply(ctx=1)
    shared.write('{"theme": "dark",\n "ctx": 5}')
    planned = shared.apply(ctx=1, ngl=2)
    assert shared.text == '{"theme": "dark",\n "ctx": 5,\n  "ngl": 2}'
    assert [tuple(pin) for pin in planned.pinned] == [(("ctx",), 5, 1)]
    shared.apply(ctx=1, ngl=2, adopt=True)
    assert json.loads(shared.text) == {"theme": "dark", "ctx": 1, "ngl": 2}
    shared.uninstall()
    assert shared.text == '{"theme": "dark",\n "ctx": 5}'


def test_a_shared_file_can_be_told_to_be_made(shared):
    shared.apply(ctx=1, create=True)
    assert json.loads(shared.text) == {"ctx": 1}
    shared.uninstall()
    assert not shared.file.exists()


def test_what_the_user_changed_stays_and_is_said(own):
    own.apply(ctx="4096", ngl="20")
    own.write(own.text.replace("4096", "1024 # small").replace("ngl = 20\n", ""))
    planned = own.apply(ctx="8192", ngl="30", ub="512")
    assert own.text == "# made by advisor\nctx = 1024 # small\nub = 512\n"
    assert [tuple(pin) for pin in planned.pinned] == [(("ctx",), "1024", "8192"), (("ngl",), GONE, "30")]
    own.write(own.text.replace("1024", "4096"))
    planned = own.apply(ctx="8192", ngl="30", ub="512")
    assert planned.unpinned == (("ctx",),)
    assert own.text == "# made by advisor\nctx = 8192 # small\nub = 512\n"


def test_undo_keeps_what_the_user_wrote_since(own):
    own.write(USERS)
    own.apply(ctx="1", threads="4", adopt=True)
    own.apply(ctx="2", threads="4")
    own.write(own.text + "# a thought\nctx2 = 3\n")
    planned = own.undo()
    assert own.text == "# my notes\nthreads = 4   # all of them\nctx = 1\n# a thought\nctx2 = 3\n"
    assert "only advisor's own values" in (planned.note or "")
    assert own.uninstall().endswith("yours kept.")
    assert own.text == USERS + "# a thought\nctx2 = 3\n"


def test_a_file_we_made_stays_for_what_the_user_put_into_it(own):
    own.apply(ctx="1")
    own.write(own.text + "# a thought\n")
    own.undo()
    assert own.text == "# made by advisor\n# a thought\n"


def test_a_file_we_made_goes_although_the_user_had_touched_it(own):
    own.apply(ctx="1")
    own.write(own.text + "# a thought\n")
    own.apply(ctx="2")
    own.write(own.text.replace("# a thought\n", ""))
    own.uninstall()
    assert not own.file.exists()


def test_what_was_undone_is_not_done_again_until_it_is_adopted(own):
    own.apply(ctx="1")
    own.apply(ctx="2", ngl="9")
    own.undo()
    planned = own.apply(ctx="2", ngl="9")
    assert own.text == "# made by advisor\nctx = 1\n"
    assert [tuple(pin) for pin in planned.pinned] == [(("ctx",), "1", "2"), (("ngl",), GONE, "9")]
    own.undo()
    assert "taken away by undo" in (own.plan(ctx="2").refused or "")
    own.apply(ctx="2", adopt=True)
    assert own.text == "# made by advisor\nctx = 2\n"
    own.undo()
    assert not own.file.exists()


def test_true_and_one_are_two_values(shared):
    """Python takes them for equal: the change from one to the other was forgotten, and with it the user's value."""
    shared.write('{"ctx": 1}')
    shared.apply(ctx=True, adopt=True)
    shared.apply(ctx=1)
    shared.undo()
    assert json.loads(shared.text) == {"ctx": True}
    shared.write(shared.text.replace("}", ', "theme": 5}'))
    shared.uninstall()
    assert shared.text == '{"ctx": 1, "theme": 5}'


def test_undo_to_a_time_goes_by_the_order_of_the_changes(own):
    for at, ctx in ((100, "1"), (200, "2"), (50, "3"), (300, "4")):  # the clock was set back before the third
        own.now_s = at - 60
        own.apply(ctx=ctx)
    with pytest.raises(OutputError, match="give an earlier time"):
        own.undo(to_s=300)
    own.undo(to_s=250)
    assert own.text.endswith("ctx = 3\n")
    own.undo(to_s=150)
    assert own.text.endswith("ctx = 1\n")
    own.undo(to_s=99)
    assert not own.file.exists()


def test_the_first_backup_is_kept_for_ever_and_the_others_are_bounded(own):
    own.write(USERS)
    for ctx in range(12):
        own.apply(ctx=str(ctx), keep=3, adopt=ctx == 0)
    backups = sorted(os.listdir(os.path.join(own.state, "backups")))
    assert len(backups) == 4
    for name in backups:
        assert stat.S_IMODE(os.stat(os.path.join(own.state, "backups", name)).st_mode) == 0o600
    for ctx in (10, 9, 8):
        own.undo()
        assert own.text == f"{USERS}ctx = {ctx}\n"
    own.undo()
    assert own.text == USERS


def test_an_edit_between_dropped_changes_is_not_lost(own):
    own.write(USERS)
    own.apply(ctx="0", adopt=True)
    own.write(own.text + "# a thought\n")
    for ctx in range(1, 9):
        own.apply(ctx=str(ctx), keep=3)
    own.uninstall()
    assert own.text == USERS + "# a thought\n"


def test_a_file_that_the_user_removed_is_made_again(own):
    own.apply(ctx="1", ngl="2")
    own.file.unlink()
    own.apply(ctx="1", ngl="2")
    assert own.text == "# made by advisor\nctx = 1\nngl = 2\n"
    own.uninstall()
    assert not own.file.exists()


def test_a_file_that_the_user_removed_comes_back_with_undo(own):
    own.write(USERS)
    own.apply(ctx="1", adopt=True)
    own.file.unlink()
    own.undo()
    assert own.text == USERS


def test_a_removed_file_of_ours_is_nothing_to_undo(own):
    own.apply(ctx="1")
    own.file.unlink()
    with pytest.raises(OutputError, match="does not exist any more"):
        own.undo()
    assert "nothing of advisor's" in own.uninstall()


def test_a_lost_backup_costs_no_more_than_the_bytes_around_our_values(own):
    own.write(USERS)
    own.apply(ctx="1", threads="4", adopt=True)
    for name in os.listdir(os.path.join(own.state, "backups")):
        with open(os.path.join(own.state, "backups", name), "wb") as file:
            file.write(b"damaged")
    own.uninstall()
    assert own.text == USERS


@pytest.mark.parametrize("content", [b"ctx = \xff\n", b"a\nb = \xe9\n", b"what is this\n", b"#" * (4 << 20) + b"#"])
def test_a_file_that_cannot_be_understood_is_left_alone(own, content):
    own.file.write_bytes(content)
    planned = own.plan(ctx="1", adopt=True)
    assert planned.refused
    with pytest.raises(OutputError):
        own.apply(ctx="1", adopt=True)
    assert own.file.read_bytes() == content


def test_a_byte_order_mark_stays(own):
    own.file.write_bytes(b"\xef\xbb\xbfthreads = 8\r\n")
    own.apply(ctx="1", adopt=True)
    assert own.file.read_bytes() == b"\xef\xbb\xbfthreads = 8\r\nctx = 1\n"


@pytest.mark.parametrize(("key", "value"), [("forbidden", "1"), ("ctx", "a#b")])
def test_what_the_format_refuses_is_never_written(own, key, value):
    own.apply(ngl="1")
    before = own.text
    assert own.plan(**{key: value, "ngl": "2"}).refused
    with pytest.raises(OutputError):
        own.apply(**{key: value})
    assert own.text == before


def test_wishes_are_compared_as_the_format_reads_them_back(own):
    own.apply(ctx=4096)
    assert own.text.endswith("ctx = 4096\n")
    assert own.plan(ctx=4096).changes == ()
    own.write(own.text.replace("4096", "1024"))
    assert [tuple(pin) for pin in own.plan(ctx=4096).pinned] == [(("ctx",), "1024", "4096")]


class Clumsy(Lines):
    """A format with a bug: it loses what stands behind the first value."""

    def edit(self, text, changes, spelled=NOTHING):
        return super().edit(text, changes, spelled).replace("threads = 8", "threads = 80")


def test_a_format_that_touches_other_values_is_stopped(own):
    own.write(USERS)
    own.format = Clumsy()
    assert "threads cannot be changed safely" in (own.plan(ctx="1", adopt=True).refused or "")


def test_a_file_that_changed_after_the_plan_is_left_alone(own):
    own.apply(ctx="1")
    with open_ledger(own.state) as ledger:
        planned = plan_change(str(own.file), own.format, {("ctx",): "2"}, ledger)
        own.write("ctx = 1 # hands off\n")
        with pytest.raises(OutputError, match="changed by somebody else"):
            apply_change(planned, ledger, now_s=0)
        assert ledger.intent is None
    assert own.text == "ctx = 1 # hands off\n"
    assert os.listdir(own.file.parent) == [own.file.name]


def test_a_file_that_appeared_after_the_plan_is_left_alone(own):
    with open_ledger(own.state) as ledger:
        planned = plan_change(str(own.file), own.format, {("ctx",): "2"}, ledger)
        own.write(USERS)
        with pytest.raises(OutputError, match="changed by somebody else"):
            apply_change(planned, ledger, now_s=0)
    assert own.text == USERS


def test_a_plan_from_before_another_change_is_refused(own):
    planned = own.plan(ctx="1")
    own.apply(ctx="2")
    with open_ledger(own.state) as ledger, pytest.raises(OutputError, match="another advisor"):
        apply_change(planned, ledger, now_s=0)


def test_another_format_for_the_same_file_is_refused(own, shared):
    own.apply(ctx="1")
    shared.file = own.file
    assert "was written as lines, not flat-json" in (shared.plan(ctx=1).refused or "")


def test_undo_goes_back_to_what_the_user_had_last(own):
    own.apply(ctx="1")
    own.apply(ctx="1", ngl="9")
    own.write(own.text.replace("ctx = 1", "ctx = 5"))
    own.apply(ctx="2", ngl="9", adopt=True)
    own.write(own.text + "# a thought\n")
    own.undo(to_s=1_000_060)
    assert own.text == "# made by advisor\nctx = 5\n# a thought\n"
    own.uninstall()
    assert own.text == "# made by advisor\nctx = 5\n# a thought\n"


def test_a_value_that_the_user_typed_is_the_users_although_we_once_wrote_it(own):
    own.apply(ctx="1")
    own.apply(ctx="2", ngl="9")
    own.write(own.text.replace("ctx = 2", "ctx = 1"))
    own.undo()
    assert own.text == "# made by advisor\nctx = 1\n"
    own.uninstall()
    assert own.text == "# made by advisor\nctx = 1\n"


def test_false_and_0_are_two_values(shared):
    shared.write("{}")
    shared.apply(ngl=0)
    shared.apply(ngl=False)
    assert json.loads(shared.text)["ngl"] is False
    shared.undo()
    assert json.loads(shared.text)["ngl"] == 0
    shared.write(shared.text + "\n")  # edited: from here on slot by slot
    shared.uninstall()
    assert json.loads(shared.text) == {}


def test_the_user_may_change_false_to_0(shared):
    shared.write("{}")
    shared.apply(ngl=1)
    for value in (False, 0):
        shared.write(json.dumps({"ngl": value}))
        shared.apply(ngl=1)
        with open_ledger(shared.state) as ledger:
            assert ledger.files[str(shared.file)].pinned["ngl",].theirs is value
