"""Which path each config format wants: the list that the documented configuration and the README show."""

from __future__ import annotations

from advisor.records import NamedTuple


class Wants(NamedTuple):
    """What a target's path is with one format. `usual` is where that is as a rule, as it can be written there."""

    what: str  # a folder with formats that have a file of its own for each model
    usual: str


# the places of lm-studio, jan, ramalama and llama.cpp are those of their programs on Linux (see outputs/)
FORMATS = {
    "llama-server-preset": Wants("any file, such as", "~/.config/llama-server/models.ini"),
    "env-file": Wants("any folder, such as", "~/.config/llama-server/env"),
    "llama-config-ini": Wants("the file", "~/.config/llama.cpp/config.ini"),
    "llama-swap": Wants("a file in its -config-dir, such as", "~/.config/llama-swap/50-advisor.yaml"),
    "ollama": Wants("any folder, for Modelfiles, such as", "~/modelfiles"),
    "llama-cpp-python": Wants("any .json file, such as", "~/.config/llama-cpp-python/server.json"),
    "koboldcpp": Wants("any folder, such as", "~/kcpps"),
    "localai": Wants("its models folder, such as", "~/localai/models"),
    "ramalama": Wants("the file", "~/.config/ramalama/ramalama.conf.d/50-advisor.conf"),
    "text-generation-webui": Wants("its file, such as", "~/text-generation-webui/user_data/models/config-user.yaml"),
    "lm-studio": Wants("the folder", "~/.lmstudio/.internal/user-concrete-model-default-config"),
    "jan": Wants("the folder", "~/.local/share/Jan/data/llamacpp/models"),
}


def format_lines() -> str:
    """The list, a line for each format."""
    width = max(map(len, FORMATS))
    return "\n".join(f"  {name:{width}}  {wants.what} {wants.usual}" for name, wants in FORMATS.items())
