"""Whether a draft model's tokens are the model's: what llama.cpp asks before it drafts.

Source: llama.cpp b11549 common/speculative.cpp (common_speculative_are_compatible) and src/llama-vocab.cpp
(llama_vocab::impl::load); the same in b10435. Where it is not so the server writes an error into its log and answers
without drafting; builds of 2025 translated the texts instead (--spec-replace, since removed).
"""

from collections.abc import Mapping

from advisor.gguf_header.types import Value
from advisor.model.spec import ModelSpec
from advisor.records import NamedTuple

MOST_TOKENS_APART = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE
FIRST_COMPARED_TOKEN = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID


_ROWS = "token_embd.weight"  # a row for each token, by what the engine checks when it loads the tensor


class _Type(NamedTuple):
    """What a vocabulary's type sets where the file says nothing; None = no such token."""

    name: str
    bos: int | None
    eos: int | None
    add_bos: bool
    add_eos: bool


_TYPES = {
    "llama": _Type("SPM", 1, 2, True, False), "bert": _Type("WPM", 101, None, True, False),
    "gpt2": _Type("BPE", 11, 11, False, False), "hybriddna": _Type("BPE", 11, 11, False, False),
    "whitespace": _Type("BPE", 11, 11, False, False), "gemma4": _Type("BPE", None, None, False, False),
    "t5": _Type("UGM", None, 1, False, True), "rwkv": _Type("RWKV", None, None, False, False),
    "plamo2": _Type("PLaMo 2", 1, 2, False, False), "plamo3": _Type("PLaMo 3", 1, 2, False, False),
}  # fmt: skip
_ADD_BOS = frozenset(
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
     "tekken", "chameleon"),
)  # fmt: skip
_ALWAYS_BOS = frozenset(("gemma4", "granite-embed-multi-311m"))  # whatever the file says
_NO_BOS = frozenset(("chatglm-bpe", "glm4", "glm5"))


class _Vocabulary(NamedTuple):
    kind: str
    add_bos: bool
    bos: int | None
    add_eos: bool
    eos: int | None


def vocabulary_mismatch(model: ModelSpec, draft: ModelSpec) -> str | None:
    """What of the draft's vocabulary is another than the model's, as the end of a sentence; None = nothing but texts.

    A file that does not say its tokenizer (a snapshot without it, a head that borrows the model's) is not compared.
    """
    mine, theirs = _vocabulary(model), _vocabulary(draft)
    if mine is None or theirs is None:
        return None
    if mine.kind != theirs.kind:
        return f"its vocabulary is of type {theirs.kind}, the model's of type {mine.kind}"
    for what, name in (("bos", "beginning"), ("eos", "end")):
        adds = [bool(getattr(one, f"add_{what}")) for one in (mine, theirs)]
        tokens = [getattr(one, what) for one in (mine, theirs)]
        if adds[0] != adds[1]:
            own, other = ("is" if added else "is not" for added in adds)
            return f"a token for the {name} of a text {other} added to what it reads, and {own} to what the model reads"
        if adds[0] and tokens[0] != tokens[1]:
            return f"its token for the {name} of a text is {_token(tokens[1])}, the model's {_token(tokens[0])}"
    if abs(model.n_vocab - draft.n_vocab) > MOST_TOKENS_APART:
        return f"it has {draft.n_vocab:,} tokens, the model {model.n_vocab:,}, and {MOST_TOKENS_APART} may be between"
    for who, spec in (("it", draft), ("the model", model)):
        rows = next(
            (tensor.shape[1] for tensor in spec.tensors if tensor.name == _ROWS and len(tensor.shape) > 1), None
        )
        if rows not in (None, spec.n_vocab):
            return f"{who} has texts for {spec.n_vocab:,} tokens and values for {rows:,}, which the engine refuses"
    return None


def _vocabulary(spec: ModelSpec) -> _Vocabulary | None:
    meta = spec.metadata
    name = str(meta.get("tokenizer.ggml.model"))
    known = _TYPES.get(name)
    if known is None:
        return None
    pre = "gemma4" if name == "gemma4" else str(meta.get("tokenizer.ggml.pre", ""))
    bos = None if pre in _NO_BOS else known.bos
    return _Vocabulary(
        known.name,
        pre in _ALWAYS_BOS or _flag(meta, "add_bos_token", known.add_bos or pre in _ADD_BOS),
        _id(meta, "bos", bos, spec.n_vocab),
        _flag(meta, "add_eos_token", known.add_eos),
        _id(meta, "eos", known.eos, spec.n_vocab),
    )


def _flag(meta: Mapping[str, Value], key: str, default: bool) -> bool:
    value = meta.get(f"tokenizer.ggml.{key}")
    return value if isinstance(value, bool) else default


def _id(meta: Mapping[str, Value], what: str, default: int | None, n_vocab: int) -> int | None:
    """The token's number; one beyond the vocabulary is passed over, as the engine does."""
    value = meta.get(f"tokenizer.ggml.{what}_token_id")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < n_vocab:
        return value
    return default if default is None or default < n_vocab else None


def _token(number: int | None) -> str:
    return "none" if number is None else f"{number:,}"
