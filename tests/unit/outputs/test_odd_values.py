"""Values and keys that are allowed in YAML, TOML and JSON and that few have: what fuzzing found."""

from __future__ import annotations

import pytest

from advisor.errors import OutputError
from advisor.outputs.base import identity
from advisor.outputs.registry import load
from advisor.slots import is_plain

KEYS = "\n".join(("mine:", "  ~: 1", "  a: 2", "  1: 3", "  0.5: 5", "other: {2: x, '2': y}", ""))


def test_keys_of_several_types_beside_each_other():
    output = load("jan")
    after = output.edit(KEYS, {("ctx_size",): 4096})
    assert after == KEYS + "ctx_size: 4096\n"
    assert output.edit(after, {("ctx_size",): 8192}).count("8192") == 1


def test_a_number_and_its_digits_are_two_keys():
    assert identity({1: "x"}) != identity({"1": "x"})
    assert identity({"a": 1, "b": [2.0]}) == identity({"b": [2.0], "a": 1})


@pytest.mark.parametrize("name", ["jan", "localai", "llama-swap", "text-generation-webui", "ramalama", "koboldcpp"])
def test_a_number_of_thousands_of_digits_is_refused(name):
    text = {"ramalama": "[ramalama]\nx = {}\n", "koboldcpp": '{{"x": {}}}'}.get(name, "x: {}\n").format("1" * 4400)
    with pytest.raises(OutputError) as error:
        load(name).parse(text)
    assert str(error.value).startswith("this is no config of ")


def test_a_number_of_thousands_of_digits_in_hexadecimal_stays_as_it_is():
    output = load("ramalama")
    text = f"[ramalama]\nimage = 0x{'f' * 5000}\nctx_size = 1\n"
    after = output.edit(text, {("ramalama", "ctx_size"): 2})
    assert after == text.replace("ctx_size = 1", "ctx_size = 2")
    assert not is_plain(output.parse(text)["ramalama", "image"])
    assert is_plain(2**64)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\\", "\\\n", "\\\r\n", '"', " \\\n"])
@pytest.mark.parametrize("name", ["NEW", "LLAMA_ARG_FIT"])
def test_a_line_of_variables_that_would_go_on_behind_the_file_is_kept_or_refused(end: str, name: str) -> None:
    output = load("env-file")
    text = f"A=1\nLLAMA_ARG_FIT=of*\\{end}"
    try:
        before = output.parse(text)
        after = output.edit(text, {(name,): "1"})
    except OutputError:
        return
    assert output.parse(after) == {**before, (name,): "1"}
