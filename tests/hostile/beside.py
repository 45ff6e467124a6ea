"""Lies of files that are loaded beside a model: what their sentences say, and what comparing them costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from advisor.app import App
from advisor.errors import ModelError
from advisor.settings import RequestedSettings
from tests.hostile.lies import MARK, Case, Group, Lie, Made
from tests.tools.gguf_files import F32, array, assemble, kv, table
from tests.tools.tiny_models import adapter, filled, tiny_model, tiny_parts

LONG = f"\x1b[31m{MARK}\u202e\n" + "x" * (4 << 20)


def _beside(model: Path, app: App | None = None, **asked: Any) -> Any:
    app = app or App(None)
    spec = app.model(app.header(str(model)))
    return app.beside(RequestedSettings(**asked), spec) and None


def _told(end: str, call: Callable[[], Any]) -> Callable[[], str]:
    """Whether the sentence tells the reason `end`, within what a terminal shows of a sentence."""

    def answer() -> str:
        try:
            call()
        except ModelError as error:
            said = str(error)[:1000]
            return "told" if end in said and said.isprintable() else said
        return "taken"

    return answer


def tokens(texts: Sequence[str], kind: str = "llama") -> list[bytes]:
    """A vocabulary."""
    return [kv("tokenizer.ggml.model", "string", kind), array("tokenizer.ggml.tokens", "string", texts)]


def names(folder: Path) -> Made:
    """Names of megabytes in sentences."""
    words = [f"t{number}" for number in range(96)]
    model, other = folder / "m.gguf", folder / "other.gguf"
    model.write_bytes(tiny_model(LONG, more=tokens(words)))
    other.write_bytes(tiny_model(LONG, more=tokens(words, "gpt2")))
    drafting = _told(
        "its vocabulary is of type", lambda: _beside(model, draft_model=str(other), spec_type=("draft-simple",))
    )
    yield Case("of two models that do not go together", drafting, "told")
    for label, entries, rows, end in (
        ("the type of an adapter", {"adapter.type": LONG}, (), "takes LoRA adapters only"),
        ("the architecture of an adapter", {"general.architecture": LONG}, (), "give the adapter that was made"),
        ("what an adapter adapts", {}, ("blk.9.x\x1b[2J.lora_a",), "give the adapter that was made"),
        ("no half of a pair", {}, ("blk.9.x\x1b[2J",), "is no half"),
    ):  # fmt: skip
        said = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora", **entries}
        path = folder / f"{label}.gguf"
        tensors = [(name, (64, 4), F32) for name in rows or ("blk.0.attn_q.weight.lora_a",)]
        path.write_bytes(filled([kv(key, "string", value) for key, value in said.items()], tensors))
        yield Case(label, _told(end, lambda p=str(path): _beside(model, lora=(p,))), "told")
    path = folder / "good.gguf"
    path.write_bytes(adapter())
    yield Case("of a model with its adapter", _told("", lambda: _beside(model, lora=(str(path),))), "taken")


def _sparse(path: Path, n_texts: int, text_bytes: int, before: int = 0) -> Path:
    """A model with a vocabulary of so many texts, all empty or holes, behind another list of empty ones."""
    entries = [kv("tokenizer.ggml.model", "string", "llama")]
    if before:
        entries.append(array("tokenizer.ggml.merges", "string", [], length=before) + bytes(8 * before))
    entries.append(array("tokenizer.ggml.tokens", "string", [], length=n_texts))
    entries, tensors = tiny_parts(n_vocab=n_texts, more=entries)
    rows, body_bytes = table(tensors)
    with path.open("wb") as file:
        file.write(assemble(entries, n_tensors=len(rows)))
        if text_bytes:
            for _ in range(n_texts):
                file.write(text_bytes.to_bytes(8, "little"))
                file.seek(text_bytes, os.SEEK_CUR)
        else:
            file.seek(8 * n_texts, os.SEEK_CUR)
        file.write(b"".join(rows))
        file.truncate(-(-file.tell() // 32) * 32 + body_bytes)
    return path


def vocabularies(folder: Path) -> Made:
    """Token texts that are compared."""
    for label, n_texts, text_bytes, before, end in (
        ("texts of 256 MiB", 96, 256 << 20, 0, "are not compared"), ("texts of 1 MiB", 96, 1 << 20, 0, "are not compared"),
        ("texts of 300 KB", 96, 300_000, 0, ""), ("a million texts", 1 << 20, 0, 0, ""),
        ("two million texts", 1 << 21, 0, 0, "are not compared"),
        ("a million texts behind a million others", 1 << 20, 0, 1 << 20, ""),
        ("as many behind more others", (1 << 20) - 1, 0, (1 << 20) + 1, "are not compared"),
    ):  # fmt: skip
        one, two = (_sparse(folder / f"{name}.gguf", n_texts, text_bytes, before) for name in ("one", "two"))
        app = App(None)
        spec = app.model(app.header(str(one)))  # another input, with a limit of its own
        asked = RequestedSettings(draft_model=str(two), spec_type=("draft-simple",))
        yield Case(
            label, _told(end, lambda a=asked, s=spec, p=app: p.beside(a, s) and None), "told" if end else "taken"
        )
    one, two, whole = folder / "short.gguf", folder / "short2.gguf", folder / "whole.gguf"
    one.write_bytes(tiny_model("A", more=tokens(["a", "b", "c"])))
    two.write_bytes(tiny_model("B", more=tokens(["a", "b", "c"])))
    whole.write_bytes(tiny_model("C", more=tokens([f"t{number}" for number in range(96)])))
    for label, model, draft in (
        ("two short lists", one, two),
        ("a short list", whole, one),
        ("a shorter one", one, whole),
    ):
        asked = _told(
            "texts for 3 tokens", lambda m=model, d=draft: _beside(m, draft_model=str(d), spec_type=("draft-simple",))
        )
        yield Case(label, asked, "told")


GROUP = Group("files beside a model", (
    Lie("names in sentences", "a reason that is pushed out of what is shown", names),
    Lie("vocabularies", "46 s of comparing two files of 102 KB on disk", vocabularies),
))  # fmt: skip
