"""The quantizations of a model on disk: read, judged and shown by `advisor recommend`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from advisor.errors import AdvisorError, UsageError
from advisor.gguf_header.errors import excerpt, printable
from advisor.model.slim import slim
from advisor.quants.quality import weights_loss
from advisor.quants.recognize import same_model
from advisor.recommend.siblings import Sibling, better_note, chosen_notes, loss_factor, sibling_of
from advisor.records import NamedTuple
from advisor.stores import siblings as stores

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.gguf_header.types import GgufHeader
    from advisor.host import HostSnapshot
    from advisor.memory.extras import Beside
    from advisor.model.spec import ModelSpec
    from advisor.planner import Planner
    from advisor.recommend.policy import Intent
    from advisor.recommend.recommendation import Note, Recommendation
    from advisor.recommend.search import Wishes


# Of all the files beside a model together, so that hostile ones cost no more than one: what is kept of them, and the
# CPU time for their headers (12 of real models take 0.1 s). Of one of them: what its header may leave in memory while
# it is read, some 6 MB of a real one with an embedded tokenizer.json.
_KEPT_BYTES = 12 << 20
_CPU_S = 0.5
_HEADER_BYTES = 8 << 20


class File(NamedTuple):
    """A file of the model; `name` as a person calls it."""

    name: str
    header: GgufHeader
    spec: ModelSpec


class Files(NamedTuple):
    """Quantizations of one model. `skipped`: (path, why) of what cannot be read; `n_left_out`: not even looked at."""

    files: tuple[File, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    n_left_out: int = 0


class Family(NamedTuple):
    """Quantizations judged: that which is answered for, and the others."""

    chosen: Sibling
    others: tuple[Sibling, ...]
    files: Files


# -- reading -------------------------------------------------------------------------------------------------------


def files_beside(app: App, header: GgufHeader, spec: ModelSpec, near: stores.Near, *, load_mtp: bool) -> Files:
    """Of the candidates `near` a model those that are other quantizations of it."""
    return _of_one_model(app, [_file(header, spec)], near, load_mtp)


def files_given(app: App, models: Sequence[str], *, any_quant: bool, load_mtp: bool) -> Files | None:
    """The quantizations that the user leaves to choose from; None where MODEL names one file.

    Raises UsageError for several models that are not one in several quantizations, and a ModelError as App.header.
    """
    if len(models) > 1:
        return _named(app, models, load_mtp)
    if os.path.isdir(models[0]):
        found = stores.inside(models[0])
        if len(found) < 2 or not stores.one_name(found):
            return None  # one model, or the error that says what is there
        files = _of_one_model(app, [], stores.spread(found), load_mtp)
        return files if files.files else None
    if not any_quant:
        return None
    header = app.header(models[0])
    spec = app.model(header, load_mtp=load_mtp)
    near = stores.beside(header.path, models[0]) if header.source != "snapshot" else stores.Near((), 0)
    return files_beside(app, header, spec, near, load_mtp=load_mtp)


def _named(app: App, models: Sequence[str], load_mtp: bool) -> Files:
    files: list[File] = []
    for model in models:
        header, spec, _ = _read(app, model, load_mtp)
        if files and not same_model(files[0].spec, spec):
            raise UsageError(
                f"{len(models)} models are given, and {excerpt(model)} is no other quantization of "
                f"{excerpt(models[0])}; add --together to have them resident at the same time, or compare them with "
                "'advisor compare'."
            )
        if all(os.path.realpath(known.header.path) != os.path.realpath(header.path) for known in files):
            files.append(File(os.path.basename(header.path), header, spec))
    return Files(tuple(files))


def _of_one_model(app: App, files: list[File], near: stores.Near, load_mtp: bool) -> Files:
    """`files` and those of the candidates that are the same model as the first."""
    skipped = []
    n_left_out, left_bytes, until = near.n_left_out, _KEPT_BYTES, time.process_time() + _CPU_S
    seen = {os.path.realpath(file.header.path) for file in files}
    for name, path in near.files:
        real = os.path.realpath(path)
        if real in seen:  # another name of it
            continue
        seen.add(real)
        if left_bytes <= 0 or time.process_time() >= until:
            n_left_out += 1
            continue
        try:
            header, spec, n_bytes = _read(app, path, load_mtp, _HEADER_BYTES)
        except AdvisorError as error:
            skipped.append((path, str(error)))
            continue
        except RecursionError:
            skipped.append((path, f"{printable(path)} is nested too deeply to be a real file; download it again."))
            continue
        left_bytes -= n_bytes
        if left_bytes < 0:
            n_left_out += 1
        elif not files or same_model(files[0].spec, spec):
            files.append(File(name, header, spec))
    return Files(tuple(files), tuple(skipped), n_left_out)


def _read(app: App, model: str, load_mtp: bool, most_bytes: int | None = None) -> tuple[GgufHeader, ModelSpec, int]:
    """`slim` of a file; no header is held while another is read."""
    header = app.header(model, most_bytes)
    return slim(header, app.model(header, load_mtp=load_mtp))


def _file(header: GgufHeader, spec: ModelSpec) -> File:
    place, slimmed, _ = slim(header, spec)
    return File(os.path.basename(header.path), place, slimmed)


# -- judging -------------------------------------------------------------------------------------------------------


def choose(
    app: App, planner: Planner, files: Files, intent: Intent, wishes: Wishes, beside: Beside | None
) -> tuple[File, Family]:
    """The file of `files` that is the cheapest for the intent, and all of them judged."""
    from advisor.recommend.siblings import best_of

    judged = _judged(app, planner, files.files, intent, wishes, beside)
    best = best_of(judged)
    file = next(file for file, one in zip(files.files, judged, strict=True) if one is best)
    return file, Family(best, tuple(one for one in judged if one is not best), files)


def judge_beside(
    app: App, planner: Planner, files: Files, answer: Recommendation, host: HostSnapshot, intent: Intent,
    wishes: Wishes, beside: Beside | None, *, every: bool,
) -> Family:  # fmt: skip
    """The first of `files` with its answer, and the others judged; without `every` only those that may be better."""
    first = files.files[0]
    asked = sibling_of(
        first.name, first.spec, answer, host, intent, planner.policy, app.quant_rules(), wishes.min_tokens_per_s
    )
    if every or beside is not None:
        return Family(asked, tuple(_judged(app, planner, files.files[1:], intent, wishes, beside)), files)
    bounds = []
    for file in files.files[1:]:
        factor = loss_factor(weights_loss(app.quant_rules(), file.spec), intent, planner.policy)
        bounds.append((planner.least_cost(file.spec, intent, wishes) * factor, file))
    bounds.sort(key=lambda one: one[0])
    others: list[Sibling] = []
    for bound, file in bounds:
        if bound >= min(one.cost for one in (asked, *others)):
            break
        others += _judged(app, planner, [file], intent, wishes, beside)
    return Family(asked, tuple(others), files)


def _judged(
    app: App, planner: Planner, files: Iterable[File], intent: Intent, wishes: Wishes, beside: Beside | None
) -> list[Sibling]:
    rules = app.quant_rules()
    found = []
    for file in files:
        answer, host = planner.recommend(file.spec, intent, wishes, beside)
        found.append(
            sibling_of(file.name, file.spec, answer, host, intent, planner.policy, rules, wishes.min_tokens_per_s)
        )
    return found


# -- saying --------------------------------------------------------------------------------------------------------


def with_notes(answer: Recommendation, family: Family, *, chosen: bool) -> tuple[Recommendation, Sibling | None]:
    """`answer` with what is said of the other quantizations, and the one that would be the better choice.

    `chosen`: the answer's file was chosen among them.
    """
    from advisor.recommend.recommendation import Note

    left: list[Note] = []
    if family.files.n_left_out:
        n_seen = len(family.files.files) + len(family.files.skipped)
        text = f"{n_seen} of {n_seen + family.files.n_left_out} files that may be quantizations of it were looked at."
        left.append(Note("quantizations_left_out", text))
    if chosen:
        skipped = [Note("quantization_skipped", why) for _, why in family.files.skipped]
        reasons = (*chosen_notes(family.chosen, family.others), *answer.reasons)
        return answer._replace(reasons=reasons, warnings=(*skipped, *left, *answer.warnings)), None
    found = better_note(family.chosen, family.others)
    if found is None:
        return answer._replace(warnings=(*answer.warnings, *left)), None
    better, note = found
    told = f"As {better.spec.quantization} "
    rest = [
        other for other in answer.warnings
        if not (other.code.startswith("smaller_quantization") and other.text.startswith(told))
    ]  # fmt: skip
    return answer._replace(warnings=(note, *left, *rest)), better
