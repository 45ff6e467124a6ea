"""The plan of every model of a list, remembered between runs under everything that it depends on."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from advisor.errors import ModelError, RuleError
from advisor.host import HostSnapshot
from advisor.records import NamedTuple
from advisor.stores.cache import Cache
from advisor.stores.types import StoredModel

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.memory.engine_spec import EngineSpec
    from advisor.planner import Planner

_VERDICTS = ("full", "partial", "cpu", "does_not_fit")


class Question(NamedTuple):
    """What is asked of every model: on this machine, with this engine, for this intent."""

    host: HostSnapshot
    engine: EngineSpec
    tool: str
    intent: str
    now: bool
    keep_free_bytes: int | None


class Answer(NamedTuple):
    """One model's plan. With a `problem` (one sentence) nothing else is known, with does_not_fit nothing fits.

    `max_n_ctx` is the longest context per slot that memory and training allow with any cache type that was looked at;
    `settings` and `speed` are shaped as in `advisor recommend --json`; `answers` is False for an encoder.
    """

    verdict: str = ""
    max_n_ctx: int | None = None
    answers: bool = True
    settings: dict[str, Any] | None = None
    speed: dict[str, Any] | None = None
    summary: str = ""
    problem: str | None = None


class RememberingPlanner:
    """Answers a question for one model after another; what was answered before comes from the cache."""

    def __init__(self, app: App, question: Question, cache: Cache) -> None:
        self._app, self._question, self._cache = app, question, cache
        self._key = self._plan_key()
        self._planner: Planner | None = None

    def known(self, model: StoredModel) -> Answer | None:
        """The remembered answer, None if the model has to be planned."""
        return _answer(self._cache.answer(model, self._key))

    def plan(self, model: StoredModel) -> Answer:
        """Plan the model and remember the answer. Nothing about the model makes this raise."""
        try:
            answer = self._plan(model)
        except RuleError as error:  # of its architecture's file; the others can still be planned
            return Answer(problem=str(error))
        except ModelError as error:
            answer = Answer(problem=str(error))
        except Exception as error:
            if os.environ.get("ADVISOR_DEBUG"):
                raise
            return Answer(problem=f"This is a bug in advisor ({type(error).__name__}: {error}); please report it.")
        self._cache.remember_answer(model, self._key, answer._asdict())
        return answer

    def _plan(self, model: StoredModel) -> Answer:
        from advisor.cli.shapes import settings_shape, speed_shape
        from advisor.planner import Planner
        from advisor.recommend.search import Wishes
        from advisor.settings import RequestedSettings

        asked = self._question
        if self._planner is None:
            self._planner = Planner(
                self._app, asked.host, asked.engine, tool=asked.tool, now=asked.now,
                keep_free_bytes=asked.keep_free_bytes,
            )  # fmt: skip
        spec = self._app.model(self._app.header(model.path))
        found, _ = self._planner.recommend(spec, self._planner.intent(asked.intent), Wishes(RequestedSettings()))
        plan = found.chosen.plan
        if plan.refused is not None:
            return Answer(problem=f"{asked.engine.name} refuses this model: {plan.refused}.")
        if found.verdict == "does_not_fit":
            return Answer("does_not_fit", answers=spec.answers, summary=found.summary)
        reach = [row.max_n_ctx for row in found.contexts.rows if row.max_n_ctx is not None]
        longest = max([*reach, plan.settings.n_ctx_seq])
        return Answer(
            found.verdict,
            min(longest, spec.n_ctx_train) if spec.n_ctx_train else longest,
            spec.answers,
            settings_shape(plan),
            speed_shape(found.speed),
            found.summary,
        )

    def _plan_key(self) -> str:
        from advisor.hardware.snapshot_file import to_json

        asked = self._question
        host = to_json(asked.host)
        for name in ("probes", "notes", "origin"):
            del host[name]
        for device in (*host["devices"], *host["idle_devices"]):
            del device["processes"]
        for device in host["idle_devices"]:
            del device["free_bytes"]
        overheads = sorted([*key, n_bytes] for key, n_bytes in self._app.overheads(asked.host).items())
        rules = self._app.rules.fingerprint()
        return _digest(
            host, overheads, rules, asked.engine.name, asked.engine.build, asked.tool, asked.intent, asked.now,
            asked.keep_free_bytes,
        )  # fmt: skip


def _digest(*values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _answer(document: dict[str, Any] | None) -> Answer | None:
    """An answer out of the cache, None if it is none."""
    if document is None or set(document) != set(Answer._fields):
        return None
    answer = Answer(**document)
    if isinstance(answer.problem, str):
        return answer
    if answer.verdict == "does_not_fit":
        return answer
    try:
        usable = answer.verdict in _VERDICTS and isinstance(answer.max_n_ctx, int) and answer.speed is not None
        usable = usable and isinstance(answer.speed["decode_tokens_per_s"]["value"], (int, float))  # type: ignore[index]
        usable = usable and isinstance(answer.settings["n_ctx_seq"], int)  # type: ignore[index]
    except (KeyError, TypeError):
        return None
    return answer if usable else None
