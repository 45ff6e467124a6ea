"""Reading `rules/gpus.toml`: groups of parts, each part with what it shares with its group.

What the figures mean stands at the top of the file.
"""

from collections.abc import Mapping, Sequence

from advisor.errors import RuleError
from advisor.hardware._read import pcie_bytes_per_s
from advisor.hardware.device_ids import BACKENDS
from advisor.records import NamedTuple

GIB = 1 << 30
_VENDORS = ("nvidia", "amd", "intel", "apple")
_MARKETS = ("desktop", "laptop", "workstation", "data centre")
_SHARED_KEYS = ("vendor", "backend", "memory_kind", "compute_capability", "pcie", "source", "market")
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
    market: str | None = None  # the vendor's product line, None where the GPU is part of a machine
    group: str = ""  # groups of a vendor stand in the order of their generations


class UnreadPart(NamedTuple):
    """A part as it stands in the file: its own keys, and what its group shares."""

    group: str
    shared: Mapping[str, object]
    own: Mapping[str, object]

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the aliases, as far as they are texts."""
        aliases = self.own.get("aliases")
        listed = aliases if isinstance(aliases, list) else []
        return tuple(name for name in (self.own.get("name"), *listed) if isinstance(name, str))

    @property
    def pci_ids(self) -> tuple[str, ...]:
        """In lower case, as far as they are texts."""
        ids = self.own.get("pci_ids")
        return tuple(pci_id.lower() for pci_id in ids if isinstance(pci_id, str)) if isinstance(ids, list) else ()


def unread_parts(data: Mapping[str, object], path: str) -> tuple[UnreadPart, ...]:
    """All parts of the parsed file, in its order. Raises RuleError where its frame is broken."""
    groups = data.get("group")
    if not isinstance(groups, list):
        raise RuleError(f"{path}: 'group' is missing; a table of GPUs is a list of [[group]].")
    for key in data:
        if key not in ("group", "schema_version", "source", "note", "measured"):
            raise RuleError(f"{path}: unknown key '{key}'; a table of GPUs holds schema_version and [[group]].")
    return tuple(part for group in groups for part in _group_parts(group, path))


def read_part(part: UnreadPart, path: str) -> GpuPart:
    """One part as values. Raises RuleError with file and key."""
    return _part({**part.shared, **part.own}, part.group, path)


def _group_parts(group: object, path: str) -> list[UnreadPart]:
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
    return [UnreadPart(label, shared, part if isinstance(part, Mapping) else {}) for part in parts]


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
        _text(values, "market", where, path, _MARKETS),
        group,
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
    link = pcie_bytes_per_s(int(generation), int(lanes)) if generation.isdecimal() and lanes.isdecimal() else None
    if link is None:
        raise RuleError(f"{path}: 'pcie' of '{name}' must be GENxLANES, as in 4x16.")
    return link
