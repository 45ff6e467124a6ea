"""text-generation-webui: <its folder>/user_data/models, or --model-dir in its CMD_FLAGS.txt.

Source: text-generation-webui 4.7.3 (modules/shared.py). It has no place of its own in a home folder, so it is read
where the user names its folder; tested against folders made by hand.
"""

from __future__ import annotations

import os
import shlex

from advisor.errors import ModelError
from advisor.stores.collect import report_folder
from advisor.stores.files import read_small
from advisor.stores.types import StoreReport

_MAX_FLAGS_BYTES = 64 * 1024


def is_textgen(folder: str) -> bool:
    """Whether `folder` is an installation of it."""
    return os.path.isfile(os.path.join(folder, "server.py")) and os.path.isdir(os.path.join(folder, "user_data"))


def model_folder(folder: str) -> str:
    """Where the installation in `folder` keeps its models."""
    flags = os.path.join(folder, "user_data", "CMD_FLAGS.txt")
    words: list[str] = []
    try:
        text = read_small(flags, _MAX_FLAGS_BYTES).decode("utf-8", "replace")
        for line in text.splitlines():
            if not line.lstrip().startswith("#"):
                words += [word.replace("\0", "") for word in shlex.split(line)]
    except (ModelError, ValueError):  # ValueError: an open quotation mark
        words = []
    for index, word in enumerate(words):
        if word.startswith("--model-dir="):
            return os.path.join(folder, word.partition("=")[2])
        if word == "--model-dir" and index + 1 < len(words):
            return os.path.join(folder, words[index + 1])
    return os.path.join(folder, "user_data", "models")


def list_models(folder: str) -> StoreReport:
    """The models of the installation in `folder`."""
    return report_folder("textgen", model_folder(folder))
