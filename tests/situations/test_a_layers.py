"""A. Estimates that are wrong or blind: arrays with one value per block, and keys that are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.situations.faces import MIB, ask, changed, document, warned, zoo
from tests.tools.cells import snapshot
from tests.tools.empty_gguf import write_empty_gguf

CARD = ("--gpu", "cuda:80GiB", "--ram", "64GiB")
Header = dict[str, Any]


def of(header: Header, key: str) -> Any:
    """`{architecture}.key` of a header, an array as a list."""
    architecture = header["metadata"]["general.architecture"]["value"]
    value = header["metadata"][f"{architecture}.{key}"]["value"]
    return value["values"] if isinstance(value, dict) else value


def put(header: Header, key: str, value: int | list[Any], kind: str = "uint32") -> None:
    """Set `{architecture}.key` to a number or an array."""
    architecture = header["metadata"]["general.architecture"]["value"]
    shown = {"array": kind, "values": value} if isinstance(value, list) else value
    entry = {"type": "array" if isinstance(value, list) else kind, "value": shown}
    header["metadata"][f"{architecture}.{key}"] = entry


def take(header: Header, *keys: str) -> None:
    """Remove `{architecture}.key`."""
    architecture = header["metadata"]["general.architecture"]["value"]
    for key in keys:
        header["metadata"].pop(f"{architecture}.{key}", None)


def cache_bytes(model: Path, n_ctx: int) -> int:
    found = document("estimate", model, "-c", n_ctx, "-np", 1, *CARD)
    assert found["verdict"] == "full"
    return int(found["devices"][0]["cache_bytes"])


# models whose head_count_kv is an array that begins with 0, and the size of their heads (keys and values)
ZERO_FIRST = [
    ("lfm2-1.2b", 64), ("lfm2moe-8b", 64), ("nemotron-h-9b", 128), ("nemotron-h-moe-30b", 128),
    ("granite-h-small", 128), ("plamo2-8b", 128),
]  # fmt: skip


def test_07_lfm2_adds_384_mib_at_32k() -> None:
    """The public report: the same estimate at 4k and 32k; 6 of 16 blocks have 8 key heads of 64."""
    kept = cache_bytes(zoo("lfm2-1.2b"), 32768) - 384 * MIB
    assert 0 < kept < MIB  # the state of the short convolutions, which does not grow
    assert cache_bytes(zoo("lfm2-1.2b"), 4096) - kept == 48 * MIB


@pytest.mark.parametrize(("name", "head_size"), ZERO_FIRST)
def test_07_every_block_counts_though_the_first_has_no_cache(name: str, head_size: int) -> None:
    heads = of(snapshot(name), "attention.head_count_kv")
    assert heads[0] == 0
    per_token = 2 * 2 * head_size * sum(heads)  # keys and values in f16
    assert cache_bytes(zoo(name), 32768) - cache_bytes(zoo(name), 4096) == per_token * (32768 - 4096)


def test_08_arrays_of_head_counts_are_read() -> None:
    """Nemotron-Super-49B, which one estimator panicked on: 49 of 80 blocks attend, with 8 key heads of 128."""
    header = snapshot("deci-49b")
    heads = of(header, "attention.head_count_kv")
    assert len(set(of(header, "feed_forward_length"))) > 1
    assert cache_bytes(zoo("deci-49b"), 16384) == 2 * 2 * 128 * sum(heads) * 16384
    weights = document("estimate", zoo("deci-49b"), "-c", 16384, "-np", 1, *CARD)["devices"][0]["weights_bytes"]
    assert weights > 28 << 30
    found = document("recommend", zoo("deci-49b"), "--gpu", "cuda:24GiB", "--ram", "64GiB")
    assert found["verdict"] == "partial"
    assert found["devices"][0]["fits"]


# the same model said with one number and with a list of them
SPELLINGS = [
    ("llama3-8b", "attention.head_count", "int32"), ("llama3-8b", "attention.head_count_kv", "uint32"),
    ("llama3-8b", "feed_forward_length", "int32"), ("qwen3moe-30b", "expert_used_count", "uint32"),
    ("gemma2-9b", "attention.sliding_window", "uint32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "key", "kind"), SPELLINGS)
def test_08_a_number_or_a_list_of_it_is_the_same_model(tmp_path: Path, name: str, key: str, kind: str) -> None:
    def spread(header: Header) -> None:
        put(header, key, [of(header, key)] * of(header, "block_count"), kind)

    words = ("-c", 16384, "-np", 1, *CARD)
    one, many = (document("estimate", model, *words) for model in (zoo(name), changed(tmp_path, name, spread)))
    assert one["devices"] == many["devices"]
    assert one["host"] == many["host"]


@pytest.mark.parametrize("name", ["gemma3-12b", "gemma2-9b"])
def test_08_the_pattern_of_windows_is_a_period_or_a_list(tmp_path: Path, name: str) -> None:
    """Gemma's files say every sixth (or second) block attends to everything, as a number, a list, or not at all."""
    period = {"gemma3-12b": 6, "gemma2-9b": 2}[name]

    def as_list(header: Header) -> None:
        put(header, "attention.sliding_window_pattern",
            [i % period < period - 1 for i in range(of(header, "block_count"))], "bool")  # fmt: skip

    def as_number(header: Header) -> None:
        put(header, "attention.sliding_window_pattern", period)

    words = ("-c", 32768, "-np", 1, *CARD)
    plans = [
        document("estimate", changed(tmp_path, name, change), *words)["devices"] for change in (as_list, as_number)
    ]
    assert plans[0] == plans[1] == document("estimate", zoo(name), *words)["devices"]


