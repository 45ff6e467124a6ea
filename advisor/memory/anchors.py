"""Known compute buffers as anchors: what lies between two of them is all but known.

A buffer is the widest moment of a graph whose tensors grow linearly with the context, so between two contexts it is
close to a line, and three contexts on one line leave no room for anything else. Between placements it hardly changes.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

from advisor.ggml_types import BY_NAME
from advisor.memory.graph import CPU, GraphPlacement, GraphSettings
from advisor.records import NamedTuple

_FAR = 4
_GRID = 2048  # the contexts that are read off: this, so many times as much, and so on
_SPAN = 16
_SHORT = 1024  # and this much below the upper one, for how it grows there
_NEAR = 24  # parts more or less on the devices for which one placement stands
_F16 = BY_NAME["f16"].id

Sizes: TypeAlias = tuple[int, ...]  # bytes per device, the host last


class Readable:
    """Buffers of graphs with an open context and micro-batch, which cost little to read off."""

    def __init__(
        self, opened: Callable[[GraphSettings], GraphSettings | None],
        read: Callable[[GraphSettings, GraphPlacement], Sizes],
    ) -> None:  # fmt: skip
        self._opened, self._read = opened, read
        self._built: dict[tuple[object, ...], list[tuple[int, GraphPlacement]]] = {}
        self._lines: dict[tuple[GraphSettings, GraphPlacement], dict[int, Sizes]] = {}

    def add(self, settings: GraphSettings, placement: GraphPlacement) -> None:
        """The graph of this placement was built; it stands for those with nearly as much on the devices."""
        opened = self._opened(settings)
        if opened is not None:
            built, count = self._built.setdefault(_alike(opened, placement), []), _on_devices(placement)
            if all(abs(known - count) > _NEAR for known, _ in built):
                built.append((count, placement))

    def line(self, settings: GraphSettings, placement: GraphPlacement) -> "Line | None":
        """What contexts around this one, that were read off, say of much the same placement.

        A buffer is its widest moment: below some context one that grows by the mask alone, above it another.
        """
        opened = self._opened(settings)
        built = self._built.get(_alike(opened, placement)) if opened is not None else None
        if not built:
            return None
        count = _on_devices(placement)
        near = min(built, key=lambda entry: abs(entry[0] - count))[1]
        known = self._lines.setdefault((settings._replace(n_ctx=0, n_ctx_seq=0), near), {})
        at, low = settings.n_ctx_seq, _GRID
        while low * _SPAN <= at:
            low *= _SPAN
        slope = (4 if settings.flash == "off" else 2) * min(settings.n_ubatch, settings.n_ctx)
        for first in (low, low * _SPAN, low // _SPAN):
            points = (first, first * _SPAN, first * _SPAN - _SHORT)
            ends = [settings._replace(n_ctx=n * (settings.n_ctx // at), n_ctx_seq=n) for n in points]
            if all(self._opened(end) == opened for end in ends):
                for end in ends[:2]:
                    if end.n_ctx_seq not in known:
                        known[end.n_ctx_seq] = self._read(end, near)
                a, b = known[first], known[first * _SPAN]
                steps = [slope] * len(a)
                if any(y - x != slope * first * (_SPAN - 1) for x, y in zip(a, b, strict=True)):
                    if points[2] not in known:
                        known[points[2]] = self._read(ends[2], near)
                    steps = [(y - x) // _SHORT for x, y in zip(known[points[2]], b, strict=True)]
                return Line(first, a, first * _SPAN, b, slope, steps)
        return None


class Line(NamedTuple):
    """Buffers at two contexts; `slope`: bytes a token above the lower one, `steps`: below the upper one, per place."""

    low: int
    at_low: Sizes
    high: int
    at_high: Sizes
    slope: int
    steps: list[int]

    def at(self, n_ctx: int) -> Sizes:
        """Between or beyond them."""
        up, down = n_ctx - self.low, self.high - n_ctx
        sizes = [
            max(a + self.slope * up, b - step * down) if a else 0
            for a, b, step in zip(self.at_low, self.at_high, self.steps, strict=True)
        ]
        if down < 0:
            return tuple(sizes)
        return tuple([min(size, max(a, b)) for size, a, b in zip(sizes, self.at_low, self.at_high, strict=True)])


class Anchors:
    """Buffers that were worked out, by context and by placement."""

    def __init__(self, readable: Readable | None = None) -> None:
        """`readable`: what can be read off graphs that were built for other settings, None = nothing."""
        self._readable = readable
        self.far_apart = False  # contexts are, so that one says little of another and it pays to read off more
        self._by_context: dict[tuple[object, ...], list[tuple[int, Sizes]]] = {}
        self._by_placement: dict[tuple[object, ...], list[tuple[int, int, Sizes]]] = {}
        self._by_devices: dict[tuple[object, ...], list[tuple[frozenset[int], int, Sizes]]] = {}
        self._batches: set[int] = set()  # micro-batches that something is known of

    def add(self, settings: GraphSettings, placement: GraphPlacement, sizes: Sizes) -> None:
        """Remember one answer."""
        self._batches.add(settings.n_ubatch)
        if self._readable is not None:
            self._readable.add(settings, placement)
        line = self._by_context.setdefault(_context_key(settings, placement), [])
        line.insert(bisect_left(line, (settings.n_ctx_seq, sizes)), (settings.n_ctx_seq, sizes))
        near = self._by_placement.setdefault(_placement_key(settings, placement), [])
        near.append((_on_devices(placement), settings.n_ctx_seq, sizes))
        alike = self._by_devices.setdefault(_devices_key(settings, placement), [])
        alike.append((frozenset(placement.layers), settings.n_ctx_seq, sizes))

    def between(self, settings: GraphSettings, placement: GraphPlacement) -> Sizes | None:
        """The buffers on a line, see `on_a_line`; None where known contexts do not leave only that."""
        return self._guess(settings, placement) if self.on_a_line(settings, placement) else None

    def guess(self, settings: GraphSettings, placement: GraphPlacement) -> Sizes | None:
        """The buffers between or beside known ones, None when nothing comparable is known."""
        line = self._line(settings, placement) if self.far_apart else None
        within = line is not None and line.low <= settings.n_ctx_seq  # below it buffers may be far smaller
        found = None if within else self._guess(settings, placement)
        if found is None and not self.far_apart:
            line = self._line(settings, placement)
            within = line is not None and line.low <= settings.n_ctx_seq
        if found is None and line is not None and (within or self.far_apart):
            return self._beside(line, settings, placement)
        if found is None and (settings.type_k, settings.type_v) != (_F16, _F16):  # better than nothing known
            found = self._guess(settings._replace(type_k=_F16, type_v=_F16), placement)
        return found if found is not None else self._between_batches(settings, placement)

    def _line(self, settings: GraphSettings, placement: GraphPlacement) -> "Line | None":
        return self._readable.line(settings, placement) if self._readable is not None else None

    def _beside(self, line: "Line", settings: GraphSettings, placement: GraphPlacement) -> Sizes:
        """What a line says, and by how much it is off where the nearest placement is known exactly."""
        here = line.at(settings.n_ctx_seq)
        near = [
            entry for entry in self._by_placement.get(_placement_key(settings, placement), ())
            if line.low <= entry[1] <= line.high
        ]  # fmt: skip
        if not near:
            return here
        count = _on_devices(placement)
        _, known_at, sizes = min(near, key=lambda entry: (abs(entry[0] - count), abs(entry[1] - settings.n_ctx_seq)))
        there = line.at(known_at)
        return tuple([max(a + b - c, b // 4) for a, b, c in zip(here, sizes, there, strict=True)])

    def _guess(self, settings: GraphSettings, placement: GraphPlacement) -> Sizes | None:
        line = self._by_context.get(_context_key(settings, placement), [])
        at = settings.n_ctx_seq
        if len(line) > 1:
            above = min(max(bisect_left(line, (at, ())), 1), len(line) - 1)
            (x0, low), (x1, high) = line[above - 1], line[above]
            return tuple(a + (b - a) * (at - x0) // (x1 - x0) for a, b in zip(low, high, strict=True))
        if line and _close(at, line[0][0]):
            return _grown(line[0][1], settings, at - line[0][0])
        near = self._by_placement.get(_placement_key(settings, placement))
        if near:
            count = _on_devices(placement)
            _, known_at, sizes = min(near, key=lambda entry: (abs(entry[1] - at), abs(entry[0] - count)))
            if _close(at, known_at):
                return _grown(sizes, settings, at - known_at)
        return self._of_fewer_devices(settings, placement)

    def _of_fewer_devices(self, settings: GraphSettings, placement: GraphPlacement) -> Sizes | None:
        """Some devices left empty that are not where something is known: the others hardly need anything else.

        Where experts lie on the host: copies of these, for prompts, are most of what any device needs.
        """
        if not placement.overrides or settings.flash != "on":  # without it scores are
            return None
        used, at = frozenset(placement.layers), settings.n_ctx_seq
        known = self._by_devices.get(_devices_key(settings, placement), ())
        near = [entry for entry in known if used < entry[0] and _close(at, entry[1])]
        if not near:
            return None
        _, known_at, sizes = min(near, key=lambda entry: (len(entry[0]), abs(entry[1] - at)))
        *devices, host = _grown(sizes, settings, at - known_at)
        return (*(size if index in used else 0 for index, size in enumerate(devices)), host)

    def _between_batches(self, settings: GraphSettings, placement: GraphPlacement) -> Sizes | None:
        """Between a smaller and a larger micro-batch: nearly every tensor of the graph grows with it."""
        n_ubatch = settings.n_ubatch
        if min(settings.n_ctx, settings.n_batch) < max(self._batches, default=0):
            return None
        ends = (
            max((n for n in self._batches if n < n_ubatch), default=0),
            min((n for n in self._batches if n > n_ubatch), default=0),
        )
        low, high = (
            self._guess(settings._replace(n_ubatch=n, type_k=_F16, type_v=_F16), placement) if n else None for n in ends
        )
        if low is None or high is None:
            return None
        share = (n_ubatch - ends[0]) / (ends[1] - ends[0])
        return tuple(int(a + (b - a) * share) for a, b in zip(low, high, strict=True))

    def on_a_line(self, settings: GraphSettings, placement: GraphPlacement) -> bool:
        """Whether known contexts around this one leave only a line between them, to the byte.

        A buffer always holds the attention mask, so it grows at least as fast as the mask: where two known contexts
        differ by just that, nothing else grew in between. Otherwise three known contexts must lie on one line.
        """
        line = self._by_context.get(_context_key(settings, placement), [])
        mask = (4 if settings.flash == "off" else 2) * min(settings.n_ubatch, settings.n_ctx)
        places = len(line[0][1]) if line else 0
        return len(line) > 1 and all(
            _place_on_a_line([(n_ctx, sizes[place]) for n_ctx, sizes in line], settings.n_ctx_seq, mask)
            for place in range(places)
        )


def _place_on_a_line(known: Sequence[tuple[int, int]], at: int, mask: int) -> bool:
    """`known`: contexts and one place's buffer; `mask`: bytes of the attention mask per token of context."""
    for (x0, a), (x1, b) in pairwise(known):
        if x0 <= at <= x1 and b - a in (mask * (x1 - x0), 0):
            return True
    triples = zip(known, known[1:], known[2:], strict=False)
    return any(x0 <= at <= x2 and (b - a) * (x2 - x0) == (c - a) * (x1 - x0) for (x0, a), (x1, b), (x2, c) in triples)


