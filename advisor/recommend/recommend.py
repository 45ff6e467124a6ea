"""From a model, a machine and wishes to a Recommendation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from advisor.recommend.cache_notes import offered_notes, pair_note, safety_notes
from advisor.recommend.contexts import context_table
from advisor.recommend.evaluate import Evaluator, Judged
from advisor.recommend.explain import alternatives, reasons, rejected, summarize
from advisor.recommend.policy import Intent, Policy
from advisor.recommend.recommendation import Fix, Note, Recommendation
from advisor.recommend.search import Found, Ranked, Search, Wishes
from advisor.recommend.solve import Border, on_devices, settle, sketch_border
from advisor.recommend.warn import warnings
from advisor.recommend.whole import verdict_of
from advisor.settings import RequestedSettings

if TYPE_CHECKING:
    from advisor.quants.rules import QuantRules


def recommend(
    evaluator: Evaluator, policy: Policy, intent: Intent, wishes: Wishes,
    quants: Callable[[], QuantRules] | None = None,
) -> Recommendation:  # fmt: skip
    """The best settings for the intent within the wishes; does_not_fit is an answer with the nearest thing tried."""
    search = Search(evaluator, policy, intent, wishes)
    return recommend_found(search, search.run(), quants)


def recommend_found(
    search: Search, found: Found, quants: Callable[[], QuantRules] | None = None, whole: Search | None = None
) -> Recommendation:
    """What a search found, explained.

    `quants` reads the rules of quantizations, to say what a smaller one would do; `whole`: a search over GPUs that the
    answer leaves out.
    """
    evaluator, policy, intent, wishes = search.evaluator, search.policy, search.intent, search.wishes
    fits = bool(found.pool)
    if fits:
        best = found.pool[0]
        best = best._replace(speed=evaluator.when_full(best.judged, best.speed))
    else:
        nearest = nearest_miss(search)
        best = Ranked(nearest, evaluator.when_full(nearest, evaluator.speed(nearest, intent)), float("inf"))
        found = Found((best,), found.floor_n_ctx, found.ceiling_n_ctx)
    verdict = verdict_of(best.judged, fits)
    contexts = context_table(search, best.judged)
    notes = warnings(
        evaluator.spec, evaluator.engine, wishes.pinned, best.judged.plan, evaluator.budget, best.speed, policy, intent
    )
    backends = [device.backend for device in evaluator.host.devices]
    notes += safety_notes(search.cache_rows, best.judged.plan, backends)
    notes += offered_notes(search.cache_rows, best.judged.plan, [row.cache_type for row in contexts.rows])
    notes += pair_note(evaluator, best.judged, wishes.pinned)
    if evaluator.beside is not None or best.judged.plan.settings.beside.mtp:
        from advisor.recommend.beside_notes import beside_notes

        notes = [*beside_notes(evaluator, best.judged), *notes]
    smaller = None
    wide = whole or search
    if quants is not None and verdict != "full" and (wide.evaluator.host.devices or not fits):
        from advisor.recommend.smaller import enough_alone, smaller_notes, smaller_quantizations

        smaller = smaller_quantizations(wide, best, fits, quants())
        notes = [*smaller_notes(wide, smaller, best), *notes]
    changes: list[Fix] = []
    if verdict != "full":
        from advisor.recommend.fixes import fixes

        changes = fixes(search, best.judged, verdict, contexts, enough_alone(smaller, fits) if smaller else ())
    if beyond_memory(evaluator, best):
        from advisor.recommend.overflow import overflow_notes

        notes = [*overflow_notes(evaluator, best.judged, best.speed, wishes.pinned), *notes]
    settings = best.judged.plan.settings
    per_slot = settings.n_ctx if settings.kv_unified else settings.n_ctx_seq
    if fits and wishes.min_n_ctx and per_slot < wishes.min_n_ctx:
        text = f"No context of {wishes.min_n_ctx:,} tokens, which you asked for, fits: this has {per_slot:,}."
        if per_slot >= evaluator.spec.n_ctx_train:
            text = f"{wishes.min_n_ctx:,} tokens, which you asked for, is more than the model's {per_slot:,}."
        notes.insert(0, Note("below_min_ctx", text))
    if fits and not search.fast_enough(best.speed):
        from advisor.recommend.fastest import too_slow

        notes.insert(0, too_slow(search, best))
        if quants is not None and evaluator.spec.answers:
            from advisor.recommend.fixes import quantization_fix
            from advisor.recommend.smaller import quick_enough

            quick = quick_enough(wide, best, quants())
            fix = quantization_fix(search, quick) if quick is not None else None
            changes = changes if fix is None or fix in changes else [fix, *changes]
    elif fits and search.pace(best.speed) < search.least_tokens_per_s:
        from advisor.recommend.pace import too_slow_for_intent

        notes.insert(0, too_slow_for_intent(search, best))
    return Recommendation(
        verdict=verdict,
        intent=intent.name,
        chosen=best.judged,
        speed=best.speed,
        budget=evaluator.budget,
        contexts=contexts,
        alternatives=tuple(alternatives(search, found, best)) if fits else (),
        rejected=tuple(rejected(search, best)) if fits else (),
        reasons=tuple(reasons(search, best, found.pool, contexts)) if fits else (),
        fixes=tuple(changes),
        warnings=tuple(notes),
        summary=summarize(evaluator.spec, best.judged, best.speed, verdict),
        n_judged=evaluator.n_judged,
        cost=best.cost,
    )


def beyond_memory(evaluator: Evaluator, best: Ranked) -> bool:
    """Whether anything is to be told of memory beyond the cards': only then is it worked out."""
    quiet = all(d.memory_kind == "dedicated" and d.backend != "vulkan" for d in evaluator.host.devices)
    return not quiet or evaluator.host.platform in ("windows", "wsl") or best.speed.bound_by == "disk"


