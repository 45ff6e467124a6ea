"""`advisor undo`: config files as they were."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from advisor.cli.keeping import json_option, say
from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.managed.ledger import Ledger
    from advisor.managed.records import FileRecord
    from advisor.managed.undo import Undone


@click.command("undo")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--to", "when", metavar="TIME", help="as it was at this time, such as 2026-11-30T18:00 or 18:00")
@click.option("--all", "every", is_flag=True, help="every change, as before advisor was used")
@json_option
def command(files: tuple[str, ...], when: str | None, every: bool, as_json: bool) -> int:
    """Take back advisor's last change of each FILE, or all since --to; what you changed yourself stays.

    A folder as FILE stands for all files in it, no FILE for every file that advisor changed. The daemon leaves alone
    what was undone, until `advisor apply --adopt`; files of --all are as if advisor had never known them. Exit status:
    0, 1 something could not be taken back, 2 wrong usage.
    """
    from advisor.keeper.changes import formats
    from advisor.keeper.keeper import ledger_folder
    from advisor.managed.ledger import open_ledger
    from advisor.managed.undo import uninstall

    if every and when:
        raise UsageError("--all takes everything back; leave --to away.")
    to_s = _time(when) if when is not None else None
    notes: list[str] = []
    with open_ledger(ledger_folder(os.environ)) as ledger:
        notes += ledger.notes
        before = dict(ledger.files)
        paths = _meant(files, before) if files else list(before)
        if not (before or files):
            notes.append("advisor has changed no files.")
        elif not (files or every or any(known.applied for known in before.values())):
            notes.append("everything was taken back already.")
        if every:
            done = _unknown(paths, before)
            done += uninstall(ledger, formats(), now_s=time.time(), paths=[path for path in paths if path in before])
        else:
            done = _undo(paths, ledger, to_s, named=bool(files))
        engines = _tell(
            {path: known for path, known in before.items() if ledger.files.get(path) != known and not known.held}
        )
    if as_json:
        _print_json(done, notes, engines)
    else:
        for text in (*notes, *(each.done or each.error or "" for each in done), *engines):
            say(text)
    return int(any(each.error is not None for each in done))


def _meant(files: Sequence[str], known: Mapping[str, FileRecord]) -> list[str]:
    """The paths of what was named; a folder that is no file of advisor's stands for those below it."""
    found: dict[str, None] = {}
    for file in map(os.path.abspath, files):
        below = [path for path in known if path.startswith(os.path.join(file, ""))]
        found |= dict.fromkeys(below if below and file not in known else [file])
    return list(found)


def _undo(paths: Sequence[str], ledger: Ledger, to_s: float | None, *, named: bool) -> list[Undone]:
    from advisor.errors import OutputError
    from advisor.keeper.changes import formats
    from advisor.managed.change import about, apply_change
    from advisor.managed.undo import Undone, describe, plan_undo

    found = []
    for path in paths:
        try:
            planned = plan_undo(path, ledger, formats(), to_s=to_s)
            if planned.refused is not None:
                raise OutputError(planned.refused)
            apply_change(planned, ledger, now_s=time.time())
            found.append(Undone(path, describe(planned), None))
        except Exception as error:  # of this file; the others are taken back all the same
            if named or ledger.files[path].applied:
                found.append(Undone(path, None, about(path, error)))
    return found


def _unknown(paths: Sequence[str], known: Mapping[str, FileRecord]) -> list[Undone]:
    from advisor.gguf_header.errors import printable
    from advisor.managed.undo import Undone

    sentence = "{} has no change by advisor that could be undone."
    return [Undone(path, None, sentence.format(printable(path))) for path in paths if path not in known]


def _print_json(done: Sequence[Undone], notes: Sequence[str], engines: Sequence[str]) -> None:
    import json

    files = [{"path": each.path, "text": each.done, "error": each.error} for each in done]
    document = {"schema": "advisor.undo/1", "files": files, "notes": list(notes), "engines": list(engines)}
    print(json.dumps(document, indent=2))


def _tell(undone: Mapping[str, FileRecord]) -> list[str]:
    """What the engines say; a broken configuration is no reason not to undo."""
    from advisor.errors import AdvisorError
    from advisor.keeper import read_settings
    from advisor.keeper.undone import tell_undone
    from advisor.state import state_folder

    if not undone:
        return []
    try:
        told = tell_undone(read_settings(os.environ), state_folder(os.environ), undone)
        return [f"{target}: {text}" for target, text in told]
    except AdvisorError as error:
        return [str(error)]


def _time(text: str) -> float:
    """Seconds since 1970 of a time as people write it; today's where only the hour is given."""
    from datetime import datetime

    try:
        today = datetime.now().astimezone().date().isoformat()
        return datetime.fromisoformat(text if "-" in text else f"{today}T{text}").astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--to '{text:.40}' is no time; give it like 2026-11-30T18:00 or 18:00.") from None
