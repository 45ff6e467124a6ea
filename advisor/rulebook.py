"""The rule law, applied to parsed TOML documents: merging of layers, schemas, and sources of numbers.

Pure: documents come in as plain dicts (reading them is `advisor.rule_folders`), nothing is evaluated.

A schema is a nested dict, key -> spec. A key that ends in "?" is optional, the key "*" stands for every other key:

    {"window?": {"size": "int 1..", "kind": ("sliding", "chunked")}, "layers": ["int 0.."], "build?": {"*": "number"}}

    spec                  accepts
    "str"                 a text; a bare "str" may be empty, "str 1.." may not
    "int", "int 0..100"   a whole number, with an optional range (either end may be left out)
    "number", "number 0.." a whole or decimal number; nan and inf are refused
    "bool", "any"         true or false; anything
    "int 0.. | str"       one of several of these words
    ("a", "b")            one of these values
    [spec]                a list (an array of tables too) whose every item is like spec; [spec, 1]: at least one of them
    either(spec, ...)     the first spec that accepts; for choices that words cannot say
    {...}                 a table

`source`, `measured` and `note` (texts) are allowed in every table; `schema_version` is required in each document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from advisor.errors import RuleError
from advisor.excerpts import excerpt

SCHEMA_VERSION = 1
_ALWAYS_ALLOWED = ("source", "measured", "note")
_LONGEST_KEY = 200
_UNIQUE = "names must be unique, rename one."

Layer = tuple[str, Mapping[str, object]]


class RuleDocument:
    """One rule document, merged over the folders that hold it.

    `name` is like "arch/llama.toml"; `layers` are (path of the file, its content), from shipped to the strongest.
    """

    def __init__(self, name: str, layers: tuple[Layer, ...]) -> None:
        self.name = name
        self.layers = layers

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files that were merged, weakest first."""
        return tuple(label for label, _ in self.layers)

    @cached_property
    def data(self) -> Mapping[str, object]:
        """The merged content. Treat it as read-only. Raises RuleError as `merge_documents` does."""
        return self.layers[0][1] if len(self.layers) == 1 else merge_documents(self.layers)[0]

    @cached_property
    def origins(self) -> Mapping[str, str]:
        """Dotted key -> path of the file that set it. Raises RuleError as `merge_documents` does."""
        return merge_documents(self.layers)[1]


class Either:
    """Several specs of which one must accept; made by `either`."""

    __slots__ = ("specs",)

    def __init__(self, specs: tuple[object, ...]) -> None:
        self.specs = specs


def either(*specs: object) -> Either:
    """Make a spec that accepts what any of `specs` accepts."""
    return Either(specs)


def merge_documents(layers: Sequence[Layer]) -> tuple[dict[str, object], dict[str, str]]:
    """Merge (label, document) pairs, later wins key by key; returns the content and dotted key -> label.

    Tables are merged; arrays of tables whose every table has a `name` are merged by that name (new names go last);
    everything else is replaced. Raises RuleError when one array uses the same `name` twice, since then it would be
    unclear which of them a later folder means.
    """
    merged: dict[str, object] = {}
    origins: dict[str, str] = {}
    for label, document in layers:
        _merge_table(merged, document, label, "", origins)
    return merged, origins


def _merge_table(
    target: dict[str, object], table: Mapping[str, object], label: str, prefix: str, origins: dict[str, str]
) -> None:
    for key, value in table.items():
        path = _join(prefix, key)
        old = target.get(key)
        if isinstance(value, Mapping):
            if not isinstance(old, dict):
                _forget(origins, path, old)
                old = target[key] = {}
            _merge_table(old, value, label, path, origins)
        elif _is_named_array(value):
            if not _is_named_array(old):
                _forget(origins, path, old)
                old = target[key] = []
            _merge_named(old, value, label, path, origins)  # type: ignore[arg-type]
        else:
            _forget(origins, path, old)
            target[key] = value
            origins[path] = label