def _context_key(settings: GraphSettings, placement: GraphPlacement) -> tuple[object, ...]:
    small = settings.n_ctx if settings.n_ctx < settings.n_batch else 0  # short contexts shrink the batch
    return settings._replace(n_ctx=small, n_ctx_seq=0), placement


def _placement_key(settings: GraphSettings, placement: GraphPlacement) -> tuple[object, ...]:
    used = frozenset(placement.layers)
    return _context_key(settings, placement)[0], placement.n_gpu, used, placement.layers[-1], bool(placement.overrides)


def _alike(opened: GraphSettings, placement: GraphPlacement) -> tuple[object, ...]:
    return opened, placement.n_gpu, frozenset(placement.layers), placement.layers[-1], bool(placement.overrides)


def _devices_key(settings: GraphSettings, placement: GraphPlacement) -> tuple[object, ...]:
    return _context_key(settings, placement)[0], placement.n_gpu, CPU in placement.layers, bool(placement.overrides)


def _grown(sizes: Sizes, settings: GraphSettings, more_tokens: int) -> Sizes:
    """Sizes with the attention mask of a context that is longer (or shorter) by `more_tokens`."""
    element = 4 if settings.flash == "off" else 2
    grown = element * min(settings.n_ubatch, settings.n_ctx) * more_tokens
    return tuple(max(size + grown, size // 4) for size in sizes)


def _close(n_ctx: int, known: int) -> bool:
    """Whether a buffer at one context says something of another: where the mask grows past a hole it takes a leap."""
    return known < _FAR * n_ctx and n_ctx < _FAR * known


def _on_devices(placement: GraphPlacement) -> int:
    on = len(placement.layers) - placement.layers.count(CPU)
    return on - sum([pattern.count("|") for pattern, _ in placement.overrides])
