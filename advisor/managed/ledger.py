"""The ledger: which files advisor changes, what it wrote there, and how to take it back.

One JSON file in the state folder, written whole. A change is announced in it (`Intent`) before the file is replaced, so
the next run knows after a crash whether it was. Only the holder of the lock writes; readers need none, since the file
is always whole. A ledger that is broken or of another version is set aside: the files in it are then nobody's, as if
advisor had never written them, until they are adopted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from advisor.errors import OutputError
from advisor.gguf_header.errors import printable
from advisor.managed.atomic import digest, look, remove_stale, replace_file
from advisor.managed.backups import Backups
from advisor.managed.ledger_text import Files, read_document
from advisor.managed.records import FileRecord, Intent, from_json, to_json
from advisor.managed.values_json import sha, whole

SCHEMA = "advisor.ledger/2"
_READ = ("advisor.ledger/1", SCHEMA)  # the first did not know how values had been written
FILE, LOCK, BACKUPS = "managed.json", "managed.lock", "backups"
MAX_LEDGER_BYTES = 256 << 20
_LOOK_AGAIN_S = 0.05
_MAX_PATH = 1 << 16


class Ledger:
    """The ledger as it was read. `files` is by absolute path, links not followed: that is how people name a file."""

    def __init__(self, folder: str, lock: int | None = None) -> None:
        self.folder = folder
        self.lock = lock  # descriptor of the locked file; None for looking only
        self.files = Files()
        self.sequence = 0  # of the last change
        self.intent: Intent | None = None
        self.notes: list[str] = []  # one sentence each: what was repaired, or lost
        self.backups = Backups(os.path.join(folder, BACKUPS))

    @property
    def path(self) -> str:
        """The ledger file."""
        return os.path.join(self.folder, FILE)

    def save(self) -> None:
        """Write it durably. Raises OutputError."""
        assert self.lock is not None
        intent = self.intent
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "sequence": self.sequence,
            "intent": intent and {**intent._asdict(), "record": intent.record and to_json(intent.record)},
        }
        files = ", ".join(f"{json.dumps(path)}: {text}" for path, text in self.files.texts.items())
        replace_file(self.path, f'{json.dumps(document)[:-1]}, "files": {{{files}}}}}'.encode(), new_mode=0o600)

    def enter(self, folder: str) -> None:
        """Note in the lock file where a new file is about to be laid down, for whoever finds it after a crash."""
        assert self.lock is not None
        with contextlib.suppress(OSError):  # a full disk: the new file will not fit either
            os.ftruncate(self.lock, 0)
            os.pwrite(self.lock, os.fsencode(folder), 0)

    def commit(self, path: str, record: FileRecord | None) -> None:
        """The announced change is made: remember it. Raises OutputError."""
        self.intent = None
        if record is None:
            self.files.pop(path, None)
        else:
            self.files[path] = record
        self.save()

    def load(self) -> None:
        """Read the file, set it aside when it cannot be understood, settle an announced change."""
        data = look(self.path, MAX_LEDGER_BYTES).data
        if data is None:
            return
        try:
            document, self.files = read_document(data.decode())
            if document.get("schema") not in _READ:
                raise ValueError("another schema")
            self.sequence = whole(document["sequence"])
            self.intent = None if document["intent"] is None else _intent(document["intent"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            self.files, self.sequence, self.intent = Files(), 0, None
            self._set_aside()
        self._settle()

    def _set_aside(self) -> None:
        name = printable(self.path)
        lost = "the files that advisor changed count as yours until you adopt them ('advisor apply --adopt')."
        if self.lock is None:
            self.notes.append(f"{name} is broken or from another version of advisor; {lost}")
            return
        number = 1
        while os.path.lexists(aside := f"{self.path}.broken{number}"):
            number += 1
        try:
            os.rename(self.path, aside)
        except OSError as error:
            raise OutputError(f"{name} is broken and cannot be set aside ({error.strerror}); remove it.") from None
        self.notes.append(f"{name} was broken or from another version of advisor and is now {printable(aside)}; {lost}")

    def _settle(self) -> None:
        """Whether the change that was announced last was made; nothing is written to the file itself."""
        intent = self.intent
        if intent is None:
            return
        made = _took_its_place(intent)
        with contextlib.suppress(OutputError):  # not readable any more
            now = digest(look(intent.target).data)
            if now in (intent.sha_before, intent.sha_after):
                made = now == intent.sha_after
        if made:
            record = intent.record
            if record is None:
                self.files.pop(intent.path, None)
            else:
                self.files[intent.path] = record
        self.intent = None
        state = "was made" if made else "was not made"
        self.notes.append(f"a change of {printable(intent.path)} was cut off and {state}; the ledger is right again.")
        if self.lock is not None:
            self.save()


def _took_its_place(intent: Intent) -> bool:
    """Where the hashes do not tell, since somebody edited the file.

    A file that was there is replaced by the new one, whose first name is gone then. One that was not there becomes a
    second name of the new one, which keeps its first until the ledger is written.
    """
    if intent.temporary is None:
        return False
    try:
        return os.path.samefile(intent.temporary, intent.target)
    except OSError:
        return intent.sha_before is not None and not os.path.lexists(intent.temporary)


def _intent(document: Any) -> Intent:
    texts = (document["path"], document["target"], document["temporary"] or "")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("no intent")
    record = document["record"]
    return Intent(
        path=texts[0], target=texts[1], sha_before=sha(document["sha_before"]), sha_after=sha(document["sha_after"]),
        temporary=texts[2] or None, record=None if record is None else from_json(record),
    )  # fmt: skip


def read_ledger(folder: str) -> Ledger:
    """The ledger for looking only: nothing on the disk is changed. Raises OutputError when it cannot be read."""
    ledger = Ledger(folder)
    ledger.load()
    return ledger


@contextlib.contextmanager
def open_ledger(folder: str, *, wait_s: float = 5.0) -> Iterator[Ledger]:
    """The ledger for changing files, alone; what a crash left is repaired and removed.

    Raises OutputError when another advisor has it for longer than `wait_s`, or the state folder cannot be used.
    """
    try:
        for place in (os.path.dirname(folder), folder):  # makedirs gives the mode to the last one only
            os.makedirs(place, mode=0o700, exist_ok=True)
        descriptor = _lock(os.path.join(folder, LOCK), wait_s)
    except OSError as error:
        raise OutputError(
            f"{printable(folder)} cannot be used for advisor's state ({error.strerror}); make it a folder that you may "
            f"write, or set XDG_STATE_HOME."
        ) from None
    ledger = Ledger(folder, descriptor)
    try:
        ledger.load()
        folders = {folder, ledger.backups.folder, os.fsdecode(os.pread(descriptor, _MAX_PATH, 0))}
        for place in folders | {os.path.dirname(os.path.realpath(path)) for path in ledger.files}:
            remove_stale(place)
        yield ledger
    finally:
        ledger.lock = None
        os.close(descriptor)


def _lock(path: str, wait_s: float) -> int:
    deadline = time.monotonic() + wait_s
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # somebody may have removed the file while we waited: then another could lock the next one
            if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise OutputError(
                    "another advisor is changing config files right now; wait until it is done and try again."
                ) from None
            time.sleep(_LOOK_AGAIN_S)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
