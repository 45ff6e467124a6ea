"""`advisor undo`: config files as they were."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from advisor.cli.keeping import say
from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.managed.records import FileRecord


@click.command("undo")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--to", "when", metavar="TIME", help="as it was at this time, such as 2026-11-30T18:00 or 18:00")
@click.option("--all", "every", is_flag=True, help="every change of every file, as before advisor was used")
def command(files: tuple[str, ...], when: str | None, every: bool) -> int:
    """Take back advisor's last change of each FILE, or all since --to; what you changed yourself stays.

    Without FILE: of every file that advisor changed. The daemon leaves alone what was undone, until
    `advisor apply --adopt`. Exit status: 0, 1 something could not be taken back, 2 wrong usage.
    """
    from advisor.errors import OutputError
    from advisor.keeper.changes import formats
    from advisor.keeper.keeper import ledger_folder
    from advisor.managed.change import apply_change
    from advisor.managed.ledger import open_ledger
    from advisor.managed.undo import describe, plan_undo, uninstall

    if every and (files or when):
        raise UsageError("--all takes everything back; leave FILE and --to away.")
    to_s = _time(when) if when is not None else None
    status = 0
    with open_ledger(ledger_folder(os.environ)) as ledger:
        for note in ledger.notes:
            say(note)
        before = dict(ledger.files)
        paths = [os.path.abspath(file) for file in files] or list(before)
        if not paths:
            say("advisor has changed no files.")
        elif not (files or every or any(known.applied for known in before.values())):
            say("everything was taken back already.")
        for done in uninstall(ledger, formats(), now_s=time.time()) if every else ():
            say(done.done or done.error or "")
            status = status or int(done.error is not None)
        for path in () if every else paths:
            try:
                planned = plan_undo(path, ledger, formats(), to_s=to_s)
                if planned.refused is not None:
                    raise OutputError(planned.refused)
                apply_change(planned, ledger, now_s=time.time())
                say(describe(planned))
            except OutputError as error:
                if files or ledger.files[path].applied:
                    say(str(error))
                    status = 1
        _tell({path: known for path, known in before.items() if ledger.files.get(path) != known and not known.held})
    return status


def _tell(undone: Mapping[str, FileRecord]) -> None:
    """Tell the engines; a broken configuration is no reason not to undo."""
    from advisor.errors import AdvisorError
    from advisor.keeper import read_settings
    from advisor.keeper.undone import tell_undone
    from advisor.state import state_folder

    if not undone:
        return
    try:
        for target, text in tell_undone(read_settings(os.environ), state_folder(os.environ), undone):
            say(f"{target}: {text}")
    except AdvisorError as error:
        say(str(error))


def _time(text: str) -> float:
    """Seconds since 1970 of a time as people write it; today's where only the hour is given."""
    from datetime import datetime

    try:
        today = datetime.now().astimezone().date().isoformat()
        return datetime.fromisoformat(text if "-" in text else f"{today}T{text}").astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--to '{text:.40}' is no time; give it like 2026-11-30T18:00 or 18:00.") from None
