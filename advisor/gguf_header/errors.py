"""One error class per way a GGUF header can lie; `str(error)` is one sentence with the file and the cure.

    HeaderError
    └── HeaderFaultError
        ├── not a model at all   EmptyFileError, NotGgufError, HtmlPageError, LfsPointerError, OldGgmlError
        ├── wrong edition        VersionOneError, FutureVersionError, BadVersionError, BigEndianError
        ├── cut off              TruncatedHeaderError, TruncatedDataError
        ├── too much             CountTooLargeError, HeaderTooLargeError, BadStringLengthError
        ├── metadata             EmptyKeyError, KeyTooLongError, DuplicateKeyError, BadValueTypeError,
        │                        NestedArrayError, BadAlignmentError
        ├── tensor table         BadTensorNameError, DuplicateTensorError, TooManyDimensionsError, BadExtentError,
        │                        UnknownTensorTypeError, RowNotDivisibleError, BadOffsetError
        ├── shards               BadShardNameError, MissingShardError, InconsistentShardsError
        └── snapshots            BadSnapshotError

A header error is made from the path and the facts of its template. Text that comes from the file is stripped of
control characters and shortened before it enters a message: it may hold escape codes for a terminal.
"""

from __future__ import annotations

from advisor.errors import HeaderError
from advisor.excerpts import excerpt as excerpt
from advisor.excerpts import printable as printable
from advisor.units import MIB, format_bytes

_AGAIN = "download the file again"
_DAMAGED = "the file is damaged; download it again"


def _fact(name: str, fact: str | int) -> str | int:
    """A fact as a sentence shows it; one called …_bytes is a size: exact, and from 1 MiB on readable too."""
    if isinstance(fact, str):
        return excerpt(fact)
    if not name.endswith("_bytes"):
        return fact
    return f"{fact:,} bytes" if fact < MIB else f"{format_bytes(fact)} ({fact:,} bytes)"


class HeaderFaultError(HeaderError):
    """Base of all header errors; `path` is the file at fault, the message comes from `template`."""

    template = "{path} has a broken header; " + _AGAIN + "."

    def __init__(self, path: str, **facts: str | int) -> None:
        self.path = path
        clean = {name: _fact(name, fact) for name, fact in facts.items()}
        super().__init__(self.template.format(path=printable(path), **clean))


class EmptyFileError(HeaderFaultError):
    """The file has no bytes."""

    template = "{path} is empty; " + _AGAIN + "."


class NotGgufError(HeaderFaultError):
    """The file does not start with GGUF's magic. Facts: what."""

    template = "{path} is not a GGUF file ({what}); give a GGUF model, or " + _AGAIN + "."


class HtmlPageError(HeaderFaultError):
    """A web page was saved under the model's name."""

    template = (
        "{path} is a web page, not the model itself; "
        "download it from the link of the file, not of its page (and log in if the model asks for it)."
    )


class LfsPointerError(HeaderFaultError):
    """A repository was cloned without git-lfs."""

    template = "{path} is a git-lfs pointer, not the model itself; run 'git lfs pull' or " + _AGAIN + "."


class OldGgmlError(HeaderFaultError):
    """A format of 2023, from before GGUF. Facts: magic."""

    template = (
        "{path} is in the old {magic} format, from before GGUF, which no current engine reads; "
        "download the model as GGUF or convert it again."
    )


class VersionOneError(HeaderFaultError):
    """GGUF version 1 (32-bit counts), refused by llama.cpp too."""

    template = (
        "{path} is GGUF version 1, which llama.cpp no longer reads; download a newer file or convert the model again."
    )


class FutureVersionError(HeaderFaultError):
    """A GGUF version that does not exist yet. Facts: version."""

    template = "{path} is GGUF version {version}, and versions 2 and 3 are known; update advisor, or " + _AGAIN + "."


class BadVersionError(HeaderFaultError):
    """GGUF version 0."""

    template = "{path} says it is GGUF version 0, which never existed; " + _AGAIN + "."


class BigEndianError(HeaderFaultError):
    """A file for big-endian machines, which llama.cpp refuses on every other."""

    template = (
        "{path} is a big-endian GGUF, which engines on this kind of machine refuse; "
        "download the little-endian file, or convert it with gguf_convert_endian.py."
    )


class TruncatedHeaderError(HeaderFaultError):
    """The file ends inside its header. Facts: file_bytes."""

    template = "{path} ends inside its header, after {file_bytes}: the download is incomplete; " + _AGAIN + "."


class TruncatedDataError(HeaderFaultError):
    """A tensor ends beyond the end of the file. Facts: missing_bytes, needed_bytes, tensor."""

    template = (
        "{path} is incomplete: {share} are missing{exact}, "
        "and tensor '{tensor}' ends beyond the file; finish the download or start it again."
    )

    def __init__(self, path: str, *, missing_bytes: int, needed_bytes: int, tensor: str) -> None:
        share, exact = f"{missing_bytes:,} of {needed_bytes:,} bytes", ""
        if needed_bytes >= MIB:
            share, exact = f"{format_bytes(missing_bytes)} of {format_bytes(needed_bytes)}", f" ({share})"
        super().__init__(path, share=share, exact=exact, tensor=tensor)


