"""The rows of `advisor quants`: every quantization of a model, and the files of it that are on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.errors import AdvisorError
from advisor.model.spec import ModelSpec
from advisor.quants.choose import Chooser, Impossible
from advisor.quants.quality import Quality, weights_quality
from advisor.quants.recognize import recognize, same_model
from advisor.quants.requantize import impossible_text, weights_bytes, with_types
from advisor.quants.rules import Quantization
from advisor.recommend.by_quantization import Fit, fit
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.search import Search, Wishes
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.cli.progress import Progress
    from advisor.gguf_header.types import GgufHeader
    from advisor.planner import Planner

OWN_MIX = "(own mix)"


class OnDisk(NamedTuple):
    """A file of the model; `name` as its store or folder calls it."""

    name: str
    path: str
    spec: ModelSpec


class Row(NamedTuple):
    """One quantization. Without a `fit` it cannot be made, and `problem` says why.

    `with_imatrix_bytes`: its size when made with an importance matrix, None where that makes no difference;
    `fallback_share`: of its weights, what is of another type because rows do not divide into blocks.
    """

    name: str
    weights_bytes: int | None
    bits_per_weight: float | None
    with_imatrix_bytes: int | None
    needs_imatrix: bool
    files: tuple[OnDisk, ...]  # empty: not on disk
    own_mix: bool
    cpu_only: bool
    fit: Fit | None
    quality: Quality | None
    note: str
    problem: str = ""
    fallback_share: float = 0.0
    trained_for: bool = False  # nobody publishes a model in it that was not trained for it


class Table(NamedTuple):
    """All rows, the largest first, and what they share: the context and the evaluator of the given file."""

    rows: tuple[Row, ...]
    search: Search
    n_ctx: int


def files_of(app: App, header: GgufHeader, spec: ModelSpec, progress: Progress) -> tuple[OnDisk, ...]:
    """The given file, and with it the model's other quantizations in the same store or folder."""
    if header.source == "snapshot":
        return ()
    from advisor.stores.scan import scan_around

    given = os.path.realpath(header.path)
    found = [OnDisk(os.path.basename(header.path), header.path, spec)]
    around = scan_around(
        os.environ, header.path, progress=lambda done, n: progress.show("reading models beside it", done, n)
    )
    title = spec.metadata.get("general.name", "")
    for model in around:
        if model.facts is None or (model.facts.architecture, model.facts.title) != (spec.architecture, title):
            continue
        if given in (os.path.realpath(path) for path in model.paths):
            found[0] = found[0]._replace(name=model.name)
            continue
        try:
            other = app.model(app.header(model.path))
        except AdvisorError:  # gone in the meantime, or no model after all: it is not what was asked about
            continue
        if same_model(spec, other):
            found.append(OnDisk(model.name, model.path, other))
    return tuple(found)


def make_table(
    app: App, planner: Planner, spec: ModelSpec, files: Sequence[OnDisk], pinned: RequestedSettings, progress: Progress
) -> Table:
    """Every quantization of `spec` at the context of `pinned`, without one at the least that an intent accepts."""
    rules = app.quant_rules()
    intent = planner.intent("balanced")
    wishes = Wishes(pinned._replace(n_ctx=None))
    search = Search(planner.evaluator(spec), planner.policy, intent, wishes)
    n_ctx = min(intent.floor_n_ctx, search.ceiling) if pinned.n_ctx is None else pinned.n_ctx or search.ceiling
    chooser = Chooser(spec, rules)
    made: dict[str, list[OnDisk]] = {}
    jobs: list[tuple[Row, ModelSpec | None]] = []
    for file in files or (OnDisk("", "", spec),):
        found = recognize(file.spec, rules)
        if found is not None:
            made.setdefault(found.name, []).append(file)
        else:
            jobs.append((_own_row(file, chooser.n_elements), file.spec))
    for quantization in rules.quantizations.values():
        row, each = _row(chooser, quantization, spec, made.get(quantization.name, []))
        cpu_only = any(device.backend in quantization.cpu_only_on for device in planner.host.devices)
        quality = weights_quality(rules, row.name, row.fallback_share)
        jobs.append((row._replace(cpu_only=cpu_only, quality=quality), each))
    rows: list[Row] = []
    like: Evaluator | None = None
    for row, each in jobs:
        progress.show("planning", len(rows), len(jobs))
        judged = None
        if each is not None:
            evaluator = planner.evaluator(each, like=None if row.own_mix else like)
            judged = fit(Search(evaluator, planner.policy, intent, wishes), n_ctx, cpu_only=row.cpu_only)
            like = like if row.own_mix else like or evaluator
        rows.append(row._replace(fit=judged))
    rows.sort(key=lambda row: -(row.weights_bytes or 0))
    return Table(tuple(rows), search, n_ctx)


def _own_row(file: OnDisk, n_elements: int) -> Row:
    """A file by its real tensors."""
    n_bytes = weights_bytes(file.spec)
    return Row(
        name=f"{file.spec.quantization} {OWN_MIX}",
        weights_bytes=n_bytes,
        bits_per_weight=8 * n_bytes / max(n_elements, 1),
        with_imatrix_bytes=None,
        needs_imatrix=False,
        files=(file,) if file.path else (),
        own_mix=True,
        cpu_only=False,
        fit=None,
        quality=None,
        note="the types of its tensors are not what llama-quantize chooses for one of its names",
    )


def _row(
    chooser: Chooser, quantization: Quantization, spec: ModelSpec, files: Sequence[OnDisk]
) -> tuple[Row, ModelSpec | None]:
    """What llama-quantize makes, or the file that it made, and the model as that file; None where it cannot be."""
    name = quantization.name
    types, with_imatrix = chooser.types(name), chooser.total_bytes(name, imatrix=True)
    row = Row(
        name=name,
        weights_bytes=None,
        bits_per_weight=None,
        with_imatrix_bytes=None,
        needs_imatrix=chooser.needs_imatrix(name),
        files=tuple(file for file in files if file.path),
        own_mix=False,
        cpu_only=False,
        fit=None,
        quality=None,
        note=quantization.note,
        fallback_share=chooser.fallback_share(name),
        trained_for=quantization.trained_for,
    )
    if isinstance(types, Impossible):
        return row._replace(problem=f"cannot be made: {impossible_text(types)}."), None
    each = files[0].spec if files else with_types(spec, name, types)
    n_bytes = weights_bytes(each)
    other = with_imatrix if isinstance(with_imatrix, int) and with_imatrix != n_bytes else None
    bits = 8 * n_bytes / max(chooser.n_elements, 1)
    return row._replace(weights_bytes=n_bytes, bits_per_weight=bits, with_imatrix_bytes=other), each
