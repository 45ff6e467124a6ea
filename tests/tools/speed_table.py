"""How far predicted speeds are from measured ones: per class, on devices that the constants were fitted without."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from advisor.speed import Range, SpeedModel, Turn, class_of
from tests.tools.speed_fit import fit, parts_of, with_values
from tests.tools.speed_rows import Case

_UNLIMITED = 1 << 62
CLASSES = ("cuda", "cuda_pascal", "rocm", "vulkan", "metal", "sycl", "cpu", "all")


class Predicted(NamedTuple):
    """A row with what is shown for it; None where it measured no such thing."""

    case: Case
    kind: str
    decode: Range | None
    prefill: Range | None

    @property
    def decode_error(self) -> float | None:
        """Relative, positive where the prediction is too fast."""
        return _error(self.decode, self.case.decode_tokens_per_s)

    @property
    def prefill_error(self) -> float | None:
        """The same for prompts."""
        return _error(self.prefill, self.case.prefill_tokens_per_s)


def _error(shown: Range | None, truth: float | None) -> float | None:
    return shown.value / truth - 1 if shown is not None and truth else None


def predicted(cases: Iterable[Case], rules: dict[str, Any]) -> list[Predicted]:
    """Every row predicted with `rules`."""
    rows = []
    for case in cases:
        model = SpeedModel(case.spec, case.host, rules)
        decode = model.predict(case.plan, Turn(0, case.decode_depth, 0), _UNLIMITED).decode_tokens_per_s
        turn = Turn(case.prompt_tokens, case.prompt_depth, 0)
        prefill = model.predict(case.plan, turn, _UNLIMITED).prefill_tokens_per_s
        rows.append(
            Predicted(
                case, class_of(case.host.devices[0]) if case.host.devices else "cpu",
                decode if case.decode_tokens_per_s else None, prefill if case.prefill_tokens_per_s else None,
            )
        )  # fmt: skip
    return rows


def left_out(cases: Sequence[Case], rules: dict[str, Any]) -> list[Predicted]:
    """Every row predicted with constants fitted to the rows of all other devices."""
    parts = [part for part in (parts_of(case, rules) for case in cases) if part is not None]
    rows = []
    for device in sorted({case.device for case in cases}):
        without = with_values(rules, fit([part for part in parts if part.case.device != device]))
        rows += predicted([case for case in cases if case.device == device], without)
    return rows


class Line(NamedTuple):
    """One class of the table; figures are shares, None where there are no rows."""

    kind: str
    rows: int
    devices: int
    decode_median: float | None
    decode_p90: float | None
    decode_in_range: float | None
    prefill_rows: int
    prefill_median: float | None
    prefill_in_range: float | None


def lines(rows: Sequence[Predicted]) -> list[Line]:
    """The table: classes with rows, and all of them together."""
    found = []
    for kind in CLASSES:
        own = [row for row in rows if kind in ("all", row.kind)]
        if not own:
            continue
        decode = [abs(row.decode_error) for row in own if row.decode_error is not None]
        prefill = [abs(row.prefill_error) for row in own if row.prefill_error is not None]
        found.append(
            Line(
                kind, len(decode), len({row.case.device for row in own}), median(decode), p90(decode),
                _in_range((row.decode, row.case.decode_tokens_per_s) for row in own), len(prefill), median(prefill),
                _in_range((row.prefill, row.case.prefill_tokens_per_s) for row in own),
            )
        )  # fmt: skip
    return found


def median(values: Sequence[float]) -> float | None:
    """The middle, None of nothing."""
    return statistics.median(values) if values else None


def p90(values: Sequence[float]) -> float | None:
    """The value that nine in ten do not exceed."""
    return sorted(values)[min(int(0.9 * len(values)), len(values) - 1)] if values else None


def _in_range(pairs: Iterable[tuple[Range | None, float | None]]) -> float | None:
    hits = [shown.low <= truth <= shown.high for shown, truth in pairs if shown is not None and truth is not None]
    return sum(hits) / len(hits) if hits else None


# -- what simpler rules make of the same rows ---------------------------------------------------------------------


def peers(cases: Sequence[Case]) -> dict[str, list[float]]:
    """Decode errors of rules of thumb on the rows that ran on one GPU, by name."""
    rows = [case for case in cases if len(case.host.devices) == 1 and case.decode_tokens_per_s]
    read = {case.id: _bytes_read(case) for case in rows}
    rules: dict[str, Callable[[Case], float]] = {
        "bandwidth / file size": lambda case: _bandwidth(case) / case.n_bytes,
        "one factor k * bandwidth / bytes read": lambda case: (
            _factor(rows, read, case) * _bandwidth(case) / read[case.id]
        ),
        "0.55 * bandwidth / active parameters' bytes (llmfit)": lambda case: 0.55 * _bandwidth(case) / _active(case),
    }
    return {
        name: [rule(case) / case.decode_tokens_per_s - 1 for case in rows if case.decode_tokens_per_s]
        for name, rule in rules.items()
    }


def _bandwidth(case: Case) -> float:
    return float(case.host.devices[0].bandwidth_bytes_per_s or 1)


def _bytes_read(case: Case) -> int:
    model = SpeedModel(case.spec, case.host, _rules())
    return sum(case.plan.read_device_bytes) + sum(n for n, _ in model.cache_reads(case.plan, case.decode_depth))


def _factor(rows: Sequence[Case], read: dict[str, int], case: Case) -> float:
    """The median factor of the other devices."""
    others = [row for row in rows if row.device != case.device]
    return statistics.median((row.decode_tokens_per_s or 0.0) * read[row.id] / _bandwidth(row) for row in others)


def _active(case: Case) -> float:
    """Parameters that a token uses, at the file's own bytes a parameter."""
    used = case.spec.n_expert_used / case.spec.n_expert if case.spec.n_expert else 1.0
    active = sum(_count(t.shape) * (used if "exps." in t.name else 1.0) for t in case.spec.tensors)
    return active * case.n_bytes / max(case.spec.parameters, 1)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _rules() -> dict[str, Any]:
    from tests.tools.machines import speed_rules

    return speed_rules()
