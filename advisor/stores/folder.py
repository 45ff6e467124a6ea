"""Plain folders: every GGUF in them and below."""

from __future__ import annotations

import os

from advisor.stores import hugging_face, ollama, textgen
from advisor.stores.collect import report_folder
from advisor.stores.types import StoreReport


def list_models(folder: str) -> StoreReport:
    """The models of a folder that the user names; one that is laid out as a store is read as that store."""
    if os.path.isdir(os.path.join(folder, "manifests")) and os.path.isdir(os.path.join(folder, "blobs")):
        return ollama.list_models(folder)
    if hugging_face.is_hub(folder):
        return hugging_face.list_models(folder)
    if textgen.is_textgen(folder):
        return textgen.list_models(folder)
    return report_folder("folder", folder)


def outside_folders(folder: str) -> list[str]:
    """Where else the models of `folder` are, if it is a program's."""
    return [os.path.abspath(textgen.model_folder(folder))] if textgen.is_textgen(folder) else []
