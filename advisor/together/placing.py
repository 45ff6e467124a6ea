"""A projector and a draft model on the GPU or in system memory: what each place does to a turn, chosen and told.

On the GPU they take memory that context and layers could have; in system memory a picture, or every drafted token,
takes the CPU's time. Their memory is counted by advisor.memory.extras. The engine has no context of its own for a draft
model any more (its -cd was removed): that is as long as the model's.
"""

from collections.abc import Callable, Iterable
from itertools import product
from math import inf

from advisor.ggml_types import BY_NAME, GGML_TYPES
from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.extras import Beside, patches_of
from advisor.memory.types import Extra
from advisor.model.beside import Projector
from advisor.model.spec import ModelSpec
from advisor.recommend.beside_notes import projector_on_card
from advisor.recommend.evaluate import cost
from advisor.recommend.policy import Intent, Policy
from advisor.recommend.recommendation import Note, Recommendation
from advisor.recommend.search import Wishes
from advisor.recommend.words import layers_text, seconds_text, tokens_text
from advisor.records import NamedTuple
from advisor.settings import BesideSettings, RequestedSettings
from advisor.speed import Constants, Speed
from advisor.units import format_bytes

_SMALL = "q8_0"  # the cache type that a draft model gets where memory is short
_WORTH_FEWER = 0.95  # of an answer's time
_UNKNOWN = 1e6  # the factor of a place whose pace is not known: taken only where no other fits


class Placing(NamedTuple):
    """What is beside one model, and the machine it is on; without devices everything is on the CPU."""

    spec: ModelSpec
    beside: Beside
    constants: Constants
    engine: EngineSpec
    policy: Policy
    intent: Intent

    def picture_seconds(self, asked: BesideSettings) -> float | None:
        """For the largest picture: 2 FLOP for each of the encoder's parameters and each patch. None = not known."""
        projector = self.beside.projector
        if projector is None:
            return 0.0
        if projector.vision is None:
            return None
        patches = self.patches(asked)
        on_gpu = asked.mmproj_offload and self.constants.devices
        flops = self.constants.devices[0].flops if on_gpu else self.constants.host.flops
        return 2.0 * _parameters(projector) * patches / flops

    def patches(self, asked: BesideSettings) -> int:
        """Of the largest picture."""
        assert self.beside.projector is not None
        vision = self.beside.projector.vision
        return patches_of(vision, asked.image_max_tokens, self.engine)[1] if vision is not None else 0

    def draft_seconds(self, asked: BesideSettings) -> float:
        """For one drafted token: what is read of the draft model, and its blocks' steps."""
        draft = self.beside.draft
        if draft is None:
            return 0.0
        if asked.draft_n_gpu_layers == 0 or not self.constants.devices:
            host = self.constants.host
            return _read_bytes(draft) / host.read_bytes_per_s + draft.n_layer * host.step_seconds
        fastest = max(self.constants.devices, key=lambda device: device.read_bytes_per_s)
        return _read_bytes(draft) / fastest.read_bytes_per_s + draft.n_layer * fastest.step_seconds

    def drafted(self, asked: BesideSettings) -> int:
        """How many tokens are drafted at once."""
        return asked.draft_n_max or int(self.engine.draft["n_max"]["draft"])

    def answer_factor(self, asked: BesideSettings, speed: Speed) -> float:
        """What drafting makes of the seconds of an answer; above 1 it is slower than without."""
        if self.beside.draft is None:
            return 1.0
        alone, count = 1 / speed.decode_tokens_per_s.value, self.drafted(asked)
        accepted = self.policy.beside["draft_acceptance"]
        worth = (1 - accepted ** (count + 1)) / (1 - accepted)
        return (alone + count * self.draft_seconds(asked)) / (worth * alone)

    def factor(self, asked: BesideSettings, speed: Speed) -> float:
        """What the places make of the seconds of a turn."""
        picture = self.picture_seconds(asked)
        if picture is None:
            return 1.0 if asked.mmproj_offload else _UNKNOWN
        answer = self.intent.turn.answer_tokens / speed.decode_tokens_per_s.value
        seconds = speed.turn_seconds.value + answer * (self.answer_factor(asked, speed) - 1)
        return (seconds + self.policy.beside["pictures_per_turn"] * picture) / speed.turn_seconds.value


