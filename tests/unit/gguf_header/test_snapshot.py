"""Header snapshots in both directions, and snapshots that lie."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import HeaderError
from advisor.gguf_header import ArraySummary, GgufHeader, errors, read_header, read_snapshot, write_snapshot
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.gguf_files import array, honest, kv
from tests.tools.headers import assert_same_as_package, read
from tests.unit.gguf_header.test_reader import ALL_TYPES, PER_LAYER, SMALL

ZOO = Path(__file__).parents[2] / "data" / "zoo"
PER_TOKEN = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"}
GOOD = {
    "name": "x",
    "n_vocab": 7,
    "metadata": {
        "general.architecture": {"type": "string", "value": "llama"},
        "llama.head_count_kv": {"type": "array", "value": {"array": "int32", "values": [8, 0, 8]}},
        "llama.eps": {"type": "float32", "value": 1e-6},
    },
    "tensors": [["token_embd.weight", [32, 7], 0], ["b", [5], 1], ["c", [], 0]],
}


def snapshot(**changes: object) -> GgufHeader:
    return read_snapshot(json.dumps({**GOOD, **changes}).encode(), "s.json")


def without(header: GgufHeader, keys: set[str]) -> tuple[object, ...]:
    """Everything that a snapshot and its GGUF must agree on."""
    return (
        {key: value for key, value in header.metadata.items() if key not in keys},
        {key: value for key, value in header.value_types.items() if key not in keys},
        header.tensors,
        header.n_vocab,
        header.alignment,
        header.version,
    )


def test_the_zoo_is_there() -> None:
    assert len(list(ZOO.glob("*.json.gz"))) >= 91


@pytest.mark.parametrize(
    "name", ["llama3-8b", "gemma3-12b", "deci-49b", "ds3", "gpt-oss-20b", "qwen3next", "bert-large"]
)
def test_the_empty_file_of_a_snapshot_reads_like_the_snapshot(name: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    size = write_empty_gguf(ZOO / f"{name}.json.gz", path)
    assert path.stat().st_size == size
    with path.open("rb") as file:
        from_file = read_header(file, str(path), size)
    from_snapshot = read_snapshot(gzip.decompress((ZOO / f"{name}.json.gz").read_bytes()), "s.json")
    assert without(from_file, PER_TOKEN) == without(from_snapshot, PER_TOKEN)
    assert from_snapshot.source == "snapshot"
    assert from_snapshot.n_vocab
    # the size without token texts: what the tokens, scores and types take is all that differs, up to the padding
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [f"t{i}" for i in range(from_snapshot.n_vocab - 259)]
    per_token = (
        sum(8 + len(token) for token in tokens) + 8 * len(tokens) + sum(8 + len(key) + 4 + 12 for key in PER_TOKEN)
    )
    assert abs(size - per_token - from_snapshot.file_bytes) < from_snapshot.alignment


def test_the_empty_file_is_what_the_gguf_package_reads(tmp_path: Path) -> None:
    small = json.loads(gzip.decompress((ZOO / "gemma3-4b.json.gz").read_bytes()))
    small["n_vocab"] = 2000
    source, path = tmp_path / "s.json", tmp_path / "empty.gguf"
    source.write_text(json.dumps(small))
    size = write_empty_gguf(source, path)
    with path.open("rb") as file:
        assert_same_as_package(read_header(file, str(path), size), path)


def test_every_zoo_snapshot_reads_and_survives_a_round_trip() -> None:
    for path in sorted(ZOO.glob("*.json.gz")):
        data = gzip.decompress(path.read_bytes())
        header = read_snapshot(data, "s.json")
        document = json.loads(data)
        assert list(header.metadata) == list(document["metadata"])
        assert [[t.name, list(t.shape), t.ggml_type] for t in header.tensors] == document["tensors"]
        assert header.n_vocab == document["n_vocab"]
        written = json.loads(write_snapshot(header, document["name"]))
        assert written == {**document, "file_bytes": header.file_bytes}, path.name
        assert read_snapshot(write_snapshot(header, "x"), "s.json") == header._replace(name="x")


def test_a_file_written_as_snapshot_reads_the_same() -> None:
    entries = [
        *ALL_TYPES,
        *PER_LAYER,
        kv("general.alignment", "uint32", 64),
        kv("split.count", "uint16", 1),
        array("tokenizer.ggml.tokens", "string", ["a"] * 70),
        array("tokenizer.ggml.scores", "float32", [0.5] * 70),
        array("tokenizer.ggml.token_type", "int32", [1] * 70),
        array("tokenizer.ggml.merges", "string", ["b"] * 70),
    ]
    header = read(honest(entries, SMALL, alignment=64))
    data = write_snapshot(header, "mine")
    again = read_snapshot(data, "s.json")
    left_out = {*PER_TOKEN, "tokenizer.ggml.merges", "split.count"}
    assert without(again, set()) == without(header, left_out)
    assert again.n_vocab == 70
    assert json.loads(data)["name"] == "mine"
    assert set(json.loads(data)) == {"name", "n_vocab", "file_bytes", "metadata", "tensors"}
    assert again.file_bytes == header.file_bytes  # token texts included


@pytest.mark.parametrize("stated", [0, -1, True, 1.5, "9", None, 1 << 62])
def test_an_impossible_size_is_not_believed(stated: object) -> None:
    document = json.loads(write_snapshot(read(honest([*ALL_TYPES, *PER_LAYER], SMALL)), "x"))
    least = document["file_bytes"]
    assert read_snapshot(json.dumps({**document, "file_bytes": stated}).encode(), "s.json").file_bytes == least


def test_the_size_is_that_of_the_file_when_nothing_was_left_out() -> None:
    raw = honest([*ALL_TYPES, *PER_LAYER], SMALL)
    assert read_snapshot(write_snapshot(read(raw), "x"), "s.json").file_bytes == len(raw)


def test_numbers_are_as_a_file_holds_them() -> None:
    header = snapshot()
    assert header.metadata["llama.eps"] == 9.999999974752427e-07  # the nearest float32
    assert header.metadata["llama.head_count_kv"] == (8, 0, 8)
    assert header.value_types["llama.head_count_kv"] == "array[int32]"
    assert [(t.offset, t.shape) for t in header.tensors] == [(0, (32, 7)), (896, (5,)), (928, ())]


def test_long_and_token_arrays_are_summed_up() -> None:
    header = snapshot(
        n_vocab=None,
        metadata={
            "tokenizer.ggml.tokens": {"type": "array", "value": {"array": "string", "values": ["a", "b"]}},
            "t": {"type": "array", "value": {"array": "string", "values": ["a"] * 65}},
            "n": {"type": "array", "value": {"array": "uint8", "values": [1] * 65537}},
        },
    )
    assert header.metadata == {
        "tokenizer.ggml.tokens": ArraySummary("string", 2),
        "t": ArraySummary("string", 65),
        "n": ArraySummary("uint8", 65537),
    }
    assert header.n_vocab == 2


def test_unknown_extra_keys_and_a_missing_vocabulary_are_fine() -> None:
    header = snapshot(more={"a": [1]}, n_vocab=None, tensors=[["t", [1], 0, "more"]])
    assert header.n_vocab is None
    assert header.tensors[0].name == "t"


def test_not_a_number_survives() -> None:
    header = read_snapshot(write_snapshot(read(honest([kv("n", "float64", math.nan)])), "x"), "s.json")
    assert header.metadata["n"] != header.metadata["n"]


def entry(kind: object, value: object) -> dict[str, object]:
    return {"metadata": {"k": {"type": kind, "value": value}}}


LIES: list[tuple[dict[str, object], type[HeaderError], str]] = [
    ({"metadata": []}, errors.BadSnapshotError, "metadata"),
    ({"tensors": None}, errors.BadSnapshotError, "tensors"),
    ({"n_vocab": -1}, errors.BadSnapshotError, "n_vocab"),
    ({"n_vocab": "9"}, errors.BadSnapshotError, "n_vocab"),
    ({"n_vocab": True}, errors.BadSnapshotError, "n_vocab"),
    ({"metadata": {"k": 3}}, errors.BadSnapshotError, "'k' has no type"),
    ({"metadata": {"k": {"type": "uint8"}}}, errors.BadSnapshotError, "'k' has no type or no value"),
    (entry("uint8", 256), errors.BadSnapshotError, "range of a uint8"),
    (entry("int8", -129), errors.BadSnapshotError, "range of a int8"),
    (entry("uint32", 1.5), errors.BadSnapshotError, "not a uint32"),
    (entry("uint32", True), errors.BadSnapshotError, "not a uint32"),
    (entry("bool", 1), errors.BadSnapshotError, "not a bool"),
    (entry("float32", "1"), errors.BadSnapshotError, "not a float32"),
    (entry("float32", True), errors.BadSnapshotError, "not a float32"),
    (entry("float32", 1e300), errors.BadSnapshotError, "too large"),
    (entry("string", None), errors.BadSnapshotError, "not a string"),
    (entry("quantum", 1), errors.BadSnapshotError, "unknown type 'quantum'"),
    (entry(4, 1), errors.BadSnapshotError, "no type"),
    (entry("array", [1, 2]), errors.BadSnapshotError, "element type"),
    (entry("array", {"array": "int32"}), errors.BadSnapshotError, "no values"),
    (entry("array", {"array": "array", "values": []}), errors.BadSnapshotError, "unknown type 'array'"),
    (entry("array", {"array": "int32", "values": [1, "2"]}), errors.BadSnapshotError, "not a int32"),
    ({"metadata": {"": {"type": "uint8", "value": 1}}}, errors.EmptyKeyError, "number 0"),
    ({"metadata": {"k" * 65536: {"type": "uint8", "value": 1}}}, errors.KeyTooLongError, "65536"),
    ({"metadata": {f"k{i}": {"type": "uint8", "value": 1} for i in range(16385)}}, errors.CountTooLargeError, "16385"),
    ({"metadata": {"general.alignment": {"type": "uint32", "value": 3}}}, errors.BadAlignmentError, "alignment 3"),
    ({"tensors": [["t", [1], 0]] * 65537}, errors.CountTooLargeError, "65537 tensors"),
    ({"tensors": [["t", [1]]]}, errors.BadSnapshotError, "number 0 is not"),
    ({"tensors": [[1, [1], 0]]}, errors.BadSnapshotError, "number 0 is not"),
    ({"tensors": [["t", ["1"], 0]]}, errors.BadSnapshotError, "not a number"),
    ({"tensors": [["t", [1.0], 0]]}, errors.BadSnapshotError, "not a number"),
    ({"tensors": [["t", [1], True]]}, errors.BadSnapshotError, "not a number"),
    ({"tensors": [["t" * 64, [1], 0]]}, errors.BadTensorNameError, "64 bytes"),
    ({"tensors": [["", [1], 0]]}, errors.BadTensorNameError, "0 bytes"),
    ({"tensors": [["t", [1], 0], ["t", [1], 0]]}, errors.DuplicateTensorError, "'t'"),
    ({"tensors": [["t", [1] * 5, 0]]}, errors.TooManyDimensionsError, "5 dimensions"),
    ({"tensors": [["t", [-1], 0]]}, errors.BadExtentError, "-1"),
    ({"tensors": [["t", [2**62, 2**62], 0]]}, errors.BadExtentError, "shape"),
    ({"tensors": [["t", [32], 4]]}, errors.UnknownTensorTypeError, "type 4"),
    ({"tensors": [["t", [33], 2]]}, errors.RowNotDivisibleError, "q4_0"),
]


@pytest.mark.parametrize(("changes", "error", "words"), LIES)
def test_each_lie_has_its_class_and_one_sentence(
    changes: dict[str, object], error: type[HeaderError], words: str
) -> None:
    with pytest.raises(HeaderError) as caught:
        snapshot(**changes)
    assert type(caught.value) is error
    message = str(caught.value)
    assert message.startswith("s.json ")
    assert words in message
    assert message.endswith(".")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"{", "line 1"),
        (b"\xff\xfe\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"metadata":{},"metadata":{},"tensors":[]}', "one key twice"),
        (b'{"metadata":{},"tensors":[],"n_vocab":' + b"1" * 30 + b"}", "64 bits"),
    ],
)
def test_what_is_no_snapshot_at_all(data: bytes, words: str) -> None:
    with pytest.raises(errors.BadSnapshotError, match=words):
        read_snapshot(data, "s.json")


def test_lone_surrogates_do_not_survive() -> None:
    document = json.dumps({**GOOD, "metadata": entry("string", "\ud800")["metadata"], "tensors": [["\udfff", [1], 0]]})
    header = read_snapshot(document.encode(), "s.json")
    assert (header.metadata["k"], header.tensors[0].name) == ("?", "?")


def assert_read_or_refused(data: bytes) -> None:
    message = ""
    try:
        read_snapshot(data, "s.json")
    except HeaderError as error:
        message = str(error)
    assert message.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(
    metadata=st.dictionaries(st.text(max_size=5), JSON | st.fixed_dictionaries({"type": JSON, "value": JSON})),
    tensors=JSON,
    n_vocab=JSON,
)
@settings(max_examples=150, deadline=None)
def test_random_documents_raise_nothing_else(metadata: object, tensors: object, n_vocab: object) -> None:
    data = json.dumps({"metadata": metadata, "tensors": tensors, "n_vocab": n_vocab}).encode()
    assert_read_or_refused(data)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_random_damage_raises_nothing_else(data: st.DataObject) -> None:
    damaged = bytearray(json.dumps(GOOD).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from((b"", b"[", b'"', b"-1", b"9e99", b"{}"))
        )
    assert_read_or_refused(bytes(damaged))
