"""Predictions held against public measurements, on devices that the constants were fitted without."""

from __future__ import annotations

import functools
import math

from tests.tools.machines import speed_rules
from tests.tools.speed_fit import fit, parts_of
from tests.tools.speed_rows import Case, read_cases
from tests.tools.speed_table import Predicted, left_out, lines, median, p90, peers, predicted


@functools.cache
def cases() -> tuple[Case, ...]:
    return tuple(read_cases()[0])


@functools.cache
def without() -> tuple[Predicted, ...]:
    return tuple(left_out(cases(), speed_rules()))


def test_devices_that_were_left_out() -> None:
    everything = lines(without())[-1]
    assert everything.kind == "all"
    assert everything.rows >= 140
    assert everything.devices >= 24
    assert everything.decode_median is not None
    assert everything.decode_median <= 0.12
    assert everything.decode_p90 is not None
    assert everything.decode_p90 <= 0.40
    assert everything.decode_in_range is not None
    assert everything.decode_in_range >= 0.80
    assert everything.prefill_median is not None
    assert everything.prefill_median <= 0.25


def test_every_class_of_gpus_is_right_more_often_than_not() -> None:
    for line in lines(without()):
        if line.kind == "cpu":  # one machine, to which nothing was fitted
            continue
        assert line.decode_median is not None
        assert line.decode_median <= 0.12, line
        assert line.decode_in_range is not None
        assert line.decode_in_range >= 0.80, line
        assert line.prefill_in_range is not None
        assert line.prefill_in_range >= 0.80, line


def test_rules_of_thumb_do_worse() -> None:
    ours = [abs(row.decode_error) for row in without() if row.decode_error is not None and row.case.host.devices]
    for name, errors in peers(cases()).items():
        sizes = [abs(error) for error in errors]
        assert median(sizes) > 2 * (median(ours) or 0), name  # type: ignore[operator]
        assert p90(sizes) > 1.3 * (p90(ours) or 0), name  # type: ignore[operator]


def test_shipped_constants_are_those_of_the_fit() -> None:
    rules = speed_rules()
    fitted = fit([part for part in (parts_of(case, rules) for case in cases()) if part is not None])
    for kind, values in fitted.items():
        for key, value in values.items():
            if key == "stacked":
                if kind == "cuda":
                    assert math.isclose(rules["stacked_memory"]["efficiency_factor"], value, rel_tol=0.03)
                continue
            assert math.isclose(rules["classes"][kind][key], value, rel_tol=0.1, abs_tol=1e-9), (kind, key, value)


def test_a_dense_model_on_the_cpu_alone() -> None:
    rows = {row.case.id: row for row in predicted(cases(), speed_rules())}
    cpu = rows["cpu-hx370-32b"]
    assert cpu.decode is not None
    assert cpu.decode.low <= (cpu.case.decode_tokens_per_s or 0) <= cpu.decode.high