def placings(wishes: Wishes, beside: Beside | None) -> list[Wishes]:
    """The wishes with every place that is left open for a projector and a draft model; on the GPU first."""
    if beside is None:
        return [wishes]
    pinned = wishes.pinned
    eyes = [None, False] if beside.projector is not None and pinned.mmproj_offload is None else [pinned.mmproj_offload]
    layers = pinned.draft_n_gpu_layers
    drafts = [None, 0] if beside.draft is not None and layers is None else [layers]
    return [
        wishes._replace(pinned=pinned._replace(mmproj_offload=eye, draft_n_gpu_layers=draft))
        for eye, draft in product(eyes, drafts)
    ]


def placed_as(wishes: Wishes, request: RequestedSettings) -> Wishes:
    """The wishes with the places that a candidate has."""
    pinned = wishes.pinned._replace(
        mmproj_offload=request.mmproj_offload, draft_n_gpu_layers=request.draft_n_gpu_layers,
        draft_cache_type_k=request.draft_cache_type_k, draft_cache_type_v=request.draft_cache_type_v,
    )  # fmt: skip
    return wishes._replace(pinned=pinned)


class _Placed(NamedTuple):
    answer: Recommendation
    host: HostSnapshot
    placing: Placing

    @property
    def asked(self) -> BesideSettings:
        return self.answer.chosen.plan.settings.beside

    @property
    def cost(self) -> float:
        """Of the answer, with the places; infinite where it does not fit."""
        if self.answer.verdict == "does_not_fit":
            return inf
        answer, placing = self.answer, self.placing
        alone = cost(answer.chosen, answer.speed, placing.intent, placing.policy, placing.spec.n_ctx_train)
        return alone * placing.factor(self.asked, answer.speed)


def best_placed(
    wishes: Wishes,
    beside: Beside,
    recommend: Callable[[Wishes], tuple[Recommendation, HostSnapshot]],
    placing_on: Callable[[HostSnapshot], Placing],
    undrafted: Callable[[Wishes], tuple[Recommendation, HostSnapshot]],
) -> tuple[Recommendation, HostSnapshot]:
    """The best answer over the places that are left open, with a reason for each; as `recommend` where none is.

    `undrafted` recommends without the draft model, to say where that is better.
    """
    tried = []
    for some in placings(wishes, beside):
        answer, host = recommend(some)
        tried.append(_Placed(answer, host, placing_on(host)))
    best = min(tried, key=lambda placed: placed.cost)
    notes = _notes(best, tried, beside.draft)
    if _small_cache_may_gain(best, wishes):
        small = placed_as(wishes, best.answer.chosen.request).pinned
        small = small._replace(draft_cache_type_k=_SMALL, draft_cache_type_v=_SMALL)
        answer, host = recommend(wishes._replace(pinned=small))
        other = _Placed(answer, host, placing_on(host))
        if other.cost < best.cost:
            notes = [*_notes(other, tried, beside.draft), _small_cache_note(other, best)]
            best = other
    warnings = best.answer.warnings
    if beside.draft is not None and best.answer.verdict != "does_not_fit":
        answer, host = undrafted(placed_as(wishes, best.answer.chosen.request))
        alone = _Placed(answer, host, placing_on(host)._replace(beside=beside._replace(draft=None)))
        if alone.cost < best.cost:
            notes = [note for note in notes if note.code != "draft_gain"]
            warnings = (_slows(best, alone), *warnings)
    return best.answer._replace(reasons=(*best.answer.reasons, *notes), warnings=warnings), best.host