def nearest_miss(search: Search) -> Judged:
    """When nothing fits: the candidate that comes closest, at the shortest acceptable context.

    What fits the GPUs and lacks only system memory comes first: it would run, reading from disk. Only what may come
    closest is planned exactly.
    """
    pinned = search.wishes.pinned
    n_ctx = pinned.n_ctx if pinned.n_ctx is not None else search.floor
    open_: list[tuple[tuple[bool, bool, int], int, Callable[[], Judged | None]]] = []  # at best so far off, order, how

    def settled(request: RequestedSettings) -> None:
        least = search.evaluator.least(request)
        open_.append((_off(least), len(open_), lambda: search.evaluator.judge(request)))

    for pair in search.cache_pairs() or [("f16", "f16")]:
        base = search.base._replace(n_ctx=n_ctx, cache_type_k=pair[0], cache_type_v=pair[1])
        if pinned.n_gpu_layers is not None or not search.evaluator.host.devices:
            settled(search.shared(base))
            continue
        borders: list[Border | None] = [_filled(search, base)]
        if search.spec.n_expert and pinned.n_cpu_moe is None and not pinned.cpu_moe:
            # layers whose experts stay in system memory, and as many experts beside all layers as fit
            borders += [
                _filled(search, base._replace(cpu_moe=True)),
                search.split(pair, base.n_ctx or search.floor, None),
            ]
        settled(base._replace(n_gpu_layers=0))
        for border in borders:
            if border is None:
                continue
            refused, _, _ = _off(border.judged)
            next_ = border.make(min(border.at + 1, border.high))  # should the sketch be wrong
            more = search.evaluator.least(border.judged.request if search.evaluator.far_over(next_) else next_)
            host = sum(short.over_bytes for short in more.shorts if short.device == "host")
            open_.append(((refused, False, host), len(open_), partial(settle, search.evaluator, border, on_devices)))
    best: tuple[tuple[bool, bool, int], int, Judged] | None = None
    for bound, number, settle_it in sorted(open_, key=lambda entry: entry[:2]):
        if best is not None and bound > best[0]:
            break
        judged = settle_it()
        if judged is not None and (best is None or (_off(judged), number) < best[:2]):
            best = (_off(judged), number, judged)
    assert best is not None  # nothing on the GPUs, and what was asked for, are candidates whatever they need
    return best[2]


def _off(judged: Judged) -> tuple[bool, bool, int]:
    """How far a candidate is from fitting."""
    refused = judged.plan.refused is not None
    return refused, not judged.fits_devices, sum(short.over_bytes for short in judged.shorts)


def _filled(search: Search, request: RequestedSettings) -> Border:
    """As many layers on the GPUs as fit there, whatever the host says."""
    return sketch_border(
        search.evaluator, lambda layers: search.shared(request._replace(n_gpu_layers=layers)),
        1, search.spec.n_layer_all + 1, on_devices,
    )  # fmt: skip
