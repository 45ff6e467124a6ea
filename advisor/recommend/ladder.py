"""The ladder of one answer: what a person would try, what it lacked where, what each concession bought.

Every rung is planned exactly as the search plans candidates; the last one is the answer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.host import Device
from advisor.recommend.evaluate import Judged
from advisor.recommend.rungs import (
    Figures,
    Place,
    Rung,
    context_of,
    dear,
    needed,
    outcome,
    places_of,
    rate_of,
    tightest_of,
    where,
    wish_of,
)
from advisor.recommend.said import Said, capital, say, sentence
from advisor.recommend.search import Search
from advisor.recommend.solve import everywhere, settle
from advisor.recommend.steps import Step
from advisor.recommend.wholes import everything_on_gpu
from advisor.recommend.words import cache_name, moves, on
from advisor.settings import RequestedSettings
from advisor.speed import Speed

Knob = tuple[str, tuple[str, ...]]
SearchOn = Callable[[tuple[Device, ...]], Search]
_SMALL_UBATCH = 256
_SAME = 1.005  # a turn that is longer by less is the same

# what the choice may differ in from the first wish, in the order in which a person gives it up
_KNOBS: tuple[Knob, ...] = (
    ("cache", ("cache_type_k", "cache_type_v")),
    ("context", ("n_ctx",)),
    ("experts", ("n_cpu_moe", "cpu_moe")),
    ("layers", ("n_gpu_layers",)),
    ("parts", ("tensor_overrides",)),
    ("micro_batch", ("n_ubatch", "n_batch")),
)


class Walk:
    """Makes the rungs of one answer. `search` has the cards that the answer takes; `search_on` searches on others."""

    def __init__(
        self, search: Search, chosen: Judged, all_devices: tuple[Device, ...], search_on: SearchOn,
        steps: Sequence[Step], quality: Callable[[str], Said | None],
    ) -> None:  # fmt: skip
        """`steps`: the next steps up from the choice; `quality`: what is published about the loss of a cache type."""
        self._search, self._chosen, self._all, self._search_on = search, chosen, all_devices, search_on
        self._steps, self._quality = steps, quality
        self._rungs: list[Rung] = []

    def rungs(self) -> tuple[Rung, ...]:
        """From the wish to the choice; where nothing had to be given up it is one."""
        search, target, wish = self._search, self._chosen.request, wish_of(self._search)
        knobs = self._knobs(wish)
        left_out = len(search.evaluator.host.devices) < len(self._all)
        if left_out:
            everywhere_on = self._search_on(self._all)
            self._wish(everywhere_on, everywhere_on.judge(wish_of(everywhere_on)))
        self._wish(search, search.judge(wish) if knobs else self._chosen, cards=left_out)
        if knobs and not self._taken().judged.fits and all(code != "cache" for code, _ in knobs):
            self._other_cache(wish)
        at, moved = wish, False
        for number, (code, names) in enumerate(knobs):
            if code in ("experts", "layers", "parts") and not moved:
                moved = True
                self._everything_on_gpu()
            last = number == len(knobs) - 1
            if last and self._taken().judged.fits is False and not left_out and len(self._all) > 1:
                self._fewer_cards()
            if last and not moved and code == "context":
                self._fewer_layers(wish)
                self._dealt_otherwise()
            if last and all(one != "micro_batch" for one, _ in knobs):
                self._smaller_batch(at, code)
            at = at._replace(**{name: getattr(target, name) for name in names})
            self._concede(code, self._chosen if last else search.judge(at))
        return tuple(self._rungs)

    def _knobs(self, wish: RequestedSettings) -> list[Knob]:
        """What the choice differs in from the wish, in the order of _KNOBS; a larger micro-batch once there is room."""
        target = self._chosen.request
        knobs: list[tuple[str, tuple[str, ...]]] = [
            (code, names) for code, names in _KNOBS if _differ(wish, target, names)
        ]
        if knobs and knobs[-1][0] == "micro_batch" and self._same_micro_batch(wish):
            knobs.pop()  # only what may wait to be read is another
        if not knobs or knobs[-1][0] != "micro_batch" or not self._larger(wish):
            return knobs
        at = wish
        for number, (_, names) in enumerate(knobs[:-1]):
            if self._search.judge(at).fits:
                return [*knobs[:number], knobs[-1], *knobs[number:-1]]
            at = at._replace(**{name: getattr(target, name) for name in names})
        return knobs

    def _same_micro_batch(self, wish: RequestedSettings) -> bool:
        return self._chosen.plan.settings.n_ubatch == self._search.judge(wish).plan.settings.n_ubatch

    def _larger(self, wish: RequestedSettings) -> bool:
        return self._chosen.plan.settings.n_ubatch > self._search.judge(wish).plan.settings.n_ubatch

    # -- on the way ------------------------------------------------------------------------------------------------

    def _taken(self) -> Rung:
        return next(rung for rung in reversed(self._rungs) if rung.taken)

    def _add(
        self, code: str, judged: Judged, *said: Said | None, taken: bool = False, search: Search | None = None
    ) -> None:
        search = search or self._search
        speed = search.evaluator.speed(judged, search.intent) if judged.fits else None
        told = sentence(*said)
        told = capital(told if taken else told._replace(text=f"or {told.text}"))
        self._rungs.append(Rung(code, taken, judged, places_of(search, judged), speed, told))

    def _wish(self, search: Search, judged: Judged, *, cards: bool = False) -> None:
        """All that a person would have; `cards`: now on the cards that the answer takes."""
        (layers, a), (context, b) = where(search, judged), context_of(judged)
        grows = any(layer.has_cache and layer.k_width for layer in search.spec.layers)
        text = f"{layers}, {context}" + (", {cache} cache" if grows else "")
        used = [device.id for device in search.evaluator.host.devices]
        left = " and ".join(device.id for device in self._all if device.id not in used)
        text = f"without {{left}}: {text}" if cards else text
        what = say(text, **a, **b, cache=cache_name(judged), left=left)
        need = needed(tightest_of(search, judged))
        self._add("cards" if cards else "wish", judged, what, need, outcome(search, judged), taken=True, search=search)

    def _concede(self, code: str, judged: Judged) -> None:
        published = self._quality(judged.plan.settings.cache_type_k) if code == "cache" else None
        self._add(code, judged, self._change(code, judged), published, outcome(self._search, judged), taken=True)

    def _change(self, code: str, judged: Judged) -> Said:
        """What was changed since the last rung that was taken, and what that does where memory was short."""
        before = self._taken()
        now, then, place = judged.plan.settings, before.judged.plan.settings, before.tightest
        effect, amounts = self._effect(place, judged)
        if code == "cache":
            return say(f"a {{cache}} cache instead of {{before}}: {effect}", cache=cache_name(judged),
                       before=cache_name(before.judged), **amounts)  # fmt: skip
        if code == "context":
            (new, a), (old, b) = context_of(judged), context_of(before.judged, "n_ctx_before")
            if before.judged.fits:  # given up for speed: faster cards get more layers
                turns = {"turn_s": judged, "before_turn_s": before.judged}
                seconds = {name: self._speed(one).turn_seconds.value for name, one in turns.items()}
                if seconds["before_turn_s"] <= seconds["turn_s"]:  # not for speed: the cache lies in RAM
                    return self._enough(f"{new} instead of {old.partition(' ')[0]}", {**a, **b}, judged)
                b |= seconds
                effect = "a turn takes {turn_s} instead of {before_turn_s}"
            return say(f"{new} instead of {old.partition(' ')[0]}: {effect}", **a, **b, **amounts)
        old_speed, new_speed = (self._speed(one) for one in (before.judged, judged))
        if code == "micro_batch":
            return say(
                f"a micro-batch of {{n_ubatch}} tokens instead of {{n_ubatch_before}}: {effect}, the prompt is read at "
                "{prefill_tokens_per_s} instead of {prefill_before_tokens_per_s}",
                n_ubatch=now.n_ubatch, n_ubatch_before=then.n_ubatch, **amounts,
                prefill_tokens_per_s=new_speed.prefill_tokens_per_s.value,
                prefill_before_tokens_per_s=old_speed.prefill_tokens_per_s.value,
            )  # fmt: skip
        layers, values = where(self._search, judged)
        return say(f"{layers}: {effect}; before it would be {{before_tokens_per_s}}", **values, **amounts,
                   before_tokens_per_s=rate_of(self._search, old_speed))  # fmt: skip

    def _enough(self, words: str, values: Figures, judged: Judged) -> Said:
        """A context that is no longer than need be, where a longer one would be no slower: what that leaves of RAM."""
        search = self._search
        host = next(place for place in self._taken().places if place.device == "host")
        effect, amounts = self._effect(host, judged)
        text = f"{words}: {{comfortable_n_ctx}} tokens are enough for {{intent}}; {effect}"
        enough = search.comfortable // search.slots
        return say(text, **values, **amounts, comfortable_n_ctx=enough, intent=search.intent.name)

    def _effect(self, place: Place, judged: Judged) -> tuple[str, Figures]:
        """What `judged` saves or takes at a place, as a template and its figures."""
        need = next((now.need_bytes for now in places_of(self._search, judged) if now.device == place.device), 0)
        saves = place.need_bytes - need
        if saves >= 0:
            return "saves {saves_bytes} {place}", {"saves_bytes": saves, "place": on(place.device)}
        return "takes {more_bytes} more {place}", {"more_bytes": -saves, "place": on(place.device)}

    def _speed(self, judged: Judged) -> Speed:
        return self._search.evaluator.speed(judged, self._search.intent)

    # -- beside the way --------------------------------------------------------------------------------------------

    def _not_taken(self, judged: Judged) -> Said | None:
        """Why something that fits is not the choice: a turn takes longer, or there is enough context, or its price."""
        search = self._search
        if not judged.fits:
            return None
        mine, its = self._speed(self._chosen).turn_seconds.value, self._speed(judged).turn_seconds.value
        if its > mine * _SAME:
            return say("a turn takes {turn_s}, with the choice {chosen_turn_s}", turn_s=its, chosen_turn_s=mine)
        least = search.least_tokens_per_s
        if search.pace(self._speed(judged)) < least <= search.pace(self._speed(self._chosen)):
            return say("below the {least_tokens} tokens/s asked for", least_tokens=least)
        enough = search.comfortable // search.slots
        n_ctx = self._chosen.plan.settings.n_ctx
        if judged.plan.settings.n_ctx > n_ctx >= search.comfortable:
            words = "{comfortable_n_ctx} tokens are enough for {intent}"
            return say(words, comfortable_n_ctx=enough, intent=search.intent.name)
        ratio = search.cost(judged) / search.cost(self._chosen)
        percent = round(100 * (ratio - 1))
        if percent < 1:
            return None
        if ratio >= 2:
            told = dear(ratio, search.intent.name)
            return told._replace(text=f"all in all {told.text}")
        return say("all in all {percent} % dearer for {intent}", percent=percent, intent=search.intent.name)

    def _other_cache(self, wish: RequestedSettings) -> None:
        """The next cache type, where the choice keeps the first."""
        pairs = self._search.cache_pairs()
        if len(pairs) < 2:
            return
        judged = self._search.judge(wish._replace(cache_type_k=pairs[1][0], cache_type_v=pairs[1][1]))
        if judged.plan.refused is None:
            self._add("cache", judged, self._change("cache", judged), self._quality(pairs[1][0]),
                      outcome(self._search, judged), self._not_taken(judged))  # fmt: skip

    def _everything_on_gpu(self) -> None:
        """Before anything goes to the CPU: the longest context with all on the GPUs, or what the shortest lacks."""
        search, settings = self._search, self._chosen.plan.settings
        if search.wishes.pinned.n_ctx is not None or not search.evaluator.host.devices:
            return
        pair = (settings.cache_type_k, settings.cache_type_v)
        judged = everything_on_gpu(search, pair)
        if judged is None:
            request = wish_of(search)._replace(cache_type_k=pair[0], cache_type_v=pair[1], n_ctx=search.floor)
            judged = search.judge(request)
        if judged.plan.refused is not None or judged.request == self._taken().judged.request:
            return
        (layers, a), (context, b) = where(search, judged), context_of(judged)
        how = "at most" if judged.fits else "even at the least context,"
        self._add("context", judged, say(f"{layers}: {how} {context}", **a, **b), outcome(search, judged),
                  self._not_taken(judged))  # fmt: skip

    def _fewer_layers(self, wish: RequestedSettings) -> None:
        """All of the context with a part on the CPU, where the choice rather has less context."""
        search, settings = self._search, self._chosen.plan.settings
        if not search.evaluator.host.devices or not wish.n_ctx or self._taken().judged.fits:
            return
        border = search.split((settings.cache_type_k, settings.cache_type_v), wish.n_ctx, None)
        judged = settle(search.evaluator, border, everywhere) if border is not None else None
        if judged is None:
            return
        (layers, a), (context, b) = where(search, judged), context_of(judged)
        self._add("layers", judged, say(f"{context} with {layers}", **a, **b), outcome(search, judged),
                  self._not_taken(judged))  # fmt: skip

    def _dealt_otherwise(self) -> None:
        """The longest context with everything on the GPUs, where the choice rather keeps more on the faster ones."""
        search, settings = self._search, self._chosen.plan.settings
        if not search.unequal or search.wishes.pinned.n_ctx is not None:
            return
        judged = everything_on_gpu(
            search, (settings.cache_type_k, settings.cache_type_v), self._chosen.request.n_ubatch
        )
        if judged is None or not judged.fits or judged.plan.settings.n_ctx <= settings.n_ctx:
            return
        context, values = context_of(judged)
        moved = moves(self._chosen, judged)
        if moved:
            counts = {f"n_more_{number}": more for number, (more, _) in enumerate(moved)}
            names = [f"{{n_more_{number}}} on {device}" for number, (_, device) in enumerate(moved)]
            context, values = f"{context} with more layers than the choice: {' and '.join(names)}", {**values, **counts}
        what = say(context, **values)
        self._add("context", judged, what, outcome(search, judged), self._not_taken(judged))

    def _smaller_batch(self, at: RequestedSettings, code: str) -> None:
        """What a smaller micro-batch would do instead of the last concession, `code`; `at`: what was tried before it.

        Instead of less context it is how much more of that it would hold beside the choice.
        """
        search, chosen, before = self._search, self._chosen, self._taken()
        settings, pinned = chosen.plan.settings, search.wishes.pinned
        if not chosen.fits or before.judged.fits or settings.n_ubatch <= _SMALL_UBATCH or pinned.n_ubatch is not None:
            return
        words = "a micro-batch of {n_ubatch} tokens instead of {n_ubatch_before}"
        counts: Figures = {"n_ubatch": _SMALL_UBATCH, "n_ubatch_before": settings.n_ubatch}
        if code != "context":
            smaller = search.judge(at._replace(n_ubatch=_SMALL_UBATCH))
            effect, amounts = self._effect(before.tightest, smaller)
            if smaller.plan.refused is None:
                what = say(f"{words}: {effect}", **counts, **amounts)
                self._add("micro_batch", smaller, what, outcome(search, smaller), self._not_taken(smaller))
            return
        request = search.open_split(chosen.request)._replace(n_ubatch=_SMALL_UBATCH)
        longest = search.longest(request, settings.n_ctx, search.ceiling)
        border = next((step for step in self._steps if step.code == "context"), None)
        if longest is None or border is None:
            return
        if longest.plan.settings.n_ctx >= border.judged.plan.settings.n_ctx:
            text, values = context_of(longest)
            what = say(f"{words}: at most {text}", **counts, **values)
            self._add("micro_batch", longest, what, outcome(search, longest), self._not_taken(longest))

    def _fewer_cards(self) -> None:
        """The best without the smallest card, where the choice takes all."""
        smallest = min(self._all, key=lambda device: device.free_bytes)
        others = tuple(device for device in self._all if device is not smallest)
        search = self._search_on(others)
        found = search.run().pool
        judged = found[0].judged if found else search.judge(wish_of(search)._replace(n_ctx=search.floor))
        if judged.plan.refused is not None:
            return
        (layers, a), (context, b) = where(search, judged), context_of(judged)
        what = say(f"without {{left}}: {layers}, {context}", **a, **b, left=smallest.id)
        turn = None
        if found:
            its, mine = found[0].speed.turn_seconds.value, self._speed(self._chosen).turn_seconds.value
            turn = say("a turn takes {turn_s}, with the choice {chosen_turn_s}", turn_s=its, chosen_turn_s=mine)
        self._add("cards", judged, what, outcome(search, judged), turn, search=search)


def _differ(one: RequestedSettings, other: RequestedSettings, names: tuple[str, ...]) -> bool:
    """Whether two requests differ in these settings; none of something is as good as nothing said."""
    return any((getattr(one, name) or None) != (getattr(other, name) or None) for name in names)
