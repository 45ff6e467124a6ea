"""Targets: the editors of every config format: what is parsed, changed and parsed again says what was meant."""

from __future__ import annotations

from collections.abc import Callable

from advisor.outputs.base import applied, identity_of
from advisor.outputs.registry import OUTPUTS, forget_texts, load
from advisor.outputs.types import GONE
from advisor.slots import is_plain
from tests.fuzz.laws import Choices, hold, plain

SLOTS = {
    "llama-server-preset": [("a", "ctx-size"), ("new", "fit"), ("*", "threads")],
    "llama-config-ini": [("*", "threads"), ("*", "fit-target")],
    "env-file": [("LLAMA_ARG_CTX_SIZE",), ("NEW",)],
    "llama-swap": [("models", "a", "cmd"), ("models", "new x", "ttl")],
    "ollama": [("PARAMETER", "num_ctx"), ("FROM",)],
    "llama-cpp-python": [("models", "a", "n_ctx"), ("models", "n ew", "x")],
    "koboldcpp": [("contextsize",), ('n "w"',)],
    "localai": [("name",), ("options", "parallel"), ("parameters", "model")],
    "ramalama": [("ramalama", "ctx_size"), ("ramalama", "runtimes", "llama_cpp", "ngl")],
    "text-generation-webui": [("Q\\.gguf$", "ctx_size"), ("new", "loader")],
    "lm-studio": [("load", "fields", "llm.a"), ("load", "fields", "llm.new")],
    "jan": [("ctx_size",), ("new two",)],
}
VALUES = ("1", "q8_0", "/srv/b c.gguf", "größe", "x=y", 'a "b"', "it's", 7, True, "", "a: b", "#x", "\u202e")


def editor(name: str) -> Callable[[bytes], None]:
    """The target for one format: three bytes of decisions, then the text."""

    def target(data: bytes) -> None:
        output = load(name)
        forget_texts()
        choices = Choices(data)
        which, act, value = choices.byte(), choices.number(4), choices.pick(VALUES)
        try:
            text = choices.rest().decode()
        except UnicodeDecodeError:
            return
        before = plain(lambda: output.parse(text))
        if before is None:
            return
        plain(lambda: output.validate(text))
        known = [*SLOTS[name], *list(before)[:40]]
        slot = known[which % len(known)]
        change = {slot: GONE if act == 0 else value}
        after = plain(lambda: output.edit(text, change))
        if after is None:
            return
        hold(identity_of(output.parse(after)) == identity_of(applied(before, change)), "says what was meant", after)
        hold(output.edit(after, change) == after, "twice is once", after)
        if slot in before and not is_plain(before[slot]):
            return  # dates and infinite numbers are never taken over, so never given back
        back = plain(lambda: output.edit(after, {slot: before.get(slot, GONE)}, output.spelled(text)))
        if back is not None:
            hold(identity_of(output.parse(back)) == identity_of(before), "taken back", text, back)

    return target


EDITORS = {f"edit-{name}": editor(name) for name in OUTPUTS}
