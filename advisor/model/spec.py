"""What a model is, as far as memory and speed go: one LayerSpec per block, one ModelSpec per file."""

from collections.abc import Mapping

from advisor.gguf_header.types import Value
from advisor.model.style import Style
from advisor.records import NamedTuple

POOLING_LAST, POOLING_RANK = 3, 4  # of llama_pooling_type


class WeightTensor(NamedTuple):
    """One tensor of the file with the place the engine gives it.

    `place`: "input" (always host), "block" (device of block `block`), "first" (device of block 0), "output"
    (device of the output), "rope" (one copy per buffer type that has blocks), "skipped" (never loaded).
    """

    name: str
    shape: tuple[int, ...]  # ne0 first
    ggml_type: int
    n_bytes: int
    place: str
    block: int
    offset: int  # within the data of its shard
    shard: int


class LayerSpec(NamedTuple):
    """One block. Widths are elements per token; 0 where the block has no such thing."""

    il: int  # number of the block, from 0
    n_head: int
    n_head_kv: int
    head_size_k: int
    head_size_v: int
    attention: str  # "full" | "window" | "latent" | "none"; "none" = no attention in this block
    has_cache: bool  # owns cache tensors (of zero width without key heads); False: shares another block's, or none
    n_window: int  # tokens of the window (0 = full)
    recurrent_conv: int  # f32 values of convolution state per sequence (r)
    recurrent_state: int  # f32 values of recurrent state per sequence (s)
    indexer_head_size: int  # sparse-attention indexer keys, 0 = none
    n_ff: int  # dense feed-forward width, 0 = none
    ff_gated: bool
    n_ff_expert: int  # width of one routed expert, 0 = dense block
    n_expert_used: int
    n_ff_shared: int  # width of the shared expert

    @property
    def k_width(self) -> int:
        """Elements of one token's keys in this block's cache."""
        return self.head_size_k * self.n_head_kv

    @property
    def v_width(self) -> int:
        """Elements of one token's values; 0 for a latent cache, which keeps keys only."""
        return 0 if self.attention == "latent" else self.head_size_v * self.n_head_kv


class ModelSpec(NamedTuple):
    """A language model as the engine would load it."""

    path: str
    name: str
    architecture: str
    family: str  # rule family: "attention" | "window" | "latent" | "recurrent" | "hybrid" | "encoder" ...
    confidence: str  # "verified" (the architecture has a rule file) | "assumed" (plain attention assumed)
    quantization: str  # what the file calls itself, "Q4_K_M"; from general.file_type, else the commonest type
    n_layer_all: int  # block_count, MTP blocks included: what -ngl counts, without the output
    n_layer: int  # blocks that run: block_count - nextn_predict_layers
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: int
    layers: tuple[LayerSpec, ...]  # n_layer entries
    tensors: tuple[WeightTensor, ...]
    tied_output: bool  # no output.weight: the engine makes a second copy of token_embd on the output's device
    tied_output_on_host: bool  # that copy is made even when the output is on the host
    rope_factors_in_full_blocks: bool  # blocks with a window have no copy of the rotation's factors
    has_logits: bool  # False: an encoder without a language-model head
    causal: bool
    flash_attn_forced_off: bool
    rollback_state: bool  # speculative decoding multiplies the recurrent state
    window_pattern: str  # "" | "sliding" | "chunked" | "symmetric"
    style: Style
    graph_modelled: bool  # False: parts of the compute graph are not known
    file_bytes: int
    parameters: int
    arch_rule: str  # "arch/llama.toml", or "" when assumed
    notes: tuple[str, ...]  # oddities worth telling
    metadata: Mapping[str, Value]  # the header's own
    mtp_layers: tuple[LayerSpec, ...] = ()  # the NextN blocks behind the others, when they are loaded

    @property
    def pooling(self) -> int:
        """How the states of a text become one vector (llama.h, llama_pooling_type); 0 = they do not."""
        value = self.metadata.get(f"{self.architecture}.pooling_type")
        return value if isinstance(value, int) and 0 <= value <= POOLING_RANK else 0

    @property
    def answers(self) -> bool:
        """Whether it writes text; others give vectors or scores."""
        return self.has_logits and self.family != "encoder" and not self.pooling
