"""Split models: names, joining, and parts that do not belong together."""

from __future__ import annotations

import pytest

from advisor.gguf_header import GgufHeader, merge, parse_shard_name, shard_paths
from advisor.gguf_header.errors import BadShardNameError, InconsistentShardsError, MissingShardError
from tests.tools.gguf_files import F32, array, honest, kv
from tests.tools.headers import read


def part(
    number: int, count: int = 3, *, total: int | None = None, name: str = "", extra: tuple[bytes, ...] = ()
) -> GgufHeader:
    """Part `number` (from 0) of a model with two tensors per part."""
    entries = [kv("split.no", "uint16", number), kv("split.count", "uint16", count)]
    entries.append(kv("split.tensors.count", "int32", 2 * count if total is None else total))
    if number == 0:
        entries += [kv("general.architecture", "string", "llama"), array("tokenizer.ggml.tokens", "string", ["a"] * 9)]
    tensors = [(f"blk.{number}.{name or letter}", (32,), F32) for letter in ("a" if name else "ab")]
    return read(honest([*entries, *extra], tensors), f"dir/m-{number + 1:05d}-of-{count:05d}.gguf")


def test_parts_in_any_order_become_one_model() -> None:
    parts = [part(0), part(1), part(2)]
    whole = merge([parts[2], parts[0], parts[1]])
    assert whole.path == "dir/m-00001-of-00003.gguf"
    assert whole.shard_paths == tuple(f"dir/m-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    assert [(t.name, t.shard, t.offset) for t in whole.tensors] == [
        (f"blk.{n}.{letter}", n, offset) for n in range(3) for letter, offset in (("a", 0), ("b", 128))
    ]
    assert whole.file_bytes == sum(p.file_bytes for p in parts)
    assert whole.metadata == parts[0].metadata
    assert whole.n_vocab == 9


def test_a_model_in_one_file_stays_as_it_is() -> None:
    header = read(honest(), "m.gguf")
    assert merge([header]) is header
    assert shard_paths(header) == ("m.gguf",)
    one_of_one = part(0, 1)
    assert shard_paths(one_of_one) == (one_of_one.path,)


def test_names() -> None:
    assert parse_shard_name("a/b-00002-of-00003.gguf") == ("a/b", 2, 3)
    assert parse_shard_name("-00001-of-65535.gguf") == ("", 1, 65535)
    for other in (
        "b.gguf", "b-00001-of-00003.bin", "b-00000-of-00003.gguf", "b-00004-of-00003.gguf", "b-1-of-3.gguf",
        "b-0000a-of-00003.gguf", "b-00001-of-65536.gguf", "b-٠٠٠٠١-of-00003.gguf", "b_00001-of-00003.gguf",
        "b-00001_of_00003.gguf", ".gguf", "", "00001-of-00003.gguf", "b-+0001-of-00003.gguf",
    ):  # fmt: skip
        assert parse_shard_name(other) is None, other
    assert shard_paths(part(1)) == tuple(f"dir/m-0000{n}-of-00003.gguf" for n in (1, 2, 3))


def test_1148_parts() -> None:
    assert len(merge([part(n, 1148) for n in range(1148)]).tensors) == 2296


def test_a_part_that_is_not_named_so() -> None:
    header = read(honest([kv("split.no", "uint16", 1), kv("split.count", "uint16", 3)]), "dir/renamed.gguf")
    with pytest.raises(BadShardNameError, match=r"dir/renamed\.gguf is part 2 of 3 .* -00001-of-00003\.gguf"):
        shard_paths(header)


@pytest.mark.parametrize("present", [(0, 1), (0, 2), (1, 2), (1,), (0,)])
def test_the_first_missing_part_is_named(present: tuple[int, ...]) -> None:
    missing = next(n for n in range(3) if n not in present)
    with pytest.raises(MissingShardError) as caught:
        merge([part(n) for n in present])
    assert str(caught.value).startswith(f"dir/m-0000{missing + 1}-of-00003.gguf is missing ({3 - len(present)} of 3 ")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([part(0), part(1, 2), part(2)], "one of 2 parts"),
        ([part(0), part(1), part(1)], "twice"),
        ([part(0), part(1, extra=(kv("general.architecture", "string", "gemma"),)), part(2)], "architecture"),
        ([part(0), part(1, name="x"), part(2)], "hold 5 tensors, and 6"),
        ([part(0, total=7), part(1), part(2)], "hold 6 tensors, and 7"),
    ],
)
def test_parts_of_different_models(parts: list[GgufHeader], words: str) -> None:
    with pytest.raises(InconsistentShardsError, match=words):
        merge(parts)


def test_one_tensor_in_two_parts() -> None:
    second = part(1)
    twin = second.tensors[0]._replace(name="blk.0.a")

    with pytest.raises(InconsistentShardsError, match=r"blk\.0\.a is in another part"):
        merge([part(0), second._replace(tensors=(twin,)), part(2)])


@pytest.mark.parametrize(
    "entries",
    [
        [kv("split.no", "uint16", 0), kv("split.count", "uint16", 4)],
        [kv("split.no", "uint16", 1), kv("split.count", "uint16", 3)],
        [kv("split.no", "uint16", 3), kv("split.count", "uint16", 3)],
        [kv("split.no", "int32", -1), kv("split.count", "uint16", 3)],
        [kv("split.count", "string", "3")],
        [kv("split.count", "float32", 3.0)],
        [kv("split.count", "uint32", 65536)],
    ],
)
def test_metadata_against_the_name(entries: list[bytes]) -> None:
    with pytest.raises(InconsistentShardsError):
        shard_paths(read(honest(entries), "m-00001-of-00003.gguf"))


def test_a_split_count_of_zero_is_no_split() -> None:
    assert shard_paths(read(honest([kv("split.count", "uint16", 0)]), "m.gguf")) == ("m.gguf",)
