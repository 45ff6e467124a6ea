"""The context that an engine takes when nobody tells it one, where that is not the model's own."""

from __future__ import annotations

from advisor.host import HostSnapshot
from advisor.memory.engine_spec import EngineSpec
from advisor.model.spec import ModelSpec
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.recommendation import Note
from advisor.settings import RequestedSettings
from advisor.units import format_bytes


def default_n_ctx(engine: EngineSpec, spec: ModelSpec, host: HostSnapshot, n_parallel: int | None) -> int | None:
    """Tokens of all slots together; None where the engine takes the trained context."""
    steps = engine.defaults.get("n_ctx_by_vram")
    if not steps:
        return None
    total = sum(device.total_bytes for device in host.devices)
    n_ctx = max((n_ctx for least, n_ctx in steps if total >= least), default=int(steps[0][1]))
    if engine.defaults.get("n_ctx_at_most_trained") and spec.n_ctx_train:
        n_ctx = min(n_ctx, spec.n_ctx_train)
    return int(n_ctx) * max(n_parallel or engine.defaults["server_n_parallel"], 1)


def default_context_note(evaluator: Evaluator, request: RequestedSettings) -> Note:
    """That `request` has the engine's default, and what the trained context would take beside it."""
    engine, trained = evaluator.engine, evaluator.spec.n_ctx_train
    slots = max(request.n_parallel or engine.defaults["server_n_parallel"], 1)
    text = f"{engine.name} takes {(request.n_ctx or 0) // slots:,} tokens where nobody says a context"
    if trained and trained * slots != request.n_ctx:
        now, then = (evaluator.cache_bytes(request._replace(n_ctx=n_ctx)) for n_ctx in (request.n_ctx, trained * slots))
        text += (
            f", not the {trained:,} that the model was trained for: its cache takes {format_bytes(now)}, "
            f"that of the trained context {format_bytes(then)}"
        )
    return Note("default_context", f"{text}.", f"{engine.name.replace('-', '_')}.toml: defaults.n_ctx_by_vram")
