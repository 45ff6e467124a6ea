"""A file and a ledger to change it with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from advisor.managed.change import PlannedChange, apply_change, plan_change
from advisor.managed.ledger import open_ledger
from advisor.managed.types import Format
from advisor.managed.undo import describe, plan_undo, uninstall
from advisor.slots import Value
from tests.unit.managed.formats import Flat, Lines

FORMATS: dict[str, Format] = {"lines": Lines(), "flat-json": Flat()}


class Desk:
    """One file under advisor's hands; every step opens the ledger anew, as separate runs of advisor do."""

    def __init__(self, folder: Path, fmt: Format, name: str = "engine.conf") -> None:
        self.state = str(folder / "state" / "advisor")
        self.file = folder / "config" / name
        self.file.parent.mkdir(exist_ok=True)
        self.format = fmt
        self.now_s = 1_000_000.0

    def plan(self, *, adopt: bool = False, create: bool = False, **wanted: Value) -> PlannedChange:
        with open_ledger(self.state) as ledger:
            return plan_change(str(self.file), self.format, _slots(wanted), ledger, adopt=adopt, create=create)

    def apply(self, *, adopt: bool = False, create: bool = False, keep: int = 20, **wanted: Value) -> PlannedChange:
        """Plan and apply; OutputError when it is refused."""
        self.now_s += 60
        with open_ledger(self.state) as ledger:
            planned = plan_change(str(self.file), self.format, _slots(wanted), ledger, adopt=adopt, create=create)
            apply_change(planned, ledger, now_s=self.now_s, keep=keep)
            return planned

    def undo(self, to_s: float | None = None) -> PlannedChange:
        self.now_s += 60
        with open_ledger(self.state) as ledger:
            planned = plan_undo(str(self.file), ledger, FORMATS, to_s=to_s)
            apply_change(planned, ledger, now_s=self.now_s)
            assert describe(planned)
            return planned

    def uninstall(self) -> str:
        with open_ledger(self.state) as ledger:
            (result,) = uninstall(ledger, FORMATS, now_s=self.now_s)
            assert result.error is None
            assert result.done is not None
            assert ledger.files == {}
            return result.done

    def uninstall_everything(self) -> None:
        """As `uninstall`, also when nothing is known."""
        with open_ledger(self.state) as ledger:
            assert [each.error for each in uninstall(ledger, FORMATS, now_s=self.now_s) if each.error] == []

    @property
    def text(self) -> str:
        return self.file.read_bytes().decode()

    def write(self, text: str) -> None:
        self.file.write_bytes(text.encode())


def _slots(wanted: Mapping[str, Value]) -> dict[tuple[str, ...], Value]:
    return {(key,): value for key, value in wanted.items()}


@pytest.fixture
def own(tmp_path: Path) -> Desk:
    return Desk(tmp_path, Lines())


@pytest.fixture
def shared(tmp_path: Path) -> Desk:
    return Desk(tmp_path, Flat(), "settings.json")
