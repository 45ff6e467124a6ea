"""Split models: the names of the parts, and one header out of all of them.

llama.cpp (gguf-split) names parts `<stem>-00001-of-00003.gguf`; the first holds the metadata, and every part the keys
split.no (from 0), split.count and split.tensors.count. Names are derived from the name of the part that was given and
never from anything inside a file.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.gguf_header.errors import BadShardNameError, InconsistentShardsError, MissingShardError
from advisor.gguf_header.limits import MAX_SHARDS
from advisor.gguf_header.types import GgufHeader, TensorInfo

_SUFFIX = ".gguf"
_MARK_LENGTH = len("-00001-of-00003")


def parse_shard_name(path: str) -> tuple[str, int, int] | None:
    """Split `<stem>-00002-of-00003.gguf` into stem, number from 1, and count; None for any other name."""
    stem, mark = path[: -len(_SUFFIX) - _MARK_LENGTH], path[-len(_SUFFIX) - _MARK_LENGTH : -len(_SUFFIX)]
    number, count = mark[1:6], mark[10:]
    if not path.endswith(_SUFFIX) or mark[:1] != "-" or mark[6:10] != "-of-" or not (number + count).isascii():
        return None
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= MAX_SHARDS):
        return None
    return stem, int(number), int(count)


def split_of(header: GgufHeader) -> tuple[int, int]:
    """Return the part's number from 0 and the count of parts as its metadata states them; (0, 1) if it is no part."""
    count = header.metadata.get("split.count", 1)
    number = header.metadata.get("split.no", 0)
    if type(count) is not int or type(number) is not int or not 0 <= count <= MAX_SHARDS:
        raise InconsistentShardsError(header.path, why=f"split.count is {count} and split.no is {number}")
    if count <= 1:
        return 0, 1
    if not 0 <= number < count:
        raise InconsistentShardsError(header.path, why=f"it says that it is part {number + 1} of {count}")
    return number, count


def shard_paths(header: GgufHeader) -> tuple[str, ...]:
    """Return the paths of all parts of the model that `header`'s file is a part of, first part first.

    Raises BadShardNameError if the file is a part but its name does not say so, and InconsistentShardsError if the
    name and the metadata disagree.
    """
    number, count = split_of(header)
    if count == 1:
        return (header.path,)
    named = parse_shard_name(header.path)
    if named is None:
        raise BadShardNameError(header.path, number=number + 1, count=count)
    if named[1:] != (number + 1, count):
        why = f"it says that it is part {number + 1} of {count}, and is named part {named[1]} of {named[2]}"
        raise InconsistentShardsError(header.path, why=why)
    return tuple(f"{named[0]}-{part:05d}-of-{count:05d}{_SUFFIX}" for part in range(1, count + 1))


def missing_shard(missing: Sequence[str], count: int) -> MissingShardError:
    """Make the error for the parts `missing` (at least one) of `count`."""
    return MissingShardError(missing[0], missing=len(missing), count=count)


def merge(headers: Sequence[GgufHeader]) -> GgufHeader:
    """Join the headers of all parts, in any order, into the model's: metadata of the first, tensors of all.

    `shard` in each TensorInfo is the index into `shard_paths`; `file_bytes` is the sum.
    Raises MissingShardError or InconsistentShardsError if they are not exactly the parts of one model.
    """
    numbered = sorted(((*split_of(header), header) for header in headers), key=lambda part: part[0])
    first = numbered[0][2]
    count = numbered[0][1]
    if count == 1 and len(numbered) == 1:
        return first
    tensors: list[TensorInfo] = []
    names: set[str] = set()
    for index, (number, of, header) in enumerate(numbered):
        if of != count:
            raise InconsistentShardsError(header.path, why=f"it is one of {of} parts, and {first.path} one of {count}")
        if number < index:
            raise InconsistentShardsError(header.path, why=f"part {number + 1} is there twice")
        if number > index:
            expected = shard_paths(header)
            raise MissingShardError(expected[index], missing=count - len(numbered), count=count)
        architecture = header.metadata.get("general.architecture")
        if architecture is not None and architecture != first.metadata.get("general.architecture"):
            raise InconsistentShardsError(header.path, why="it is of another architecture")
        for tensor in header.tensors:
            if tensor.name in names:
                raise InconsistentShardsError(header.path, why=f"tensor {tensor.name} is in another part too")
            names.add(tensor.name)
            tensors.append(tensor._replace(shard=index))
    if len(numbered) < count:
        expected = shard_paths(first)
        raise MissingShardError(expected[len(numbered)], missing=count - len(numbered), count=count)
    stated = first.metadata.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        why = f"all parts together hold {len(tensors)} tensors, and {stated} are expected"
        raise InconsistentShardsError(first.path, why=why)
    return first._replace(
        tensors=tuple(tensors),
        file_bytes=sum(header.file_bytes for _, _, header in numbered),
        shard_paths=tuple(header.path for _, _, header in numbered),
    )
