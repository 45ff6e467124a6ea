"""Events of a graph whose context and micro-batch are left open: built once, read off for any values.

Above what bounds a batch both only widen tensors: masks, scores and copies of the cache grow by the same
bytes for every cell, everything else for every token, and no node comes or goes. So each size is a polynomial in the
two. The graph is built with powers of two for them that are too large to meet: the digits of a size to that base are
the polynomial's coefficients.
"""

from collections.abc import Iterable, Sequence

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
    """A graph's events with unknowns in their sizes, which of them have any, and the coefficients of each such size."""

    found: Traced
    opened: list[int]
    terms: dict[int, tuple[int, ...]]


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
    terms: dict[int, tuple[int, ...]] = {}
    sizes = [(backend, value) for _, backend, _, *values in found.trace.events for value in values]
    for backend, value in (*sizes, *((backend, size) for _, backend, size in found.copies)):
        if value >= _OPEN and value not in terms:
            digits = _digits(value)
            if len(digits) > 2 * _POWERS or any(digits[_POWERS - 1 :: _POWERS]):
                return None
            if any(digit % alignments[backend] for digit in digits):
                return None
            terms[value] = tuple(digits)
    events = found.trace.events
    return Unknowns(found, [at for at, event in enumerate(events) if event[4] >= _OPEN or event[3] >= _OPEN], terms)


def read_off(graph: Unknowns, n_ctx_seq: int, n_ubatch: int) -> Traced:
    """The events with values for the unknowns."""
    batches, contexts = n_ubatch // PADDING, n_ctx_seq // PADDING
    found = graph.found
    values = {number: _value(digits, batches, contexts) for number, digits in graph.terms.items()}
    get = values.get
    events = found.trace.events.copy()
    for at in graph.opened:
        takes, buffer, block, shift, size = events[at]
        events[at] = (takes, buffer, block, get(shift, shift) if shift else 0, get(size, size))
    copies = [(part, backend, get(size, size)) for part, backend, size in found.copies]
    return Traced(Trace(events, found.trace.cuts, found.trace.n_blocks), copies, found.own)


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


def _value(digits: Iterable[int], batches: int, contexts: int) -> int:
    powers = [contexts**j * batches**i for j in (0, 1) for i in range(_POWERS)]
    return sum([digit * power for digit, power in zip(digits, powers, strict=False)])
