"""Metadata and tensors that do not tell of one model: refused as llama.cpp refuses them, and no real model is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.app import App
from advisor.gguf_header.errors import HeaderFaultError
from advisor.gguf_header.types import GgufHeader, TensorInfo
from advisor.model import errors

ZOO = Path(__file__).parents[2] / "data" / "zoo"
APP = App()
Change = Callable[[GgufHeader], GgufHeader]


def setting(key: str, value: object) -> Change:
    """The header with another value for `llama.KEY`."""

    def change(header: GgufHeader) -> GgufHeader:
        architecture = header.metadata["general.architecture"]
        return header._replace(metadata={**header.metadata, f"{architecture}.{key}": value})

    return change


def without(*starts: str) -> Change:
    """The header without the tensors whose names start so."""
    return lambda header: header._replace(tensors=tuple(t for t in header.tensors if not t.name.startswith(starts)))


def with_extra(name: str) -> Change:
    """The header with one tensor more."""

    def change(header: GgufHeader) -> GgufHeader:
        extra: TensorInfo = header.tensors[-1]._replace(name=name)
        return header._replace(tensors=(*header.tensors, extra))

    return change


@pytest.mark.parametrize(
    ("model", "change", "kind", "words"),
    [
        ("llama3-8b", setting("block_count", 30), errors.ExtraBlockError, "'llama.block_count' is 30, but .*'blk.30."),
        ("llama3-8b", setting("block_count", 1), errors.ExtraBlockError, "'blk.1."),
        ("llama3-8b", with_extra("blk.99.foo"), errors.ExtraBlockError, "'llama.block_count' is 32, .*'blk.99.foo'"),
        ("mamba2-7b", with_extra("blk.64.foo"), errors.ExtraBlockError, "'mamba2.block_count' is 64, .*'blk.64.foo'"),
        ("ling-mini-mtp", with_extra("blk.21.foo"), errors.ExtraBlockError, "'bailingmoe2.block_count' is 21"),
        ("llama3-8b", setting("block_count", 40), errors.MissingBlockError, "is 40, but has no tensors of block 32"),
        ("llama3-8b", without("blk.7."), errors.MissingBlockError, "is 32, but has no tensors of block 7"),
        ("llama3-8b", without("blk."), errors.MissingBlockError, "no tensors of block 0"),
        ("bert-large", without("blk.23."), errors.MissingBlockError, "no tensors of block 23"),
        ("rwkv7-2.9b", without("blk.0."), errors.MissingBlockError, "no tensors of block 0"),
        ("llama3-8b", without("token_embd."), errors.MissingTensorError, "no tensor 'token_embd.weight'"),
        ("bert-large", without("token_embd.w"), errors.MissingTensorError, "no tensor 'token_embd.weight'"),
        ("llama3-8b", setting("embedding_length", 2048), errors.ContradictionError,
         "'llama.embedding_length' is 2048, but the tensor 'token_embd.weight' has rows of 4096"),
        ("mamba-2.8b", setting("embedding_length", 1), errors.ContradictionError, "has rows of 2560"),
        ("llama3-8b", setting("attention.head_count", 0), errors.ContradictionError, "head_count' is 0, but .*attn_q"),
        ("gptneox-20b", setting("attention.head_count", 0), errors.ContradictionError, "attn_qkv"),
        ("deci-49b", setting("attention.head_count", (0,) * 80), errors.ContradictionError, "'blk.0.attn_q.weight'"),
    ],
)  # fmt: skip
def test_what_is_not_one_model(model: str, change: Change, kind: type[HeaderFaultError], words: str) -> None:
    header = change(APP.header(str(ZOO / f"{model}.json.gz")))
    with pytest.raises(kind, match=words) as caught:
        APP.model(header)
    assert str(caught.value).startswith(header.path)
    assert str(caught.value).endswith("download the file again or convert the model again.")


@pytest.mark.parametrize("path", sorted(ZOO.glob("*.json.gz")), ids=lambda path: path.name[:-8])
def test_every_real_model_is_one(path: Path) -> None:
    assert APP.model(APP.header(str(path))).n_layer_all > 0


def test_mtp_blocks_may_be_left_out() -> None:
    header = without("blk.20.")(APP.header(str(ZOO / "ling-mini-mtp.json.gz")))
    assert APP.model(header).n_layer == 20


def test_a_pruned_block_may_be_empty() -> None:
    header = APP.header(str(ZOO / "deci-49b.json.gz"))
    heads = header.metadata["deci.attention.head_count"]
    widths = header.metadata["deci.feed_forward_length"]
    assert isinstance(heads, tuple)
    assert isinstance(widths, tuple)
    header = setting("feed_forward_length", (*widths[:6], 0, *widths[7:]))(header)  # block 6 has no heads
    assert heads[6] == 0
    assert APP.model(without("blk.6.")(header)).layers[6].n_ff == 0
