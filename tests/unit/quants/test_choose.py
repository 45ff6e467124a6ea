"""Types and totals against llama-quantize's own dry run."""

from __future__ import annotations

import hashlib

import pytest

from advisor.ggml_types import GGML_TYPES
from advisor.quants.choose import Chooser, Impossible
from advisor.quants.recognize import recognize
from advisor.units import MIB
from tests.tools.quantized import lines, rules, spec_of

PRINTED = {line["model"]: line["f16_sizes_mib"] for line in lines("quants")}


@pytest.mark.parametrize("model", PRINTED)
def test_totals_are_what_llama_quantize_prints(model: str) -> None:
    chooser = Chooser(spec_of(f"zoo/{model}"), rules())
    assert set(PRINTED[model]) == set(rules().quantizations)
    for name, printed in PRINTED[model].items():
        total = chooser.total_bytes(name)
        if printed is None:  # it refuses: a row does not divide
            assert isinstance(total, Impossible), name
            continue
        assert not isinstance(total, Impossible), name
        assert (round(total / MIB, 2), round(8 * total / chooser.n_elements, 2)) == pytest.approx(printed, abs=0.0051)


def fingerprint(chooser: Chooser, names: list[str]) -> str:
    """Of every tensor's type in every quantization, without an importance matrix and with one."""
    total = hashlib.sha256()
    for quantization in sorted(rules().quantizations):
        for imatrix in (False, True):
            types = chooser.types(quantization, imatrix=imatrix)
            if isinstance(types, Impossible):
                continue
            for name, type_id in sorted(zip(names, types, strict=True)):
                total.update(f"{name}={GGML_TYPES[type_id].name}\n".encode())
    return total.hexdigest()[:16]


@pytest.mark.parametrize("group", ["zoo", "small", "mtp", "fresh", "invented"])
def test_every_tensor_gets_the_type_that_llama_quantize_gives_it(group: str) -> None:
    asked, wrong = 0, []
    for line in lines("quantized"):
        if not line["model"].startswith(f"{group}/"):
            continue
        asked += 1
        spec = spec_of(line["model"])
        chooser = Chooser(spec, rules())
        names = sorted(line["bytes"])
        with_imatrix = {**line["bytes"], **line["with_imatrix"]}
        seen = {name: total if isinstance(total := chooser.total_bytes(name), int) else None for name in names}
        seen_with = {
            name: total if isinstance(total := chooser.total_bytes(name, imatrix=True), int) else None for name in names
        }
        if seen != line["bytes"] or seen_with != with_imatrix:
            wrong.append((line["model"], "bytes"))
        if sorted(filter(chooser.needs_imatrix, names)) != line["needs_imatrix"]:
            wrong.append((line["model"], "imatrix"))
        if fingerprint(chooser, [tensor.name for tensor in spec.tensors]) != line["types"]:
            wrong.append((line["model"], "types"))
    assert asked >= 4
    assert wrong == []


# bits per weight and GiB of Llama 3.1 8B as llama.cpp's tools/quantize/README.md lists them
LISTED = {
    "IQ1_S": (2.0042, 1.87), "IQ1_M": (2.1460, 2.01), "IQ2_XXS": (2.3824, 2.23), "IQ2_XS": (2.5882, 2.42),
    "IQ2_S": (2.7403, 2.56), "IQ2_M": (2.9294, 2.74), "IQ3_XXS": (3.2548, 3.04), "IQ3_XS": (3.4977, 3.27),
    "IQ3_S": (3.6606, 3.42), "IQ3_M": (3.7628, 3.52), "IQ4_XS": (4.4597, 4.17), "IQ4_NL": (4.6818, 4.38),
    "Q2_K_S": (2.9697, 2.78), "Q2_K": (3.1593, 2.95), "Q3_K_S": (3.6429, 3.41), "Q3_K_M": (3.9960, 3.74),
    "Q3_K_L": (4.2979, 4.02), "Q4_K_S": (4.6672, 4.36), "Q4_K_M": (4.8944, 4.58), "Q5_K_S": (5.5704, 5.21),
    "Q5_K_M": (5.7036, 5.33), "Q6_K": (6.5633, 6.14), "Q8_0": (8.5008, 7.95), "F16": (16.0005, 14.96),
}  # fmt: skip
MADE_WITH_IMATRIX = ("IQ3_XXS",)


@pytest.mark.parametrize("name", LISTED)
def test_an_8b_is_as_large_as_published(name: str) -> None:
    chooser = Chooser(spec_of("zoo/llama3-8b"), rules())
    total = chooser.total_bytes(name, imatrix=name in MADE_WITH_IMATRIX)
    assert isinstance(total, int)
    assert round(8 * total / chooser.n_elements, 4) == pytest.approx(LISTED[name][0], abs=6e-4)
    assert total / 2**30 == pytest.approx(LISTED[name][1], abs=0.011)


def test_why_it_cannot_be_made() -> None:
    found = Chooser(spec_of("zoo/gpt-oss-20b"), rules()).types("Q1_0")
    assert isinstance(found, Impossible)
    assert (found.n_row, found.block_elements) == (2880, 128)


def test_how_much_of_a_model_falls_back() -> None:
    assert Chooser(spec_of("zoo/llama3-8b"), rules()).fallback_share("Q4_K_M") == 0.0
    falling = Chooser(spec_of("zoo/gpt-oss-20b"), rules())  # rows of 2,880 in all but the attention's output
    assert falling.fallback_share("Q4_K_M") > 0.9
    assert falling.fallback_share("Q8_0") == falling.fallback_share("F16") == 0.0


def test_a_published_file_is_recognized_and_a_mix_is_not() -> None:
    found = recognize(spec_of("zoo/llama33-70b-q4_k_m"), rules())
    assert found is not None
    assert found.name == "Q4_K_M"
    assert recognize(spec_of("zoo/llama3-8b"), rules()) is None  # Q4_K with ffn_down as Q6_K in every block
