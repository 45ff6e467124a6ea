"""A user and advisor at the same file, in any order, with power cuts: what the user wrote must stay.

Made for any format: a `Case` says what a user's files, slots and values may be. What the machine keeps track of:

    marks    comments that the user put in; each must stand in the file until the user takes it out
    theirs   values that the user set; each must stand, letter for letter, until the user changes it or lets advisor
             adopt it
    behind   values that advisor adopted; each must come back, letter for letter, when advisor no longer wants its own,
             or is uninstalled
    tables   sections and maps that the user wrote; each must stand, empty or not, until the user takes it out
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from advisor.errors import OutputError
from advisor.managed.change import apply_change, plan_change
from advisor.managed.ledger import open_ledger, read_ledger
from advisor.managed.undo import plan_undo, uninstall
from advisor.slots import GONE, Slot, Value, same
from tests.unit.managed.machine_case import ANYHOW, CRASH, RESPELLED, Case, as_lines, without_marks
from tests.unit.managed.machine_user import Bookkeeper


def machine(case: Case) -> type[RuleBasedStateMachine]:
    """The machine for one format, to be given to `run_state_machine_as_test`."""
    fmt = case.format
    slots = st.sampled_from(case.slots)
    wishes = case.wishes or st.lists(slots, unique=True, max_size=4).flatmap(
        lambda some: st.fixed_dictionaries({slot: case.values(slot) for slot in some})
    )

    class Machine(Bookkeeper):
        def __init__(self) -> None:
            super().__init__(case)

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
            self.user_has(record, slot, self.written(slot))

        @precondition(lambda self: self.data is not None)
        @rule(slot=slots, how=st.sampled_from(RESPELLED))
        def user_writes_a_value_in_another_way(self, slot: Slot, how: Callable[[Value], str]) -> None:
            if slot not in self.standing:
                return
            before = self.standing
            try:
                anew = how(before[slot])
            except TypeError:  # JSON has no dates
                return
            try:
                text = fmt.edit(self.text, {slot: before[slot]}, {slot: anew})
                if not same(dict(fmt.parse(text)), before):
                    return
            except OutputError:
                return
            self.write(text)
            if slot in self.theirs:
                self.theirs[slot] = self.written(slot)
            elif slot in self.behind and same(self.behind[slot].value, before[slot]):  # it was never written by advisor
                self.behind[slot] = self.written(slot)

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
                parted = [slot for slot in self.behind if self.is_parted(slot, text.partition(word)[2])]
                self.write(text, only_marked=not parted)
                self.behind.update({slot: self.behind[slot]._replace(text=ANYHOW) for slot in parted})
                self.marks.add(word)
                self.theirs = {slot: self.written(slot) for slot in self.theirs}  # within a list of theirs

        @precondition(lambda self: self.data is not None and case.mark is None)
        @rule()
        def user_ends_the_file_with_a_line_end(self) -> None:
            self.write(self.text + "\n", only_marked=True)

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
                        value = self.theirs[slot].value
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
                    slot: self.written(slot)
                    for slot, value in self.standing.items()
                    if slot not in begun and (slot not in wrote or not same(value, wrote[slot].value))
                }
                self.tables = set(record.tables) if record is not None else self.tables_of(self.text)
                for slot, ours in wrote.items():
                    if ours.behind is not GONE and same(ours.value, self.standing.get(slot, GONE)):
                        self.behind[slot] = self.lies_behind(ours, slot)
            record = self.record
            for slot in list(self.theirs):  # the undone change had given a value back: it is behind ours again
                ours = record.wrote.get(slot) if record is not None else None
                theirs = self.theirs[slot].value
                if ours is not None and same(ours.behind, theirs) and same(ours.value, self.standing[slot]):
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

        @precondition(lambda self: self.data is not None)
        @rule(data=st.data(), at=st.integers(0, 1000), back=st.sampled_from(("undo", "drop", "uninstall")))
        def taken_over_and_given_back(self, data: st.DataObject, at: int, back: str) -> None:
            """With something of the user's in between, so that it is not the bytes of the whole file that come back."""
            theirs = st.sampled_from(sorted(self.theirs)) if self.theirs else st.nothing()
            some = data.draw(st.lists(theirs, max_size=3 if self.theirs else 0, unique=True))
            more = data.draw(wishes)
            self.apply({slot: data.draw(case.values(slot)) for slot in some} | more, True, None, 1.0)
            if self.data is None:
                return
            if case.mark is not None:
                self.user_writes_a_comment(at)
            else:
                self.user_ends_the_file_with_a_line_end()
            if back == "undo":
                self.undo(None, None)
            elif back == "drop":
                self.apply({}, False, None, 1.0)
            else:
                self.uninstall(None)

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
            if self.record is None and not self.edited and self.original is not None and self.data is not None:
                assert without_marks(self.text) == without_marks(self.original.decode())
            if self.record is None:
                rest = {slot for slot in self.standing if slot in case.slots}
                assert rest - self.either == (self.theirs.keys() & set(case.slots)) - self.either
                self.original, self.touched, self.edited = self.data, False, False

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
                assert self.tables <= self.tables_of(fmt.new_text)
                return
            text, standing, spelled = data.decode(), self.standing, fmt.spelled(data.decode())
            assert {word for word in self.marks if word not in text} == set()
            for slot, written in self.theirs.items():
                assert same(standing.get(slot, GONE), written.value), (slot, written, text)
                assert as_lines(written.text) in (as_lines(spelled.get(slot)), ANYHOW), (slot, written, text)
            assert self.tables <= spelled.keys(), (self.tables - spelled.keys(), text)

    return Machine
