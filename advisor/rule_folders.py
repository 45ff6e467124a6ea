"""Where rule files come from: finding the folders, reading the documents, remembering what was read.

Order, later wins key by key (`advisor.rulebook` merges): the rules shipped with advisor, /etc/advisor/rules,
$XDG_CONFIG_HOME/advisor/rules, and the folder given with `--rules`.

The shipped folders are looked up beside the package and not through importlib.resources: importing that costs 29 ms,
a third of what a whole `recommend` may cost, and advisor's compiled dependencies rule out running from a zip anyway.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tomli

from advisor.errors import RuleError, UsageError
from advisor.excerpts import excerpt, line_of_long_number
from advisor.regular import NotRegularError, read_regular
from advisor.rulebook import RuleDocument

if TYPE_CHECKING:
    import hashlib

MAX_FILE_BYTES = 512 << 10
_NO_RULES = "no rule file looks like this (nested too deep or a number too long)."
SYSTEM_FOLDER = "/etc/advisor/rules"
_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def shipped_folder() -> str:
    """Folder of the rules that came with advisor. Raises RuleError when the installation lacks them."""
    return _shipped("rules")


def systemd_folder() -> str:
    """Folder of the systemd units that came with advisor. Raises RuleError when the installation lacks them."""
    return _shipped("systemd")


def _shipped(name: str, package: str = _PACKAGE) -> str:
    """`advisor/_NAME` of an installed wheel, else NAME beside the package in a checkout or an unpacked sdist."""
    inside = os.path.join(package, f"_{name}")
    if os.path.isdir(inside):
        return inside
    root = os.path.dirname(package)
    beside = os.path.join(root, name)
    # pyproject.toml tells our own tree from some other package's rules/ in the same site-packages
    if os.path.isdir(beside) and os.path.isfile(os.path.join(root, "pyproject.toml")):
        return beside
    raise RuleError(f"{inside}: the {name} folder of this installation is missing; install gguf-advisor again.")


def user_folder(environ: Mapping[str, str] | None = None) -> str:
    """Folder of the user's own rules; it need not exist. `environ` defaults to the process environment."""
    environ = os.environ if environ is None else environ
    if not sys.platform.startswith("linux"):
        import platformdirs  # 17 ms; on Linux the XDG rule below is all it would do

        return os.path.join(platformdirs.user_config_dir("advisor", appauthor=False), "rules")
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative path is invalid and to be ignored
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(base, "advisor", "rules")


