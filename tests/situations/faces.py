"""The public faces, asked as a person asks them: the command line in this process, headers and machines as files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from advisor.cli.main import main
from advisor.hardware.snapshot_file import to_json
from advisor.host import HostSnapshot
from tests.tools.cells import DATA, snapshot

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
WIDE = {"COLUMNS": "200"}  # a sentence then stands on one line


class Said(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What --json printed."""
        return json.loads(self.out)

    @property
    def flat(self) -> str:
        """The text with every run of blanks as one."""
        return " ".join(self.out.split())


def ask(*words: object) -> Said:
    """`advisor WORDS`, as a pipe sees it."""
    runner = CliRunner(env=WIDE)
    with runner.isolation() as (out, err, _):
        status = main([str(word) for word in words])
        return Said(status, out.getvalue().decode(), err.getvalue().decode())


def document(*words: object, status: int | None = None) -> dict[str, Any]:
    """The document of a command with --json; the verdict's status unless another is expected."""
    said = ask(*words, "--json")
    assert said.status in ((0, 3, 4) if status is None else (status,)), said
    return said.document


def warned(found: dict[str, Any], code: str) -> str:
    """The text of the warning of this code, of which there must be one."""
    (text,) = [note["text"] for note in found["warnings"] if note["code"] == code]
    return str(text)


def codes(found: dict[str, Any], key: str = "warnings") -> set[str]:
    """The codes of all warnings, or of all reasons."""
    return {note["code"] for note in found[key]}


def zoo(name: str) -> Path:
    """A published model's header, which is accepted wherever a MODEL is."""
    return DATA / "zoo" / f"{name}.json.gz"


def changed(folder: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """The header of a zoo model with `change` made to it, as a file."""
    header = snapshot(name)
    change(header)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(header))
    return path


def machine(folder: Path, host: HostSnapshot) -> Path:
    """A machine as `advisor hardware --save` writes it."""
    path = folder / "hardware.json"
    path.write_text(json.dumps(to_json(host)))
    return path


def extra_bytes(place: list[dict[str, Any]], *words: str) -> dict[str, int]:
    """high, value and low of what is loaded beside the model, summed over the entries whose names hold all `words`."""
    found = [extra for extra in place if all(word in extra["name"] for word in words)]
    assert found, words
    return {end: sum(extra[end] for extra in found) for end in ("low_bytes", "bytes", "high_bytes")}