ATTENDS = (7, 16, 27, 36, 47, 58, 69, 80)  # of 88 blocks: two of the eight lie behind the 64th entry


def stretched(header: Header) -> None:
    """Nemotron-H's kinds of block in the shape of an 88-block model: 8 attend, with 2 key heads of 128."""
    blocks: dict[int, list[Any]] = {}
    for row in header["tensors"]:
        if row[0].startswith("blk."):
            blocks.setdefault(int(row[0].split(".")[1]), []).append(row)
    attending = next(i for i, count in enumerate(of(header, "attention.head_count_kv")) if count)
    kinds = [attending if i in ATTENDS else i % 2 for i in range(88)]  # block 0 is recurrent, 1 has the experts
    rest = [row for row in header["tensors"] if not row[0].startswith("blk.")]
    made = [
        [f"blk.{i}.{name.split('.', 2)[2]}", shape, kind] for i in range(88) for name, shape, kind in blocks[kinds[i]]
    ]
    header["tensors"] = rest + made
    put(header, "block_count", 88)
    put(header, "attention.head_count_kv", [2 if i in ATTENDS else 0 for i in range(88)], "int32")
    put(header, "feed_forward_length", [1856 if kind == 1 else 0 for kind in kinds], "int32")


def test_10_long_arrays_are_kept_whole(tmp_path: Path) -> None:
    """Nemotron-3-Super has 88 blocks: 0.25 GiB of cache at 32k, where a reader that kept 64 entries guessed 3.5."""
    header = changed(tmp_path, "nemotron-h-moe-30b", stretched)
    file, export = tmp_path / "model.gguf", tmp_path / "export.json"
    write_empty_gguf(header, file)
    assert ask("inspect", file, "--export", export).status == 0
    for model in (header, file, export):
        grown = cache_bytes(model, 65536) - cache_bytes(model, 32768)
        assert grown == 8 * 2 * 2 * 128 * 2 * 32768 == 256 * MIB
    assert document("estimate", file, *CARD)["model"]["n_layer"] == 88


MISSING = [("qwen3-8b", 8), ("gemma3-12b", 8), ("phi3-mini", 32)]


@pytest.mark.parametrize(("name", "n_head_kv"), MISSING)
@pytest.mark.parametrize("keys", [("attention.head_count",), ("attention.head_count", "attention.head_count_kv")])
def test_11_missing_head_counts_are_read_off_the_tensors(
    tmp_path: Path, name: str, n_head_kv: int, keys: tuple[str, ...]
) -> None:
    """Files converted from GGML lack the key; a default would be a guess."""
    model = changed(tmp_path, name, lambda header: take(header, *keys))
    words = ("-c", 16384, "-np", 1, *CARD)
    found, whole = document("estimate", model, *words), document("estimate", zoo(name), *words)
    assert found["devices"] == whole["devices"]
    said = warned(found, "heads_derived")
    assert f"and {n_head_kv} key heads of" in said
    assert "attn_q and attn_k" in said
    assert "attention.head_count is missing" in ask("inspect", model).flat


def test_11_key_heads_are_never_taken_for_query_heads(tmp_path: Path) -> None:
    """TinyLlama has 22 blocks, 32 heads and 4 key heads of 64: a default of 32 would plan eight times its cache."""

    def tiny(header: Header) -> None:
        put(header, "block_count", 22)
        put(header, "embedding_length", 2048)
        put(header, "feed_forward_length", 5632)
        put(header, "rope.dimension_count", 64)
        take(header, "attention.head_count", "attention.head_count_kv")
        shapes = {"attn_q": (2048, 2048), "attn_k": (2048, 256), "attn_v": (2048, 256), "attn_output": (2048, 2048),
                  "ffn_gate": (2048, 5632), "ffn_up": (2048, 5632), "ffn_down": (5632, 2048)}  # fmt: skip
        kept = [["token_embd.weight", [2048, 32000], 12], ["output_norm.weight", [2048], 0],
                ["output.weight", [2048, 32000], 14]]  # fmt: skip
        for i in range(22):
            kept += [[f"blk.{i}.{part}.weight", list(shape), 12] for part, shape in shapes.items()]
            kept += [[f"blk.{i}.{part}_norm.weight", [2048], 0] for part in ("attn", "ffn")]
        header["tensors"], header["n_vocab"] = kept, 32000

    model = changed(tmp_path, "llama2-7b", tiny)
    assert cache_bytes(model, 2048) == 22 * 2 * 2 * 4 * 64 * 2048
    assert "32 heads and 4 key heads of 64" in warned(document("estimate", model, *CARD), "heads_derived")


@pytest.mark.parametrize("name", ["llama2-7b", "falcon-7b", "gptneox-20b"])
def test_11_what_nothing_tells_is_said_to_be_unknown(tmp_path: Path, name: str) -> None:
    model = changed(tmp_path, name, lambda header: take(header, "attention.head_count", "rope.dimension_count"))
    said = ask("estimate", model, *CARD)
    assert (said.status, said.out) == (1, "")
    assert "attention.head_count', and its tensors do not tell it either; convert it again" in said.err
