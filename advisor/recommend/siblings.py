"""The quantization as one more knob: files of one model, each answered for as if it alone had been asked about."""

from collections.abc import Sequence

from advisor.host import HostSnapshot
from advisor.model.spec import ModelSpec
from advisor.quants.quality import Loss, weights_loss
from advisor.quants.rules import QuantRules
from advisor.recommend.policy import Intent, Policy
from advisor.recommend.recommendation import Note, Recommendation
from advisor.recommend.words import cache_name, layers_text, pace_of, seconds_text, tokens_text, use_rate
from advisor.records import NamedTuple

_HARDLY = 1.005  # what is dearer by less would be called 0 % dearer
_WORTH = 1.01  # what is cheaper by less is no reason to take another file than the one that was named
_RULE = "policy.toml: weights_factor"


class Sibling(NamedTuple):
    """One file of a model with its answer. `cost` counts the loss of its quantization; infinite = nothing fits."""

    name: str  # what a person calls the file
    path: str
    spec: ModelSpec
    answer: Recommendation
    host: HostSnapshot  # the GPUs that the answer takes
    loss: Loss
    cost: float
    least_tokens_per_s: float = 0.0  # what the user asks for, else the intent
    asked: bool = False  # the user does

    @property
    def fast_enough(self) -> bool:
        """Whether it answers as fast as is wished."""
        return use_rate(self.spec, self.answer.speed) >= self.least_tokens_per_s

    @property
    def fits(self) -> bool:
        """Whether there are settings that fit."""
        return self.answer.verdict != "does_not_fit"


def sibling_of(
    name: str, spec: ModelSpec, answer: Recommendation, host: HostSnapshot, intent: Intent, policy: Policy,
    rules: QuantRules, min_tokens_per_s: float | None = None,
) -> Sibling:  # fmt: skip
    """A file with its answer for the intent, as `Planner.recommend` gives them; the speed is what the user asks for."""
    loss = weights_loss(rules, spec)
    asked = min_tokens_per_s or 0.0
    return Sibling(
        name, spec.path, spec, answer, host, loss, answer.cost * loss_factor(loss, intent, policy),
        max(asked, intent.least_tokens_per_s), asked >= intent.least_tokens_per_s,
    )  # fmt: skip


def loss_factor(loss: Loss, intent: Intent, policy: Policy) -> float:
    """What the loss of a file's quantization makes of its cost: (1 + per_kld * KL divergence) ^ weights_exponent."""
    return float((1.0 + policy.weights_factor["per_kld"] * loss.kld) ** intent.weights_exponent)


def best_of(files: Sequence[Sibling]) -> Sibling:
    """The cheapest for the intent; where nothing fits, that which lacks least."""
    return min(files, key=lambda file: (file.cost, sum(short.over_bytes for short in file.answer.chosen.shorts)))


def better_note(asked: Sibling, files: Sequence[Sibling]) -> tuple[Sibling, Note] | None:
    """The file of `files` that is the better choice than the one that was asked about, and the words for it."""
    if not files:
        return None
    best = best_of(files)
    if not best.fits or best.cost * _WORTH >= asked.cost:
        return None
    rate = use_rate(asked.spec, asked.answer.speed)
    if asked.fits:
        text = f"{best.name} beside it is the better choice for {best.answer.intent}: {_runs(best)} instead of "
        slow = use_rate(best.spec, best.answer.speed) < 1  # told in seconds a token
        text += pace_of(rate) if slow else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    else:
        text = f"{best.name} beside it fits, which this does not: {_runs(best)}"
    lost = lost_text(best.loss, asked.loss, best.spec)
    text += f"; {lost}" if lost else ""
    return best, Note("better_quantization", f"{text}.", _RULE)


def chosen_notes(best: Sibling, others: Sequence[Sibling]) -> list[Note]:
    """Why the file was chosen among quantizations: one sentence for it, one for each that lost."""
    notes = []
    if others:
        count, intent = len(others) + 1, best.answer.intent
        what = f"the best of {count} quantizations for {intent}" if best.fits else f"of {count} what lacks least"
        kld = f"its published loss is {best.loss.kld:.4f} of KL divergence from F16 on {best.loss.model}"
        notes.append(Note("quantization_chosen", f"{best.name} is {what}; {kld}{_stand_in(best)}.", _RULE))
    notes += [
        Note("quantization_lost", lost_why(other, best), _RULE)
        for other in sorted(others, key=lambda other: other.cost)
    ]
    return notes


