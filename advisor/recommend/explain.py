"""Verdict, reasons, alternatives and rejected candidates: each sentence carries the number it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.spec import ModelSpec
from advisor.recommend.cache_safety import slow_row
from advisor.recommend.context_reason import context_reason
from advisor.recommend.contexts import ContextTable, need_at
from advisor.recommend.engine_fit import as_good
from advisor.recommend.evaluate import Judged
from advisor.recommend.recommendation import Alternative, Note, Rejected
from advisor.recommend.search import Found, Ranked, Search
from advisor.recommend.whole import step_from, verdict_of
from advisor.recommend.words import cache_name, gpus_text, layers_text, on, pace_text, tokens_text
from advisor.speed import Speed
from advisor.units import format_bytes


def summarize(spec: ModelSpec, judged: Judged, speed: Speed, verdict: str) -> str:
    """The one line that a person would repeat to a friend."""
    settings = judged.plan.settings
    pace = pace_text(speed)
    if verdict == "does_not_fit":
        short = judged.shorts[0] if judged.shorts else None
        if short is None:
            return f"The engine refuses these settings: {judged.plan.refused}."
        place = "system memory" if short.device == "host" else short.device
        return f"Does not fit: {format_bytes(short.over_bytes)} too much for {place} at {settings.n_ctx:,} tokens."
    if not spec.answers:
        pace = f"about {speed.prefill_tokens_per_s.value:,.0f} tokens/s"
        at_once = f"{settings.n_ctx:,} tokens at a time"
        if settings.n_parallel > 1 and not settings.kv_unified:
            at_once = f"{settings.n_parallel} slots of {settings.n_ctx_seq:,} tokens"
        return f"Embeds with {layers_text(spec, judged)}, {at_once}, {pace}."
    grows = any(layer.has_cache for layer in spec.layers)
    cache = f" ({cache_name(judged)} cache)" if grows else ""
    slots = f" in {settings.n_parallel} slots" if settings.n_parallel > 1 else ""
    if slots and not settings.kv_unified:
        context = f"{settings.n_parallel} slots of {settings.n_ctx_seq:,} tokens{cache}"
    else:
        context = f"{settings.n_ctx:,} tokens of context{slots}{cache}"
    return f"Runs with {layers_text(spec, judged)}, {context}, {pace}."


def reasons(
    search: Search, best: Ranked, pool: Sequence[Ranked] = (), contexts: ContextTable | None = None
) -> list[Note]:
    """Why this context, this cache, these layers, these slots.

    `pool`: what else fits; `contexts`: how much of it each cache type holds.
    """
    spec, settings = search.spec, best.judged.plan.settings
    notes = []
    pinned = search.wishes.pinned
    if pinned.n_ctx is not None:
        more = 0 < pinned.n_ctx < settings.n_ctx  # the engine rounds up
        asked = f"for the {pinned.n_ctx:,} that you asked for" if more else "as you asked"
        notes.append(Note("context_pinned", f"{tokens_text(settings)} {asked}."))
    elif settings.n_ctx >= search.ceiling:
        most = search.wishes.max_n_ctx
        if most and most < spec.n_ctx_train:
            notes.append(Note("context_max", f"{tokens_text(settings)}: you asked for no more than {most:,}."))
        else:
            notes.append(Note("context_trained", f"{tokens_text(settings)} is all that the model was trained for."))
    else:
        notes.append(context_reason(search, best, pool))
    notes.append(_cache_reason(search, best, contexts))
    if best.judged.plan.devices and settings.n_gpu_layers:
        notes.append(
            Note("layers", f"{layers_text(spec, best.judged)[0].upper()}{layers_text(spec, best.judged)[1:]}.")
        )
    if search.slots == 1 and pinned.n_parallel is None and search.evaluator.engine.program == "llama-server":
        default = search.evaluator.engine.defaults["server_n_parallel"]
        notes.append(
            Note(
                "one_slot",
                f"One slot: the server's default of {default} slots shares the context between them.",
                "llama_cpp.toml: defaults.server_n_parallel",
            )
        )
    for limit, planned in zip(search.evaluator.budget.devices, best.judged.plan.devices, strict=True):
        if planned.planned_bytes:
            notes.append(
                Note(
                    "margin",
                    f"{format_bytes(limit.margin_bytes)} of {limit.id} stays free beyond the plan.",
                    "policy.toml: margins",
                )
            )
            break
    alone = search.evaluator.beside is None and not settings.beside.mtp  # fit knows nothing of what is loaded beside
    n_ctx = as_good(search, best.judged) if alone and verdict_of(best.judged, True) == "full" else None
    if n_ctx is not None:
        notes.append(_left_to_fit(best.judged, n_ctx))
    return notes


def _left_to_fit(chosen: Judged, n_ctx: int) -> Note:
    """That fit does as well; where it comes to more context, why advisor stays below."""
    settings, where = chosen.plan.settings, gpus_text(chosen)
    text = f"Leaving it to the engine, as --mode safe does, is as good: its own fit keeps everything on {where}"
    text += f" with {tokens_text(settings, n_ctx)}"
    doubt = sum(device.compute.high - device.compute.value for device in chosen.plan.devices)
    if n_ctx > settings.n_ctx and doubt:
        text += f"; here there are fewer because compute buffers may take {format_bytes(doubt)} more than is expected"
    return Note("engine_fit_as_good", f"{text}.", "llama.cpp: common/fit.cpp")


def _cache_reason(search: Search, best: Ranked, contexts: ContextTable | None) -> Note:
    settings = best.judged.plan.settings
    name = cache_name(best.judged)
    pinned = search.wishes.pinned
    if pinned.cache_type_k or pinned.cache_type_v:
        return Note("cache_pinned", f"{name} cache as you asked.")
    if not any(layer.has_cache for layer in search.spec.layers):
        return Note("no_cache", "This architecture keeps no KV cache that grows with the context.")
    if settings.cache_type_k == "f16":
        return Note(
            "cache_f16", _why_f16(search, best, contexts), f"policy.toml: intents.{search.intent.name}.cache_types"
        )
    twin = search.judge(step_from(search, best.judged)._replace(cache_type_k="f16", cache_type_v="f16"))
    if twin.shorts:
        over, place = twin.shorts[0].over_bytes, twin.shorts[0].device
        text = f"{name} cache is near lossless; f16 would need {format_bytes(over)} more {on(place)}."
    else:
        text = f"{name} cache is near lossless and leaves room."
    return Note("cache_quantized", text, "policy.toml: cache_factor")


def _why_f16(search: Search, best: Ranked, contexts: ContextTable | None) -> str:
    """Why nothing smaller than f16: the context needs none, or the next type's kernels are slow, or its loss."""
    settings, pinned = best.judged.plan.settings, search.wishes.pinned
    rows = contexts.rows if contexts is not None and pinned.n_ctx is None and settings.n_ctx < search.ceiling else ()
    smaller = (row for row in rows if row.cache_type not in ("f16", "f32", "bf16"))
    mine = next((row.max_n_ctx for row in rows if row.cache_type == "f16"), None)
    least = max(settings.n_ctx // search.slots, mine or 0)
    longer = next((row for row in smaller if (row.max_n_ctx or 0) > least), None)
    if longer is None or longer.max_n_ctx is None:
        return "f16 cache: nothing is lost, and the context does not need a smaller one."
    n_ctx = min(longer.max_n_ctx * search.slots, search.ceiling)
    more = f"{longer.cache_type} would hold {tokens_text(settings, n_ctx)}"
    slow = slow_row(search.cache_rows, longer.cache_type)
    if slow is not None:
        return f"f16 cache: {more}, but is about {slow.factor:g} times slower: {slow.text}."
    if settings.n_ctx >= search.comfortable:
        return f"f16 cache: nothing is lost, and the context is comfortable; {more}."
    return f"f16 cache: nothing is lost; {more}."


def alternatives(search: Search, found: Found, best: Ranked) -> list[Alternative]:
    """The longest context, the fastest turn and the best cache, where they differ noticeably from the choice.

    It is called the longest only where it is as long as may be chosen: who puts less on the GPUs has longer ones.
    """
    gain = 1.0 + float(search.policy.search["alternative_gain"])
    chosen = best.judged.plan.settings
    picked: list[Alternative] = []

    def offer(label: str, other: Ranked, why: str) -> None:
        if other.judged is not best.judged and all(entry.judged is not other.judged for entry in picked):
            picked.append(Alternative(label, other.judged, other.speed, why))

    longest = max(found.pool, key=lambda r: (r.judged.plan.settings.n_ctx, -r.cost))
    if longest.judged.plan.settings.n_ctx > chosen.n_ctx * gain:
        longest = _to_the_end(search, longest)
        label = "longest context" if longest.judged.plan.settings.n_ctx >= search.ceiling else "longer context"
        layers = layers_text(search.spec, longest.judged)
        elsewhere = "" if layers == layers_text(search.spec, best.judged) else f"{layers}, "
        offer(label, longest, elsewhere + _trade(search, longest, best))
    fastest = min(found.pool, key=lambda r: (r.speed.turn_seconds.value, r.cost))
    if fastest.speed.decode_tokens_per_s.value > best.speed.decode_tokens_per_s.value * gain:
        offer("fastest", fastest, _trade(search, fastest, best))
    if chosen.cache_type_k != "f16":
        lossless = [r for r in found.pool if r.judged.plan.settings.cache_type_k == "f16"]
        if lossless:
            offer("f16 cache", lossless[0], _trade(search, lossless[0], best))
    return picked


def _to_the_end(search: Search, longest: Ranked) -> Ranked:
    """With the longest context that may be chosen where that is hardly more and fits."""
    request, n_ctx = longest.judged.request, longest.judged.plan.settings.n_ctx
    if search.wishes.pinned.n_ctx is not None or not n_ctx < search.ceiling <= n_ctx + n_ctx // 16:
        return longest
    judged = search.judge(search.open_split(request)._replace(n_ctx=search.ceiling))
    return search.rank([judged])[0] if judged.fits else longest


def _trade(search: Search, other: Ranked, best: Ranked) -> str:
    rate, base = other.speed.decode_tokens_per_s.value, best.speed.decode_tokens_per_s.value
    change = (rate / base - 1) * 100
    pace = "the same speed" if abs(change) < 3 else f"{abs(change):.0f} % {'faster' if change > 0 else 'slower'}"
    turn = (other.speed.turn_seconds.value / best.speed.turn_seconds.value - 1) * 100
    if abs(change) < 3 <= abs(turn):  # which reads prompts, too
        pace = f"writes at the same speed, a turn takes {abs(turn):.0f} % {'longer' if turn > 0 else 'less'}"
    if other.speed.at_depth != best.speed.at_depth:
        pace += f" with {other.speed.at_depth:,} instead of {best.speed.at_depth:,} tokens in it"
    if search.fast_enough(best.speed) and not search.fast_enough(other.speed):
        pace += f", below the {search.wishes.min_tokens_per_s:g} tokens/s you asked for"
    return f"{tokens_text(other.judged.plan.settings)} with {cache_name(other.judged)} cache, {pace}."


def rejected(search: Search, best: Ranked) -> list[Rejected]:
    """The next step up in each direction, and by how much it failed."""
    request, settings = step_from(search, best.judged), best.judged.plan.settings
    every = search.spec.n_layer_all + 1
    steps = []
    if search.wishes.pinned.n_ctx is None:
        longer = next(
            (n * search.slots for n in search.policy.search["table_n_ctx"] if n * search.slots > settings.n_ctx), 0
        )
        if 0 < longer <= search.ceiling:
            steps.append(("longer_context", tokens_text(settings, longer), request._replace(n_ctx=longer)))
    if settings.cache_type_k != "f16" and not search.wishes.pinned.cache_type_k:
        steps.append(("f16_cache", "an f16 cache", request._replace(cache_type_k="f16", cache_type_v="f16")))
    if request.tensor_overrides and not search.wishes.pinned.tensor_overrides:
        whole = request._replace(tensor_overrides=())
        steps.append(("more_experts", "the rest of the experts that are on the GPU in part", whole))
    elif settings.n_cpu_moe and search.wishes.pinned.n_cpu_moe is None:
        steps.append(
            (
                "more_experts",
                "the experts of one more block on the GPU",
                request._replace(n_cpu_moe=settings.n_cpu_moe - 1),
            )
        )
    elif 0 < settings.n_gpu_layers < every and search.wishes.pinned.n_gpu_layers is None:
        steps.append(
            ("more_layers", "one more layer on the GPU", request._replace(n_gpu_layers=settings.n_gpu_layers + 1))
        )
    out = []
    for code, words, step in steps:
        judged = search.judge(step)
        if not judged.shorts:
            continue
        short = judged.shorts[0]
        need_text, over_text = format_bytes(need_at(search, judged, short.device)), format_bytes(short.over_bytes)
        text = f"{words[0].upper()}{words[1:]} needs {need_text} {on(short.device)}, {over_text} too much."
        out.append(Rejected(judged, code, short.device, short.over_bytes, text))
    return out
