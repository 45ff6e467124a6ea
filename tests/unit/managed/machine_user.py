"""What is kept in mind of a file that a user and advisor write to; `advisor.slots` has the words."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from hashlib import sha256

from hypothesis.stateful import RuleBasedStateMachine

from advisor.errors import OutputError
from advisor.managed.ledger import read_ledger
from advisor.managed.merge import Ours
from advisor.managed.records import FileRecord
from advisor.slots import GONE, Gone, Slot, Value, same
from tests.unit.managed.dying import dies_at
from tests.unit.managed.machine_case import ANYHOW, KEEPS_ENDS, Case, Written


class Bookkeeper(RuleBasedStateMachine):
    """A file, the ledger beside it, and what of it is the user's."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.folder = tempfile.mkdtemp()
        self.file = os.path.join(self.folder, "engine.conf")
        self.state = os.path.join(self.folder, "state")
        self.marks: set[str] = set()
        self.theirs: dict[Slot, Written] = {}
        self.behind: dict[Slot, Written] = {}
        self.tables: set[Slot] = set()
        self.either: set[Slot] = set()  # the user wrote what advisor had offered: its own at the next apply
        self.original: bytes | None = None  # the file without advisor
        self.touched = False  # edited by the user after advisor came
        self.edited = False  # and not only by comments and line ends
        self.n_marks = 0

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
            return self.case.format.edit(self.text, changes)
        except OutputError:
            return self.text

    def user_was_here(self, only_marked: bool = False) -> None:
        if self.record is not None:
            self.touched, self.edited = True, self.edited or not only_marked
        else:
            self.original = self.data

    def forget(self) -> None:
        self.marks, self.theirs, self.behind, self.either, self.tables = set(), {}, {}, set(), set()

    def drop(self, slot: Slot) -> None:
        self.theirs.pop(slot, None)
        self.behind.pop(slot, None)
        self.either.discard(slot)

    def write(self, text: str, only_marked: bool = False) -> None:
        new = self.data is None
        record, before, stood = self.record, self.tables_of(self.text), self.standing
        with open(self.file, "wb") as file:
            file.write(text.encode())
        after = self.tables_of(text)
        if new:
            self.forget()
            for slot in self.standing:
                self.user_has(record, slot, self.written(slot))
            before = set()
        self.tables = ((self.tables | (after - before)) & after) - self.tables_of_ours(record, stood)
        self.user_was_here(only_marked)

    def written(self, slot: Slot) -> Written:
        return Written(self.standing[slot], self.case.format.spelled(self.text).get(slot))

    def is_parted(self, slot: Slot, rest: str) -> bool:
        """Whether a comment before `rest` may part what lies behind a value from the blank lines that belong to it."""
        blank = rest.strip(" \r").startswith("\n") and not rest.split("\n")[1].strip()
        return blank and KEEPS_ENDS.match(self.behind[slot].text or "") is not None

    def tables_of_ours(self, record: FileRecord | None, stood: dict[Slot, Value]) -> set[Slot]:
        """Tables around what advisor wrote and the user has just written again: advisor's with it, as far as it knows.

        `stood`: the values before.
        """
        if record is None:
            return set()
        standing = self.standing
        again = [
            slot
            for slot, ours in record.wrote.items()
            if same(ours.value, standing.get(slot, GONE)) and not same(ours.value, stood.get(slot, GONE))
        ]
        return {slot[:n] for slot in again for n in range(len(slot))} - record.tables.keys()

    def lies_behind(self, ours: Ours, slot: Slot) -> Written:
        """What the user had in the place of ours; as it stands, where that is the same value: the user wrote it so.

        Of more than a line only the meaning comes back: the user has made the place anew, maybe with no room for lines.
        """
        if same(ours.behind, self.standing[slot]):
            return self.written(slot)
        text = ours.text or ""
        by_lines = "\n" in text or (isinstance(ours.behind, dict | list) and text[:1] not in ("{", "["))
        return Written(ours.behind, ANYHOW if by_lines else ours.text)

    def tables_of(self, text: str) -> set[Slot]:
        """The tables that are written; the whole file as one is not, unless it has brackets: it begins with a key."""
        if not text:
            return set()
        spelled = self.case.format.spelled(text)
        return {place for place, empty in spelled.items() if place or empty} - self.case.format.parse(text).keys()

    def user_has(self, record: FileRecord | None, slot: Slot, written: Written) -> None:
        """The user's value, unless it is just what advisor wrote or offered there: then it is advisor's again."""
        value = written.value
        ours = record.wrote.get(slot) if record is not None else None
        if record is not None and ours is not None:
            if same(value, ours.value):
                if ours.behind is not GONE:
                    self.behind[slot] = self.lies_behind(ours, slot)
                return
            pin = record.pinned.get(slot)
            if pin is not None and same(value, pin.ours) and not same(value, pin.theirs):
                self.either.add(slot)
                return
        self.theirs[slot] = written

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
        return dict(self.case.format.parse(self.text)) if self.data is not None else {}

    @property
    def record(self) -> FileRecord | None:
        return read_ledger(self.state).files.get(self.file)
