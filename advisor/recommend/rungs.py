"""What the walk up the ladder is told with: places, rungs, and the phrases that several sentences share."""

from collections.abc import Iterable

from advisor.recommend.budget import shared_bytes
from advisor.recommend.evaluate import Judged
from advisor.recommend.said import Said, say
from advisor.recommend.search import Search
from advisor.recommend.words import experts_away, n_gpus_used, on, reads_on_gpu, use_rate
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.speed import Speed

Figures = dict[str, float | str]


class Place(NamedTuple):
    """A GPU or "host": bytes planned there, and how many may be used; unified memory is counted on the host too."""

    device: str
    need_bytes: int
    usable_bytes: int
    below_margin_bytes: int = 0  # what is lacking of that which must stay free, before anything is planned

    @property
    def over_bytes(self) -> int:
        """How much too much it is; negative is to spare."""
        return self.need_bytes - self.usable_bytes + self.below_margin_bytes


class Rung(NamedTuple):
    """One setting that was tried. `taken`: it lies on the way to the choice; of what does not fit no speed is told."""

    code: str  # "wish" | "cards" | a knob
    taken: bool
    judged: Judged
    places: tuple[Place, ...]
    speed: Speed | None
    said: Said

    @property
    def tightest(self) -> Place:
        """The place with the least to spare."""
        return max(self.places, key=lambda place: (place.over_bytes, place.need_bytes))


def places_of(search: Search, judged: Judged) -> tuple[Place, ...]:
    """Every GPU that is used, and system memory."""
    budget = search.evaluator.budget
    found = [
        Place(plan.id, plan.planned_bytes, limit.usable_bytes, limit.below_margin_bytes)
        for plan, limit in zip(judged.plan.devices, budget.devices, strict=True)
        if plan.planned_bytes
    ]
    need = judged.plan.host.planned_bytes + shared_bytes(judged.plan, budget)
    return (*found, Place("host", need, budget.ram_usable_bytes, budget.ram_below_margin_bytes))


def rate_of(search: Search, speed: Speed) -> float:
    """Tokens/s as the model is used: answering, or reading where it only embeds."""
    return use_rate(search.spec, speed)


def where(search: Search, judged: Judged) -> tuple[str, Figures]:
    """Where layers and experts lie, as a template and its figures."""
    settings, every = judged.plan.settings, search.spec.n_layer_all + 1
    n_devices = n_gpus_used(judged)
    if not n_devices or settings.n_gpu_layers == 0:
        reading = reads_on_gpu(search.spec, judged)
        return reading.replace(f"{n_devices} GPUs", "{n_gpus} GPUs") or "everything on the CPU", {"n_gpus": n_devices}
    gpus = "the GPU" if n_devices == 1 else "{n_gpus} GPUs"
    values: Figures = {"n_layers": every}
    if n_devices > 1:
        values["n_gpus"] = n_devices
    text = f"all {{n_layers}} layers on {gpus}"
    if settings.n_gpu_layers < every:
        text, values = (
            f"{{n_gpu_layers}} of {{n_layers}} layers on {gpus}",
            {**values, "n_gpu_layers": settings.n_gpu_layers},
        )
    n_whole, n_in_part = experts_away(search.spec, judged)
    if n_whole:
        text += ", the experts of {n_cpu_moe} block" + ("s" if n_whole > 1 else "")
        values["n_cpu_moe"] = n_whole
    if n_in_part:
        some = ", some experts of {n_blocks_in_part} block" + ("s" if n_in_part > 1 else "")
        text += " and some of {n_blocks_in_part} more" if n_whole else some
        values["n_blocks_in_part"] = n_in_part
    return text + (" on the CPU" if n_whole or n_in_part else ""), values


def context_of(judged: Judged, name: str = "n_ctx") -> tuple[str, Figures]:
    """The context of one slot, as a template and its figures."""
    settings = judged.plan.settings
    if settings.n_parallel > 1 and not settings.kv_unified:
        return f"{{{name}}} tokens a slot", {name: settings.n_ctx // settings.n_parallel}
    return f"{{{name}}} tokens", {name: settings.n_ctx}


def wish_of(search: Search) -> RequestedSettings:
    """What a person would have first: everything on the GPUs, all of the context, nothing lost in the cache."""
    pinned = search.wishes.pinned
    pair = (search.cache_pairs() or [("f16", "f16")])[0]
    request = search.base._replace(cache_type_k=pair[0], cache_type_v=pair[1])
    if pinned.n_ctx is None:
        request = request._replace(n_ctx=search.ceiling)
    if pinned.n_gpu_layers is None:
        request = request._replace(n_gpu_layers=search.spec.n_layer_all + 1 if search.evaluator.host.devices else 0)
    return request


def tightest_of(search: Search, judged: Judged) -> Place:
    """The place with the least to spare."""
    return max(places_of(search, judged), key=lambda place: (place.over_bytes, place.need_bytes))


def needed(place: Place) -> Said:
    """What a place is to hold, and how much of it may be used."""
    text = "{need_bytes} needed {place}, {usable_bytes} may be used"
    if place.below_margin_bytes:
        text += " and {below_margin_bytes} is lacking of what must stay free"
    return say(text, **{**place._asdict(), "place": on(place.device)})


def lacking(places: Iterable[Place]) -> tuple[str, Figures]:
    """What is lacking wherever something is, the most first, as a template and its figures."""
    short = sorted((place for place in places if place.over_bytes > 0), key=lambda place: -place.over_bytes)
    names = ["over_bytes", *(f"over_{number}_bytes" for number in range(2, len(short) + 1))]
    values: Figures = {name: place.over_bytes for name, place in zip(names, short, strict=True)}
    values |= {f"on_{name}": on(place.device) for name, place in zip(names, short, strict=True)}
    return " and ".join(f"{{{name}}} {{on_{name}}}" for name in names), values


def outcome(search: Search, judged: Judged) -> Said:
    """Whether it fits, by how much, and how fast it then is."""
    places = sorted(places_of(search, judged), key=lambda place: -place.over_bytes)
    if not judged.fits:
        text, values = lacking(places)
        return say(text.replace("} {", "} too much {", 1), **values)
    rate = rate_of(search, search.evaluator.speed(judged, search.intent))
    text = "fits with {spare_bytes} to spare {worst}, {tokens_per_s}"
    return say(text, spare_bytes=-places[0].over_bytes, worst=on(places[0].device), tokens_per_s=rate)


def dear(ratio: float, intent: str) -> Said:
    """A multiple of a cost, from 2 on; of what is far off only that it is, since then it is no measure any more."""
    if ratio >= 10:
        return say("more than ten times as dear for {intent}", intent=intent)
    return say("{times} times as dear for {intent}", times=round(ratio, 1), intent=intent)
