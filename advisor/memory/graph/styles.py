"""What cannot be read off a model's tensors: how each architecture's builder of llama.cpp b11434 wires its blocks.

One line per architecture that differs from the plain pre-norm block with rotary positions, an RMS norm and residual
additions after attention and feed-forward. Source: src/models/<architecture>.cpp of llama.cpp b11434.
"""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """The wiring of one architecture. `window_period` etc. mirror the hard-coded sliding-window patterns."""

    family: str = "transformer"
    rope: bool = True
    layer_norm: bool = False  # LayerNorm (never in place) instead of RMS norm, when there is no bias to tell
    norm_by_key: bool = False  # RMS norm if the header has its epsilon, else LayerNorm
    rms_norm: bool = False  # RMS norm in spite of a bias
    scale_embedding: bool = False  # multiply the embeddings by a constant
    scale_tokens: bool = False  # multiply token rows by an input vector
    scale_q: bool = False
    l2_qk: bool = False  # weightless norm of queries and keys after the rotation
    norm_after_rope: bool = False
    flat_qk_norm: bool = False  # norms over the whole width, before the split into heads
    parallel: str = ""  # "", "cohere", "falcon", "phi2", "gptneox", "shared"
    late_rows: bool = False  # the output rows are picked after the last block, not inside it
    late_normed: bool = False  # ... and after the last norm, whose full result is an output too
    all_rows: bool = False  # no rows are picked
    bare_norms: bool = False  # norms without a weight are still computed
    shared_half: bool = False  # routed and shared experts are averaged
    value_scale: bool = False  # scale after attention if the header says so
    rope_layers_key: bool = False  # the header says which blocks rotate
    dense_parallel: bool = False  # arctic: dense part on the sum, experts on the block's input
    head_tied: bool = False  # the head is the token table itself, where it lies
    rows_after_post_norm: bool = False
    pinned_last: bool = False  # the last block's result is an output of the graph
    scale_residual: bool = False
    ffn_residual_first: bool = False
    residual_first_half: bool = False
    residual_first: bool = False  # residual + block instead of block + residual (matters for in-place reuse)
    scale_logits: bool = False
    softcap_logits: bool = False
    softcap_key: bool = False  # ... if the header has the key
    scale_last: bool = False  # scale between the last norm and the head
    no_rope_step: int = 0  # every n-th block has no rotation; -1 = window blocks only
    rope_blocks: int = 0  # rotation only in models of exactly this many blocks
    no_rope_first: bool = False  # counted from block 0 instead of block n-1
    attention_scale: str = ""  # "", "no_rope", "all": multiply queries by a per-token input
    mrope: bool = False
    mrope_key: bool = False  # ... if the header has sections
    dense_beside: bool = False  # grok: a dense part beside the experts
    moe_normed: bool = True  # expert weights are normalised
    moe_norm_key: bool = False  # ... if the header says so
    moe_gating: int = 1  # 1 softmax, 2 sigmoid, 3 softmax over the chosen; the header's value wins where it is read
    moe_gating_key: bool = False
    moe_sigmoid_choice: bool = False  # chosen by sigmoid, weighed by softmax
    moe_weight_first: bool = False
    moe_early_router: bool = False
    window_key: str = ""  # "", "optional", "required"
    window_period: int = 0
    window_dense_first: bool = False
    window_default: int = 0
    window_fixed: int = 0
    window_layers: int = 0  # windows only in models of exactly this many blocks
    no_cache: bool = False
    mixed: bool = True
    flash_never: bool = False


_BERT = Style("bert", no_cache=True, layer_norm=True)
_COHERE = Style(parallel="cohere", layer_norm=True, scale_logits=True)
_GRANITE = Style(scale_embedding=True, scale_residual=True, scale_logits=True)
_LFM2 = Style(
    "mamba", residual_first_half=True, window_key="optional", window_period=1, moe_gating=2, moe_gating_key=True
)
_NEMOTRON = Style("mamba", rope=False, late_rows=True, late_normed=True)
_QWEN35 = Style("delta", late_rows=True, late_normed=True)

