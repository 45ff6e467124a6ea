"""Published figures of what a quantization costs, as they were measured: on another model than the one asked about."""

from collections.abc import Mapping
from typing import Any

from advisor.ggml_types import GGML_TYPES
from advisor.model.spec import ModelSpec
from advisor.quants.rules import QuantRules
from advisor.records import NamedTuple

_IMATRIX = "quantize.imatrix."  # keys that llama-quantize writes when it was given an importance matrix


class Quality(NamedTuple):
    """Loss of one quantization. `value` and `perplexity_more` belong together, `imatrix` says how they were made."""

    measure: str  # "mean KL divergence from F16"
    value: float
    perplexity_more: float | None
    imatrix: bool
    model: str
    text: str
    source: str
    with_imatrix_value: float | None  # where there are figures without and with an importance matrix
    with_imatrix_perplexity_more: float | None


class CacheFigure(NamedTuple):
    """Loss of one cache type, for keys and values alike, on one model."""

    measure: str
    value: float
    model: str
    text: str
    source: str
    note: str


def weights_quality(rules: QuantRules, name: str, fallback_share: float = 0.0) -> Quality | None:
    """The figure for a quantization of weights, None where none was found published.

    None too where more than a little of the weights, `fallback_share`, is of other types than its name says.
    """
    table: Mapping[str, Any] = rules.document["quality"]["weights"]
    row = table["values"].get(name)
    if row is None or fallback_share > table["most_fallback_share"]:
        return None
    imatrix = "kld" not in row
    start = "with_imatrix_" if imatrix else ""
    return Quality(
        measure=f"{table['measure']} from {row.get('reference', table['reference'])}",
        value=row[f"{start}kld"],
        perplexity_more=row.get(f"{start}perplexity_more"),
        imatrix=imatrix,
        model=table["model"],
        text=f"{table['text']}, {table['imatrix_text']}" if imatrix else table["text"],
        source=row.get("source", table["source"]),
        with_imatrix_value=row.get("with_imatrix_kld"),
        with_imatrix_perplexity_more=row.get("with_imatrix_perplexity_more"),
    )


class Loss(NamedTuple):
    """What the weights of a file lose, as published of the quantization `of`; `kld` is from F16."""

    of: str
    stands_in: bool  # nothing is published of the file's own quantization
    kld: float
    perplexity_more: float | None
    imatrix: bool  # figures with an importance matrix
    model: str
    source: str


def weights_loss(rules: QuantRules, spec: ModelSpec, *, imatrix: bool | None = None) -> Loss:
    """The loss of a file: of its own quantization, else of the best published one with no more bits a weight.

    `imatrix`: figures with an importance matrix or without, where there are both; None = as the file says it was made.
    """
    name = spec.quantization
    quality = weights_quality(rules, name, _fallback_share(rules, spec))
    if quality is None:
        bits = 8 * sum(tensor.n_bytes for tensor in spec.tensors) / max(spec.parameters, 1)
        name = _best_published(rules, bits)
        quality = weights_quality(rules, name)
    assert quality is not None
    if imatrix is None:
        imatrix = any(key.startswith(_IMATRIX) for key in spec.metadata)
    value, more, matrix = quality.value, quality.perplexity_more, quality.imatrix
    if imatrix and quality.with_imatrix_value is not None:
        value, more, matrix = quality.with_imatrix_value, quality.with_imatrix_perplexity_more, True
    return Loss(name, name != spec.quantization, value, more, matrix, quality.model, quality.source)


def _best_published(rules: QuantRules, bits_per_weight: float) -> str:
    """Of the quantizations whose own type has no more bits a weight, that which loses least; the last of all else."""
    names: list[str] = list(rules.document["quality"]["weights"]["values"])
    published = {name: weights_quality(rules, name) for name in names}
    losses = {name: quality.value for name, quality in published.items() if quality is not None}
    kinds = {name: GGML_TYPES[rules.quantizations[name].type_id] for name in losses}
    fitting = [name for name, kind in kinds.items() if 8 * kind.block_bytes <= bits_per_weight * kind.block_elements]
    return min(fitting, key=losses.__getitem__) if fitting else max(losses, key=losses.__getitem__)


def _fallback_share(rules: QuantRules, spec: ModelSpec) -> float:
    """Of the weights, what is of another type than the file's quantization says because rows do not divide."""
    quantization = rules.quantizations.get(spec.quantization)
    if quantization is None:
        return 0.0
    block = GGML_TYPES[quantization.type_id].block_elements
    if all(tensor.shape[0] % block == 0 for tensor in spec.tensors if len(tensor.shape) > 1):
        return 0.0
    from advisor.quants.choose import Chooser

    return Chooser(spec, rules).fallback_share(spec.quantization)


def cache_quality(rules: QuantRules, cache_type: str) -> tuple[CacheFigure, ...]:
    """Every figure that was found published for a cache type."""
    return tuple(
        CacheFigure(
            table["measure"], table["values"][cache_type], table["model"], table["text"], table["source"],
            table.get("note", ""),
        )
        for table in rules.document["quality"]["cache"]
        if cache_type in table["values"]
    )  # fmt: skip