def _merge_named(
    target: list[dict[str, object]],
    items: list[Mapping[str, object]],
    label: str,
    path: str,
    origins: dict[str, str],
) -> None:
    by_name: dict[object, dict[str, object]] = {item["name"]: item for item in target}
    seen: set[object] = set()
    for item in items:
        name = item["name"]
        if name in seen:
            raise RuleError(f"{label}: {path} holds two entries named '{name}'; {_UNIQUE}")
        seen.add(name)
        if name not in by_name:
            by_name[name] = {}
            target.append(by_name[name])
        _merge_table(by_name[name], item, label, f"{path}[{name}]", origins)


def _is_named_array(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in value)
    )


def _forget(origins: dict[str, str], path: str, old: object) -> None:
    """Drop the origins of `old`, which stood at `path` and is replaced as a whole."""
    origins.pop(path, None)
    if isinstance(old, (dict, list)):
        starts = (f"{path}.", f"{path}[")
        for key in [key for key in origins if key.startswith(starts)]:
            del origins[key]


def _join(prefix: str, key: str) -> str:
    """Extend a dotted key as TOML would write it: a part that is not a bare key is quoted."""
    part = key if key and all(c.isalnum() or c in "-_" for c in key) and key.isascii() else _show(key)
    return f"{prefix}.{part}" if prefix else part


def check_document(document: Mapping[str, object], schema: Mapping[str, object], file: str) -> None:
    """Hold a document against `schema` (language: the module's docstring).

    Raises RuleError with the file, the dotted key and the cure: missing or other `schema_version`, unknown key
    (with the nearest known one), missing key, wrong type, value out of range.
    """
    version = document.get("schema_version")
    if version is None:
        raise RuleError(f"{file}: schema_version is missing; begin the file with schema_version = {SCHEMA_VERSION}.")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise RuleError(
            f"{file}: schema_version is {_show(version)}, this advisor reads {SCHEMA_VERSION}; "
            "use the file that belongs to this version of advisor."
        )
    rest = {key: value for key, value in document.items() if key != "schema_version"}
    _check_table(rest, schema, file, "")


def _check_table(table: Mapping[str, object], schema: Mapping[str, object], file: str, prefix: str) -> None:
    for key, value in table.items():
        path = _join(prefix, key)
        if len(key) > _LONGEST_KEY:
            raise RuleError(f"{file}: the key {excerpt(path)} is longer than any; take it out.")
        if key in schema:
            spec = schema[key]
        elif f"{key}?" in schema:
            spec = schema[f"{key}?"]
        elif key in _ALWAYS_ALLOWED:
            spec = "str 1.."
        elif "*" in schema:
            spec = schema["*"]
        else:
            raise RuleError(f"{file}: unknown key {path}; {_nearest(key, schema)}")
        _check_value(value, spec, file, path)
    for key in schema:
        if key != "*" and not key.endswith("?") and key not in table:
            raise RuleError(f"{file}: {_join(prefix, key)} is missing; add it ({_describe(schema[key])}).")


def _check_value(value: object, spec: object, file: str, path: str) -> None:
    if isinstance(spec, Mapping) and isinstance(value, Mapping):
        _check_table(value, spec, file, path)
    elif isinstance(spec, list) and isinstance(value, list) and (value or len(spec) == 1):
        seen: set[str] = set()
        for index, item in enumerate(value):
            name = excerpt(item.get("name", index)) if isinstance(item, Mapping) else str(index)
            if name in seen:
                raise RuleError(f"{file}: {path} holds two entries named '{name}'; {_UNIQUE}")
            seen.add(name)
            _check_value(item, spec[0], file, f"{path}[{name}]")
    elif isinstance(spec, Either):
        _check_either(value, spec, file, path)
    elif not _accepts(value, spec):
        raise RuleError(f"{file}: {path} is {_show(value)}, expected {_describe(spec)}.")


