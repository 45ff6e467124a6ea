"""A projector or a draft model that was made for another model: what llama.cpp says of the pair, before it is loaded.

Widths: mtmd_context of llama.cpp b11549 compares n_embd_inp of the model with clip_n_mmproj_embd of the projector.
Vocabularies: common_speculative_are_compatible. Both read there; the pairs here are taken from those rules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.gguf_files import F32, array, assemble, kv, table
from tests.tools.projectors import write_projector
from tests.unit.cli.test_bad_input import advisor, assert_one_sentence

ZOO = Path(__file__).parents[2] / "data" / "zoo"
CARD = ("--gpu", "cuda:24GiB", "--ram", "64GiB")


@pytest.mark.parametrize(
    ("model", "kind", "out", "takes"),
    [
        ("llama3-8b", "gemma3", 2560, "4,096"),  # the row length of mm.input_projection
        ("gemma3-4b", "mlp", 4096, "2,560"),  # the rows of mm.2
        ("qwen3vl-8b", "mlp", 4096, "16,384 (4 x 4,096)"),  # three deepstack inputs, none from this projector
        ("qwen3-8b", "qwen3vl_merger", 4096, "4,096"),  # three deepstack branches, and a model without inputs for them
    ],
)
def test_a_projector_of_another_width_is_refused(tmp_path: Path, model: str, kind: str, out: int, takes: str) -> None:
    eye = write_projector(tmp_path / "eye.gguf", kind, n_layer=8, out=out, merge=2 if kind.startswith("qwen") else 0)
    for verb in ("recommend", "estimate", "check"):
        said = assert_one_sentence(advisor(verb, ZOO / f"{model}.json.gz", "--mmproj", eye, *CARD), 2)
        assert f"{16384 if kind.startswith('qwen') else out:,} values a token" in said
        assert f"takes {takes}, " in said


@pytest.mark.parametrize(
    ("model", "kind", "out"),
    [
        ("gemma3-4b", "gemma3", 2560),
        ("llama2-7b", "mlp", 4096),
        ("qwen3vl-8b", "qwen3vl_merger", 4096),  # 4,096 and three deepstack branches of 4,096
        ("llama3-8b", "nobody-knows", 1),  # whose width is not known, that is not compared
    ],
)
def test_a_projector_of_the_models_width_is_taken(tmp_path: Path, model: str, kind: str, out: int) -> None:
    eye = write_projector(tmp_path / "eye.gguf", kind, n_layer=8, out=out, merge=2 if kind.startswith("qwen") else 0)
    answer = advisor("estimate", ZOO / f"{model}.json.gz", "--mmproj", eye, "-c", "4096", *CARD)
    assert answer.status in (0, 3), answer


TEXTS = ["<unk>", "<s>", "</s>", "<a>", "<b>", *(f"t{i}" for i in range(995))]
SPM = {"model": ("string", "llama"), "bos_token_id": ("uint32", 1), "eos_token_id": ("uint32", 2)}
BPE = {"model": ("string", "gpt2"), "pre": ("string", "qwen2")}


def tiny(path: Path, texts: list[str], tokenizer: dict[str, tuple[str, object]]) -> Path:
    """A llama of one block with these tokens."""
    sizes = {"block_count": 1, "context_length": 8192, "embedding_length": 64, "feed_forward_length": 128}
    sizes |= {"attention.head_count": 2, "attention.head_count_kv": 2, "rope.dimension_count": 32}
    entries = [
        kv("general.architecture", "string", "llama"),
        *(kv(f"llama.{key}", "uint32", value) for key, value in sizes.items()),
        kv("llama.attention.layer_norm_rms_epsilon", "float32", 1e-5),
        *(kv(f"tokenizer.ggml.{key}", *value) for key, value in tokenizer.items()),
        array("tokenizer.ggml.tokens", "string", texts),
        array("tokenizer.ggml.scores", "float32", [0.0] * len(texts)),
    ]
    block = {"attn_q": (64, 64), "attn_k": (64, 64), "attn_v": (64, 64), "attn_output": (64, 64)}
    block |= {"ffn_gate": (64, 128), "ffn_up": (64, 128), "ffn_down": (128, 64), "attn_norm": (64,), "ffn_norm": (64,)}
    rows, n_bytes = table(
        [
            ("token_embd.weight", (64, len(texts)), F32),
            ("output_norm.weight", (64,), F32),
            *((f"blk.0.{name}.weight", shape, F32) for name, shape in block.items()),
        ]
    )
    path.write_bytes(assemble(entries, rows) + b"\0" * n_bytes)
    return path


@pytest.mark.parametrize(
    ("texts", "tokenizer", "words"),
    [
        (TEXTS, BPE, "its vocabulary is of type BPE, the model's of type SPM"),
        (TEXTS, SPM | {"add_bos_token": ("bool", False)}, "a token for the beginning of a text is not added to what"),
        (TEXTS, SPM | {"add_eos_token": ("bool", True)}, "a token for the end of a text is added to what it reads"),
        (TEXTS, SPM | {"bos_token_id": ("uint32", 3)}, "its token for the beginning of a text is 3, the model's 1"),
        ([*TEXTS, *(f"u{i}" for i in range(129))], SPM, "it has 1,129 tokens, the model 1,000, and 128"),
        (TEXTS[:871], SPM, "it has 871 tokens, the model 1,000, and 128"),
        ([*TEXTS[:999], "another"], SPM, "of its 1,000 tokens some have other texts"),
        ([*TEXTS[:998], "t994", "t993"], SPM, "of its 1,000 tokens some have other texts"),
        ([*TEXTS[:5], "T0", *TEXTS[6:]], SPM, "of its 1,000 tokens some have other texts"),
    ],
)
def test_a_draft_model_with_another_vocabulary_is_refused(tmp_path, texts, tokenizer, words):
    model, draft = tiny(tmp_path / "m.gguf", TEXTS, SPM), tiny(tmp_path / "d.gguf", texts, tokenizer)
    said = assert_one_sentence(advisor("recommend", model, "-md", draft, *CARD), 2)
    assert words in said
    assert "give a draft model of the same family" in said


@pytest.mark.parametrize(
    ("texts", "tokenizer"),
    [
        (TEXTS, SPM),
        (["?", "?", "?", "?", "?", *TEXTS[5:]], SPM),  # the first five are not compared
        ([*TEXTS, *(f"u{i}" for i in range(128))], SPM),
        (TEXTS[:872], SPM),
        (TEXTS, SPM | {"eos_token_id": ("uint32", 3)}),  # compared only where it is added
        (TEXTS, {"model": ("string", "llama")}),  # the type's own are 1 and 2
    ],
)
def test_a_draft_model_with_the_models_vocabulary_is_taken(tmp_path, texts, tokenizer):
    model, draft = tiny(tmp_path / "m.gguf", TEXTS, SPM), tiny(tmp_path / "d.gguf", texts, tokenizer)
    answer = advisor("recommend", model, "-md", draft, *CARD)
    assert answer.status == 0, answer
    assert f"--spec-type draft-simple --spec-draft-model {draft}" in answer.out


def test_a_pasted_command_that_never_drafts_is_said(tmp_path):
    """llama-server's --spec-type is none by default: common_params_speculative.types of b10435 to b11549."""
    model, draft = tiny(tmp_path / "m.gguf", TEXTS, SPM), tiny(tmp_path / "d.gguf", TEXTS, SPM)
    pasted = ("estimate", *CARD, "--", "llama-server", "-m", model, "-md", draft)
    assert "drafts nothing with it" in " ".join(advisor(*pasted).out.split())
    assert "drafts nothing" not in advisor(*pasted, "--spec-type", "draft-simple").out
