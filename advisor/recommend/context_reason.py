"""Why a context is as long as it is, and what a longer one would need."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.recommend.contexts import tightest
from advisor.recommend.recommendation import Note
from advisor.recommend.search import Ranked, Search
from advisor.recommend.words import cache_name, moved_text, on, tokens_text
from advisor.units import format_bytes


def context_reason(search: Search, best: Ranked, pool: Sequence[Ranked]) -> Note:
    """The note on the context of the best of `pool`, which nobody asked for and which is not all there is."""
    settings, rule = best.judged.plan.settings, f"policy.toml: intents.{search.intent.name}"
    device, need, usable = tightest(search, best.judged)
    spare = format_bytes(usable - need)
    other = _dealt_otherwise(search, best, pool)
    if other is not None:
        slower = round(100 * (1 - other.speed.decode_tokens_per_s.value / best.speed.decode_tokens_per_s.value))
        pace = f"{slower} % slower" if slower > 0 else "about as fast"
        text = (
            f"{tokens_text(settings)} is comfortable here; up to {tokens_text(other.judged.plan.settings)} fit with "
            f"{moved_text(best.judged, other.judged)}, {pace}: ask with -c."
        )
        return Note("context_comfortable", text, f"{rule}.comfortable_n_ctx")
    longer = search.evaluator.sketch(
        search.shared(search.open_split(best.judged.request)._replace(n_ctx=settings.n_ctx + 4 * search.step))
    )
    if longer.fits:
        text = f"{tokens_text(settings)} is comfortable here; more would fit ({spare} to spare), ask with -c."
        return Note("context_comfortable", text, f"{rule}.comfortable_n_ctx")
    text = f"{tokens_text(settings)} leaves {spare} to spare {on(device)}, beyond what must stay free."
    return Note("context_limit", text, rule)


def _dealt_otherwise(search: Search, best: Ranked, pool: Sequence[Ranked]) -> Ranked | None:
    """The longest of the same cache and micro-batch with all on the GPUs, where it takes layers off faster ones."""
    if not search.unequal:
        return None
    mine = best.judged.plan.settings
    whole = [
        one
        for one in pool
        if one.judged.plan.settings.n_gpu_layers == mine.n_gpu_layers > search.spec.n_layer_all
        and not one.judged.plan.host_expert_blocks
        and cache_name(one.judged) == cache_name(best.judged)
        and one.judged.plan.settings.n_ubatch == mine.n_ubatch
        and moved_text(best.judged, one.judged)
    ]
    longest = max(whole, key=lambda one: one.judged.plan.settings.n_ctx, default=None)
    return longest if longest is not None and longest.judged.plan.settings.n_ctx > mine.n_ctx else None
