"""A user and advisor at the same file, in any order, with power cuts: what the user wrote must stay.

Made for any format: a `Case` says what a user's files, slots and values may be. What the machine keeps track of:

    marks    comments that the user put in; each must stand in the file until the user takes it out
    theirs   values that the user set; each must stand until the user changes it or lets advisor adopt it
    behind   values that advisor adopted; each must come back when advisor no longer wants its own, or is uninstalled
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from advisor.errors import OutputError
from advisor.managed.change import apply_change, plan_change
from advisor.managed.ledger import open_ledger, read_ledger
from advisor.managed.records import FileRecord
from advisor.managed.types import Format
from advisor.managed.undo import plan_undo, uninstall
from advisor.slots import GONE, Gone, Slot, Value, same
from tests.unit.managed.dying import dies_at


class Case(NamedTuple):
    """A format, and what people put into its files."""

    format: Format
    texts: st.SearchStrategy[str]  # files that a user may have before advisor comes; `slots` may be in them
    slots: tuple[Slot, ...]  # that advisor may want; none may be a part of another
    values: Callable[[Slot], st.SearchStrategy[Value]]  # as the format reads them back
    mark: Callable[[str, int, str], str] | None = None  # (text, any number, word): the word put in as a comment
    wishes: st.SearchStrategy[dict[Slot, Value]] | None = None  # what advisor may want together; else any `slots`


CRASH = st.one_of(st.none(), st.none(), st.integers(1, 60))


def machine(case: Case) -> type[RuleBasedStateMachine]:
    """The machine for one format, to be given to `run_state_machine_as_test`."""
    fmt = case.format
    slots = st.sampled_from(case.slots)
    wishes = case.wishes or st.lists(slots, unique=True, max_size=4).flatmap(
        lambda some: st.fixed_dictionaries({slot: case.values(slot) for slot in some})
    )

    def edited(text: str, slot: Slot, value: Value | Gone) -> str:
        """A user's edit; the text as it is where the format cannot say it."""
        try:
            return fmt.edit(text, {slot: value})
        except OutputError:
            return text

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.folder = tempfile.mkdtemp()
            self.file = os.path.join(self.folder, "engine.conf")
            self.state = os.path.join(self.folder, "state")
            self.marks: set[str] = set()
            self.theirs: dict[Slot, Value] = {}
            self.behind: dict[Slot, Value] = {}
            self.either: set[Slot] = set()  # the user wrote what advisor had offered: its own at the next apply
            self.original: bytes | None = None  # the file without advisor
            self.touched = False  # edited by the user after advisor came
            self.n_marks = 0

        # ------------------------------------------------------------ the user

        @initialize(text=st.one_of(st.none(), case.texts))
        def begin(self, text: str | None) -> None:
            if text is not None:
                self.write(text)

        @precondition(lambda self: self.data is None)
        @rule(text=case.texts)
        def user_makes_the_file(self, text: str) -> None:
            self.write(text)

        @precondition(lambda self: self.data is not None)
        @rule(slot=slots, data=st.data())
        def user_sets(self, slot: Slot, data: st.DataObject) -> None:
            value = data.draw(case.values(slot))
            record = self.record
            text = self.by_user({slot: value})
            if text == self.text:
                return
            self.write(text)
            self.drop(slot)
            self.user_has(record, slot, self.standing[slot])

        @precondition(lambda self: self.data is not None)
        @rule(slot=slots)
        def user_removes(self, slot: Slot) -> None:
            self.write(self.by_user({slot: GONE}))
            if slot in self.standing:  # what stands there cannot be taken out by a format, and users have editors
                return
            self.drop(slot)

        @precondition(lambda self: self.data is not None and case.mark is not None)
        @rule(at=st.integers(0, 1000))
        def user_writes_a_comment(self, at: int) -> None:
            assert case.mark is not None
            self.n_marks += 1
            word = f"thought{self.n_marks}z"
            text = case.mark(self.text, at, word)
            if word in text:
                self.write(text)
                self.marks.add(word)

        @precondition(lambda self: self.data is not None)
        @rule()
        def user_deletes_the_file(self) -> None:
            os.unlink(self.file)
            self.forget()
            self.user_was_here()

        # ------------------------------------------------------------ advisor

        @rule(wanted=wishes, adopt=st.sampled_from((False, False, True)), crash=CRASH, now_s=st.floats(0, 1e9))
        def apply(self, wanted: dict[Slot, Value], adopt: bool, crash: int | None, now_s: float) -> None:
            before = self.data
            refused: list[str] = []

            def work() -> None:
                with open_ledger(self.state) as ledger:
                    planned = plan_change(self.file, fmt, wanted, ledger, adopt=adopt)
                    if planned.refused is None:
                        apply_change(planned, ledger, now_s=now_s)
                    else:
                        refused.append(planned.refused)

            self.do(work, crash)
            if refused:
                assert self.data == before
                return
            if adopt:
                for slot in wanted:
                    if slot in self.theirs:
                        value = self.theirs[slot]
                        if same(wanted[slot], value) or not same(self.standing.get(slot, GONE), value):
                            self.behind[slot] = self.theirs.pop(slot)
            self.advisor_was_here(before)
            if crash is None and (wanted or not adopt):  # to adopt nothing makes no file ours
                again = plan_change(self.file, fmt, wanted, read_ledger(self.state))
                assert (again.refused, again.changes, again.after) == (None, (), self.data)

        @rule(crash=CRASH, to_s=st.one_of(st.none(), st.none(), st.floats(0, 1e9)))
        def undo(self, crash: int | None, to_s: float | None) -> None:
            before = self.data
            refused: list[str] = []

            def work() -> None:
                with open_ledger(self.state) as ledger:
                    try:
                        planned = plan_undo(self.file, ledger, {fmt.name: fmt}, to_s=to_s)
                    except OutputError as error:
                        refused.append(str(error))
                        return
                    apply_change(planned, ledger, now_s=0)

            self.do(work, crash)
            for text in refused:
                assert any(word in text for word in ("no change by", "earlier time", "not exist any more"))
            if before is None and self.data is not None:  # what the user had removed is back, as advisor found it
                record = self.record
                begun, wrote = fmt.parse(fmt.new_text), record.wrote if record is not None else {}
                self.theirs = {
                    slot: value
                    for slot, value in self.standing.items()
                    if slot not in begun and (slot not in wrote or not same(value, wrote[slot].value))
                }
                for slot, ours in wrote.items():
                    if ours.behind is not GONE and same(ours.value, self.standing.get(slot, GONE)):
                        self.behind[slot] = ours.behind
            record = self.record
            for slot in list(self.theirs):  # the undone change had given a value back: it is behind ours again
                ours = record.wrote.get(slot) if record is not None else None
                if ours is not None and same(ours.behind, self.theirs[slot]) and same(ours.value, self.standing[slot]):
                    self.behind[slot] = self.theirs.pop(slot)
            self.advisor_was_here(before)

        @rule(wanted=wishes, adopt=st.booleans())
        def apply_and_undo_at_once(self, wanted: dict[Slot, Value], adopt: bool) -> None:
            before = self.data
            with open_ledger(self.state) as ledger:
                planned = plan_change(self.file, fmt, wanted, ledger, adopt=adopt)
                if planned.refused is not None:
                    return
                if not apply_change(planned, ledger, now_s=1):  # adopted, at most: the user has what we want
                    self.behind.update(
                        {slot: self.theirs.pop(slot) for slot in wanted if adopt and slot in self.theirs}
                    )
                    return
                apply_change(plan_undo(self.file, ledger, {fmt.name: fmt}), ledger, now_s=2)
            assert self.data == before

        @rule(crash=CRASH)
        def uninstall(self, crash: int | None) -> None:
            before = self.data

            def work() -> None:
                with open_ledger(self.state) as ledger:
                    for each in uninstall(ledger, {fmt.name: fmt}, now_s=0):
                        assert each.error is None or "by hand" in each.error or "safely" in each.error, each.error

            self.do(work, crash)
            self.advisor_was_here(before)
            if self.record is None and not self.touched:
                assert self.data == self.original
            if self.record is None:
                rest = {slot for slot in self.standing if slot in case.slots}
                assert rest - self.either == (self.theirs.keys() & set(case.slots)) - self.either
                self.original, self.touched = self.data, False

        def teardown(self) -> None:
            try:
                self.uninstall(None)
                self.nothing_is_lost()
            finally:
                shutil.rmtree(self.folder)

        # ------------------------------------------------------------ what must hold

        @invariant()
        def nothing_is_lost(self) -> None:
            data = self.data
            if data is None:
                assert not self.marks
                assert not self.theirs
                return
            text, standing = data.decode(), self.standing
            assert {word for word in self.marks if word not in text} == set()
            for slot, value in self.theirs.items():
                assert same(standing.get(slot, GONE), value), (slot, value, text)

        # ------------------------------------------------------------ the bookkeeping

        def do(self, work: Callable[[], None], crash: int | None) -> None:
            if crash is None:
                work()
                assert [name for name in os.listdir(self.folder) if name.startswith(".advisor-")] == []
            else:
                dies_at(crash, work)

        def advisor_was_here(self, before: bytes | None) -> None:
            if self.data != before and before is not None:
                assert os.path.exists(os.path.join(self.state, "backups", sha256(before).hexdigest()))
            record = self.record
            for slot in list(self.behind):  # no longer ours: it must be as it was
                ours = record.wrote.get(slot) if record is not None else None
                if ours is None or not same(ours.value, self.standing.get(slot, GONE)):
                    self.theirs[slot] = self.behind.pop(slot)

        def by_user(self, changes: dict[Slot, Value | Gone]) -> str:
            try:
                return fmt.edit(self.text, changes)
            except OutputError:
                return self.text

        def user_was_here(self) -> None:
            if self.record is not None:
                self.touched = True
            else:
                self.original = self.data

        def forget(self) -> None:
            self.marks, self.theirs, self.behind, self.either = set(), {}, {}, set()

        def drop(self, slot: Slot) -> None:
            self.theirs.pop(slot, None)
            self.behind.pop(slot, None)
            self.either.discard(slot)

        def write(self, text: str) -> None:
            new = self.data is None
            record = self.record
            with open(self.file, "wb") as file:
                file.write(text.encode())
            if new:
                self.forget()
                for slot, value in self.standing.items():
                    self.user_has(record, slot, value)
            self.user_was_here()

        def user_has(self, record: FileRecord | None, slot: Slot, value: Value) -> None:
            """The user's value, unless it is just what advisor wrote or offered there: then it is advisor's again."""
            ours = record.wrote.get(slot) if record is not None else None
            if record is not None and ours is not None:
                if same(value, ours.value):
                    if ours.behind is not GONE:
                        self.behind[slot] = ours.behind
                    return
                pin = record.pinned.get(slot)
                if pin is not None and same(value, pin.ours) and not same(value, pin.theirs):
                    self.either.add(slot)
                    return
            self.theirs[slot] = value

        @property
        def data(self) -> bytes | None:
            try:
                with open(self.file, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

        @property
        def text(self) -> str:
            return (self.data or b"").decode()

        @property
        def standing(self) -> dict[Slot, Value]:
            return dict(fmt.parse(self.text)) if self.data is not None else {}

        @property
        def record(self) -> FileRecord | None:
            return read_ledger(self.state).files.get(self.file)

    return Machine
