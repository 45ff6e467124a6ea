"""Sizes as people write and read them."""

from __future__ import annotations

import pytest

from advisor.errors import UsageError
from advisor.units import GIB, KIB, MIB, TIB, format_bytes, parse_size


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("0", 0),
        ("0.0", 0),
        ("1B", 1),
        ("512KiB", 512 * KIB),
        ("1048576", MIB),
        ("12GiB", 12 * GIB),
        ("9.5 GiB", 19 << 29),
    ],
)
def test_sizes_that_are_read(text, n_bytes):
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1", "1GiB"), ("0.5", "0.5GiB"), ("32", "32GiB"), ("128", "128GiB"), ("129", "129MiB or 129GiB"),
        ("1024", "1024MiB or 1024GiB"), ("1025", "1025MiB"), ("1048575", "1048575MiB"),
    ],
)  # fmt: skip
def test_a_small_number_without_a_unit_is_no_size(text, meant):
    with pytest.raises(UsageError) as error:
        parse_size(text)
    assert str(error.value) == f"'{text}' has no unit; did you mean {meant}?"


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"), (KIB, "1 KiB"), (MIB, "1.0 MiB"), (GIB, "1.00 GiB"), (TIB - GIB, "1023.00 GiB"), (TIB, "1.00 TiB"),
        (65777 * GIB, "64.24 TiB"), (-2 * TIB, "-2.00 TiB"),
    ],
)  # fmt: skip
def test_sizes_that_are_shown(n_bytes, text):
    assert format_bytes(n_bytes) == text