class CountTooLargeError(HeaderFaultError):
    """A count beyond anything real. Facts: what, count, limit."""

    template = "{path} claims {count} {what}, and at most {limit} are believable; " + _DAMAGED + "."


class HeaderTooLargeError(HeaderFaultError):
    """More metadata than is worth keeping or reading. Facts: what."""

    template = "{path} has {what} in its header, far more than any model; " + _DAMAGED + "."


class BadStringLengthError(HeaderFaultError):
    """A text longer than llama.cpp accepts (1 GiB). Facts: length_bytes, where."""

    template = "{path} claims a text of {length_bytes} in {where}; " + _DAMAGED + "."


class EmptyKeyError(HeaderFaultError):
    """A metadata key of length 0. Facts: index."""

    template = "{path} has a metadata entry without a name (number {index}); " + _DAMAGED + "."


class KeyTooLongError(HeaderFaultError):
    """A metadata key of more than 65,535 bytes, the format's limit. Facts: length, index."""

    template = "{path} claims a name of {length} bytes for metadata entry number {index}; " + _DAMAGED + "."


class DuplicateKeyError(HeaderFaultError):
    """Two metadata entries with one key. Facts: key."""

    template = "{path} has two values for '{key}', which engines refuse; " + _AGAIN + " or convert the model again."


class BadValueTypeError(HeaderFaultError):
    """A value type that GGUF does not know. Facts: key, type_id."""

    template = "{path} gives '{key}' the unknown value type {type_id}; " + _DAMAGED + "."


class NestedArrayError(HeaderFaultError):
    """An array of arrays, refused by llama.cpp too. Facts: key."""

    template = "{path} has an array of arrays in '{key}', which engines refuse; " + _AGAIN + "."


class BadAlignmentError(HeaderFaultError):
    """general.alignment is not a uint32 power of two. Facts: value, type."""

    template = "{path} has general.alignment {value} ({type}), which is not a uint32 power of two; " + _DAMAGED + "."


class BadTensorNameError(HeaderFaultError):
    """A tensor name of 64 bytes or more, or of none. Facts: length, index."""

    template = "{path} claims a name of {length} bytes for tensor number {index}, and 1 to 63 are allowed; " + (
        _DAMAGED + "."
    )


class DuplicateTensorError(HeaderFaultError):
    """Two tensors with one name. Facts: tensor."""

    template = "{path} has two tensors called '{tensor}'; " + _AGAIN + "."


class TooManyDimensionsError(HeaderFaultError):
    """More than four dimensions. Facts: tensor, count."""

    template = "{path} gives tensor '{tensor}' {count} dimensions, and at most 4 are allowed; " + _DAMAGED + "."


class BadExtentError(HeaderFaultError):
    """A negative extent, or more elements than 63 bits count. Facts: tensor, shape."""

    template = "{path} gives tensor '{tensor}' the impossible shape {shape}; " + _DAMAGED + "."


class UnknownTensorTypeError(HeaderFaultError):
    """A tensor type that llama.cpp does not know, or no longer. Facts: tensor, type_id."""

    template = (
        "{path} stores tensor '{tensor}' as type {type_id}, which llama.cpp does not know; "
        "update advisor, or get a file made for llama.cpp."
    )


class RowNotDivisibleError(HeaderFaultError):
    """A row is not a whole number of blocks. Facts: tensor, row, type, block."""

    template = (
        "{path} has rows of {row} in tensor '{tensor}', which do not divide into {type} blocks of {block}; "
        "download the file again or quantize the model again."
    )


class BadOffsetError(HeaderFaultError):
    """A tensor does not start where the one before it ends. Facts: tensor, offset, expected."""

    template = (
        "{path} places tensor '{tensor}' at {offset} instead of {expected}, which engines refuse; "
        "download the file again or convert the model again."
    )


class BadShardNameError(HeaderFaultError):
    """A shard whose name does not say which. Facts: number, count."""

    template = (
        "{path} is part {number} of {count} of a split model, but is not named so; "
        "give the parts their names ending in -00001-of-{count:05d}.gguf and so on."
    )


class MissingShardError(HeaderFaultError):
    """Parts of a split model are not there. `path` is the first missing one. Facts: missing, count."""

    template = "{path} is missing ({missing} of {count} parts of the split model are not there); download it there."


class InconsistentShardsError(HeaderFaultError):
    """Parts that do not belong together. Facts: why."""

    template = "{path} does not belong to the parts beside it: {why}; download all parts of the model again."


class BadSnapshotError(HeaderFaultError):
    """A header snapshot that cannot be used. Facts: why."""

    template = "{path} is not a usable header snapshot: {why}; write it again with 'advisor inspect MODEL --export'."
