"""What every config format offers: models in, single values ("slots") in a text out, and nothing else touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from advisor.memory.types import MemoryPlan
from advisor.records import NamedTuple
from advisor.slots import GONE, Gone, Slot

__all__ = ["GONE", "Gone", "Output", "OutputModel", "Slot", "Value"]

Value: TypeAlias = Any  # advisor.slots.Value, which formats take apart by its type


class OutputModel(NamedTuple):
    """One model to be written into a config.

    `options` are llama-server's, from `command.server_options`. `n_layer_all` counts the blocks. Names and paths come
    from files and are not trusted.
    """

    id: str  # how engines are to list it
    model_path: str  # absolute
    plan: MemoryPlan
    options: tuple[tuple[str, str], ...]
    n_layer_all: int
    description: str = ""
    aliases: tuple[str, ...] = ()
    store_name: str | None = None  # as its store calls it, such as Ollama's "qwen3:8b"
    architecture: str = ""


class Output(Protocol):
    """One config format. Pure: texts in, texts out; files are the business of `advisor.managed`."""

    name: str  # "llama-server-preset"
    title: str  # as people call the program
    engine: str  # the name of its rules in rules/engines: "llama.cpp", "ollama", ...
    shares: str  # "own": the whole file is ours; "merge": someone else's file in which single values are ours
    per_model: bool  # one file for each model
    new_text: str  # what a new file starts with

    def slots(self, models: Sequence[OutputModel], supported: frozenset[str] | None) -> dict[Slot, Value]:
        """Everything that is to stand in the file for `models`.

        `supported`: the option names that the user's own llama-server lists in its help, None = not known. Raises
        OutputError, with the model and the reason, for what the format cannot carry.
        """

    def one(self, model: OutputModel, supported: frozenset[str] | None = None) -> dict[Slot, Value]:
        """What is to stand there for one model, the others aside. Raises OutputError as `slots` does."""

    def together(self, own: Mapping[str, Mapping[Slot, Value]]) -> dict[Slot, Value]:
        """`slots` from what `one` said of each model, by id. Raises OutputError for what cannot stand together."""

    def grouped(self, sets: Mapping[str, Sequence[str]]) -> tuple[dict[Slot, Value], list[str]]:
        """What keeps the models of each set (by its name: ids, the main one first) loaded at the same time.

        The slots, and what has to be said besides: what the file cannot carry.
        """

    def parse(self, text: str) -> Mapping[Slot, Value]:
        """Every value that stands where slots can be, the user's own included. Raises OutputError for other text."""

    def spelled(self, text: str) -> dict[Slot, str]:
        """How the values stand in the text, and above them the sections, maps and lists (by the slots' beginnings).

        A table's text is what is left of it when nothing is in it any more. Raises OutputError as `parse` does.
        """

    def edit(self, text: str, changes: Mapping[Slot, Value | Gone], spelled: Mapping[Slot, str] = ...) -> str:
        """`text` with exactly these slots set or taken out; every other byte stays.

        A value in `spelled` is written as it says there; a table in it stays when its last value goes. Afterwards
        `parse` gives what it gave before, with the changes applied. Raises OutputError, and so changes nothing, where
        that cannot be done.
        """

    def validate(self, text: str) -> None:
        """Hold `text` against the rules of the program that reads it, as far as known. Raises OutputError."""

    def expresses(self) -> frozenset[str]:
        """The names of RunSettings that the format can say."""

    def fixed(self) -> Mapping[str, Value]:
        """What the other settings are there, as far as the format or its program decides it."""

    def file_name(self, model: OutputModel) -> str:
        """Where the file of a model stands, below the target's folder; only with `per_model`. Raises OutputError."""
