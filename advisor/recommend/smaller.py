"""What a smaller quantization of the same model would do on the same machine, at the same context."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from advisor.errors import RuleError
from advisor.excerpts import excerpt
from advisor.model.spec import ModelSpec
from advisor.recommend.cards import by_number
from advisor.recommend.evaluate import Judged
from advisor.recommend.recommendation import Note
from advisor.recommend.search import Ranked, Search, Wishes
from advisor.recommend.words import layers_text, pace_of, use_rate
from advisor.records import NamedTuple
from advisor.speed import Speed
from advisor.units import format_bytes

if TYPE_CHECKING:
    from advisor.quants.rules import QuantRules

_MUCH_FASTER = 2.0
_LEAST_ROOM = 1 << 30  # with less for the weights the backend and buffers take more than a typical share
_LEAST_RAM = 512 << 20  # what lies beside the GPUs in system memory: the table of tokens, buffers


class Smaller(NamedTuple):
    """One quantization, where it would lie and how fast it would be."""

    name: str
    weights_bytes: int
    bits_per_weight: float
    spec: ModelSpec
    judged: Judged
    speed: Speed
    full: bool  # everything on the GPUs

    @property
    def text(self) -> str:
        """Its name, size and bits in words."""
        return f"{self.name} ({format_bytes(self.weights_bytes)}, {self.bits_per_weight:.1f} bits a weight)"


class Found(NamedTuple):
    """The largest quantizations that would do something better, where there are any."""

    fits: Smaller | None  # at all, where the file at hand does not
    much_faster: Smaller | None  # more than twice as fast
    full: Smaller | None  # everything on the GPUs


class Ladder:
    """The smaller quantizations of a model, the largest first; each is planned when it is looked at."""

    def __init__(self, search: Search, best: Ranked, rules: "QuantRules") -> None:
        from advisor.quants.choose import Chooser, Impossible

        self._search, self._best, self._rules = search, best, rules
        self._tried: dict[str, Smaller] = {}
        spec = search.spec
        chooser = Chooser(spec, rules)
        now = sum(tensor.n_bytes for tensor in spec.tensors)
        sizes = []
        for name in search.policy.search["smaller_quantizations"]:
            if name not in rules.quantizations:
                what = f"search.smaller_quantizations names '{excerpt(name)}', which quants.toml does not have"
                raise RuleError(f"policy.toml: {what}; take it out.")
            size = chooser.total_bytes(name, imatrix=True)
            if not isinstance(size, Impossible) and size < now:
                sizes.append((-size, name))
        self.names = [name for _, name in sorted(sizes)]

    def look(self, name: str) -> Smaller:
        """The model as `name` with the context, the cache and the batch of the best answer.

        On the CPU alone only where neither the answer nor anything on the GPUs fits.
        """
        known = self._tried.get(name)
        if known is None:
            known = self._tried[name] = self._plan(name)
        return known

    def _plan(self, name: str) -> Smaller:
        from advisor.quants.requantize import requantized, weights_bytes

        old, settings = self._search, self._best.judged.plan.settings
        spec = requantized(old.spec, name, self._rules, imatrix=True)
        kept = old.wishes.pinned._replace(cache_type_k=settings.cache_type_k, cache_type_v=settings.cache_type_v)
        search = Search(old.evaluator.of(spec), old.policy, old.intent, Wishes(kept))
        pair = (settings.cache_type_k, settings.cache_type_v)
        base = search.base._replace(n_ctx=settings.n_ctx)
        devices = bool(search.evaluator.host.devices)
        asked = kept.n_gpu_layers
        judged = search.judge(base._replace(n_gpu_layers=(spec.n_layer_all + 1 if asked is None else asked) * devices))
        full = judged.fits and devices and (asked is None or not 0 <= asked <= spec.n_layer_all)
        if not judged.fits and devices and asked is None:
            border = search.split(pair, settings.n_ctx, self._best.judged.request.n_ubatch)
            judged = border.judged if border is not None else search.judge(base._replace(n_gpu_layers=0))
            if not (judged.fits or self._best.judged.fits or by_number(kept)):
                alone = Search(old.evaluator.of(spec, alone=True), old.policy, old.intent, Wishes(kept))
                without = alone.judge(alone.base._replace(n_ctx=settings.n_ctx, n_gpu_layers=0))
                search, judged = (alone, without) if without.fits else (search, judged)
        size = weights_bytes(spec)
        speed = search.evaluator.speed(judged, old.intent)
        return Smaller(name, size, 8 * size / max(spec.parameters, 1), spec, judged, speed, full)

    def first(self, good: Callable[[Smaller], bool]) -> Smaller | None:
        """The largest that is good; `good` must stay so for all smaller ones."""
        low, high = 0, len(self.names)
        if not self.names or not good(self.look(self.names[-1])):
            return None
        while low < high:
            middle = (low + high) // 2
            if good(self.look(self.names[middle])):
                high = middle
            else:
                low = middle + 1
        return self.look(self.names[low])


def smaller_quantizations(search: Search, best: Ranked, fits: bool, rules: "QuantRules") -> Found:
    """Where a smaller quantization of the model would help; `best` is the answer so far, which fits or does not."""
    ladder = Ladder(search, best, rules)
    at_all = None if fits else ladder.first(lambda tried: tried.judged.fits)
    rate = use_rate(search.spec, best.speed)
    if not fits and at_all is None:
        return Found(None, None, None)
    quick = ladder.first(lambda tried: tried.judged.fits and use_rate(tried.spec, tried.speed) > _MUCH_FASTER * rate)
    return Found(at_all, quick, ladder.first(lambda tried: tried.full))


def quick_enough(search: Search, best: Ranked, rules: "QuantRules") -> Smaller | None:
    """The largest quantization that is as fast as the user wishes, with the context of the best answer."""
    ladder = Ladder(search, best, rules)
    return ladder.first(lambda tried: tried.judged.fits and search.fast_enough(tried.speed))


def enough_alone(found: Found, fits: bool) -> tuple[Smaller, ...]:
    """Those that alone give what is lacking, the largest first: to fit at all, or everything on the GPUs."""
    first = found.fits if not fits else None
    return tuple({one.name: one for one in (first, found.full) if one is not None}.values())


def smaller_notes(search: Search, found: Found, best: Ranked) -> list[Note]:
    """Sentences for what was found: what would fit at all, what would be more than twice as fast."""
    notes = []
    least_bits = search.policy.warnings["much_loss_below_bits"]
    if found.fits is None and not best.judged.fits:
        notes.append(_other_models(search))
    if found.fits is not None:
        text = f"As {found.fits.text} it would fit: {_where(found.fits)}."
        notes.append(Note("smaller_quantization_fits", text + _quality(found.fits, least_bits)))
    rate = use_rate(search.spec, best.speed)
    said = {found.fits.name} if found.fits is not None else set()
    for one in (found.much_faster, found.full):
        if one is None or one.name in said or use_rate(one.spec, one.speed) <= _MUCH_FASTER * rate:
            continue
        said.add(one.name)
        times = use_rate(one.spec, one.speed) / rate
        faster = f", {times:,.0f} times as fast" if best.judged.fits else ""
        text = f"As {one.text}: {_where(one)}{faster}."
        notes.append(Note("smaller_quantization_faster", text + _quality(one, least_bits)))
    return notes


def _other_models(search: Search) -> Note:
    """What size of model this machine does run, since no quantization of this one fits."""
    evaluator, policy = search.evaluator, search.policy.search
    share, bits = policy["typical_weights_share"], policy["typical_bits_per_weight"]
    choices = []
    limits = evaluator.budget.devices
    room = [share * limit.usable_bytes for limit in limits]
    if sum(room) > _LEAST_ROOM and evaluator.budget.ram_usable_bytes > _LEAST_RAM:
        seconds = sum(n / device.read_bytes_per_s for n, device in zip(room, evaluator.constants.devices, strict=True))
        where = "on the GPU" if len(limits) == 1 else "on the GPUs"
        choices.append(f"{_billions(sum(room), bits)} {where} ({pace_of(1 / seconds)})")
    if not any(limit.unified for limit in limits):
        n_bytes = share * evaluator.budget.ram_usable_bytes
        if n_bytes > _LEAST_ROOM:
            pace = pace_of(evaluator.constants.host.read_bytes_per_s / n_bytes)
            choices.append(f"{_billions(n_bytes, bits)} in system memory ({pace})")
    text = "No smaller quantization of it fits either."
    if choices:
        text += f" As Q4_K_M this machine runs dense models of up to {' or '.join(choices)}."
    return Note("no_quantization_fits", text, "policy.toml: search.typical_weights_share")


def _billions(n_bytes: float, bits: float) -> str:
    count = 8 * n_bytes / bits / 1e9
    return f"{count:.0f} billion parameters" if count >= 10 else f"{count:.1f} billion parameters"


def _where(found: Smaller) -> str:
    return f"{layers_text(found.spec, found.judged)}, {pace_of(use_rate(found.spec, found.speed))}"


def _quality(found: Smaller, least_bits: float) -> str:
    if found.bits_per_weight >= least_bits:
        return ""
    return f" Below {least_bits:g} bits a weight much quality is lost."
