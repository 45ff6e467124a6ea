"""The targets' laws over inputs that hypothesis makes: of nothing, and out of the kept ones, cut and spliced."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import inputs
from tests.fuzz.targets import TARGETS

FEW = 8  # a plan takes a tenth of a second
PIECES = (
    b"\n",
    b": ",
    b" #",
    b"[",
    b"]",
    b"{",
    b"}",
    b"'",
    b'"',
    b"\\",
    b"=",
    b"&a ",
    b"*a",
    b"\xff",
    b"\0",
    b"9" * 30,
    b"%",
)


@st.composite
def spliced(draw: st.DrawFn, target: str) -> bytes:
    """A kept input with pieces of others, odd characters or random bytes in places of its own."""
    kept = sorted(inputs(target).values())
    data = draw(st.sampled_from(kept))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.integers(at, min(len(data), at + 20)))
        other = draw(st.sampled_from(kept))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=12) | st.just(other[at : at + 40]))
        data = data[:at] + piece + data[to:]
    return data


@pytest.mark.parametrize("target", TARGETS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_input_breaks_a_law(target: str, data: st.DataObject) -> None:
    TARGETS[target](data.draw(spliced(target) | st.binary(max_size=FEW if target == "planned" else 300)))