def _small_cache_may_gain(best: _Placed, wishes: Wishes) -> bool:
    """Whether a draft's cache in q8_0 could leave the model more, and the engine takes it.

    What is written stays the same, a worse draft is only accepted less often; but where all is on the GPU with a
    comfortable context, there is nothing to gain.
    """
    placing, draft, plan = best.placing, best.placing.beside.draft, best.answer.chosen.plan
    pinned, n_ctx = wishes.pinned, plan.settings.n_ctx_seq
    types = pinned.draft_cache_type_k or pinned.draft_cache_type_v or placing.engine.draft["cache_type"] == _SMALL
    if draft is None or types or best.asked.draft_n_gpu_layers == 0 or not best.host.devices:
        return False
    comfortable = min(placing.intent.comfortable_n_ctx, placing.spec.n_ctx_train or placing.intent.comfortable_n_ctx)
    if best.answer.verdict == "full" and (n_ctx >= comfortable or pinned.n_ctx):
        return False
    block = BY_NAME[_SMALL].block_elements
    for layer in draft.layers:
        sizes = (layer.head_size_k, layer.head_size_v)
        if layer.has_cache and (draft.flash_attn_forced_off or any(size % block for size in sizes)):
            return False
        for device in best.host.devices if layer.has_cache else ():
            backend = placing.engine.backends[device.backend]
            n_gqa = layer.n_head // max(layer.n_head_kv, 1)
            if _SMALL not in backend.cache_types or not backend.runs_flash_attn(*sizes, n_gqa):
                return False
    return pinned.flash_attn != "off"


def _small_cache_note(small: _Placed, usual: _Placed) -> Note:
    sizes = [_size(placed, "draft cache", on_gpu=True) for placed in (small, usual)]
    gets, own = (tokens_text(placed.answer.chosen.plan.settings) for placed in (usual, small))
    layers = [layers_text(small.placing.spec, placed.answer.chosen) for placed in (usual, small)]
    if layers[0] != layers[1]:
        gets, own = f"{layers[0]}, {gets}", f"{layers[1]}, {own}"
    text = f"The draft model's cache is {_SMALL}, {format_bytes(sizes[0])}: with f16, {format_bytes(sizes[1])}, the "
    if usual.answer.verdict == "does_not_fit":
        return Note("draft_cache", f"{text}model does not fit.", "policy.toml: beside")
    return Note("draft_cache", f"{text}model would have {gets} instead of {own}.", "policy.toml: beside")


def _notes(best: _Placed, tried: Iterable[_Placed], draft: ModelSpec | None) -> list[Note]:
    notes = []
    if best.answer.verdict == "does_not_fit":
        return []
    for what, of in (("mmproj", "mmproj_offload"), ("draft", "draft_n_gpu_layers")):
        other = next((one for one in tried if _differs_in(one.asked, best.asked, of)), None)
        if other is not None:
            notes.append(_note(what, best, other))
    if draft is not None:
        faster = 1 / best.placing.answer_factor(best.asked, best.answer.speed)
        words = f"about {faster:.1f} times as fast" if faster >= 1 else f"slower, at about {faster:.1f} of the pace"
        accepted = best.placing.policy.beside["draft_acceptance"]
        text = f"With {best.placing.drafted(best.asked)} tokens drafted at a time it answers {words}"
        notes.append(Note("draft_gain", f"{text} where {accepted:.0%} of them are accepted.", "policy.toml: beside"))
    return notes


def _slows(best: _Placed, alone: _Placed) -> Note:
    """That this drafting is not worth it, beside the best without it; and how many tokens at a time would be faster."""
    placing, count = best.placing, best.placing.drafted(best.asked)
    turns = []
    for placed in (best, alone):
        speed = placed.answer.speed
        turns.append(seconds_text(speed.turn_seconds.value * placed.placing.factor(placed.asked, speed)))
    own, gets = (tokens_text(placed.answer.chosen.plan.settings) for placed in (best, alone))
    accepted = f"{placing.policy.beside['draft_acceptance']:.0%}"
    text = (
        f"Drafting does not pay here: with {count} tokens drafted at a time, {accepted} of them accepted, a turn takes "
        f"{turns[0]} and there are {own}; without --spec-draft-model {turns[1]} and {gets}, with "
        f"{layers_text(placing.spec, alone.answer.chosen)}"
    )
    usual = placing.answer_factor(best.asked, best.answer.speed)
    fewer = {n: placing.answer_factor(best.asked._replace(draft_n_max=n), best.answer.speed) for n in range(1, count)}
    n = min(fewer, key=lambda n: fewer[n], default=0)
    if n and fewer[n] < _WORTH_FEWER * usual:
        text += f". --spec-draft-n-max {n} makes an answer {usual / fewer[n]:.1f} times as fast"
    return Note("draft_slows", f"{text}.", "policy.toml: beside")


