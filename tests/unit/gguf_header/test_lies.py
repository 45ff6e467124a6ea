"""One test at least per way a header can lie: its own class, one sentence, the file's name in it."""

from __future__ import annotations

import struct

import pytest

from advisor.errors import HeaderError
from advisor.gguf_header import errors
from tests.tools.gguf_files import F32, Q4_K, array, assemble, honest, kv, raw_kv, tensor, text
from tests.tools.headers import read

ONE = tensor("a", (32,), F32, 0)
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4920734272\n"

LIES: list[tuple[str, type[HeaderError], bytes, str]] = [
    ("empty", errors.EmptyFileError, b"", "is empty"),
    ("zip", errors.NotGgufError, b"PK\x03\x04" + bytes(90), "zip archive"),
    ("zeros", errors.NotGgufError, bytes(4096), "unfinished download"),
    ("safetensors", errors.NotGgufError, struct.pack("<Q", 90) + b'{"__metadata__":{}}', "safetensors"),
    ("server's JSON", errors.NotGgufError, b'{"error":"Repository not found"}', "server"),
    ("other magic", errors.NotGgufError, b"\x1b[2J" + bytes(40), "1b 5b 32 4a"),
    ("page", errors.HtmlPageError, b"\n <!DOCTYPE html><html>", "web page"),
    ("page with a mark", errors.HtmlPageError, b"\xef\xbb\xbf<HTML>", "web page"),
    ("pointer", errors.LfsPointerError, LFS, "git lfs pull"),
    ("GGML", errors.OldGgmlError, b"lmgg" + bytes(40), "old GGML format"),
    ("GGJT", errors.OldGgmlError, b"tjgg" + bytes(40), "old GGJT format"),
    ("version 1", errors.VersionOneError, b"GGUF" + struct.pack("<III", 1, 0, 0), "version 1"),
    ("version 4", errors.FutureVersionError, assemble(version=4), "version 4"),
    ("version 0", errors.BadVersionError, assemble(version=0), "version 0"),
    ("big-endian", errors.BigEndianError, assemble([kv("a", "uint32", 1, ">")], order=">"), "gguf_convert_endian"),
    ("reversed magic", errors.BigEndianError, b"FUGG" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    ("magic only", errors.TruncatedHeaderError, b"GGUF", "after 4 bytes"),
    ("half a magic", errors.TruncatedHeaderError, b"GG", "after 2 bytes"),
    ("half a number", errors.TruncatedHeaderError, honest([raw_kv("a", 10, b"1234")], []), "incomplete"),
    ("long text", errors.TruncatedHeaderError, honest([raw_kv("a", 8, text("x", 2**30))], []), "incomplete"),
    ("long array", errors.TruncatedHeaderError, honest([array("a", "int8", [1], length=2**30)], []), "incomplete"),
    ("long texts", errors.TruncatedHeaderError, honest([array("a", "string", ["b"], length=2**20)], []), "incomplete"),
    ("text in texts", errors.TruncatedHeaderError,
     honest([array("tokenizer.a", "string", []).replace(struct.pack("<IQ", 8, 0), struct.pack("<IQ", 8, 1))
             + text("x", 99)], []), "incomplete"),
    ("no data", errors.TruncatedDataError, honest()[:-1], "1 of 608 bytes are missing"),
    ("no data of a large one", errors.TruncatedDataError, assemble([], [tensor("b", (2**30,), F32, 0)], 2**20),
     "4.00 GiB of 4.00 GiB are missing (4,293,918,720 of 4,294,967,360 bytes), and"),
    ("tensor at the end", errors.TruncatedDataError, assemble([], [ONE, tensor("b", (64,), F32, 128)], 200), "'b'"),
    ("n_tensors", errors.CountTooLargeError, assemble(n_tensors=2**63), str(2**63)),
    ("n_kv", errors.CountTooLargeError, assemble(n_kv=500_000_000), "500000000 metadata entries"),
    ("array length", errors.CountTooLargeError, assemble([array("a", "uint8", [], length=2**63)]), str(2**63)),
    ("text count", errors.CountTooLargeError,
     assemble([array("a", "string", [], length=2**22)]) + bytes(2**25), str(2**22)),
    ("much metadata", errors.HeaderTooLargeError,
     honest([array(f"a{i}", "int16", [7] * 65536) for i in range(13)], []), "32 MiB"),
    ("text length", errors.BadStringLengthError, honest([raw_kv("a", 8, text("x", 2**64 - 1))], []),
     "16777216.00 TiB (18,446,744,073,709,551,615 bytes) in 'a'"),
    ("token length", errors.BadStringLengthError,
     honest([raw_kv("tokenizer.a", 9, struct.pack("<IQ", 8, 1) + text("x", 2**64 - 8))], []), "'tokenizer.a'"),
    ("empty key", errors.EmptyKeyError, honest([kv("a", "bool", True), kv("", "uint8", 1)]), "number 1"),
    ("key length", errors.KeyTooLongError, honest([kv("k" * 65536, "uint8", 1)]), "65536 bytes"),
    ("twice", errors.DuplicateKeyError, honest([kv("k", "uint8", 1), kv("k", "uint8", 1)]), "'k'"),
    ("type 13", errors.BadValueTypeError, honest([raw_kv("k", 13, bytes(8))]), "value type 13"),
    ("array of 13", errors.BadValueTypeError, honest([array("k", "uint8", [1], type_id=13)]), "value type 13"),
    ("array of arrays", errors.NestedArrayError, honest([array("k", "uint8", [], length=3, type_id=9)]), "'k'"),
    ("alignment 0", errors.BadAlignmentError, honest([kv("general.alignment", "uint32", 0)]), "alignment 0"),
    ("alignment 24", errors.BadAlignmentError, honest([kv("general.alignment", "uint32", 24)]), "power of two"),
    ("alignment int32", errors.BadAlignmentError, honest([kv("general.alignment", "int32", 32)]), "(int32)"),
    ("alignment text", errors.BadAlignmentError, honest([kv("general.alignment", "string", "32")]), "(string)"),
    ("tensor name", errors.BadTensorNameError, honest([], [("n" * 64, (32,), F32)]), "64 bytes"),
    ("no tensor name", errors.BadTensorNameError, honest([], [("", (32,), F32)]), "0 bytes"),
    ("same tensor", errors.DuplicateTensorError, honest([], [("n", (32,), F32), ("n", (32,), F32)]), "'n'"),
    ("dimensions", errors.TooManyDimensionsError, assemble([], [tensor("n", (1,) * 5, F32, 0)], 64), "5 dimensions"),
    ("many dimensions", errors.TooManyDimensionsError,
     assemble([], [tensor("n", (1,), F32, 0, n_dims=0xFFFFFFFF)], 64), "4294967295"),
    ("negative", errors.BadExtentError, assemble([], [tensor("n", (-32, 2), F32, 0)], 64), "-32 x 2"),
    ("product", errors.BadExtentError, assemble([], [tensor("n", (2**31, 2**32), F32, 0)], 64), "2147483648 x"),
    ("bytes", errors.BadExtentError, assemble([], [tensor("n", (2**31, 2**31), F32, 0)], 64), "2147483648 x"),
    ("type 4", errors.UnknownTensorTypeError, assemble([], [tensor("n", (32,), 4, 0)], 64), "type 4"),
    ("fork's type", errors.UnknownTensorTypeError, assemble([], [tensor("n", (256,), 137, 0)], 64), "type 137"),
    ("negative type", errors.UnknownTensorTypeError, assemble([], [tensor("n", (32,), 2**32 - 1, 0)], 64), "type"),
    ("row", errors.RowNotDivisibleError, assemble([], [tensor("n", (255,), Q4_K, 0)], 256), "q4_K blocks of 256"),
    ("misaligned", errors.BadOffsetError, assemble([], [ONE, tensor("b", (1,), F32, 129)], 256), "129 instead of 128"),
    ("overlap", errors.BadOffsetError, assemble([], [ONE, tensor("b", (1,), F32, 96)], 256), "96 instead of 128"),
    ("gap", errors.BadOffsetError, assemble([], [ONE, tensor("b", (1,), F32, 160)], 256), "160 instead of 128"),
    ("first offset", errors.BadOffsetError, assemble([], [tensor("b", (1,), F32, 32)], 256), "32 instead of 0"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "data", "words"), [lie[1:] for lie in LIES], ids=[lie[0] for lie in LIES])
def test_each_lie_has_its_class_and_one_sentence(error: type[HeaderError], data: bytes, words: str) -> None:
    with pytest.raises(HeaderError) as caught:
        read(data, "models/x.gguf")
    assert type(caught.value) is error
    message = str(caught.value)
    assert message.startswith("models/x.gguf ")
    assert words in message
    assert message.isprintable()
    assert message.endswith(".")
    assert ". " not in message


def test_every_class_is_tested() -> None:
    elsewhere = {
        errors.BadShardNameError, errors.MissingShardError, errors.InconsistentShardsError, errors.BadSnapshotError,
    }  # fmt: skip
    here = {kind for kind in errors.HeaderFaultError.__subclasses__() if kind.__module__ == errors.__name__}
    assert here == {lie[1] for lie in LIES} | elsewhere


def test_the_docstring_names_every_class() -> None:
    assert errors.__doc__ is not None
    for error in {kind for kind in errors.HeaderFaultError.__subclasses__() if kind.__module__ == errors.__name__}:
        assert error.__name__ in errors.__doc__


def test_texts_of_the_file_cannot_reach_the_terminal_raw() -> None:
    key = "\x1b]0;owned\x07" + "k" * 500 + "\n"
    with pytest.raises(errors.DuplicateKeyError) as caught:
        read(honest([kv(key, "bool", True), kv(key, "bool", True)]), "a\x1b[31m\n.gguf")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


def test_a_file_that_shrinks_while_it_is_read() -> None:
    import io

    from advisor.gguf_header import read_header

    data = honest()
    with pytest.raises(errors.TruncatedHeaderError):
        read_header(io.BytesIO(data[:40]), "m.gguf", len(data))
