"""What was read of every model file, and what was planned for it: one sqlite file in the user's cache folder.

A row counts only for the same path, device, inode, size, mtime and advisor. The file is only a cache: broken, of
another schema, locked, on a full disk or not writable, it is rebuilt or done without, and nobody is told.

The journal is sqlite's plain rollback journal and not WAL: WAL needs memory shared between processes, which home
folders on a network do not have. Rows are kept in memory and written in one short transaction at a time, so two
processes at once wait milliseconds for each other; who waits longer than half a second goes on without the cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import time
from collections.abc import Mapping
from hashlib import sha256
from types import TracebackType
from typing import Any

from advisor import __version__
from advisor.stores.types import Facts, StoredModel

FILE = "models.sqlite"
SCHEMA_VERSION = 1
MAX_FILE_BYTES = 64 << 20
KEPT_PLAN_KEYS = 8  # machines, intents and engines of which the answers are kept
_WAIT_S = 0.5
_PENDING = 500  # rows in memory before they are written
_SETTLED_S = 10  # a problem of a younger file may be over before its mtime moves on
_FOREIGN = ("no such", "table ", "Could not decode")  # errors of tables that somebody else made
_TABLES = {
    "facts": "(path BLOB PRIMARY KEY, identity TEXT NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID",
    "answers": "(path BLOB, plan_key TEXT, identity TEXT NOT NULL, answer TEXT NOT NULL, "
    "PRIMARY KEY (path, plan_key)) WITHOUT ROWID",
    "plan_keys": "(number INTEGER PRIMARY KEY AUTOINCREMENT, plan_key TEXT NOT NULL UNIQUE)",
    "notes": "(name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
}
_TRIM: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (
        "DELETE FROM plan_keys WHERE number NOT IN (SELECT number FROM plan_keys ORDER BY number DESC LIMIT ?)",
        (KEPT_PLAN_KEYS,),
    ),
    ("DELETE FROM answers WHERE plan_key NOT IN (SELECT plan_key FROM plan_keys)", ()),
)


def cache_folder(environ: Mapping[str, str]) -> str:
    """$XDG_CACHE_HOME/advisor, and the platform's own place elsewhere than on Linux."""
    given = environ.get("XDG_CACHE_HOME")
    if given and os.path.isabs(given):
        return os.path.join(given, "advisor")
    if sys.platform.startswith("linux"):
        return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache", "advisor")
    from platformdirs import user_cache_dir

    return user_cache_dir("advisor", appauthor=False)


