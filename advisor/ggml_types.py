"""ggml's tensor types: id, name, elements per block, bytes per block.

Source: ggml.h and ggml-common.h of llama.cpp b11434; checked in the tests against the gguf package's table.
"""

from advisor.records import NamedTuple


class GgmlType(NamedTuple):
    """One storage type. A row of n elements takes `n // block_elements * block_bytes` bytes."""

    id: int
    name: str
    block_elements: int
    block_bytes: int

    @property
    def is_quantized(self) -> bool:
        """As ggml_is_quantized: block types, not the plain float and integer types."""
        return self.block_elements > 1


_TABLE = """
0 f32 1 4;1 f16 1 2;2 q4_0 32 18;3 q4_1 32 20;6 q5_0 32 22;7 q5_1 32 24;8 q8_0 32 34;9 q8_1 32 36
10 q2_K 256 84;11 q3_K 256 110;12 q4_K 256 144;13 q5_K 256 176;14 q6_K 256 210;15 q8_K 256 292
16 iq2_xxs 256 66;17 iq2_xs 256 74;18 iq3_xxs 256 98;19 iq1_s 256 50;20 iq4_nl 32 18;21 iq3_s 256 110
22 iq2_s 256 82;23 iq4_xs 256 136;24 i8 1 1;25 i16 1 2;26 i32 1 4;27 i64 1 8;28 f64 1 8;29 iq1_m 256 56
30 bf16 1 2;34 tq1_0 256 54;35 tq2_0 256 66;39 mxfp4 32 17;40 nvfp4 64 36;41 q1_0 128 18;42 q2_0 64 18
"""


def _parse_table() -> dict[int, GgmlType]:
    types = {}
    for entry in _TABLE.replace("\n", ";").split(";"):
        if entry:
            number, name, elements, size = entry.split()
            types[int(number)] = GgmlType(int(number), name, int(elements), int(size))
    return types


GGML_TYPES: dict[int, GgmlType] = _parse_table()
BY_NAME: dict[str, GgmlType] = {t.name.lower(): t for t in GGML_TYPES.values()}
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")  # what -ctk and -ctv take


def row_bytes(kind: GgmlType, n_elements: int) -> int:
    """Bytes of a row of `n_elements` (ggml_row_size: whole blocks, rounded down as ggml does)."""
    return n_elements // kind.block_elements * kind.block_bytes


def tensor_bytes(kind: GgmlType, shape: tuple[int, ...]) -> int:
    """Bytes of a contiguous tensor with extents `shape`, ne0 first (ggml_nbytes)."""
    n_rows = 1
    for extent in shape[1:]:
        n_rows *= extent
    return row_bytes(kind, shape[0] if shape else 1) * n_rows
