"""The table of known GPUs: `rules/gpus.toml` as values, and how a name finds its part.

Pure: the parsed content comes in as a mapping. What the figures mean stands at the top of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advisor.errors import HardwareError, RuleError
from advisor.hardware._read import pcie_bytes_per_s
from advisor.hardware.device_ids import BACKENDS
from advisor.hardware.gpu_names import is_run_of_words, listed, shown, words_of

GIB = 1 << 30
_VENDORS = ("nvidia", "amd", "intel", "apple")
_SHARED_KEYS = ("vendor", "backend", "memory_kind", "compute_capability", "pcie", "source")
_PART_KEYS = (*_SHARED_KEYS, "name", "aliases", "memory_gib", "bandwidth_gb_per_s", "f16_tflops", "pci_ids", "note")
_KNOWN_PART_KEYS = frozenset(_PART_KEYS)
_GROUP_KEYS = (*_SHARED_KEYS, "name", "parts", "note", "measured")


class GpuPart(NamedTuple):
    """One part of the table. Bytes, bytes per second, 10^12 operations per second."""

    name: str
    vendor: str
    backend: str
    memory_bytes: tuple[int, ...]  # several where the memory is the machine's RAM; the smallest first
    memory_kind: str
    bandwidth_bytes_per_s: int
    f16_tflops: float
    link_bytes_per_s: int | None
    compute_capability: str | None
    source: str
    aliases: tuple[str, ...] = ()
    pci_ids: tuple[str, ...] = ()


class GpuTable:
    """All parts, in the order of the file. Make it with `GpuTable.from_mapping`."""

    def __init__(
        self,
        parts: tuple[GpuPart, ...],
        names: tuple[tuple[tuple[str, ...], GpuPart], ...],
        by_name: Mapping[str, GpuPart],
        by_base: Mapping[str, tuple[GpuPart, ...]],
        by_pci: Mapping[str, GpuPart],
    ) -> None:
        self.parts = parts
        self._names = names  # words of each name and alias
        self._by_name = by_name
        self._by_base = by_base  # words without the size, joined
        self._by_pci = by_pci

    @classmethod
    def from_mapping(cls, data: Mapping[str, object], path: str = "gpus.toml") -> GpuTable:
        """Read the parsed content of gpus.toml. Raises RuleError with file and key."""
        groups = data.get("group")
        if not isinstance(groups, list):
            raise RuleError(f"{path}: 'group' is missing; a table of GPUs is a list of [[group]].")
        for key in data:
            if key not in ("group", "schema_version", "source", "note", "measured"):
                raise RuleError(f"{path}: unknown key '{key}'; a table of GPUs holds schema_version and [[group]].")
        parts = tuple(part for group in groups for part in _group_parts(group, path))
        names: list[tuple[tuple[str, ...], GpuPart]] = []
        by_name: dict[str, GpuPart] = {}
        by_base: dict[str, tuple[GpuPart, ...]] = {}
        by_pci: dict[str, GpuPart] = {}
        for part in parts:
            for name in (part.name, *part.aliases):
                words, size = words_of(name)
                base = "".join(words)
                names.append((words, part))
                if by_name.setdefault(base if size is None else f"{base}@{size:g}", part) is not part:
                    raise RuleError(f"{path}: '{name}' is the name of two parts; rename one.")
                same = by_base.get(base, ())
                if part not in same:
                    by_base[base] = (*same, part)
            for pci_id in part.pci_ids:
                if by_pci.setdefault(pci_id.lower(), part) is not part:
                    raise RuleError(f"{path}: pci id '{pci_id}' belongs to two parts; keep it at one.")
        return cls(parts, tuple(names), by_name, by_base, by_pci)

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
        exact = self._by_name.get(base if size is None else f"{base}@{size:g}")
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
            by_pci = self._by_pci.get(pci_device) or self._by_pci.get(pci_device.rpartition(":")[0])
            if by_pci is not None:
                return by_pci
        words, size = words_of(name)
        base = "".join(words)
        if not base:
            return None
        wanted = memory_bytes if memory_bytes is not None else (None if size is None else round(size * GIB))
        same = self._by_base.get(base, ())
        if not same:
            # "Jetson Orin Nano Developer Kit" and "RTX PRO 6000 Blackwell Workstation": known words, then more.
            same = self._longest_start(words)
        if not same:
            return None
        if wanted is None:
            return self._by_name.get(base) or same[0]
        exact = min(same, key=lambda part: min(abs(memory - wanted) for memory in part.memory_bytes))
        plain = self._by_name.get(base)
        # Variants of a chip in system memory differ in cores, not in memory: the plain name wins.
        return plain if plain is not None and plain.memory_kind == "unified" else exact

    def nearest(self, text: str, count: int = 5) -> list[str]:
        """Names most like `text`, the most similar first."""
        import difflib  # only on the way to an error

        keys = {"".join(words_of(part.name)[0]): part.name for part in reversed(self.parts)}
        found = difflib.get_close_matches("".join(words_of(text)[0]), list(keys), n=count, cutoff=0.3)
        return [keys[key] for key in found] or [part.name for part in self.parts[:count]]

    def _candidates(self, words: Sequence[str]) -> list[GpuPart]:
        return list(self._by_base.get("".join(words), ())) or self._containing(words)

    def _containing(self, words: Sequence[str]) -> list[GpuPart]:
        """Parts of whose name `words` are some of the words."""
        base = "".join(words)
        found: dict[str, GpuPart] = {}
        if base:
            for known, part in self._names:
                if set(words) <= set(known) or is_run_of_words(base, known):
                    found[part.name] = part
        return list(found.values())

    def _longest_start(self, words: Sequence[str]) -> tuple[GpuPart, ...]:
        for length in range(len(words) - 1, 1, -1):
            same = self._by_base.get("".join(words[:length]))
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


# ------------------------------------------------------------------------------- reading the file


def _group_parts(group: object, path: str) -> list[GpuPart]:
    if not isinstance(group, Mapping):
        raise RuleError(f"{path}: a [[group]] must be a table.")
    label = str(group.get("name", "?"))
    for key in group:
        if key not in _GROUP_KEYS:
            raise RuleError(f"{path}: unknown key '{key}' in group '{label}'; known are {', '.join(_GROUP_KEYS)}.")
    parts = group.get("parts")
    if not isinstance(parts, list):
        raise RuleError(f"{path}: group '{label}' has no 'parts'; give a list of tables.")
    shared = {key: group[key] for key in _SHARED_KEYS if key in group}
    return [_part({**shared, **part} if isinstance(part, Mapping) else {}, label, path) for part in parts]


def _part(values: Mapping[str, object], group: str, path: str) -> GpuPart:
    name = values.get("name")
    if not isinstance(name, str) or not name:
        raise RuleError(f"{path}: a part of group '{group}' has no 'name'.")
    if not values.keys() <= _KNOWN_PART_KEYS:
        key = next(key for key in values if key not in _KNOWN_PART_KEYS)
        raise RuleError(f"{path}: unknown key '{key}' at '{name}'; known are {', '.join(_PART_KEYS)}.")
    for key in ("vendor", "backend", "source"):
        if key not in values:
            raise RuleError(f"{path}: '{key}' of '{name}' is missing; every part has one, its own or its group's.")
    where = f"of '{name}'"
    kind = _text(values, "memory_kind", where, path, ("dedicated", "unified")) or "dedicated"
    memory = values.get("memory_gib")
    sizes = memory if isinstance(memory, list) else [memory]
    if not sizes or (isinstance(memory, list) and kind != "unified"):
        raise RuleError(f"{path}: 'memory_gib' of '{name}' must be one number; only unified memory has several.")
    return GpuPart(
        name,
        _text(values, "vendor", where, path, _VENDORS) or "",
        _text(values, "backend", where, path, BACKENDS) or "",
        tuple(sorted([round(_number("memory_gib", size, 4096, where, path) * GIB) for size in sizes])),
        kind,
        round(_number("bandwidth_gb_per_s", values.get("bandwidth_gb_per_s"), 100_000, where, path) * 1e9),
        _number("f16_tflops", values.get("f16_tflops"), 100_000, where, path),
        _link(_text(values, "pcie", where, path), name, path),
        _text(values, "compute_capability", where, path),
        _text(values, "source", where, path) or "",
        _texts(values, "aliases", where, path),
        _texts(values, "pci_ids", where, path),
    )  # fmt: skip


def _text(values: Mapping[str, object], key: str, where: str, path: str, choices: Sequence[str] = ()) -> str | None:
    value = values.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value or (choices and value not in choices):
        raise RuleError(f"{path}: '{key}' {where} must be {' or '.join(choices) or 'a text'}.")
    return value


def _number(key: str, value: object, highest: float, where: str, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= highest:
        raise RuleError(f"{path}: '{key}' {where} must be a number above 0 and up to {highest:g}.")
    return float(value)


def _texts(values: Mapping[str, object], key: str, where: str, path: str) -> tuple[str, ...]:
    value = values.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise RuleError(f"{path}: '{key}' {where} must be a list of texts.")
    return tuple(value)


def _link(pcie: str | None, name: str, path: str) -> int | None:
    if pcie is None:
        return None
    generation, _, lanes = pcie.partition("x")
    link = pcie_bytes_per_s(int(generation), int(lanes)) if generation.isdigit() and lanes.isdigit() else None
    if link is None:
        raise RuleError(f"{path}: 'pcie' of '{name}' must be GENxLANES, as in 4x16.")
    return link
