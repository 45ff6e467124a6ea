"""An environment file with llama-server's LLAMA_ARG_* variables for one model, for systemd's EnvironmentFile=.

Format facts: llama.cpp b11434 common/arg.cpp; an option on the command line beats its variable. threads-batch,
spec-draft-device, lora and op-offload have no variable.
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.errors import OutputError
from advisor.outputs.base import Format
from advisor.outputs.carry import check_printable, plain_file_name
from advisor.outputs.env_text import GRAMMAR
from advisor.outputs.line_text import edit_lines, spelled_lines
from advisor.outputs.llama_server_preset import key_of
from advisor.outputs.option_names import VARIABLES, known_to
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted, spelled_out

_NEGATED = "LLAMA_ARG_NO_"


class EnvFile(Format):
    """See the module."""

    name = "env-file"
    title = "an environment file"
    per_model = True
    new_text = "# managed by advisor; edits are detected and kept\n"

    def expresses(self) -> frozenset[str]:
        """Everything that has a variable."""
        return ALL_SETTINGS - {"op_offload"}

    def file_name(self, model: OutputModel) -> str:
        """`ID.env`."""
        return plain_file_name(model.id, ".env")

    def _slots(self, model: OutputModel, supported: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model._replace(options=tuple(spelled_out(model))), self.title)
        check_printable(model.model_path, "path", model.id)
        found: dict[Slot, Value] = {(VARIABLES["model"],): model.model_path}
        for name, value in known_to(wanted.rest(), supported, model.id, respell=False):
            key, text = key_of(name, value)
            if key not in VARIABLES:
                wanted.refuse(f"--{name} has no variable; give it on the command line, or plan without")
            check_printable(text, name, model.id)
            found[(VARIABLES[key],)] = text
        return found

    def _parse(self, text: str) -> dict[Slot, Value]:
        return {slot: row.value for slot, row in GRAMMAR.winners(GRAMMAR.scan(text)).items()}

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_lines(text, changes, GRAMMAR, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_lines(text, GRAMMAR)

    def validate(self, text: str) -> None:
        """Also: no variable beside its own negation. Raises OutputError."""
        names = {slot[0] for slot in self.parse(text)}
        for name in names:
            if name.startswith(_NEGATED) and name.replace(_NEGATED, "LLAMA_ARG_") in names:
                raise OutputError(f"the file sets {name} and its opposite; take one of them out.")


OUTPUT = EnvFile()
