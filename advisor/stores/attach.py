"""Projectors, draft heads, adapters and importance matrices go to the model that they belong to.

What a file is comes from its header. To which model of the same folder it belongs no header says, so where there are
several, names decide: `mmproj-gemma-3-4b-it-f16` goes to every quantization of `gemma-3-4b-it`, and to nothing when
there are only other models. What belongs to nothing stays in the list as what it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from advisor.quants.names import without_quant
from advisor.stores.collect import stem_of
from advisor.stores.types import Companion, StoredModel

_KINDS = {"mmproj": "mmproj", "draft head": "draft", "adapter": "adapter", "imatrix": "imatrix"}
_WORDS = re.compile(r"[^-._\s]+")
_SAY_WHAT = frozenset(
    ("mmproj", "model", "imatrix", "mtp", "dflash", "dspark", "eagle", "eagle3", "draft", "lora", "adapter", "i1")
)  # words that do not tell one model from another


def attach(models: Sequence[StoredModel]) -> tuple[StoredModel, ...]:
    """`models` of one store, with their facts: companions become fields of the models that they belong to."""
    folders: dict[str, list[StoredModel]] = {}
    for model in models:
        if model.store != "ollama" and model.facts is not None:  # its manifests say what belongs together
            folders.setdefault(_folder(model), []).append(model)
    given: dict[str, list[Companion]] = {}  # path of a model -> its companions
    taken: set[str] = set()
    for together in folders.values():
        candidates = [model for model in together if model.kind == "model"]
        named = {companion.path for model in candidates for companion in model.companions}
        words = {model.path: words_of(model.path) for model in candidates}
        for other in together:
            if other.kind not in _KINDS:
                continue
            owners = [] if other.path in named else _owners(other, candidates, words)
            for owner in owners:
                given.setdefault(owner.path, []).append(Companion(_KINDS[other.kind], other.path))
            if owners or other.path in named:
                taken.add(other.path)
    return tuple(
        model._replace(companions=(*model.companions, *given.get(model.path, ())))
        for model in models
        if model.path not in taken or model.kind == "model"
    )


def _owners(
    other: StoredModel, candidates: Sequence[StoredModel], words: Mapping[str, tuple[str, ...]]
) -> list[StoredModel]:
    """The models among `candidates` that `other` is for: several quantizations of one model, or none."""
    assert other.facts is not None
    if other.kind == "adapter":
        architecture = other.facts.architecture
        candidates = [m for m in candidates if m.facts is not None and m.facts.architecture == architecture]
    if len({words[model.path] for model in candidates}) == 1:
        return list(candidates)
    own = words_of(other.path)
    scores = {model.path: _common(own, words[model.path]) for model in candidates}
    best = max(scores.values(), default=0)
    return [model for model in candidates if best and scores[model.path] == best]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words both begin with, if the shorter has no others."""
    shorter = min(len(one), len(other))
    return shorter if one[:shorter] == other[:shorter] else 0


def words_of(path: str) -> tuple[str, ...]:
    """The words of a file's name that tell one model from another."""
    stem = without_quant(stem_of(path))
    return tuple(word for word in _WORDS.findall(stem.lower()) if word not in _SAY_WHAT)


def _folder(model: StoredModel) -> str:
    """What lies together: a folder, or a snapshot of the Hugging Face cache with the folders in it."""
    folder = os.path.dirname(model.path)
    if model.store == "huggingface":
        before, snapshots, after = folder.partition(f"{os.sep}snapshots{os.sep}")
        if snapshots:
            return before + snapshots + after.partition(os.sep)[0]
    return folder
