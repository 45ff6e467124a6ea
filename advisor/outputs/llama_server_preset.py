"""llama-server's model preset (`--models-preset`, router mode): one section for each model.

Format facts: llama.cpp b11434 and b11549, tried with the real server. Everything that llama-server takes as an option
is a key; a key that it does not know makes it exit, so keys are held against the user's own binary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import Format
from advisor.outputs.ini_text import carries, grammar, section_fits
from advisor.outputs.line_text import edit_lines, spelled_lines
from advisor.outputs.option_names import canonical_name, known_to
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted, spelled_out

_GRAMMAR = grammar("default", "default")
MAKES_COMMENT = (
    "because everything after '#' or ';' is read as a comment; rename the file or link it under a plain name"
)


def key_of(name: str, value: str) -> tuple[str, str]:
    """An option as the format's slot has it: by its positive name, a switch as true or false."""
    canonical, negated = canonical_name(name)
    return canonical, "false" if negated else value or "true"


class LlamaServerPreset(Format):
    """See the module."""

    name = "llama-server-preset"
    title = "llama-server's preset"
    new_text = "; managed by advisor; edits are detected and kept\nversion = 1\n"

    def expresses(self) -> frozenset[str]:
        """Everything."""
        return ALL_SETTINGS

    def _slots(self, model: OutputModel, supported: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model._replace(options=tuple(spelled_out(model))), self.title)
        if not section_fits(model.id) or model.id == "default":
            wanted.refuse(f"a section cannot be called '{excerpt(model.id)}'; rename the file or link it")
        if not carries(model.model_path):
            wanted.refuse(f"its path {excerpt(model.model_path)} cannot be written, {MAKES_COMMENT}")
        found: dict[Slot, Value] = {(model.id, "model"): model.model_path}
        for name, value in known_to(wanted.rest(), supported, model.id, respell=False):
            key, text = key_of(name, value)
            if not carries(text):
                wanted.refuse(f"{name} '{excerpt(text)}' cannot be written, {MAKES_COMMENT}")
            found[(model.id, key)] = text
        return found

    def grouped(self, sets: Mapping[str, Sequence[str]]) -> tuple[dict[Slot, Value], list[str]]:
        """Nothing: the router takes `models-max` out of every section (server-models.cpp, unset_reserved_args).

        It is an option of the router's own command line, or LLAMA_ARG_MODELS_MAX; llama.cpp's config.ini has it too.
        """
        if not sets:
            return {}, []
        name, ids = max(sets.items(), key=lambda each: len(each[1]))
        return {}, [
            f"start llama-server's router with --models-max {len(ids)} (or LLAMA_ARG_MODELS_MAX={len(ids)}), which a "
            f"preset cannot say and a target llama-config-ini can: the {len(ids)} models of the set {excerpt(name)} "
            "then stay loaded, and a model that is not in it takes the place of one of them."
        ]

    def _parse(self, text: str) -> dict[Slot, Value]:
        return {slot: row.value for slot, row in _GRAMMAR.winners(_GRAMMAR.scan(text)).items()}

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_lines(text, changes, _GRAMMAR, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_lines(text, _GRAMMAR)

    def validate(self, text: str) -> None:
        """Also: no byte order mark, and no keys but `version` before the first section. Raises OutputError."""
        if text.startswith("\ufeff"):
            raise OutputError("the preset begins with a byte order mark, at which llama-server stops; save it without.")
        for section, key in self.parse(text):
            if section == "default" and key != "version":
                raise OutputError(
                    f"the preset sets {excerpt(key)} before its first section, which llama-server lists as a model "
                    f"called 'default'; put it under [*]."
                )


OUTPUT = LlamaServerPreset()
