"""llama.cpp's own config, ~/.config/llama.cpp/config.ini: what holds for every model and every tool of this machine.

Format facts: llama.cpp b11434 (PR #26118), tried. Only `[*]` and the keys before it count, below variables and options;
every llama.cpp program reads it, so no model and nothing of a single model goes there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.outputs.base import Format
from advisor.outputs.ini_text import grammar
from advisor.outputs.line_text import edit_lines, spelled_lines
from advisor.outputs.option_names import known_to
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import Wanted

_GRAMMAR = grammar("", "*")
_MACHINE_WIDE = ("fit-target", "threads", "cache-type-k", "cache-type-v")


class LlamaConfigIni(Format):
    """A value is written where all models agree on it; nothing else, and never a model."""

    name = "llama-config-ini"
    title = "llama.cpp's config.ini"
    shares = "merge"
    new_text = "; managed by advisor; edits are detected and kept\n"

    def expresses(self) -> frozenset[str]:
        """What can hold for every model."""
        return frozenset(("cache_type_k", "cache_type_v", "n_threads"))

    def together(self, own: Mapping[str, Mapping[Slot, Value]]) -> dict[Slot, Value]:
        """The machine-wide values that all models share."""
        each = list(own.values())
        return {slot: value for slot, value in (each[0] if each else {}).items() if all(
            other.get(slot) == value for other in each
        )}  # fmt: skip

    def grouped(self, sets: Mapping[str, Sequence[str]]) -> tuple[dict[Slot, Value], list[str]]:
        """How many models a router keeps loaded (common/arg.cpp applies this file before variables and options)."""
        return ({("*", "models-max"): str(max(map(len, sets.values())))} if sets else {}), []

    def _slots(self, model: OutputModel, supported: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model, self.title)
        given = [(name, value) for name in _MACHINE_WIDE if (value := wanted.take(name)) is not None]
        return {("*", name): value for name, value in known_to(given, supported, model.id, respell=False)}

    def _parse(self, text: str) -> dict[Slot, Value]:
        winners = _GRAMMAR.winners(_GRAMMAR.scan(text))
        return {slot: row.value for slot, row in winners.items() if slot[0] == "*"}

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_lines(text, changes, _GRAMMAR, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_lines(text, _GRAMMAR)


OUTPUT = LlamaConfigIni()
