"""What a GGUF file says about itself: pure reading of headers, split models and header snapshots.

Files are opened by `advisor.stores.resolve`; nothing here touches a path.
"""

from __future__ import annotations

from advisor.gguf_header.reader import read_header
from advisor.gguf_header.shards import merge, parse_shard_name, shard_paths
from advisor.gguf_header.types import ArraySummary, GgufHeader, Scalar, TensorInfo, Value

__all__ = [
    "ArraySummary",
    "GgufHeader",
    "Scalar",
    "TensorInfo",
    "Value",
    "merge",
    "parse_shard_name",
    "read_header",
    "read_snapshot",
    "shard_paths",
    "write_snapshot",
]


def read_snapshot(data: bytes, path: str) -> GgufHeader:
    """See `advisor.gguf_header.snapshot`; imported when used, since few runs read a snapshot."""
    from advisor.gguf_header import snapshot

    return snapshot.read_snapshot(data, path)


def write_snapshot(header: GgufHeader, name: str) -> bytes:
    """See `advisor.gguf_header.snapshot`; imported when used, since few runs write a snapshot."""
    from advisor.gguf_header import snapshot

    return snapshot.write_snapshot(header, name)
