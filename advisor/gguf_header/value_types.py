"""GGUF's value types: id, name, layout. Source: the GGUF specification in ggml's docs/gguf.md."""

import struct

from advisor.records import NamedTuple


class ScalarType(NamedTuple):
    """A value type of fixed size; `code` is its letter in the struct module, `low..high` the integers it can hold."""

    id: int
    name: str
    code: str
    n_bytes: int
    low: int
    high: int


BOOL, STRING, ARRAY = 7, 8, 9

SCALAR_TYPES: dict[int, ScalarType] = {
    0: ScalarType(0, "uint8", "B", 1, 0, 0xFF),
    1: ScalarType(1, "int8", "b", 1, -0x80, 0x7F),
    2: ScalarType(2, "uint16", "H", 2, 0, 0xFFFF),
    3: ScalarType(3, "int16", "h", 2, -0x8000, 0x7FFF),
    4: ScalarType(4, "uint32", "I", 4, 0, 0xFFFFFFFF),
    5: ScalarType(5, "int32", "i", 4, -0x80000000, 0x7FFFFFFF),
    6: ScalarType(6, "float32", "f", 4, 0, 0),
    BOOL: ScalarType(BOOL, "bool", "?", 1, 0, 1),
    10: ScalarType(10, "uint64", "Q", 8, 0, (1 << 64) - 1),
    11: ScalarType(11, "int64", "q", 8, -(1 << 63), (1 << 63) - 1),
    12: ScalarType(12, "float64", "d", 8, 0, 0),
}
SCALARS_BY_NAME: dict[str, ScalarType] = {kind.name: kind for kind in SCALAR_TYPES.values()}
UNPACK = {type_id: struct.Struct("<" + kind.code).unpack_from for type_id, kind in SCALAR_TYPES.items()}