class Cache:
    """Remembers facts and answers by model; `folder` None remembers nothing. A context manager, for one thread."""

    def __init__(self, folder: str | None) -> None:
        self._path = "" if folder is None else os.path.join(folder, FILE)
        self._stamp = _code_stamp()
        self._pending: list[tuple[str, tuple[Any, ...]]] = []
        self._plan_keys: set[str] = set()
        self._db = None if folder is None else self._open()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def facts(self, model: StoredModel) -> tuple[Facts | None, str | None] | None:
        """What was read of the model's files as they are now: (facts, problem); None when that is not known."""
        document = self._one("SELECT facts FROM facts WHERE path = ? AND identity = ?", self._key(model))
        if not isinstance(document, dict):
            return None
        problem = document.get("problem")
        if isinstance(problem, str):
            return None, problem
        values = [document.get(name) for name in Facts._fields]
        if [type(value) for value in values] != [str, str, str, str, int, int]:
            return None
        return Facts._make(values), None

    def remember_facts(self, model: StoredModel, facts: Facts | None, problem: str | None) -> None:
        """Keep what was read; a problem only of files that nobody is writing any more."""
        newest = max((identity.mtime_ns for identity in model.identity), default=0)
        if facts is None and time.time_ns() - newest < _SETTLED_S * 10**9:
            return
        document = {"problem": problem} if facts is None else facts._asdict()
        self._keep("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (*self._key(model), json.dumps(document)))

    def answer(self, model: StoredModel, plan_key: str) -> dict[str, Any] | None:
        """What was remembered for the model's files as they are now under this key, None if nothing was."""
        query = "SELECT answer FROM answers WHERE path = ? AND identity = ? AND plan_key = ?"
        found = self._one(query, (*self._key(model), plan_key))
        return found if isinstance(found, dict) else None

    def remember_answer(self, model: StoredModel, plan_key: str, answer: Mapping[str, Any]) -> None:
        """Keep an answer (values for json.dumps) under the hash of everything else that it depends on."""
        if plan_key not in self._plan_keys:
            self._plan_keys.add(plan_key)
            self._keep("INSERT OR IGNORE INTO plan_keys (plan_key) VALUES (?)", (plan_key,))
        values = (*self._key(model), plan_key, json.dumps(dict(answer)))
        self._keep("INSERT OR REPLACE INTO answers (path, identity, plan_key, answer) VALUES (?, ?, ?, ?)", values)

    def note(self, name: str) -> Any:
        """The value kept under `name`, None if there is none."""
        return self._one("SELECT text FROM notes WHERE name = ?", (name,))

    def remember_note(self, name: str, value: Any) -> None:
        """Keep a value for json.dumps."""
        self._keep("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value)))

    def flush(self) -> None:
        """Write what is kept in memory, in one transaction."""
        for _ in range(2):  # the second time into a database that was made anew
            if self._db is None or not self._pending:
                break
            try:
                self._db.execute("BEGIN IMMEDIATE")
                for statement, values in (*self._pending, *_TRIM):
                    self._db.execute(statement, values)
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                self._failed(error)
            else:
                break
        self._pending.clear()
        self._plan_keys.clear()

    def close(self) -> None:
        """Write what is left and let go of the file."""
        self.flush()
        if self._db is not None:
            self._db.close()
            self._db = None

    def _key(self, model: StoredModel) -> tuple[bytes, str]:
        identity = json.dumps([self._stamp, *model.identity])
        if len(identity) > 300:  # a split model
            identity = sha256(identity.encode()).hexdigest()
        return os.fsencode(model.path), identity

    def _one(self, query: str, values: tuple[Any, ...]) -> Any:
        """The JSON in the only column of the first row; None without a row, without a cache, and for damaged JSON."""
        if self._db is None:
            return None
        try:
            row = self._db.execute(query, values).fetchone()
        except sqlite3.Error as error:
            self._failed(error)
            return None
        if row is None or not isinstance(row[0], str):
            return None
        try:
            return json.loads(row[0])
        except (ValueError, RecursionError):
            return None

    def _keep(self, statement: str, values: tuple[Any, ...]) -> None:
        if self._db is not None:
            self._pending.append((statement, values))
            if len(self._pending) >= _PENDING:
                self.flush()

    def _failed(self, error: sqlite3.Error) -> None:
        """After an error: a damaged file is replaced by an empty one, anything else is done without from now on."""
        if self._db is not None:
            self._db.close()  # undoes an open transaction
        self._db = None
        if not isinstance(error, sqlite3.OperationalError) or str(error).startswith(_FOREIGN):
            self._remove()
            self._db = self._open(again=False)

    def _open(self, *, again: bool = True) -> sqlite3.Connection | None:
        """The database with our tables in it; None where there can be none."""
        db = None
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            if again and os.path.exists(self._path) and os.path.getsize(self._path) > MAX_FILE_BYTES:
                self._remove()
            db = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:  # a newer advisor's, which it shall keep
                db.close()
                return None
            db.execute("PRAGMA synchronous = NORMAL")
            if version < SCHEMA_VERSION or not _has_tables(db):
                _make_tables(db)
        except (OSError, sqlite3.Error) as error:
            if db is not None:
                db.close()
            if again and isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.OperationalError):
                self._remove()
                return self._open(again=False)
            return None
        return db

    def _remove(self) -> None:
        # the journal first: beside a new file it would be played back into it
        for path in (self._path + "-journal", self._path):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _has_tables(db: sqlite3.Connection) -> bool:
    names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return set(_TABLES) <= names


def _make_tables(db: sqlite3.Connection) -> None:
    """Replace whatever is there. Two processes may do this at once: the second finds it done."""
    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version < SCHEMA_VERSION or not _has_tables(db):
        for name, columns in _TABLES.items():
            db.execute(f"DROP TABLE IF EXISTS {name}")
            db.execute(f"CREATE TABLE {name} {columns}")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.execute("COMMIT")


def _code_stamp() -> str:
    """Which advisor: its version, and in a checkout, whose version stays the same, when its code changed."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    newest = 0
    for folder, folders, files in os.walk(package):
        folders[:] = [name for name in folders if name not in ("__pycache__", "cli", "data", "_rules", "_systemd")]
        newest = max(newest, *(os.stat(os.path.join(folder, name)).st_mtime_ns for name in files), 0)
    return f"{__version__} {newest}"