STYLES: dict[str, Style] = {
    "afmoe": Style(
        scale_embedding=True, rows_after_post_norm=True, no_rope_step=4, moe_norm_key=True,
        moe_gating=2, moe_gating_key=True, window_key="optional", window_period=4,
    ),
    "arctic": Style(dense_parallel=True),
    "baichuan": Style(rope_blocks=32),
    "bailingmoe": Style(moe_norm_key=True),
    "bailingmoe2": Style(moe_norm_key=True, moe_gating_key=True),
    "bert": _BERT,
    "bitnet": Style(head_tied=True),
    "bloom": Style(rope=False),
    "chatglm": Style(),
    "codeshell": Style(),
    "cohere2": _COHERE._replace(no_rope_step=-1, window_key="required", window_period=4),
    "cogvlm": Style(mixed=False, all_rows=True),
    "cohere2moe": Style(
        parallel="cohere", scale_logits=True, late_rows=True, late_normed=True, shared_half=True, no_rope_step=-3,
        norm_by_key=True, moe_norm_key=True, moe_gating=2, moe_gating_key=True, window_key="required",
        window_period=4, window_dense_first=True,
    ),
    "command-r": _COHERE,
    "dbrx": Style(layer_norm=True),
    "deepseek": Style(moe_normed=False),
    "deepseek2": Style("mla", moe_norm_key=True, moe_gating_key=True),
    "deepseek32": Style("dsa", moe_norm_key=True, moe_gating_key=True),
    "deepseek2-ocr": Style(moe_norm_key=True, moe_gating_key=True),
    "dots1": Style(moe_norm_key=True, moe_gating_key=True),
    "dream": Style("diffusion", no_cache=True),
    "eurobert": Style("encoder", no_cache=True),
    "exaone-moe": Style(
        no_rope_step=-1, moe_norm_key=True, moe_gating_key=True, window_key="required", window_period=4,
    ),
    "exaone4": Style(
        norm_after_rope=False, window_key="optional", window_period=4, window_default=4096, window_layers=64,
        no_rope_step=-2,
    ),
    "falcon": Style(parallel="falcon"),
    "falcon-h1": Style("mamba", scale_logits=False),
    "gemma": Style(scale_embedding=True, scale_q=True),
    "gemma-embedding": Style(
        "encoder",        scale_tokens=True, scale_q=True, no_cache=True, window_key="required", window_period=6,
    ),
    "gemma2": Style(
        scale_embedding=True, scale_q=True, softcap_logits=True, window_key="required", window_period=2,
        window_default=4096,
    ),
    "gemma3": Style(scale_tokens=True, scale_q=True, softcap_logits=False, window_key="optional", window_period=6),
    "gemma3n": Style("gemma3n", scale_tokens=True, softcap_logits=True, window_key="required", window_period=5),
    "gemma4": Style("gemma4", scale_tokens=True, softcap_key=True, window_key="required"),
    "glm-dsa": Style("dsa", moe_norm_key=True, moe_gating=2, moe_gating_key=True),
    "glm4": Style(mrope_key=True),
    "glm4moe": Style(mrope_key=True, moe_norm_key=True, moe_gating=2, moe_gating_key=True),
    "gpt-oss": Style(
        late_rows=True, pinned_last=True, moe_normed=False, moe_gating=3, window_key="required", window_period=2,
    ),
    "gpt2": Style(rope=False),
    "gptneox": Style(parallel="gptneox"),
    "granite": _GRANITE,
    "granite_swa": _GRANITE._replace(window_key="required", rope_layers_key=True),
    "granitehybrid": Style("mamba", scale_embedding=True, scale_residual=True, scale_logits=True),
    "granitemoe": _GRANITE,
    "grok": Style(dense_beside=True, scale_logits=True, softcap_logits=True, scale_embedding=True, flash_never=True),
    "grovemoe": Style(moe_sigmoid_choice=True),
    "hunyuan-dense": Style(norm_after_rope=True),
    "hunyuan_vl": Style(norm_after_rope=True, mrope_key=True),
    "hunyuan-moe": Style(norm_after_rope=True),
    "hy_v3": Style(late_rows=True, late_normed=True, moe_norm_key=True, moe_gating=2, moe_gating_key=True),
    "jais": Style(rope=False),
    "jamba": Style("mamba", rope=False, moe_normed=False, residual_first=True),
    "jina-bert-v2": _BERT,
    "jina-bert-v3": _BERT,
    "kimi-linear": Style("kda", moe_gating_key=True),
    "laguna": Style(
        moe_norm_key=True, moe_gating=2, moe_gating_key=True, window_key="optional", window_period=4,
        window_dense_first=True,
    ),
    "lfm2": _LFM2,
    "lfm2moe": _LFM2,
    "llama4": Style(
        no_rope_step=4, attention_scale="no_rope", l2_qk=True, moe_normed=False, moe_gating=2, moe_weight_first=True,
        window_key="unless_zero", window_period=4, window_fixed=8192,
    ),
    "llada": Style("diffusion", no_cache=True),
    "llada-moe": Style("diffusion", no_cache=True),
    "llama-embed": Style("encoder", no_cache=True),
    "maincoder": Style(norm_after_rope=True),
    "mamba": Style("mamba"),
    "mamba2": Style("mamba"),
    "maple": Style(no_rope_step=-1, window_key="required"),
    "mellum": Style(window_key="optional", window_period=4),
    "mimo2": Style(value_scale=True, moe_gating=2, window_key="required"),
    "minicpm": Style(scale_embedding=True, scale_residual=True, scale_last=False, scale_logits=True),
    "minicpm3": Style("mla_full", scale_embedding=True, scale_residual=True, scale_last=True),
    "minimax-01": Style("lightning"),
    "mistral3": Style(attention_scale="key"),
    "minimax-m2": Style(flat_qk_norm=True, moe_gating_key=True),
    "mistral4": Style("mla", attention_scale="key", moe_norm_key=True, moe_gating_key=True),
    "modern-bert": Style(
        "encoder", no_cache=True, layer_norm=True, window_key="optional", window_period=3, window_dense_first=True
    ),
    "mpt": Style(rope=False, layer_norm=True),
    "nemotron_h": _NEMOTRON,
    "nemotron_h_moe": _NEMOTRON._replace(moe_gating=2, moe_gating_key=True, moe_norm_key=True),
    "neo-bert": Style("encoder", no_cache=True),
    "nomic-bert": _BERT,
    "nomic-bert-moe": _BERT._replace(moe_normed=False),
    "olmo": Style(layer_norm=True, bare_norms=True),
    "olmoe": Style(flat_qk_norm=True, moe_normed=False),
    "openelm": Style(residual_first_half=True),
    "olmo2": Style(flat_qk_norm=True, window_key="optional", window_period=4),
    "paddleocr": Style(mrope=True),
    "phi2": Style(parallel="phi2", scale_q=True),
    "phi3": Style(scale_q=True, ffn_residual_first=True),
    "phimoe": Style(scale_q=True, ffn_residual_first=True, rms_norm=True),
    "plamo": Style(parallel="falcon"),
    "plamo2": Style("mamba"),
    "plamo3": Style(window_key="optional", window_period=8),
    "plm": Style("mla_full"),
    "qwen2moe": Style(moe_normed=False),
    "qwen2vl": Style(mrope=True),
    "qwen35": _QWEN35._replace(mrope=True),
    "qwen35moe": _QWEN35._replace(mrope=True),
    "qwen3next": _QWEN35,
    "qwen3vl": Style(mrope=True),
    "qwen3vlmoe": Style(mrope=True),
    "refact": Style(rope=False),
    "rnd1": Style("diffusion", no_cache=True),
    "rwkv6": Style("rwkv"),
    "rwkv7": Style("rwkv"),
    "smallthinker": Style(
        no_rope_step=4, no_rope_first=True, moe_gating=2, moe_gating_key=True, moe_early_router=True,
        window_key="if_positive", window_period=4, window_dense_first=True, window_fixed=4096,
    ),
    "smollm3": Style(no_rope_step=4),
    "spark2_5": Style(window_key="required"),
    "stablelm": Style(parallel="shared"),
    "starcoder": Style(rope=False),
    "step35": Style(
        late_rows=True, pinned_last=True, moe_norm_key=True, moe_gating=2, moe_gating_key=True, window_key="required",
    ),
}  # fmt: skip

PLAIN = Style()


def style_of(arch: str) -> Style:
    """The wiring of `arch`; the plain block for an architecture without an entry."""
    return STYLES.get(arch, PLAIN)
