"""One column of a comparison: a model in a quantization on a machine, and what recommend says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.cli.machines import machine_name
from advisor.host import HostSnapshot
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.recommendation import Recommendation
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.planner import Planner
    from advisor.recommend.policy import Intent
    from advisor.recommend.search import Wishes


class Column(NamedTuple):
    """`machine` is the whole one, `host` that with the GPUs that take part; `cache_bytes` are of f16 at `n_ctx`."""

    spec: ModelSpec
    machine: HostSnapshot
    host: HostSnapshot
    answer: Recommendation
    n_ctx: int
    cache_bytes: int

    @property
    def machine_name(self) -> str:
        """The machine's GPUs in words."""
        return machine_name(self.machine, ram=False)

    @property
    def weights_bytes(self) -> int:
        """Weights of the file; a table that is loaded twice counts once."""
        from advisor.quants.requantize import weights_bytes

        return weights_bytes(self.spec)


def make_column(
    app: App, planner: Planner, spec: ModelSpec, intent: Intent, wishes: Wishes, *, requantized: bool
) -> Column:
    """Plan one column. Raises UsageError where the engine refuses the settings."""
    from advisor.errors import UsageError
    from advisor.gguf_header.errors import excerpt

    pinned = wishes.pinned
    if requantized and pinned.n_gpu_layers is None:
        kind = app.quant_rules().quantizations[spec.quantization]
        if any(device.backend in kind.cpu_only_on for device in planner.host.devices):
            wishes = wishes._replace(pinned=pinned._replace(n_gpu_layers=0))  # the backend has no kernels for it
    beside = app.beside(pinned, spec)
    answer, host = planner.recommend(spec, intent, wishes, beside)
    refused = answer.chosen.plan.refused
    if refused is not None:
        raise UsageError(f"{planner.engine.name} refuses these settings for {excerpt(spec.name)}: {refused}.")
    search = planner.search(spec, intent, wishes, host, beside)
    n_ctx = pinned.n_ctx or min(intent.floor_n_ctx, spec.n_ctx_train or intent.floor_n_ctx)
    asked = search.open_split(answer.chosen.request)._replace(n_ctx=n_ctx, cache_type_k="f16", cache_type_v="f16")
    return Column(spec, planner.host, host, answer, n_ctx, search.evaluator.cache_bytes(asked))


def column_shape(column: Column) -> dict[str, Any]:
    """One column as JSON."""
    from advisor.cli import shapes

    answer = column.answer
    plan: MemoryPlan = answer.chosen.plan
    return {
        "model": shapes.model_shape(column.spec),
        "machine": column.machine_name,
        "verdict": answer.verdict,
        "summary": answer.summary,
        "weights_bytes": column.weights_bytes,
        "f16_cache": {"n_ctx": column.n_ctx, "bytes": column.cache_bytes},
        "settings": shapes.settings_shape(plan),
        "devices": shapes.devices_shape(plan, answer.budget, column.host),
        "host": shapes.host_shape(plan, answer.budget),
        "speed": shapes.speed_shape(answer.speed),
        "warnings": shapes.notes_shape(answer.warnings),
        "contexts": shapes.contexts_shape(answer.contexts),
    }
