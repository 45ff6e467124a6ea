"""What a format must offer to be managed; `advisor.slots` has the words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from advisor.slots import Gone, Slot, Value


class Format(Protocol):
    """One kind of config file.

    `shares` is "own" (a whole file of ours; the user may edit it) or "merge" (another program's or the user's file in
    which some slots are ours). `new_text` is what a new file begins as; slots in it are nobody's.
    """

    @property
    def name(self) -> str:
        """The name under which the ledger remembers the format."""

    @property
    def shares(self) -> str:
        """Either "own" or "merge"."""

    @property
    def new_text(self) -> str:
        """A file without slots, such as a comment or an empty table."""

    def parse(self, text: str) -> Mapping[Slot, Value]:
        """Every value of the file. Raises OutputError for a text that is not of this format."""

    def spelled(self, text: str) -> Mapping[Slot, str]:
        """How values stand in the text; also of the tables above them, what is left of each when it is empty."""

    def edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str] = ...) -> str:
        """Set or remove slots, every other character unchanged. Raises OutputError for what it cannot express.

        A value in `spelled` is written as it says there, a table in it stays when nothing is in it any more.
        """

    def validate(self, text: str) -> None:
        """Raise OutputError for a text that the program that reads it would refuse."""
