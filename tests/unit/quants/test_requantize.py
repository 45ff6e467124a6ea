"""A model in another quantization is planned as the file would be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.errors import ModelError, RuleError
from advisor.memory.plan import Planner
from advisor.memory.resolve import resolve_settings
from advisor.quants.choose import engine_order
from advisor.quants.recognize import recognize, same_model
from advisor.quants.requantize import requantized, weights_bytes
from advisor.quants.rules import parse_quants
from advisor.settings import RequestedSettings
from advisor.stores.resolve import load_header
from tests.tools.cells import describe_header, engine, snapshot
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.machines import machine
from tests.tools.quantized import rules, spec_of


@pytest.mark.parametrize(("model", "name"), [("llama3-1b", "Q4_K_M"), ("ds2-lite", "IQ2_XS"), ("gemma3-4b", "Q8_0")])
@pytest.mark.parametrize("layers", [0, 7, 99])
def test_it_plans_like_the_file_itself(model: str, name: str, layers: int, tmp_path: Path) -> None:
    made = requantized(spec_of(f"zoo/{model}"), name, rules())
    document = snapshot(model)
    types = {tensor.name: tensor.ggml_type for tensor in made.tensors}
    shapes = {tensor.name: tensor.shape for tensor in made.tensors}
    order = [made.tensors[index].name for index in engine_order(made.tensors)]  # as llama-quantize writes them
    document["tensors"] = [[each, list(shapes[each]), types[each]] for each in order]
    write_empty_gguf(document, tmp_path / "m.gguf")
    file = describe_header(load_header(str(tmp_path / "m.gguf")))
    assert recognize(file._replace(quantization=name), rules()) == (name, False)
    host = machine(8)
    settings = resolve_settings(
        RequestedSettings(n_ctx=4096, n_parallel=1, n_gpu_layers=layers), file, engine(), tool="server", n_devices=1
    )
    expected, planned = (Planner(each, engine(), host.devices).plan(settings) for each in (file, made))
    assert planned == expected
    assert weights_bytes(made) == weights_bytes(file)


def test_the_original_gives_the_same_as_the_file_that_was_made_of_it() -> None:
    original = requantized(spec_of("zoo/gemma3n-e4b"), "F16", rules())
    small = requantized(original, "Q2_K", rules())
    assert requantized(small, "Q5_K_M", rules()).tensors == requantized(original, "Q5_K_M", rules()).tensors
    assert requantized(small, "F16", rules()).tensors == original.tensors
    assert small.quantization == "Q2_K"
    assert original.file_bytes - small.file_bytes == weights_bytes(original) - weights_bytes(small)
    assert same_model(original, small)
    assert not same_model(original, small._replace(name="a finetune"))
    assert not same_model(original, small._replace(tensors=small.tensors[1:]))


def test_what_cannot_be_made_says_why() -> None:
    with pytest.raises(ModelError, match=r"cannot be made Q1_0: the rows of .* \(2,880\) do not divide into blocks of"):
        requantized(spec_of("zoo/gpt-oss-20b"), "Q1_0", rules())


def test_a_rule_with_a_type_that_does_not_exist_is_refused() -> None:
    document = json.loads(json.dumps(rules().document))
    document["quantizations"]["Q4_K_M"]["type"] = "q4_k_m"
    with pytest.raises(RuleError, match=r"mine\.toml: quantizations\.Q4_K_M names the ggml type 'q4_k_m'"):
        parse_quants(document, "mine.toml")
    document["quantizations"]["Q4_K_M"]["type"] = "q4_K"
    document["quantizations"]["Q4_K_M"]["output"] = [{"type": "q6_K"}]
    with pytest.raises(RuleError, match=r"mine\.toml: quantizations\.Q4_K_M\.output takes one type"):
        parse_quants(document, "mine.toml")
