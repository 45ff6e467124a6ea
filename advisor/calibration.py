"""What was measured on one machine, as a value: the memory's and disks' pace, an engine's on the CPU, runs seen.

`advisor calibrate` and `advisor observe` make it, the state folder and hardware snapshots keep it, speeds rest on it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from advisor.records import NamedTuple

SCHEMA = "advisor.calibration/1"
CPU = "cpu"  # the device of a run that no GPU took part in
BROKEN = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)  # of from_json
MAX_ITEMS = 500
KEPT = 20  # values of a run from which the median is made
_RAM_TOLERANCE = 32  # of the memory's size, the share that may differ: kernels and firmware keep more or less of it
_MAX_TEXT, _MAX_PATH = 500, 4096
LEAST_PACE = 100_000  # bytes per second: a floppy's
_Item = TypeVar("_Item", bound=tuple[Any, ...])


class Machine(NamedTuple):
    """What tells one machine from another, as far as measured speed goes."""

    cpu: str
    physical_cores: int
    logical_cores: int
    ram_bytes: int


class TypeTimes(NamedTuple):
    """Weights of one storage type on the CPU, all threads together."""

    name: str  # as GgmlType.name
    bytes_per_s: float  # read and multiplied for one token
    flops: float | None  # products of a prompt


class HeadTimes(NamedTuple):
    """Attention of one token on the CPU, all threads together, for heads of one size; the cache is f16."""

    head_size: int  # of a key
    pair_seconds: float  # a head attends to one token of the cache
    row_seconds: float  # a key head's key and value of one token come from memory, between those of other heads
    prompt_seconds: float | None  # a head attends to one earlier token, for each token of a prompt


class CpuTimes(NamedTuple):
    """What an engine's trials told of the CPU."""

    engine: str
    build: int | None  # None: the engine does not know its own
    block_seconds: float  # of a block beside its weights and its cache
    row_seconds: float  # of a row of a block's matrix beside its bytes, for as much as it is short
    vocabulary_seconds: float  # of a row of the output beside its bytes, and of choosing among them
    types: tuple[TypeTimes, ...]
    heads: tuple[HeadTimes, ...]


class DiskRate(NamedTuple):
    """Reading from the disk under a folder."""

    folder: str
    bytes_per_s: int


class Run(NamedTuple):
    """Runs of one model on one device: seconds measured over seconds predicted without them, the latest last."""

    device: str  # `CPU`, or as `device_key` writes it
    quantization: str
    build: int | None
    model: str
    weights_bytes: int
    decode_factors: tuple[float, ...]
    prefill_factors: tuple[float, ...]
    n_seen: int


class Calibration(NamedTuple):
    """Everything; what was not measured is None or empty."""

    machine: Machine
    measured_on: str  # a day, 2026-11-30
    ram_bytes_per_s: int | None = None
    disks: tuple[DiskRate, ...] = ()
    cpu: CpuTimes | None = None
    runs: tuple[Run, ...] = ()


def same_machine(one: Machine, other: Machine) -> bool:
    """Whether what was measured on one holds for the other."""
    near = abs(one.ram_bytes - other.ram_bytes) * _RAM_TOLERANCE <= max(one.ram_bytes, other.ram_bytes)
    return near and one[:3] == other[:3]


def device_key(backend: str, name: str) -> str:
    """How runs on a GPU are kept."""
    return f"{backend} {name}"


def median(values: tuple[float, ...]) -> float:
    """The middle value, the mean of the two in the middle; there must be one."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def with_run(calibration: Calibration, run: Run) -> Calibration:
    """`calibration` with `run` added to what is known of the same model, device and build."""
    kept = []
    for known in calibration.runs:
        if known[:5] == run[:5]:
            run = run._replace(
                decode_factors=(*known.decode_factors, *run.decode_factors)[-KEPT:],
                prefill_factors=(*known.prefill_factors, *run.prefill_factors)[-KEPT:],
                n_seen=known.n_seen + run.n_seen,
            )
        else:
            kept.append(known)
    return calibration._replace(runs=(*kept, run)[-MAX_ITEMS:])


# ---------------------------------------------------------------- as JSON


def to_json(calibration: Calibration) -> dict[str, Any]:
    """Plain values for json.dump."""
    cpu = calibration.cpu
    return {
        "schema": SCHEMA,
        **calibration._asdict(),
        "machine": calibration.machine._asdict(),
        "disks": [disk._asdict() for disk in calibration.disks],
        "cpu": None if cpu is None else {
            **cpu._asdict(),
            "types": [entry._asdict() for entry in cpu.types],
            "heads": [entry._asdict() for entry in cpu.heads],
        },
        "runs": [run._asdict() for run in calibration.runs],
    }  # fmt: skip


def is_newer(document: Any) -> bool:
    """Whether a newer advisor wrote it."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, str) or len(schema) > 40:
        return False
    name, _, version = schema.partition("/")
    return f"{name}/1" == SCHEMA and version.isascii() and version.isdecimal() and int(version) > 1


