"""Files that still hold what advisor wrote although no target of the configuration has them any more.

A target was taken out, or its path or format changed. They are only named, with the command that takes them back: what
an engine still reads is not for advisor to remove unasked.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from advisor.gguf_header.errors import printable
from advisor.keeper.seen import is_below
from advisor.keeper.targets import Target
from advisor.managed.ledger import Ledger
from advisor.outputs import registry

_FEW = 3  # files of one folder that are named one by one


def left_behind(ledger: Ledger, targets: Sequence[Target]) -> list[str]:
    """Their paths."""
    return [
        path
        for path in ledger.files
        if not any(_has(target, path, ledger) for target in targets)
        and ledger.files[path].wrote
        and not ledger.files[path].held
        and os.path.lexists(path)
    ]


def left_behind_notes(ledger: Ledger, targets: Sequence[Target]) -> list[str]:
    """A sentence for each of them; for many in one folder one together."""
    folders: dict[str, list[str]] = {}
    for path in left_behind(ledger, targets):
        folders.setdefault(os.path.dirname(path), []).append(path)
    found = []
    for folder, paths in folders.items():
        if len(paths) <= _FEW:
            found += [f"{printable(path)} still holds {_rest(path)}" for path in paths]
        else:
            found.append(f"{len(paths)} files in {printable(folder)} still hold {_rest(folder)}")
    return found


def _rest(path: str) -> str:
    return (
        "what advisor wrote, and no target of the configuration is meant for that any more; "
        f"this takes it back: advisor undo --all {shlex.quote(path)}"
    )


def _has(target: Target, path: str, ledger: Ledger) -> bool:
    place = os.path.abspath(target.path)
    covers = is_below(path, [place]) if registry.load(target.format).per_model else path == place
    return covers and ledger.files[path].format == target.format
