"""Events of a graph whose context and micro-batch are left open: built once, read off for any values.

Above what bounds a batch both only widen tensors: masks, scores and copies of the cache grow by the same
bytes for every cell, everything else for every token, and no node comes or goes. So each size is a polynomial in the
two. The graph is built with powers of two for them that are too large to meet: the digits of a size to that base are
the polynomial's coefficients.
"""

from collections.abc import Sequence

from advisor.memory.graph.alloc import Trace
from advisor.memory.graph.model import GraphSettings, Hyper
from advisor.memory.graph.sched import Traced
from advisor.memory.graph.tensor import BLOCK
from advisor.records import NamedTuple

PADDING = 256  # cells; contexts are multiples of it, and so are the micro-batches that may stay open
# Families whose graphs have no other bound on the context than the window, or what an indexer chooses.
FAMILIES = frozenset(
    ("transformer", "mla", "mla_full", "dsa", "delta", "mamba", "gemma4", "gemma3n", "lightning", "kda")
)
_DIGIT = 60  # bits; coefficients are bytes for 256 tokens, 256 cells, or 256 of each
_POWERS = 4  # of the micro-batch: its square where tokens meet tokens; the cube is never seen
_BATCH = PADDING << _DIGIT
_CONTEXT = PADDING << _DIGIT * _POWERS
_OPEN = 1 << (_DIGIT - 1)  # numbers beyond hold an unknown


class Unknowns(NamedTuple):
    """A graph's events with unknowns in their sizes, which of them have any, and what each number in these is.

    `opened`: (number of the event, its shift, its size), the two as positions in `terms`; so are those of `copies`.
    `terms`: sums of coefficients times powers, the latter as positions in `_powers`.
    """

    found: Traced
    opened: list[tuple[int, int, int]]
    copies: list[int]
    terms: list[tuple[tuple[int, int], ...]]


def left_open(h: Hyper, s: GraphSettings) -> GraphSettings | None:
    """The settings with unknowns for the context and, where it is no odd one, the micro-batch; None = not possible."""
    if h.style.family not in FAMILIES or s.n_ctx_seq % PADDING or s.n_ctx < max(s.n_batch, s.n_ubatch):
        return None
    if h.style.family == "dsa" and s.n_ctx_seq < h.whole("attention.indexer.top_k"):
        return None
    if (s.flash == "off" or h.style.flash_never) and (BLOCK[s.type_k] > 1 or BLOCK[s.type_v] > 1):
        return None  # turned values have rows as long as the context, which a backend pads to a multiple of its own
    # a context that its window does not shorten is one as if there was none
    whole = s.swa_full or s.n_ctx_seq <= h.window * (s.n_seq if s.unified else 1) + s.n_ubatch
    opened = s._replace(n_ctx=_CONTEXT * (1 if s.unified else s.n_seq), n_ctx_seq=_CONTEXT, swa_full=whole)
    if s.n_ubatch % PADDING or PADDING % s.n_seq or s.n_outputs > PADDING or s.n_batch < s.n_ubatch:
        return opened
    return opened._replace(n_ubatch=_BATCH, n_batch=_BATCH)


def unknowns(found: Traced, alignments: Sequence[int]) -> Unknowns | None:
    """What was traced with unknowns; None where a size is no such polynomial, or would be padded otherwise.

    `alignments`: bytes, per backend.
    """
    terms: list[tuple[tuple[int, int], ...]] = []
    known: dict[int, int] = {}
    opened: list[tuple[int, int, int]] = []

    def number(backend: int, value: int) -> int:
        digits = _digits(value) if value >= _OPEN else [value]
        if value >= _OPEN and (
            len(digits) > 2 * _POWERS
            or any(digits[_POWERS - 1 :: _POWERS])
            or any(digit % alignments[backend] for digit in digits)
        ):
            raise OverflowError
        known[value] = len(terms)
        terms.append(tuple([(digit, power) for power, digit in enumerate(digits) if digit]))
        return known[value]

    try:
        for at, (_, backend, _, shift, size) in enumerate(found.trace.events):
            if size >= _OPEN or shift >= _OPEN:
                first = known[shift] if shift in known else number(backend, shift)
                opened.append((at, first, known[size] if size in known else number(backend, size)))
        copies = [known[size] if size in known else number(backend, size) for _, backend, size in found.copies]
    except OverflowError:
        return None
    return Unknowns(found, opened, copies, terms)


def read_off(graph: Unknowns, n_ctx_seq: int, n_ubatch: int) -> Traced:
    """The events with values for the unknowns."""
    powers = _powers(n_ubatch // PADDING, n_ctx_seq // PADDING)
    found, trace = graph.found, graph.found.trace
    values = []
    for term in graph.terms:
        value = 0
        for digit, power in term:
            value += digit * powers[power]
        values.append(value)
    events = trace.events.copy()
    for at, shift, size in graph.opened:
        takes, buffer, block, _, _ = events[at]
        events[at] = (takes, buffer, block, values[shift], values[size])
    copies = [(part, backend, values[at]) for (part, backend, _), at in zip(found.copies, graph.copies, strict=True)]
    return Traced(Trace(events, trace.cuts, trace.n_blocks, {}, trace), copies, found.own)


def _digits(value: int) -> list[int]:
    """Coefficients, the constant first; a negative one borrows from the next."""
    digits = []
    while value:
        digit = value & ((1 << _DIGIT) - 1)
        value >>= _DIGIT
        if digit >= _OPEN:
            digit, value = digit - (1 << _DIGIT), value + 1
        digits.append(digit)
    return digits


def _powers(batches: int, contexts: int) -> list[int]:
    """What the digits are coefficients of."""
    return [contexts**j * batches**i for j in (0, 1) for i in range(_POWERS)]
