"""Our NamedTuple behaves as typing's wherever values of ours are used as such."""

from __future__ import annotations

import copy
import typing
from typing import Any

import pytest

from advisor import records


def make(base: Any) -> Any:
    class Point(base):
        """A point."""

        x: int
        y: str = "q"
        z: tuple[int, ...] = ()

        @property
        def both(self) -> tuple[int, str]:
            return self.x, self.y

        @classmethod
        def origin(cls) -> Any:
            return cls(0)

    return Point


OURS, THEIRS = make(records.NamedTuple), make(typing.NamedTuple)


@pytest.mark.parametrize(
    "use",
    [
        lambda p: tuple(p(1)),
        lambda p: tuple(p(1, "b", (2,))),
        lambda p: tuple(p(z=(1,), x=3)),
        lambda p: tuple(p(1, z=(4,))),
        lambda p: repr(p(1, "b")).rpartition("(")[2],
        lambda p: p(1)._asdict(),
        lambda p: tuple(p(1)._replace(y="k")),
        lambda p: tuple(p._make([1, 2, 3])),
        lambda p: (p._fields, p._field_defaults, p.__match_args__, p.__doc__, p.__slots__),
        lambda p: (p(5).both, tuple(p.origin()), p(5).x, p(5)[1], len(p(5))),
        lambda p: (p(1) == (1, "q", ()), p(1) == p(1), p(1) != p(2), p(1) < p(2), hash(p(1)) == hash((1, "q", ()))),
        lambda p: (isinstance(p(1), tuple), issubclass(p, tuple), type(p(1)) is p, hasattr(p(1), "__dict__")),
        lambda p: (copy.copy(p(1)) == p(1), copy.deepcopy(p(1)) == p(1), type(copy.copy(p(1))) is p),
    ],
)
def test_what_works_works_the_same(use: Any) -> None:
    assert use(OURS) == use(THEIRS)


@pytest.mark.parametrize(
    "use",
    [
        lambda p: p(),
        lambda p: p(1, 2, 3, 4),
        lambda p: p(1, x=2),
        lambda p: p(1, k=2),
        lambda p: p(1)._replace(k=1),
        lambda p: p._make([1]),
        lambda p: setattr(p(1), "x", 2),
        lambda p: setattr(p(1), "new", 2),
        lambda p: p(1).new,
    ],
)
def test_what_fails_fails_the_same(use: Any) -> None:
    with pytest.raises(Exception) as ours:  # noqa: PT011 - which one is the question
        use(OURS)
    with pytest.raises(type(ours.value)):
        use(THEIRS)


@pytest.mark.parametrize("space", [{"__annotations__": {"_x": int}}, {"__annotations__": {"x": int, "y": int}, "x": 1}])
def test_classes_that_cannot_be(space: dict[str, Any]) -> None:
    for base in (records.NamedTuple, typing.NamedTuple):
        (mark,) = base.__mro_entries__((base,))
        with pytest.raises((TypeError, ValueError)):
            type(mark)("Wrong", (mark,), {"__module__": __name__, "__qualname__": "Wrong", **space})
