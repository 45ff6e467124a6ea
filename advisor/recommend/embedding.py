"""Models that give vectors or scores instead of text: a text is read at once, so a micro-batch must hold it.

Source: llama.cpp b11549 tools/server/server-context.cpp (can_split, "input is too large to process. increase the
physical batch size"), tools/server/server.cpp (with --embeddings n_batch is never above n_ubatch).
"""

from advisor.model.spec import POOLING_LAST, ModelSpec
from advisor.settings import RequestedSettings

_LEAST_BATCH = 512  # the engine's own default; smaller ones save next to nothing


def reads_at_once(spec: ModelSpec) -> bool:
    """Whether a text cannot be read in pieces: without a cache, or where the vector is of all its tokens."""
    kept = any(layer.has_cache or layer.recurrent_state for layer in spec.layers)
    return not spec.answers and not (kept and spec.causal and spec.pooling == POOLING_LAST)


def with_whole_texts(pinned: RequestedSettings, spec: ModelSpec, max_n_ctx: int | None = None) -> RequestedSettings:
    """`pinned` with a micro-batch, and a batch, for the longest text that the model will be given."""
    longest = longest_text(pinned, spec, max_n_ctx)
    if not longest or not reads_at_once(spec):
        return pinned
    n_ubatch = pinned.n_ubatch or max(longest, _LEAST_BATCH)
    return pinned._replace(n_ubatch=n_ubatch, n_batch=pinned.n_batch or n_ubatch)


def longest_text(pinned: RequestedSettings, spec: ModelSpec, max_n_ctx: int | None = None) -> int:
    """Tokens of the longest text: as asked for, else as trained; 0 = not known."""
    if pinned.n_ctx:
        return pinned.n_ctx // max(pinned.n_parallel or 1, 1)
    return min(spec.n_ctx_train, max_n_ctx or spec.n_ctx_train)
