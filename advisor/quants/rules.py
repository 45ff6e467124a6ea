"""rules/quants.toml as values: the classes of tensors, each quantization's choices, and published quality figures."""

from collections.abc import Mapping
from typing import Any

from advisor.errors import RuleError
from advisor.ggml_types import BY_NAME
from advisor.gguf_header.errors import excerpt
from advisor.records import NamedTuple
from advisor.rulebook import either

CLASSES = ("output", "token_embd", "attn_v", "attn_k", "attn_q", "attn_output", "ffn_up", "ffn_gate", "ffn_down")
PLACES = ("first_2", "first_4", "first_16th", "first_8th", "middle", "more_bits")

_CHOICE: dict[str, object] = {
    "type": "str 1..",
    "architecture?": "str 1..",
    "not_architecture?": "str 1..",
    "n_expert?": "int 0..",
    "n_expert_at_least?": "int 0..",
    "n_gqa_at_least?": "int 0..",
    "imatrix?": "bool",
    "where?": PLACES,
}
_NAMES: dict[str, object] = {"names?": ["str 1.."], "parts?": ["str 1.."]}
_FIGURES: dict[str, object] = {
    "kld?": "number 0..",
    "perplexity_more?": "number",
    "with_imatrix_kld?": "number 0..",
    "with_imatrix_perplexity_more?": "number",
    "reference?": "str 1..",
}
SCHEMA: dict[str, object] = {
    "tensors": {
        "kept_names": ["str 1.."],
        "kept_parts": ["str 1.."],
        "classes": dict.fromkeys(CLASSES, _NAMES),
    },
    "output": {"wide_architectures": ["str 1.."], "type": "str 1..", "wide": "str 1.."},
    "fallback": {"*": "str 1.."},
    "imatrix": {"types": ["str 1.."], "free_names": ["str 1.."]},
    "raise": [
        {"class": CLASSES, "type": "str 1..", "large?": "bool", "from?": ["str 1.."], "n_expert?": "int 0.."}
    ],
    "large": [{"architectures": ["str 1.."], "n_layer": "int 1..", "grouped?": "bool"}],
    "architectures": {
        "*": {
            "n_layer_times?": "str 1..",
            "n_layer_more?": "int 0..",
            "stacked_classes?": ["str 1.."],
            "at_least_q8_0?": ["str 1.."],
            "kept_parts?": ["str 1.."],
        }
    },
    "quantizations": {
        "*": {
            "type": "str 1..",
            "file_type": "int 0..",
            "flat?": "str 1..",
            "by_count?": "bool",
            "raised?": "bool",
            "imatrix_types?": ["str 1.."],
            "cpu_only_on?": ["str 1.."],
            "trained_for?": "bool",
            **{f"{name}?": either("str 1..", [_CHOICE]) for name in CLASSES},
        }
    },
    "quality": {
        "weights": {
            "most_fallback_share": "number 0..1",
            "measure": "str 1..",
            "reference": "str 1..",
            "model": "str 1..",
            "text": "str 1..",
            "imatrix_text": "str 1..",
            "values": {"*": _FIGURES},
        },
        "cache": [
            {
                "name": "str 1..",
                "measure": "str 1..",
                "model": "str 1..",
                "text": "str 1..",
                "values": {"*": "number"},
            }
        ],
    },
}  # fmt: skip


class Choice(NamedTuple):
    """One choice of a class of tensors: the type, when every condition that is not None holds."""

    type_id: int
    architecture: str | None
    not_architecture: str | None
    n_expert: int | None
    n_expert_at_least: int | None
    n_gqa_at_least: int | None
    imatrix: bool | None
    where: str | None  # one of PLACES


class Quantization(NamedTuple):
    """One name that llama-quantize takes."""

    name: str
    file_type: int
    type_id: int
    output_type_id: int | None  # None: what [output] says
    choices: Mapping[str, tuple[Choice, ...]]  # by class, output left out
    flat_type_id: int | None
    by_count: bool
    raised: bool
    imatrix_types: frozenset[int]
    cpu_only_on: frozenset[str]  # backends
    note: str
    trained_for: bool  # only models that were trained for it come in it


class Raise(NamedTuple):
    """A rule that overrides a quantization's own choice."""

    tensor_class: str
    type_id: int
    large: bool
    from_types: frozenset[int]  # empty: from any
    n_expert: int | None


class QuantRules(NamedTuple):
    """The parsed document; the small tables stay as they are."""

    quantizations: Mapping[str, Quantization]
    raises: tuple[Raise, ...]
    fallback: Mapping[int, int]
    output_type_id: int
    wide_type_id: int
    imatrix_types: frozenset[int]
    document: Mapping[str, Any]


def parse_quants(document: Mapping[str, Any], file: str = "quants.toml") -> QuantRules:
    """The rules of a document that follows SCHEMA. Raises RuleError for a type that ggml does not have."""

    def type_id(name: str, where: str) -> int:
        kind = BY_NAME.get(name.lower())
        if kind is None:
            raise RuleError(f"{file}: {where} names the ggml type '{excerpt(name)}', which does not exist.")
        return kind.id

    def choices(entry: object, where: str) -> tuple[Choice, ...]:
        rows: list[dict[str, Any]] = [{"type": entry}] if isinstance(entry, str) else list(entry)  # type: ignore[call-overload]
        return tuple(Choice(type_id(row["type"], where), *(row.get(key) for key in Choice._fields[1:])) for row in rows)

    quantizations = {}
    for name, table in document["quantizations"].items():
        where = f"quantizations.{name}"
        output = table.get("output")
        if not isinstance(output, str | None):
            raise RuleError(f"{file}: {where}.output takes one type, not a list.")
        flat = table.get("flat")
        quantizations[name] = Quantization(
            name=name,
            file_type=table["file_type"],
            type_id=type_id(table["type"], where),
            output_type_id=type_id(output, where) if output else None,
            choices={key: choices(table[key], where) for key in CLASSES[1:] if key in table},
            flat_type_id=type_id(flat, where) if flat else None,
            by_count=table.get("by_count", False),
            raised=table.get("raised", True),
            imatrix_types=frozenset(type_id(each, where) for each in table.get("imatrix_types", ())),
            cpu_only_on=frozenset(table.get("cpu_only_on", ())),
            note=table.get("note", ""),
            trained_for=table.get("trained_for", False),
        )
    for name, row in document["quality"]["weights"]["values"].items():
        where = f"{file}: quality.weights.values.{excerpt(name)}"
        if name not in quantizations:
            raise RuleError(f"{where} is of no quantization that stands under quantizations; take it out.")
        if "kld" not in row and "with_imatrix_kld" not in row:
            raise RuleError(f"{where} lacks kld or with_imatrix_kld; add one of them.")
    raises = tuple(
        Raise(
            row["class"],
            type_id(row["type"], "raise"),
            row.get("large", False),
            frozenset(type_id(each, "raise") for each in row.get("from", ())),
            row.get("n_expert"),
        )
        for row in document["raise"]
    )
    return QuantRules(
        quantizations=quantizations,
        raises=raises,
        fallback={type_id(key, "fallback"): type_id(to, "fallback") for key, to in document["fallback"].items()},
        output_type_id=type_id(document["output"]["type"], "output"),
        wide_type_id=type_id(document["output"]["wide"], "output"),
        imatrix_types=frozenset(type_id(each, "imatrix") for each in document["imatrix"]["types"]),
        document=document,
    )
