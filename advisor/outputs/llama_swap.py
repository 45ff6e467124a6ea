"""llama-swap: a file of our own in its config folder (`-config-dir`), merged there with the user's.

Format facts: llama-swap v250, read, not run. An id in two files is an error that stops it, so ids that stand in the
user's files are left out, and groups too. `cmd` is split like a shell does, without a shell; ${...} are its macros and
cannot be escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.outputs.base import Format
from advisor.outputs.carry import check_printable, without_controls
from advisor.outputs.command import quote
from advisor.outputs.option_names import known_to
from advisor.outputs.shape import LEAF, Keys, slots_in
from advisor.outputs.types import Gone, OutputModel, Slot, Value
from advisor.outputs.wanted import ALL_SETTINGS, Wanted, spelled_out
from advisor.outputs.yaml_text import data_of, edit_yaml, spelled_yaml
from advisor.records import NamedTuple

_ROUTING = ("routing", "router", "settings", "groups")  # where groups stand since llama-swap has a choice of routers
_LEGACY = ("groups",)  # where they stood before; one config may not have both (internal/config/load.go)
_GROUPS = Keys(Keys(LEAF))
_SHAPE = Keys(
    None,
    {
        "models": Keys(Keys(LEAF)),
        "groups": _GROUPS,
        "routing": Keys(None, {"router": Keys(None, {"settings": Keys(None, {"groups": _GROUPS})})}),
    },
)


class Beside(NamedTuple):
    """What the user's own files of the config folder hold: ids and aliases, groups by name, how models are routed."""

    ids: frozenset[str] = frozenset()
    groups: Mapping[str, frozenset[str]] = {}
    legacy: bool = False  # groups stand at the top
    matrix: bool = False  # a matrix of sets decides, no groups

    def and_in(self, text: str) -> Beside:
        """With one file more. Raises OutputError for other text."""
        data = data_of(text, LlamaSwap.title)
        slots = slots_in(data, _SHAPE)
        grouped = [slot for slot in slots if slot[0] != "models"]
        members = {
            slot[-2]: frozenset(each for each in slots[slot] if isinstance(each, str))
            for slot in grouped
            if slot[-1] == "members" and isinstance(slots[slot], list)
        }
        return Beside(
            self.ids | ids_in(text),
            {**self.groups, **dict.fromkeys((slot[-2] for slot in grouped), frozenset()), **members},
            self.legacy or bool(_below(data, _LEGACY)),
            self.matrix or bool(_below(data, ("matrix",))) or _below(data, ("routing", "router", "use")) == "matrix",
        )


