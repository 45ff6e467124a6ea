"""The best candidates looked at once more, where there is something to look for."""

from collections.abc import Mapping

from advisor.recommend.search import Ranked, Search


def refined(
    search: Search, ranked: list[Ranked], kinds: Mapping[int, tuple[str, ...]] | None, known_cost: float = float("inf")
) -> list[Ranked]:
    """`ranked` with candidates that differ from its best in what the search does not try; `kinds`: of `expert_kinds`.

    What is not cheaper than `known_cost` is not looked for.

    Layers dealt otherwise to cards of different speeds, whatever is fast enough where nothing was yet, and parts of a
    step more on the GPUs.
    """
    if ranked and search.unequal and search.wishes.pinned.n_ctx is None:
        from advisor.recommend.lean import leaned

        ranked = search.rank([*(one.judged for one in ranked), *leaned(search, ranked, known_cost)])
    least = search.least_tokens_per_s
    if least and not (ranked and search.pace(ranked[0].speed) >= least):
        from advisor.recommend.fastest import fastest

        ranked = search.rank([*(one.judged for one in ranked), *fastest(search, least)])
    elif least and search.intent.least_tokens_per_s:
        from advisor.recommend.pace import at_the_pace

        more = at_the_pace(search, ranked[0])
        ranked = search.rank([*(one.judged for one in ranked), *more]) if more else ranked
    if ranked and kinds:
        from advisor.recommend.with_experts import with_their_experts

        more = with_their_experts(search, ranked[0].judged, min(ranked[0].cost, known_cost))
        ranked = search.rank([*(one.judged for one in ranked), *more]) if more else ranked
    if ranked and kinds is not None:
        from advisor.recommend.finer import last_looks

        more = last_looks(search, ranked, kinds, known_cost)
        ranked = search.rank([*(one.judged for one in ranked), *more]) if more else ranked
    return ranked
