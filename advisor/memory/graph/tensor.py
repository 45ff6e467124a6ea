"""A shape-only tensor and the operations on it: what a graph node weighs, what it reads and whose memory it shares.

Nothing is computed. An operation returns a node with extents, strides where they are not contiguous, its sources,
and for a view the tensor that owns the memory. Naming follows ggml (facts from ggml.c of llama.cpp b11434).
"""

from __future__ import annotations

from typing import TypeAlias

from advisor.ggml_types import GGML_TYPES

F32, F16, Q4_0, Q8_0, I32, I64 = 0, 1, 2, 8, 26, 27
BLOCK: dict[int, int] = {t.id: t.block_elements for t in GGML_TYPES.values()}
BLOCK_BYTES: dict[int, int] = {t.id: t.block_bytes for t in GGML_TYPES.values()}
NAMES: dict[int, str] = {t.id: t.name for t in GGML_TYPES.values()}

VIEW_OPS = frozenset(("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"))
INPLACE_OPS = frozenset(
    (
        *("FILL", "SCALE", "DIAG_MASK_ZERO", "DIAG_MASK_INF", "ADD", "ADD_ID", "ADD1", "SUB", "MUL", "DIV", "SQR"),
        *("SQRT", "LOG", "UNARY", "ROPE", "RMS_NORM", "CLAMP", "SOFT_MAX"),
    )
)
NO_PLACE = -1

Extents: TypeAlias = tuple[int, int, int, int]


class Tensor:
    """One node or leaf. `place` is the backend index whose memory already holds it, NO_PLACE for graph results."""

    __slots__ = (
        "allocated",
        "backend",
        "block",
        "buffer",
        "copies",
        "is_input",
        "is_output",
        "is_weight",
        "n_children",
        "n_views",
        "nb",
        "ne",
        "op",
        "place",
        "root",
        "size",
        "src",
        "type",
        "view_offset",
        "visited",
    )

    def __init__(self, op: str, kind: int, ne: Extents, src: list[Tensor]) -> None:
        self.op = op
        self.type = kind
        self.ne = ne
        self.src = src
        self.nb: Extents | None = None  # None = contiguous
        self.root: Tensor | None = None
        self.view_offset = 0
        self.place = NO_PLACE
        self.is_weight = False
        self.is_input = False
        self.is_output = False
        self.backend = NO_PLACE
        self.visited = False
        self.copies: dict[int, list[Tensor]] | None = None
        self.allocated = False
        self.n_children = 0
        self.n_views = 0
        self.buffer = 0
        self.block = 0
        self.size = 0


def strides(t: Tensor) -> Extents:
    """Strides in bytes per dimension."""
    if t.nb is not None:
        return t.nb
    n0, n1, n2, _ = t.ne
    size = BLOCK_BYTES[t.type]
    row = n0 // BLOCK[t.type] * size
    return (size, row, row * n1, row * n1 * n2)


def n_bytes(t: Tensor) -> int:
    """Bytes from the first to the last element (ggml_nbytes)."""
    n0, n1, n2, n3 = t.ne
    if t.nb is None:
        return n0 // BLOCK[t.type] * BLOCK_BYTES[t.type] * n1 * n2 * n3
    if n0 <= 0 or n1 <= 0 or n2 <= 0 or n3 <= 0:
        return 0
    b0, b1, b2, b3 = t.nb
    block = BLOCK[t.type]
    first = BLOCK_BYTES[t.type] + (n0 - 1) * b0 if block == 1 else n0 * b0 // block
    return first + (n1 - 1) * b1 + (n2 - 1) * b2 + (n3 - 1) * b3


def n_elements(t: Tensor) -> int:
    """Number of elements."""
    n0, n1, n2, n3 = t.ne
    return n0 * n1 * n2 * n3


def row_size(kind: int, n: int) -> int:
    """Bytes of `n` elements of one row."""
    return n // BLOCK[kind] * BLOCK_BYTES[kind]


