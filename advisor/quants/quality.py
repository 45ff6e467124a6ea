"""Published figures of what a quantization costs, as they were measured: on another model than the one asked about."""

from collections.abc import Mapping
from typing import Any

from advisor.quants.rules import QuantRules
from advisor.records import NamedTuple


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
