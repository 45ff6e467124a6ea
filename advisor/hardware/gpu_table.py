"""The table of known GPUs: `rules/gpus.toml` as values, and how a name finds its part.

Pure: the parsed content comes in as a mapping. What the figures mean stands at the top of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from advisor.errors import HardwareError, RuleError
from advisor.hardware.gpu_names import is_run_of_words, listed, shown, words_of
from advisor.hardware.gpu_parts import GIB, GpuPart, UnreadPart, read_part, unread_parts

_DIGITS = re.compile("[0-9]+")


class _Index:
    """Parts by their names. Raises RuleError with file and key where a part is wrong or a name stands for two."""

    def __init__(self, unread: Iterable[UnreadPart], path: str) -> None:
        self.parts = tuple([read_part(part, path) for part in unread])
        self.names: list[tuple[tuple[str, ...], GpuPart]] = []  # words of each name and alias
        self.by_name: dict[str, GpuPart] = {}
        self.by_base: dict[str, tuple[GpuPart, ...]] = {}  # words without the size, joined
        for part in self.parts:
            for name in (part.name, *part.aliases):
                words, size = words_of(name)
                base = "".join(words)
                self.names.append((words, part))
                if self.by_name.setdefault(base if size is None else f"{base}@{size:g}", part) is not part:
                    raise RuleError(f"{path}: '{name}' is the name of two parts; rename one.")
                same = self.by_base.get(base, ())
                if part not in same:
                    self.by_base[base] = (*same, part)


class GpuTable:
    """All parts, in the order of the file; read only as far as a name asks for, which saves 10 ms."""

    def __init__(
        self,
        load: Callable[[], Mapping[str, object]],
        near: Callable[[Sequence[str]], Mapping[str, object] | None] | None = None,
        path: str = "gpus.toml",
    ) -> None:
        """`load` gives the parsed content of gpus.toml; `near` only the groups in which all of some words stand."""
        self._path = path
        self._load = load
        self._near = near
        self._unread_parts: tuple[UnreadPart, ...] | None = None
        self._everything: _Index | None = None

    @property
    def _unread(self) -> tuple[UnreadPart, ...]:
        """All parts. Raises RuleError where the file's frame is broken."""
        if self._unread_parts is None:
            self._unread_parts = unread_parts(self._load(), self._path)
        return self._unread_parts

    @classmethod
    def from_mapping(cls, data: Mapping[str, object], path: str = "gpus.toml") -> GpuTable:
        """Read all of the parsed content of gpus.toml. Raises RuleError with file and key."""
        table = cls(lambda: data, path=path)
        table._whole()
        pci: dict[str, UnreadPart] = {}
        for part in table._unread:
            for pci_id in part.pci_ids:
                if pci.setdefault(pci_id, part) is not part:
                    raise RuleError(f"{path}: pci id '{pci_id}' belongs to two parts; keep it at one.")
        return table

    @property
    def parts(self) -> tuple[GpuPart, ...]:
        """All parts. Raises RuleError."""
        return self._whole().parts

    def _whole(self) -> _Index:
        if self._everything is None:
            self._everything = _Index(self._unread, self._path)
        return self._everything

    def _holding(self, words: Sequence[str]) -> tuple[UnreadPart, ...]:
        """At least the parts in whose text all `words` stand, in lower case."""
        data = self._near(words) if self._near and self._unread_parts is None else None
        return self._unread if data is None else unread_parts(data, self._path)

    def _index(self, words: Sequence[str]) -> _Index:
        """What holds all parts of exactly these words: those with the same numbers in a name, if there are any."""
        numbers = [number for word in words for number in _DIGITS.findall(word)]
        if self._everything is None and numbers:
            near = [
                part for part in self._holding(numbers)
                if any(all(number in name for number in numbers) for name in part.names)
            ]  # fmt: skip
            index = _Index(near, self._path)
            if "".join(words) in index.by_base:
                return index
        return self._whole()

    def lookup(self, text: str) -> tuple[GpuPart, int | None]:
        """Find the part a person means by `text`, and the memory size in bytes that the text asks for, if any.

        Raises HardwareError: an ambiguous name lists the candidates, an unknown one the nearest names.
        """
        words, size = words_of(text)
        base = "".join(words)
        if not base:
            raise HardwareError(
                f"'{shown(text)}' names no card; give its name, as in \"RTX 3060\", or its memory, as in cuda:12GiB."
            )
        exact = self._index(words).by_name.get(base if size is None else f"{base}@{size:g}")
        size_bytes = None if size is None else round(size * GIB)
        if exact is not None:
            return exact, size_bytes
        candidates = self._candidates(words)
        if size is not None and candidates:
            wanted = [part for part in candidates if _has_size(part, size)]
            if not wanted:  # "M4 Max 36GB": only the variant with fewer cores is sold with it
                wider = [part for part in self._containing(words) if part.memory_kind == "unified"]
                wanted = [part for part in wider if _has_size(part, size)]
            if not wanted:
                sizes = listed([_sizes(part) for part in candidates], 8)
                raise HardwareError(f"No '{shown(text)}' is known; there is {sizes}.")
            candidates = wanted
        if len(candidates) > 1:
            names = listed(sorted(part.name for part in candidates), 12)
            raise HardwareError(f"'{shown(text)}' may be several cards: {names}; give one of these names.")
        if candidates:
            return candidates[0], size_bytes
        raise HardwareError(
            f"No card '{shown(text)}' is known; the nearest names are {', '.join(self.nearest(text))}. "
            "Any card can be given by its memory, as in cuda:12GiB."
        )

    def sold_with(self, part: GpuPart) -> tuple[int, ...]:
        """Sizes in bytes that `lookup` takes after the name of a chip in system memory, its variants' included."""
        # "M3 Max 30-core" is a variant of the "M3 Max", not the "M4 Pro 16-core" of the "M4"
        variants = [
            other for other in self.parts if other.name.endswith("-core") and other.name.rpartition(" ")[0] == part.name
        ]
        return tuple(sorted({size for other in (part, *variants) for size in other.memory_bytes}))

    def find(self, name: str, memory_bytes: int | None = None, pci_device: str | None = None) -> GpuPart | None:
        """Find the part of a card that a driver names, or None. The nearest memory size decides between equals."""
        if pci_device is not None:
            for wanted_id in (pci_device, pci_device.rpartition(":")[0]):
                for part in self._holding((wanted_id,)):
                    if wanted_id in part.pci_ids:
                        return read_part(part, self._path)
        words, size = words_of(name)
        base = "".join(words)
        if not base:
            return None
        wanted = memory_bytes if memory_bytes is not None else (None if size is None else round(size * GIB))
        index = self._index(words)
        same = index.by_base.get(base, ())
        if not same:
            # "Jetson Orin Nano Developer Kit" and "RTX PRO 6000 Blackwell Workstation": known words, then more.
            same = self._longest_start(words)
        if not same:
            return None
        if wanted is None:
            return index.by_name.get(base) or same[0]
        exact = min(same, key=lambda part: min(abs(memory - wanted) for memory in part.memory_bytes))
        plain = index.by_name.get(base)
        # Variants of a chip in system memory differ in cores, not in memory: the plain name wins.
        return plain if plain is not None and plain.memory_kind == "unified" else exact

    def nearest(self, text: str, count: int = 5) -> list[str]:
        """Names most like `text`, the most similar first."""
        import difflib  # only on the way to an error

        keys = {"".join(words_of(part.name)[0]): part.name for part in reversed(self.parts)}
        found = difflib.get_close_matches("".join(words_of(text)[0]), list(keys), n=count, cutoff=0.3)
        return [keys[key] for key in found] or [part.name for part in self.parts[:count]]

    def _candidates(self, words: Sequence[str]) -> list[GpuPart]:
        return list(self._whole().by_base.get("".join(words), ())) or self._containing(words)

    def _containing(self, words: Sequence[str]) -> list[GpuPart]:
        """Parts of whose name `words` are some of the words."""
        base = "".join(words)
        found: dict[str, GpuPart] = {}
        if base:
            for known, part in self._whole().names:
                if set(words) <= set(known) or is_run_of_words(base, known):
                    found[part.name] = part
        return list(found.values())

    def _longest_start(self, words: Sequence[str]) -> tuple[GpuPart, ...]:
        for length in range(len(words) - 1, 1, -1):
            same = self._whole().by_base.get("".join(words[:length]))
            if same:
                return same
        return ()


def _sizes(part: GpuPart) -> str:
    return f"{part.name} with " + " or ".join(f"{memory / GIB:g} GiB" for memory in part.memory_bytes)


def _has_size(part: GpuPart, size_gib: float) -> bool:
    """Whether a part has this size, seen as people write it: an "80GB" card shows 79.65 GiB."""
    if part.memory_kind == "unified" and part.vendor in ("amd", "intel"):
        return 2 <= size_gib <= 1024  # a PC has the RAM that was put into it
    return any(abs(memory / GIB - size_gib) <= 0.02 * size_gib for memory in part.memory_bytes)
