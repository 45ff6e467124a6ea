"""What `--adopt` took over comes back letter for letter, also where the user edited the file in between."""

from __future__ import annotations

import pytest

from advisor.managed.change import apply_change, plan_change
from advisor.managed.ledger import open_ledger
from advisor.managed.undo import plan_undo, uninstall
from advisor.outputs.registry import load

SWAP = """models:
  "a":   # mine
    cmd: >-   # long
        llama-server
        --port ${PORT}
    ttl: 1.0e3      # seconds
    name: 'it''s'
    aliases:
      - x
      - "y"
    env:
  b: { }
  c:            # nothing yet
"""
WANTED = {
    ("models", "a", "cmd"): "llama-server -m /a.gguf\n--port ${PORT}", ("models", "a", "ttl"): 60,
    ("models", "a", "name"): "a b", ("models", "a", "aliases"): ["z"], ("models", "a", "env"): ["A=1"],
    ("models", "b", "cmd"): "x", ("models", "c", "cmd"): "y",
}  # fmt: skip
CASES = {
    "llama-swap": (SWAP, WANTED, "# a thought\n"),
    "llama-server-preset": (
        "version = 1\n[a]   ; empty\n[b]\nc   = 4096   ; tokens\n",
        {("a", "model"): "/a.gguf", ("b", "ctx-size"): "8192", ("b", "model"): "/b.gguf"},
        "; a thought\n",
    ),
    "env-file": (
        "LLAMA_ARG_MODEL='/a b.gguf'\nLLAMA_ARG_CTX_SIZE=  \"40\\\n96\"  \n",
        {("LLAMA_ARG_CTX_SIZE",): "8192", ("LLAMA_ARG_MODEL",): "/b.gguf"},
        "# a thought\n",
    ),
    "ramalama": (
        "[ramalama]\nctx_size = 0x1000 # tokens\n[ramalama.runtimes.llama_cpp]\n",
        {("ramalama", "ctx_size"): 8192, ("ramalama", "runtimes", "llama_cpp", "ngl"): 5},
        "# a thought\n",
    ),
    "koboldcpp": (
        '{\n\t"contextsize": 4096,\n\t"model_param": "\\u002fa.gguf"\n}\n',
        {("model_param",): "/b.gguf", ("contextsize",): 8192, ("gpulayers",): 5},
        "\n",
    ),
    "lm-studio": (
        '{"load": {"fields": [ ]}, "preset": ""}',
        {("load", "fields", "llm.load.contextLength"): 8192},
        "\n",
    ),
    "ollama": (
        'from  "qwen3:8b"\nparameter num_ctx   "4096"\n',
        {("FROM",): "qwen3:8b", ("PARAMETER", "num_ctx"): "8192"},
        "# a thought\n",
    ),
}


@pytest.mark.parametrize("back", ["undo", "uninstall", "no longer wanted"])
@pytest.mark.parametrize("name", CASES)
def test_letter_for_letter(name, back, tmp_path):
    text, wanted, thought = CASES[name]
    output, state, file = load(name), str(tmp_path / "state"), tmp_path / "engine.conf"
    file.write_text(text)

    def apply(wanted, adopt):
        with open_ledger(state) as ledger:
            planned = plan_change(str(file), output, wanted, ledger, adopt=adopt)
            assert planned.refused is None
            assert apply_change(planned, ledger, now_s=1)

    apply(wanted, True)
    assert output.parse(text) != output.parse(file.read_text())
    file.write_text(thought + file.read_text())
    apply({**wanted, next(iter(wanted)): "p q" if name != "lm-studio" else 5}, False)  # and not at once
    file.write_text(file.read_text() + "\n")
    if back == "no longer wanted":
        apply({}, False)
    else:
        with open_ledger(state) as ledger:
            if back == "undo":
                apply_change(plan_undo(str(file), ledger, {name: output}, to_s=0), ledger, now_s=2)
            else:
                assert [each.error for each in uninstall(ledger, {name: output}, now_s=2)] == [None]
    assert file.read_text() == thought + text + "\n"