def _note(what: str, best: _Placed, other: _Placed) -> Note:
    """Where it is, what it takes there, and what the other place would cost or save."""
    on_gpu = best.asked.mmproj_offload if what == "mmproj" else best.asked.draft_n_gpu_layers != 0
    here, there = ("on the GPU", "in system memory") if on_gpu else ("in system memory", "on the GPU")
    name = "The projector" if what == "mmproj" else "The draft model"
    size = _size(best, what, on_gpu)
    text = f"{name} is {here}, {format_bytes(size)}: {_pace(what, best)}."
    projector = best.placing.beside.projector
    if what == "mmproj" and not on_gpu and projector is not None and best.host.devices:
        card = best.host.devices[0]
        needs = projector_on_card(projector, best.asked.image_max_tokens, card, best.placing.engine)
        text += f" On {card.id} it would take {needs}."
    if other.answer.verdict == "does_not_fit":
        return Note(f"{what}_placed", f"{text} {there[0].upper()}{there[1:]} nothing would fit.", "policy.toml: beside")
    chosen, left = best.answer.chosen, other.answer.chosen
    gets, own = tokens_text(left.plan.settings), tokens_text(chosen.plan.settings)
    layers = [layers_text(best.placing.spec, judged) for judged in (left, chosen)]
    if layers[0] != layers[1]:
        gets, own = f"{layers[0]}, {gets}", f"{layers[1]}, {own}"
    flag = {"mmproj": "--no-mmproj-offload", "draft": "-ngld 0"}[what]
    how = f"{there} ({flag})" if on_gpu else there
    text += f" {how[0].upper()}{how[1:]} {_pace(what, other)}, with {gets} instead of {own}."
    return Note(f"{what}_placed", text, "policy.toml: beside")


def _pace(what: str, placed: _Placed) -> str:
    if what == "draft":
        return f"a drafted token takes {1000 * placed.placing.draft_seconds(placed.asked):.1f} ms"
    seconds = placed.placing.picture_seconds(placed.asked)
    if seconds is None:
        return "how long it takes is not known"
    words = seconds_text(seconds) if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"
    return f"a picture of {placed.placing.patches(placed.asked):,} patches takes about {words}"


def _size(placed: _Placed, what: str, on_gpu: bool) -> int:
    """Bytes of it where it is."""
    plan = placed.answer.chosen.plan
    places: list[tuple[Extra, ...]] = [device.extras for device in plan.devices] if on_gpu else [plan.host.beside]
    return sum(extra.n_bytes.high for extras in places for extra in extras if extra.name.startswith(what))


def _differs_in(one: BesideSettings, other: BesideSettings, name: str) -> bool:
    both = ("mmproj_offload", "draft_n_gpu_layers")
    rest = next(each for each in both if each != name)
    return bool(getattr(one, name) != getattr(other, name) and getattr(one, rest) == getattr(other, rest))


def _parameters(projector: Projector) -> float:
    """How many weights the encoder has."""
    kinds = GGML_TYPES
    return sum(
        tensor.n_bytes * kinds[tensor.ggml_type].block_elements / kinds[tensor.ggml_type].block_bytes
        for tensor in projector.tensors
    )


def _read_bytes(spec: ModelSpec) -> float:
    """Weights that one token of a draft model reads."""
    used = spec.n_expert_used / spec.n_expert if spec.n_expert else 1.0
    return sum(
        tensor.n_bytes * (used if "exps." in tensor.name else 1.0)
        for tensor in spec.tensors
        if tensor.place in ("block", "first", "output") or (tensor.place == "input" and spec.tied_output)
    )
