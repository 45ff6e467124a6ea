"""What a config format cannot say is not chosen: the search is held to what the program does anyway."""

from advisor.memory.engine_spec import EngineSpec
from advisor.outputs.types import Output
from advisor.settings import RequestedSettings

# what the search varies by itself, and what it leaves alone instead
_VARIED = {"n_cpu_moe": 0, "cache_type_k": "f16", "cache_type_v": "f16", "n_parallel": 1}


def constrained(pinned: RequestedSettings, output: Output, engine: EngineSpec) -> RequestedSettings:
    """`pinned`, and with it everything that `output` leaves no choice about."""
    says, fixed = output.expresses(), output.fixed()
    values: dict[str, object] = {name: value for name, value in fixed.items() if name in RequestedSettings._fields}
    varied = {**_VARIED, "n_ubatch": engine.defaults["n_ubatch"]}
    for name, value in varied.items():
        if name not in says:
            values.setdefault(name, value)
    if "mmap" not in says and fixed.get("mmap") is False:
        values["load_mode"] = "none"
    return pinned._replace(**{n: v for n, v in values.items() if getattr(pinned, n) in (None, ())})  # type: ignore[arg-type]
