"""The answer: what was chosen and why, what else a person might want, what failed and by how much."""

from advisor.recommend.budget import Budget
from advisor.recommend.contexts import ContextTable
from advisor.recommend.evaluate import Judged
from advisor.records import NamedTuple
from advisor.speed import Speed


class Note(NamedTuple):
    """A reason or a warning: a code for programs, a sentence for people, the rule it rests on."""

    code: str
    text: str
    rule: str = ""


class Alternative(NamedTuple):
    """Another fitting candidate that a person might prefer."""

    label: str
    judged: Judged
    speed: Speed
    why: str


class Rejected(NamedTuple):
    """A better-looking candidate that failed."""

    judged: Judged
    code: str
    device: str
    over_bytes: int
    text: str


class Fix(NamedTuple):
    """One change that would help, what it saves on the tightest device, and its price."""

    change: str
    saves_bytes: int
    costs: str
    enough: bool  # alone it makes the wish fit
    tokens_per_s: float = 0.0  # what it would run at, 0 = not worked out
    lost_n_ctx: int = 0  # tokens of context that it costs
    device: str = ""  # of a setting: where that is saved, a device id or "host"
    whole: bool = True  # that is with every layer on the GPUs, else as in the nearest thing that was tried


class Recommendation(NamedTuple):
    """Everything `advisor recommend` says. With verdict does_not_fit, `chosen` is the nearest thing that was tried."""

    verdict: str  # "full" | "partial" | "cpu" | "does_not_fit"
    intent: str
    chosen: Judged
    speed: Speed
    budget: Budget
    contexts: ContextTable
    alternatives: tuple[Alternative, ...]
    rejected: tuple[Rejected, ...]
    reasons: tuple[Note, ...]
    fixes: tuple[Fix, ...]
    warnings: tuple[Note, ...]
    summary: str  # the one line that a person would repeat
    n_judged: int
    cost: float = float("inf")  # for the intent, see `cost` of evaluate.py; infinite where nothing fits