class RuleFolders:
    """The rule folders in force. Every document is read once and kept.

    `given` is the argument of `--rules`; UsageError if it is not a folder. The other arguments replace the places
    where the rules are looked for; without them the real ones are found.
    """

    def __init__(
        self,
        given: str | None = None,
        *,
        shipped: str | None = None,
        system: str | None = None,
        user: str | None = None,
    ) -> None:
        if given is not None and not os.path.isdir(given):
            raise UsageError(f"{given}: not a folder; --rules takes a folder laid out as advisor's rules/.")
        shared = (SYSTEM_FOLDER if system is None else system, user_folder() if user is None else user)
        first = shipped_folder() if shipped is None else shipped
        self._folders = (first, *shared, *(() if given is None else (given,)))
        self._watched = tuple(os.path.join(folder, "") for folder in shared)  # whose owners are looked at
        self._bytes: dict[str, list[bytes]] = {}
        self._documents: dict[str, RuleDocument | None] = {}

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that are looked into, weakest first; they need not exist."""
        return self._folders

    def document(self, name: str) -> RuleDocument | None:
        """Read the document `name` ("arch/llama.toml"), merged over all folders; None when no folder has it.

        Raises RuleError for an unsafe name, an unreadable, oversized or untrustworthy file, and broken TOML.
        """
        if name not in self._documents:
            _check_name(name)
            paths = [os.path.join(folder, name) for folder in self._folders]
            found = [(path, content) for path in paths if (content := self._read(path)) is not None]
            layers = tuple((path, _parse(content, path)) for path, content in found)
            self._bytes[name] = [content for _, content in found]
            self._documents[name] = RuleDocument(name, layers) if layers else None
        return self._documents[name]

    def tables_holding(self, name: str, header: str, words: Sequence[str]) -> Mapping[str, object] | None:
        """Parse only the `[[header]]` tables of a shipped document in whose text all `words` stand.

        Of a large table a single line is wanted, and parsing all of it costs 3 ms. None when another folder has a say.
        """
        _check_name(name)
        first, *others = (self._read(os.path.join(folder, name)) for folder in self._folders)
        if first is None or any(content is not None for content in others):
            return None
        mark = f"\n[[{header}]]"
        _, *tables = first.decode("utf-8").split(mark)
        chosen = [table for table in tables if all(word in table for word in words)]
        self._bytes.setdefault(name, [first])
        return {header: [], **tomli.loads(mark.join(["", *chosen]))}

    def names(self, folder: str) -> list[str]:
        """Names of the documents in `folder` ("arch" -> ["arch/gemma3.toml", ...]) over all folders, sorted.

        `""` lists the top. Raises RuleError for an unsafe name or a folder that cannot be listed.
        """
        if folder:
            _check_name(folder)
        found: set[str] = set()
        for base in self._folders:
            path = os.path.join(base, folder)
            try:
                entries = os.listdir(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise RuleError(f"{path}: cannot be listed ({error.strerror}); make it readable.") from None
            found.update(f"{folder}/{entry}" if folder else entry for entry in entries if _is_document(entry))
        return sorted(found)

    def digest(self) -> str:
        """Hash the documents read so far, in name order; the same files give the same "sha256:..." anywhere."""
        total = _sha256()
        for name in sorted(self._bytes):
            for layer, content in enumerate(self._bytes[name]):
                total.update(f"{name}\0{layer}\0{len(content)}\0".encode())
                total.update(content)
        return f"sha256:{total.hexdigest()}"

    def fingerprint(self) -> str:
        """Hash of every rule file in every folder, read or not: what any answer may depend on."""
        total = _sha256()
        for folder in ("", "engines", "arch"):
            for name in self.names(folder):
                for layer, base in enumerate(self._folders):
                    content = self._read(os.path.join(base, name))
                    if content is not None:
                        total.update(f"{name}\0{layer}\0{len(content)}\0".encode())
                        total.update(content)
        return total.hexdigest()

    def _read(self, path: str) -> bytes | None:
        try:
            content, status = read_regular(path, MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except NotRegularError:
            raise RuleError(f"{path}: not a regular file; remove it or put a TOML file in its place.") from None
        except OSError as error:
            raise RuleError(f"{path}: cannot be read ({error.strerror}); make it readable or remove it.") from None
        if path.startswith(self._watched):
            _check_owner(status, path)
        if len(content) > MAX_FILE_BYTES:
            raise RuleError(f"{path}: larger than {MAX_FILE_BYTES >> 10} KiB, which no rule file is; remove it.")
        return content


def _sha256() -> hashlib._Hash:
    """SHA-256; of CPython's own module where it has one, since hashlib loads OpenSSL for 4 ms."""
    for name in ("_sha2", "_sha256"):
        with contextlib.suppress(ImportError):
            found: hashlib._Hash = importlib.import_module(name).sha256()
            return found
    return importlib.import_module("hashlib").sha256()  # type: ignore[no-any-return]


def _is_document(entry: str) -> bool:
    return entry.endswith(".toml") and not entry.startswith(".")


def _check_name(name: str) -> None:
    """Names may come from a model file (general.architecture), so they must not lead out of the folder."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or part.startswith(".") for part in parts) or not all(
        c.isascii() and (c.isalnum() or c in "-_./ ") for c in name
    ):
        raise RuleError(
            f"{excerpt(repr(name))}: not a rule name; use letters, digits, - and _, for example arch/llama.toml."
        )


def _check_owner(info: os.stat_result, path: str) -> None:
    if hasattr(os, "geteuid") and info.st_uid != os.geteuid() and info.st_mode & stat.S_IWOTH:
        raise RuleError(
            f"{path}: belongs to another user and everyone may write it, so it is not trusted; "
            f"take it over or run: chmod o-w {path}"
        )


def _parse(content: bytes, path: str) -> dict[str, object]:
    try:
        text = content.decode("utf-8")
        long = line_of_long_number(text)
        if long is not None:
            raise RuleError(f"{path}, line {long}: {_NO_RULES}")
        return tomli.loads(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RuleError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8.") from None
    except tomli.TOMLDecodeError as error:
        reason = str(error)
        place, _, rest = reason.rpartition(" (at ")
        line_text = rest.rstrip(")").removeprefix("line ").partition(",")[0]
        if place and line_text.isdecimal():
            where, reason = f"{path}, line {line_text}", place
        else:  # "(at end of document)": name the last line
            lines = content.count(b"\n") + (not content.endswith(b"\n"))
            where, reason = f"{path}, line {max(lines, 1)}", place or reason
        raise RuleError(f"{where}: not valid TOML ({reason}); correct that line or remove the file.") from None
    except (RecursionError, ValueError):
        # nesting past the parser's stack, a number of thousands of digits
        raise RuleError(f"{path}: {_NO_RULES}") from None
