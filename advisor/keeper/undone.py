"""After `advisor undo`: engines are told, those of targets whose files it changed."""

from __future__ import annotations

import os
from collections.abc import Mapping

from advisor.errors import unexpected
from advisor.keeper.passes import TargetPass
from advisor.keeper.reload import BY_HAND, NEW, tag_of, tell_engine
from advisor.keeper.seen import is_below, read_seen, write_seen
from advisor.keeper.settings import KeeperSettings
from advisor.managed.records import FileRecord


def tell_undone(settings: KeeperSettings, state_folder: str, undone: Mapping[str, FileRecord]) -> list[tuple[str, str]]:
    """(target, sentence) about the files in `undone`, which holds each one's record from before.

    What an engine does not take now it is told at the next pass. Raises OutputError where that cannot be kept.
    """
    seen, found = read_seen(state_folder), []
    owed = {name: dict(each) for name, each in seen.owed.items()}
    for target in settings.targets:
        mine = {
            path: record for path, record in undone.items()
            if record.format == target.format and is_below(path, [os.path.abspath(target.path)])
        }  # fmt: skip
        if not mine:
            continue
        debts = owed.setdefault(target.name, {})
        for path, record in mine.items():
            never_made = debts.pop(path, "") == NEW and not os.path.lexists(path)
            if not never_made:
                debts[path] = "" if os.path.lexists(path) else tag_of(record)
        try:
            text = tell_engine(target, TargetPass(target), (), debts).text
            remains = any(os.path.lexists(path) for path in mine)
            found.append((target.name, text or (BY_HAND[target.format] if remains else "")))
        except Exception as error:  # the others are told all the same
            found.append((target.name, unexpected(error)))
    after = seen._replace(owed={name: each for name, each in owed.items() if each})
    if after != seen:
        write_seen(state_folder, after)
    return [(name, text) for name, text in found if text]
