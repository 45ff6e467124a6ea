"""What the formats share: the law that every edit keeps, and refusals model by model."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.types import GONE, Gone, OutputModel, Slot, Value

# far above any config, and read, changed and compared within a second and 64 MiB
MAX_CHARACTERS, MAX_LINES, MAX_VALUES = 1 << 20, 20_000, 60_000
MAX_DEPTH = 100  # every walk over what was read may recurse
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # as YAML and str.splitlines know them
_LONG_NUMBER = re.compile(r"(?<![\w.+\-\"'])[+-]?[0-9][0-9A-Za-z_.+-]{9999}")  # parsers take 100 bytes for each digit
_BOM = "\ufeff"
_KEPT_TEXTS = 2
_PARSED: dict[tuple[object, str], dict[Slot, Value]] = {}


def forget_parsed() -> None:
    """Let go of what was parsed last."""
    _PARSED.clear()


def identity(value: Value) -> str:
    """A text that is the same for equal values of equal types only: 1, 1.0, True and "1" differ.

    Keys of maps count with their type too: YAML has such as are no texts, even beside each other.
    """
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{identity(key)}: {identity(item)}' for key, item in value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(identity, value))}]"
    return hex(value) if type(value) is int else repr(value)  # a decimal of many digits is refused by Python


def changed(before: Mapping[Slot, Value], changes: Mapping[Slot, Value | Gone]) -> dict[Slot, Value | Gone]:
    """Those of `changes` that differ from what stands there."""
    return {
        slot: value
        for slot, value in changes.items()
        if (slot in before if value is GONE else slot not in before or identity(before[slot]) != identity(value))
    }


def applied(before: Mapping[Slot, Value], changes: Mapping[Slot, Value | Gone]) -> dict[Slot, Value]:
    """`before` with `changes`."""
    return {slot: value for slot, value in {**before, **changes}.items() if value is not GONE}


def check_size(text: str, title: str) -> None:
    """Raises OutputError for a text that is larger than any config; what it holds is counted, not parsed."""
    if (
        len(text) > MAX_CHARACTERS
        or (n_lines := sum(map(text.count, _LINE_ENDS))) > MAX_LINES
        or n_lines + sum(map(text.count, "[{,:=")) > MAX_VALUES
    ):
        raise too_large(title)
    if _LONG_NUMBER.search(text):
        raise OutputError(f"this is no config of {title}: it holds a number of thousands of digits; correct it.")


def too_large(title: str) -> OutputError:
    """The refusal of a text for its size."""
    return OutputError(
        f"this is no config of {title} that advisor changes: it is larger than {MAX_CHARACTERS >> 20} MiB, "
        f"{MAX_LINES:,} lines or {MAX_VALUES:,} values; split it or give another file."
    )


def too_deep(title: str) -> OutputError:
    """The refusal of a text for what is nested in it."""
    return OutputError(
        f"this is no config of {title} that advisor changes: it is nested more than {MAX_DEPTH} deep; "
        "write it flatter or give another file."
    )


def check_depth(data: Value, title: str) -> None:
    """Raises OutputError for a value with more than MAX_DEPTH lists and maps in each other; nothing recurses."""
    level, depth = [data], 0
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise too_deep(title)
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]


def unsafe(slots: Iterable[Slot], why: str) -> OutputError:
    """The refusal of an edit; whoever knows the file puts its name in front."""
    names = [excerpt(".".join(slot)) for slot in slots]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return OutputError(f"{', '.join(names[:3])}{more} cannot be changed safely here ({why}); change it by hand.")


class Format(ABC):
    """A base for outputs: `_slots` and `_edit` are the format's own part."""

    name: str
    title: str
    engine = "llama.cpp"
    shares = "own"
    per_model = False
    new_text = ""

    def slots(self, models: Sequence[OutputModel], supported: frozenset[str] | None = None) -> dict[Slot, Value]:
        """See Output."""
        if self.per_model and len(models) != 1:
            raise OutputError(f"{self.title} takes one file for each model; {len(models)} were given for one.")
        taken: dict[str, str] = {}
        for model in models:
            if model.id in taken:
                raise OutputError(
                    f"'{excerpt(model.id)}' names two models, {excerpt(taken[model.id])} and "
                    f"{excerpt(model.model_path)}; rename one of them."
                )
            taken[model.id] = model.model_path
        return self.together({model.id: self._slots(model, supported) for model in models})

    def one(self, model: OutputModel, supported: frozenset[str] | None = None) -> dict[Slot, Value]:
        """See Output."""
        return self._slots(model, supported)

    def together(self, own: Mapping[str, Mapping[Slot, Value]]) -> dict[Slot, Value]:
        """See Output."""
        return {slot: value for each in own.values() for slot, value in each.items()}

    def grouped(self, sets: Mapping[str, Sequence[str]]) -> tuple[dict[Slot, Value], list[str]]:
        """See Output; nothing where the program loads whatever it is asked for."""
        del sets
        return {}, []

    def parse(self, text: str) -> Mapping[Slot, Value]:
        """See Output."""
        check_size(text, self.title)
        key = (self, text)  # an edit, its checks and the program's rules ask for the same two texts
        if key not in _PARSED:
            while len(_PARSED) >= _KEPT_TEXTS:
                del _PARSED[next(iter(_PARSED))]
            _PARSED[key] = self._parse(text.removeprefix(_BOM))
        return _PARSED[key]

    def spelled(self, text: str) -> dict[Slot, str]:
        """See Output."""
        return self._spelled(text.removeprefix(_BOM))

    def edit(
        self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str] = MappingProxyType({})
    ) -> str:
        """See Output."""
        before = self.parse(text)
        wanted = changed(before, changes)
        if not spelled.keys().isdisjoint(changes):
            now = self.spelled(text)
            wanted |= {
                slot: value for slot, value in changes.items() if slot in spelled and spelled[slot] != now.get(slot)
            }
        if not wanted:
            return text
        if spelled:
            try:
                return self._edited(text, before, wanted, spelled)
            except (
                OutputError
            ):  # around one the user has changed what its spelling depends on: there the meaning is kept
                spelled = self._that_can_be(text, before, wanted, list(spelled.items()), {})
        return self._edited(text, before, wanted, spelled)

    def _that_can_be(
        self, text: str, before: Mapping[Slot, Value], wanted: Mapping[Slot, Value | Gone],
        some: Sequence[tuple[Slot, str]], kept: Mapping[Slot, str],
    ) -> Mapping[Slot, str]:  # fmt: skip
        """`kept` with those of `some` spellings that can be written together with it, found by halving."""
        for part in (some[: len(some) // 2], some[len(some) // 2 :]):
            if not part:
                continue
            try:
                self._edited(text, before, wanted, {**kept, **dict(part)})
                kept = {**kept, **dict(part)}
            except OutputError:
                if len(part) > 1:
                    kept = self._that_can_be(text, before, wanted, part, kept)
        return kept

    def _edited(
        self, text: str, before: Mapping[Slot, Value], wanted: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]
    ) -> str:
        mark = _BOM if text.startswith(_BOM) else ""
        after = mark + self._edit(text.removeprefix(_BOM), wanted, spelled)
        try:
            right = identity_of(self.parse(after)) == identity_of(applied(before, wanted))
        except OutputError:  # what was added stands there already, written in another way
            right = False
        if not right:
            raise unsafe(wanted, "the text would then say something else")
        return after

    def validate(self, text: str) -> None:
        """See Output."""
        self.parse(text)

    def fixed(self) -> Mapping[str, Value]:
        """See Output."""
        return {}

    def file_name(self, model: OutputModel) -> str:
        """See Output."""
        raise OutputError(f"{self.title} keeps all models in one file, also {excerpt(model.id)}.")

    @abstractmethod
    def expresses(self) -> frozenset[str]:
        """See Output."""

    @abstractmethod
    def _slots(self, model: OutputModel, supported: frozenset[str] | None) -> dict[Slot, Value]:
        """The slots of one model."""

    @abstractmethod
    def _parse(self, text: str) -> dict[Slot, Value]:
        """`parse` for a text without byte order mark."""

    @abstractmethod
    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        """`edit` for a text without byte order mark, with changes that change something."""

    @abstractmethod
    def _spelled(self, text: str) -> dict[Slot, str]:
        """`spelled` for a text without byte order mark that can be parsed."""


def identity_of(slots: Mapping[Slot, Value]) -> dict[Slot, str]:
    """`slots` made comparable."""
    return {slot: identity(value) for slot, value in slots.items()}
