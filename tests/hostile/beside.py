"""Lies of files that are loaded beside a model: what their sentences say, and what comparing them costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from advisor.app import App
from advisor.errors import ModelError
from advisor.settings import RequestedSettings
from tests.hostile.lies import MARK, Case, Group, Lie, Made
from tests.tools.gguf_files import F32, array, kv
from tests.tools.tiny_models import adapter, filled, tiny_model

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


GROUP = Group("files beside a model", (
    Lie("names in sentences", "a reason that is pushed out of what is shown", names),
))  # fmt: skip