def _check_either(value: object, spec: Either, file: str, path: str) -> None:
    alike = [option for option in spec.specs if isinstance(value, (dict, list)) and type(option) is type(value)]
    if len(alike) == 1:  # only one choice has this shape: what is wrong inside says more than "neither"
        return _check_value(value, alike[0], file, path)
    for option in spec.specs:
        try:
            return _check_value(value, option, file, path)
        except RuleError:
            continue
    raise RuleError(f"{file}: {path} is {_show(value)}, expected {_describe(spec)}.")


def _accepts(value: object, spec: object) -> bool:
    if isinstance(spec, tuple):
        return any(value == allowed and type(value) is type(allowed) for allowed in spec)
    if not isinstance(spec, str):
        return False
    return any(_accepts_word(value, word.split()) for word in spec.split("|"))


def _accepts_word(value: object, word: list[str]) -> bool:
    kind, limits = word[0], word[1] if len(word) > 1 else ".."
    size: float
    if kind == "any":
        return True
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        if not isinstance(value, str):
            return False
        size = len(value.strip())
    elif kind in ("int", "number"):
        if isinstance(value, bool) or not isinstance(value, int if kind == "int" else (int, float)):
            return False
        size = value
    else:
        raise ValueError(f"schema error: no such type '{kind}'")
    low, _, high = limits.partition("..")
    # nan fails the first comparison, inf the second
    return (float(low) if low else float("-inf")) <= size <= (float(high) if high else 1.7e308)


def _describe(spec: object) -> str:
    if isinstance(spec, str):
        return " or ".join(_describe_word(word.split()) for word in spec.split("|"))
    if isinstance(spec, tuple):
        return "one of " + ", ".join(_show(value) for value in spec)
    if isinstance(spec, list):
        return f"a list, each item {_describe(spec[0])}"
    if isinstance(spec, Either):
        return " or ".join(_describe(option) for option in spec.specs)
    return "a table"


def _describe_word(word: list[str]) -> str:
    name = {
        "str": "a text in quotes", "int": "a whole number", "number": "a number", "bool": "true or false",
        "any": "any value",
    }[word[0]]  # fmt: skip
    if len(word) == 1 or word[0] == "str":
        return name + (" that is not empty" if len(word) > 1 else "")
    low, _, high = word[1].partition("..")
    return f"{name} from {low or 'any'} to {high}" if high else f"{name} of at least {low}"


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = f'"{value}"' if isinstance(value, str) else excerpt(value)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(key: str, schema: Mapping[str, object]) -> str:
    from difflib import get_close_matches  # 10 ms, and only a broken rule pays it

    known = [name.removesuffix("?") for name in schema if name != "*"]
    close = get_close_matches(key, known, 1, 0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(sorted(known))}." if known else "no key is known here."


def check_sources(document: Mapping[str, object], file: str) -> None:
    """Every number needs a `source` or `measured` text in its own table or in one around it.

    Raises RuleError with the file and the dotted key of the first number without; `schema_version` needs none.
    """
    for path in _numbers_without_source(document, "", _has_source(document)):
        if path != "schema_version":
            raise RuleError(
                f'{file}: {path} is a number without a source; add source = "..." or measured = "..." to its table.'
            )


def _numbers_without_source(value: object, path: str, covered: bool) -> Iterator[str]:
    if covered or isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            inside = isinstance(item, Mapping) and _has_source(item)
            yield from _numbers_without_source(item, _join(path, key), inside)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            name = item.get("name", index) if isinstance(item, Mapping) else index
            inside = isinstance(item, Mapping) and _has_source(item)
            yield from _numbers_without_source(item, f"{path}[{name}]", inside)


def _has_source(table: Mapping[str, object]) -> bool:
    return any(isinstance(text := table.get(key), str) and text.strip() for key in ("source", "measured"))