def is_contiguous(t: Tensor) -> bool:
    """True when the elements lie densely in order."""
    if t.nb is None:
        return True
    n0, n1, n2, n3 = t.ne
    size = BLOCK_BYTES[t.type]
    expect = size
    if n0 != BLOCK[t.type] and t.nb[0] != expect:
        return False
    expect = expect * (n0 // BLOCK[t.type])
    for extent, stride in ((n1, t.nb[1]), (n2, t.nb[2]), (n3, t.nb[3])):
        if extent != 1:
            if stride != expect:
                return False
            expect *= extent
    return True


def node(op: str, src: list[Tensor], ne: Extents, kind: int = F32) -> Tensor:
    """A node with memory of its own."""
    return Tensor(op, kind, ne, src)


def same(op: str, *src: Tensor) -> Tensor:
    """A node shaped like its first source, contiguous (add, mul, norms, unary, rope, ...)."""
    return Tensor(op, src[0].type, src[0].ne, list(src))


def mul_mat(w: Tensor, x: Tensor) -> Tensor:
    """Matrix product: rows of `w` by columns of `x`."""
    return Tensor("MUL_MAT", F32, (w.ne[1], x.ne[1], x.ne[2], x.ne[3]), [w, x])


def mul_mat_id(w: Tensor, x: Tensor, ids: Tensor) -> Tensor:
    """Product with the experts that `ids` selects."""
    return Tensor("MUL_MAT_ID", F32, (w.ne[1], ids.ne[0], x.ne[2], 1), [w, x, ids])


def view(t: Tensor, ne: Extents, nb: Extents | None, offset: int = 0, op: str = "VIEW") -> Tensor:
    """A tensor in another one's memory. A view of a view reads what that one reads, which is the same memory."""
    v = Tensor(op, t.type, ne, [t.src[0] if t.op in VIEW_OPS and not t.visited else t])
    v.nb = nb
    v.root = t.root if t.root is not None else t
    v.view_offset = t.view_offset + offset
    return v


def view_1d(t: Tensor, n0: int, offset: int = 0) -> Tensor:
    """The `n0` elements from byte `offset` on."""
    return view(t, (n0, 1, 1, 1), None, offset)


def view_2d(t: Tensor, n0: int, n1: int, b1: int, offset: int = 0) -> Tensor:
    """`n1` rows, `b1` bytes apart."""
    return view(t, (n0, n1, 1, 1), (strides(t)[0], b1, b1 * n1, b1 * n1), offset)


def view_3d(t: Tensor, n0: int, n1: int, n2: int, b1: int, b2: int, offset: int = 0) -> Tensor:
    """A three-dimensional window."""
    return view(t, (n0, n1, n2, 1), (strides(t)[0], b1, b2, b2 * n2), offset)


def view_4d(t: Tensor, ne: Extents, b1: int, b2: int, b3: int, offset: int = 0) -> Tensor:
    """A four-dimensional window."""
    return view(t, ne, (strides(t)[0], b1, b2, b3), offset)


def reshape(t: Tensor, n0: int, n1: int = 1, n2: int = 1, n3: int = 1) -> Tensor:
    """The same elements under other extents."""
    return view(t, (n0, n1, n2, n3), None, 0, "RESHAPE")


def permute(t: Tensor, a0: int, a1: int, a2: int, a3: int) -> Tensor:
    """Dimension i becomes dimension a_i."""
    ne, nb, old = [1, 1, 1, 1], [0, 0, 0, 0], strides(t)
    for i, axis in enumerate((a0, a1, a2, a3)):
        ne[axis] = t.ne[i]
        nb[axis] = old[i]
    return view(t, (ne[0], ne[1], ne[2], ne[3]), (nb[0], nb[1], nb[2], nb[3]), 0, "PERMUTE")


def transpose(t: Tensor) -> Tensor:
    """Swap the first two dimensions."""
    n0, n1, n2, n3 = t.ne
    b0, b1, b2, b3 = strides(t)
    return view(t, (n1, n0, n2, n3), (b1, b0, b2, b3), 0, "TRANSPOSE")


def into(op: str, destination: Tensor, src: list[Tensor]) -> Tensor:
    """A node that writes into `destination`'s memory (set_rows, cpy, in-place scale)."""
    t = Tensor(op, destination.type, destination.ne, src)
    t.nb = destination.nb
    t.root = destination.root if destination.root is not None else destination
    t.view_offset = destination.view_offset
    return t


def set_rows(destination: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Scatter `rows` into `destination`."""
    return into("SET_ROWS", destination, [rows, index, destination])


def cpy(source: Tensor, destination: Tensor) -> Tensor:
    """Copy into `destination`."""
    return into("CPY", destination, [source, destination])


def get_rows(table: Tensor, index: Tensor) -> Tensor:
    """Gather rows."""
    kind = I32 if table.type == I32 else F32
    return Tensor("GET_ROWS", kind, (table.ne[0], index.ne[0], index.ne[1], index.ne[2]), [table, index])


def cont(t: Tensor, *ne: int) -> Tensor:
    """A contiguous copy, under other extents if given."""
    shape = (*ne, 1, 1, 1, 1)[:4] if ne else t.ne
    return Tensor("CONT", t.type, (shape[0], shape[1], shape[2], shape[3]), [t])


def cast(t: Tensor, kind: int) -> Tensor:
    """A copy in another type: a CPY whose second source is the result itself."""
    return Tensor("CPY", kind, t.ne, [t])


def concat(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """Join along one dimension."""
    ne = list(a.ne)
    ne[axis] += b.ne[axis]
    return Tensor("CONCAT", a.type, (ne[0], ne[1], ne[2], ne[3]), [a, b])


def top_k(t: Tensor, k: int) -> Tensor:
    """Indices of the `k` largest per row: a view of the full sort."""
    order = Tensor("ARGSORT", I32, t.ne, [t])
    _, n1, n2, n3 = order.ne
    _, b1, b2, b3 = strides(order)
    return view(order, (k, n1, n2, n3), (4, b1, b2, b3))


def sum_parts(parts: Tensor) -> Tensor:
    """The sum over the second dimension.

    The engine adds views of the parts one by one, each sum in the place of the one before it: one result in memory.
    """
    n0, _, n2, n3 = parts.ne
    return Tensor("SUM_PARTS", F32, (n0, n2, n3, 1), [parts])


def glu(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """Gated activation: of two tensors, or of the two halves of one."""
    if up is not None:
        return Tensor("GLU", F32, gate.ne, [gate, up])
    n0, n1, n2, n3 = gate.ne
    return Tensor("GLU", F32, (n0 // 2, n1, n2, n3), [gate])