def lost_why(other: Sibling, best: Sibling) -> str:
    """Why a file was not chosen, in one line: it does not fit, is slower, has less context, or loses more."""
    if not other.fits:
        return f"{other.name}: {other.answer.summary[0].lower()}{other.answer.summary[1:]}"
    its, mine = (file.answer.speed.turn_seconds.value for file in (other, best))
    parts = []
    if its > mine * _WORTH:
        parts += [layers_text(other.spec, other.answer.chosen)]
        parts += [f"a turn takes {turns_text(its, mine)}"]
    if _per_slot(other) < min(_per_slot(best), other.answer.contexts.n_ctx_trained):
        parts += [_context_text(other, best)]
    if other.loss.kld > best.loss.kld:
        parts += [pace_text(other)] if its <= mine * _WORTH and other.fast_enough else []
        parts += [lost_text(other.loss, best.loss, other.spec, short=True)]
    if not other.fast_enough and best.fast_enough:
        parts += [below_text(other)]
    text = ", ".join(part for part in parts if part)
    comparable = best.fits and other.fast_enough == best.fast_enough
    if comparable and (text or other.cost >= _HARDLY * best.cost):
        dearer = dearer_text(other.cost / best.cost)
        text = f"{text} ({dearer})" if text else dearer
    return f"{other.name}: {text or 'as good; of equals the first is taken'}."


def below_text(file: Sibling) -> str:
    """That a file is too slow: below the 30 tokens/s asked for."""
    who = "asked for" if file.asked else f"that are the least for {file.answer.intent}"
    return f"{pace_text(file)}, below the {file.least_tokens_per_s:g} tokens/s {who}"


def _context_text(file: Sibling, beside: Sibling) -> str:
    """Its context, with the cache where that is another."""
    judged, name = file.answer.chosen, cache_name(file.answer.chosen)
    cache = f" in {name}" if name != cache_name(beside.answer.chosen) else ""
    return f"{tokens_text(judged.plan.settings)}{cache}"


def _per_slot(file: Sibling) -> int:
    settings = file.answer.chosen.plan.settings
    return settings.n_ctx if settings.kv_unified else settings.n_ctx_seq


def turns_text(its: float, mine: float) -> str:
    """A time beside another, as exact as it takes to tell them apart: 3.2 minutes instead of 2.9 minutes."""
    words = (seconds_text(its), seconds_text(mine))
    if words[0] == words[1]:
        words = (
            (f"{its / 60:.1f} minutes", f"{mine / 60:.1f} minutes")
            if its >= 120
            else (f"{its:.1f} seconds", f"{mine:.1f} seconds")
        )
    return f"{words[0]} instead of {words[1]}"


def pace_text(file: Sibling) -> str:
    """How fast it is as it is used."""
    return pace_of(use_rate(file.spec, file.answer.speed))


def dearer_text(ratio: float) -> str:
    """A cost beside another: 12 % dearer, 3.4 times as dear; of what is far off only that it is."""
    if ratio >= 10:
        return "more than ten times as dear"
    if ratio < _HARDLY:
        return "hardly dearer"
    return f"{ratio:.1f} times as dear" if ratio >= 2 else f"{100 * (ratio - 1):.0f} % dearer"


def lost_text(new: Loss, old: Loss, spec: ModelSpec, *, short: bool = False) -> str:
    """The loss of `new`, the file of `spec`, beside that of `old`, as published; nothing where that is the same."""
    if new.of == old.of:
        return ""
    stand_in = f" (nothing is published of {spec.quantization}, {new.of} stands for it)" if new.stands_in else ""
    if new.perplexity_more is None or old.perplexity_more is None or new.imatrix != old.imatrix:
        figures = f"published KL divergence {new.kld:.4f} instead of {old.kld:.4f}"
    else:
        more = new.perplexity_more - old.perplexity_more
        figures = f"published perplexity {abs(more):.3g} {'more' if more > 0 else 'less'}"
        figures += "" if short else f" than {old.of}"
    return f"{figures}{stand_in}" if short else f"{figures} on {new.model}{stand_in}"


def _runs(file: Sibling) -> str:
    judged = file.answer.chosen
    cache = f" ({cache_name(judged)} cache)" if any(layer.has_cache for layer in file.spec.layers) else ""
    tokens = f"{tokens_text(judged.plan.settings)}{cache}"
    return f"{layers_text(file.spec, judged)}, {tokens}, {pace_text(file)}"


def _stand_in(file: Sibling) -> str:
    if not file.loss.stands_in:
        return ""
    return f" (that of {file.loss.of}, since nothing is published of {file.spec.quantization})"