def from_json(document: Any) -> Calibration:
    """What `to_json` wrote. Raises one of BROKEN for anything else."""
    if document["schema"] != SCHEMA:
        raise ValueError("another schema")
    machine, cpu, ram = document["machine"], document["cpu"], document["ram_bytes_per_s"]
    return Calibration(
        Machine(
            _text(machine["cpu"]),
            *(_integer(machine[name]) for name in ("physical_cores", "logical_cores", "ram_bytes")),
        ),
        _day(document["measured_on"]),
        None if ram is None else _pace(ram),
        _different([_disk(disk) for disk in _items(document["disks"])], 1),
        None if cpu is None else _cpu(cpu),
        _different([_run(run) for run in _items(document["runs"])], 5),
    )


def _disk(disk: Mapping[str, Any]) -> DiskRate:
    return DiskRate(_text(disk["folder"], _MAX_PATH), _pace(disk["bytes_per_s"]))


def _cpu(cpu: Mapping[str, Any]) -> CpuTimes:
    types = [(_text(entry["name"]), entry["bytes_per_s"], entry["flops"]) for entry in _items(cpu["types"])]
    heads = [tuple(entry[name] for name in HeadTimes._fields) for entry in _items(cpu["heads"])]
    return CpuTimes(
        _text(cpu["engine"]),
        _build(cpu["build"]),
        _number(cpu["block_seconds"]),
        _number(cpu["row_seconds"]),
        _number(cpu["vocabulary_seconds"]),
        _different(
            [TypeTimes(name, _rate(rate), None if flops is None else _rate(flops)) for name, rate, flops in types], 1
        ),
        _different(
            [
                HeadTimes(_integer(size), _number(pair), _number(row), None if prompt is None else _number(prompt))
                for size, pair, row, prompt in heads
            ],
            1,
        ),
    )


def _run(run: Mapping[str, Any]) -> Run:
    return Run(
        _text(run["device"]),
        _text(run["quantization"]),
        _build(run["build"]),
        _text(run["model"]),
        _integer(run["weights_bytes"]),
        _factors(run["decode_factors"]),
        _factors(run["prefill_factors"]),
        _integer(run["n_seen"]),
    )


def _items(value: Any) -> list[Any]:
    if type(value) is not list or len(value) > MAX_ITEMS:
        raise ValueError("no list")
    return value


def _text(value: Any, longest: int = _MAX_TEXT) -> str:
    if type(value) is not str or len(value) > longest:
        raise ValueError("no text")
    # half a letter; other surrogates stand for bytes of a path
    if not value.isascii() and any("\ud800" <= char <= "\udc7f" or "\udd00" <= char <= "\udfff" for char in value):
        raise ValueError("no text")
    return value


def _day(value: Any) -> str:
    parts = _text(value).split("-")
    if [len(part) for part in parts] != [4, 2, 2] or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ValueError("no day")
    return str(value)


def _different(items: Sequence[_Item], n_fields: int) -> tuple[_Item, ...]:
    """`items`, no two of which begin with the same fields: nobody knows which of them would hold."""
    if len({item[:n_fields] for item in items}) != len(items):
        raise ValueError("the same twice")
    return tuple(items)


def _integer(value: Any) -> int:
    if type(value) is not int or not 0 < value < 1 << 60:
        raise ValueError("no count")
    return value


def _pace(value: Any) -> int:
    if not LEAST_PACE <= _integer(value) < 1 << 50:
        raise ValueError("no rate")
    return int(value)


def _build(value: Any) -> int | None:
    return None if value is None else _integer(value)


def _number(value: Any) -> float:
    if type(value) not in (float, int) or not 0 <= value < 1e3:  # also false for what is no number
        raise ValueError("no number of seconds")
    return float(value)


def _rate(value: Any) -> float:
    if type(value) not in (float, int) or not 1e3 <= value < 1e18:
        raise ValueError("no rate")
    return float(value)


def _factors(values: Any) -> tuple[float, ...]:
    found = _items(values)[-KEPT:]
    if not all(type(value) in (float, int) and 1e-3 <= value <= 1e3 for value in found):
        raise ValueError("no factors")
    return tuple(map(float, found))