def _below(data: Any, path: Sequence[str]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def ids_in(text: str) -> frozenset[str]:
    """The model ids and aliases that a config file of llama-swap holds. Raises OutputError for other text."""
    found: set[str] = set()
    for slot, value in slots_in(data_of(text, LlamaSwap.title), _SHAPE).items():
        if slot[0] != "models":
            continue
        found.add(slot[1])
        if slot[2] == "aliases" and isinstance(value, list):
            found |= {alias for alias in value if isinstance(alias, str)}
    return frozenset(found)


class LlamaSwap(Format):
    """See the module. `program`: how llama-server is started; `beside`: what the user's own files hold."""

    name = "llama-swap"
    title = "llama-swap"
    new_text = "# managed by advisor; edits are detected and kept\n"

    def __init__(self, program: str = "llama-server", beside: Beside | None = None) -> None:
        self._beside = beside or Beside()
        self._taken, self._program = self._beside.ids, program

    def without(self, ids: Collection[str]) -> LlamaSwap:
        """The same for a folder in whose other files these ids stand."""
        return LlamaSwap(self._program, self._beside._replace(ids=frozenset(ids)))

    def expresses(self) -> frozenset[str]:
        """Everything: the command is llama-server's."""
        return ALL_SETTINGS

    def _slots(self, model: OutputModel, supported: frozenset[str] | None) -> dict[Slot, Value]:
        wanted = Wanted(model._replace(options=tuple(spelled_out(model))), self.title)
        if model.id in self._taken:
            wanted.refuse("its id stands in another file of the config folder; rename one of the two")
        words = [
            f"{self._word(self._program, 'program', wanted)} --port ${{PORT}}",
            f"--model {self._word(model.model_path, 'path', wanted)}",
        ]
        for name, value in known_to(wanted.rest(), supported, model.id):
            words.append(f"--{name} {self._word(value, name, wanted)}" if value else f"--{name}")
        self._word(model.id, "name", wanted)
        found: dict[Slot, Value] = {("models", model.id, "cmd"): "\n".join(words)}
        if model.description:
            found["models", model.id, "description"] = without_controls(model.description).replace("${", "$ {")
        aliases = [alias for alias in model.aliases if alias not in self._taken and alias != model.id]
        for alias in aliases:
            self._word(alias, "alias", wanted)
        if aliases:
            found["models", model.id, "aliases"] = aliases
        found["models", model.id, "metadata"] = {"managed_by": "advisor"}
        return found

    def _word(self, text: str, what: str, wanted: Wanted) -> str:
        if "${" in text:
            wanted.refuse(f"the {what} '{excerpt(text)}' holds '${{', which begins a macro; rename the file or link it")
        check_printable(text, what, wanted.model.id)
        return quote(text)

    def together(self, own: Mapping[str, Mapping[Slot, Value]]) -> dict[Slot, Value]:
        """Also: an alias that is another model's id or alias is left out."""
        found = super().together(own)
        used = set(own)
        for model_id in own:
            slot = ("models", model_id, "aliases")
            aliases = [alias for alias in found.get(slot, ()) if alias not in used]
            used.update(aliases)
            if aliases:
                found[slot] = aliases
            else:
                found.pop(slot, None)
        return found

    def grouped(self, sets: Mapping[str, Sequence[str]]) -> tuple[dict[Slot, Value], list[str]]:
        """A group for each set: its models stay loaded together (swap: false), others do not come beside them."""
        found: dict[Slot, Value] = {}
        said = []
        above = _LEGACY if self._beside.legacy else _ROUTING
        elsewhere = {each: name for name, members in self._beside.groups.items() for each in members}
        for name, ids in sets.items():
            other = next((each for each in ids if each in elsewhere), None)
            why = None
            if self._beside.matrix:
                why = f"the config folder routes by a matrix; add {excerpt(' & '.join(ids))} to its sets yourself"
            elif name in self._beside.groups:
                why = "a group of that name stands in another file of the config folder; rename one of the two"
            elif other is not None:
                why = f"{excerpt(other)} is in your group {excerpt(elsewhere[other])}, and a model can be in one only"
            elif "${" in name or not name.isprintable():
                why = "its name cannot be written; give it another"
            if why is not None:
                said.append(f"llama-swap gets no group for the set {excerpt(name)}: {why}.")
                continue
            group = {"swap": False, "exclusive": True, "members": list(ids)}
            found |= {(*above, name, key): value for key, value in group.items()}
        return found, said

    def _parse(self, text: str) -> dict[Slot, Value]:
        return slots_in(data_of(text, self.title), _SHAPE)

    def _edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str]) -> str:
        return edit_yaml(text, changes, _SHAPE, self.title, spelled)

    def _spelled(self, text: str) -> dict[Slot, str]:
        return spelled_yaml(text, _SHAPE, self.title)

    def validate(self, text: str) -> None:
        """Also: every model has a command, and none has a taken id. Raises OutputError."""
        parsed = self.parse(text)
        if {"groups", "routing"} <= {slot[0] for slot in parsed}:
            raise OutputError(
                "llama-swap stops where groups stand both at the top and below routing.router; move yours to routing."
            )
        lists = [value for slot, value in parsed.items() if slot[-1] == "members" and isinstance(value, list)]
        found = Counter(str(each) for members in lists for each in members if isinstance(each, str | int))
        twice = next((name for name, count in found.items() if count > 1), None)
        if twice is not None:
            raise OutputError(f"llama-swap's model '{excerpt(twice)}' is in two groups; take it out of one of them.")
        for model_id in {slot[1] for slot in parsed if slot[0] == "models"}:
            command = parsed.get(("models", model_id, "cmd"))
            if not isinstance(command, str) or not command.strip():
                raise OutputError(f"llama-swap's model '{excerpt(model_id)}' has no cmd; take it out or give it one.")
            if model_id in self._taken:
                raise OutputError(
                    f"llama-swap's model '{excerpt(model_id)}' stands in another file too; take it out of one of them."
                )


OUTPUT = LlamaSwap()
