"""From what is asked to what the engine runs: defaults, roundings, refusals.

Source: llama.cpp b11434 common/arg.cpp, src/llama-context.cpp, tools/server/server.cpp.
"""

from __future__ import annotations

from advisor.errors import UsageError
from advisor.memory.engine_spec import EngineSpec
from advisor.model.spec import ModelSpec
from advisor.settings import BesideSettings, RequestedSettings, RunSettings
from advisor.units import round_up

# common/common.h, need_n_rs_seq: the kinds of drafting that rewind the recurrent state.
DRAFT_TYPES_WITH_ROLLBACK = frozenset(("draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"))
_FIRST_BESIDE = RequestedSettings._fields.index("lora")
_NOTHING_BESIDE = RequestedSettings()[_FIRST_BESIDE:]
_PLAIN = BesideSettings()


def resolve_settings(
    asked: RequestedSettings, spec: ModelSpec, engine: EngineSpec, *, tool: str, n_devices: int
) -> RunSettings:
    """Every setting as the engine will run it. `tool` is "server", "cli" or "bench"; sizes in tokens."""
    defaults = engine.defaults
    server = tool == "server"
    auto_slots = asked.n_parallel is None or asked.n_parallel < 1
    if auto_slots:
        n_parallel = defaults["server_n_parallel"] if server else defaults["other_n_parallel"]
    else:
        n_parallel = asked.n_parallel or 1
    most = engine.limits["n_seq_max"]
    if n_parallel > most:
        raise UsageError(
            f"-np {n_parallel} is more than the {most} slots that {engine.name} takes; give at most {most}."
        )
    unified_default = server and auto_slots and bool(defaults["server_kv_unified"])
    kv_unified = asked.kv_unified if asked.kv_unified is not None else unified_default
    main_gpu = asked.main_gpu or 0
    if asked.split_mode == "none" and 0 < n_devices <= main_gpu:
        raise UsageError(f"-mg {main_gpu} names no GPU; with {n_devices} of them give 0 to {n_devices - 1}.")
    padding = defaults["context_padding"]
    wished = asked.n_ctx if asked.n_ctx else spec.n_ctx_train
    n_ctx = round_up(max(wished, 1), padding)
    n_batch = asked.n_batch or defaults["n_batch"]
    if spec.causal:
        n_batch = min(n_batch, max(wished, 1))  # before anything rounds the context up
    if kv_unified:
        n_ctx_seq = n_ctx
    else:
        n_ctx_seq = round_up(max(n_ctx // n_parallel, 1), padding)
        n_ctx = n_ctx_seq * n_parallel
    n_ubatch = min(n_batch, asked.n_ubatch or defaults["n_ubatch"])
    drafted = draft_tokens(asked, engine) if asked.spec_type else 0
    rows = min(n_parallel * (1 + drafted), asked.n_batch or defaults["n_batch"])
    if not server or engine.server_reserves_every_row:
        rows = 0
    rolls_back = drafted and spec.rollback_state and not DRAFT_TYPES_WITH_ROLLBACK.isdisjoint(asked.spec_type)
    return RunSettings(
        n_ctx=n_ctx,
        n_ctx_seq=n_ctx_seq,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        n_parallel=n_parallel,
        kv_unified=kv_unified,
        n_gpu_layers=_gpu_layers(asked.n_gpu_layers, spec, n_devices),
        n_cpu_moe=spec.n_layer_all if asked.cpu_moe else min(asked.n_cpu_moe or 0, spec.n_layer_all),
        tensor_overrides=asked.tensor_overrides,
        cache_type_k=asked.cache_type_k or defaults["cache_type"],
        cache_type_v=asked.cache_type_v or defaults["cache_type"],
        flash_attn=asked.flash_attn or defaults["flash_attn"],
        swa_full=bool(defaults["swa_full"] if asked.swa_full is None else asked.swa_full),
        kv_offload=asked.kv_offload is not False,
        op_offload=asked.op_offload is not False,
        split_mode=asked.split_mode or "layer",
        tensor_split=_tensor_split(asked.tensor_split, n_devices),
        main_gpu=main_gpu,
        mmap=asked.load_mode in (None, "auto", "mmap", "mlock", "mmap+mlock"),
        n_threads=asked.n_threads,
        repack=asked.repack is not False,
        n_outputs=rows,
        n_rollback=drafted if rolls_back else 0,
        beside=_beside(asked, engine) if asked[_FIRST_BESIDE:] != _NOTHING_BESIDE else _PLAIN,
    )


def draft_tokens(asked: RequestedSettings, engine: EngineSpec) -> int:
    """Tokens that speculative decoding drafts at most, 0 without it; each needs a row of logits."""
    known = engine.draft["n_max"]
    drafted = asked.draft_n_max if asked.draft_n_max is not None else known["draft"]
    return max((drafted if kind.startswith("draft-") else known.get(kind, 0) for kind in asked.spec_type), default=0)


def _beside(asked: RequestedSettings, engine: EngineSpec) -> BesideSettings:
    default = engine.draft["cache_type"]
    return BesideSettings(
        lora=asked.lora,
        mmproj=asked.mmproj,
        mmproj_offload=asked.mmproj_offload is not False,
        image_max_tokens=asked.image_max_tokens,
        draft_model=asked.draft_model,
        spec_type=asked.spec_type,
        draft_n_max=asked.draft_n_max,
        draft_n_gpu_layers=asked.draft_n_gpu_layers,
        draft_cache_type_k=asked.draft_cache_type_k or default,
        draft_cache_type_v=asked.draft_cache_type_v or default,
        cache_ram_mib=asked.cache_ram_mib,
        n_ctx_checkpoints=asked.n_ctx_checkpoints,
    )


def _tensor_split(asked: tuple[float, ...] | None, n_devices: int) -> tuple[float, ...] | None:
    """The shares of the devices that are there; the engine reads no more, and zeros alone are none."""
    shares = (asked or ())[:n_devices]
    return shares if n_devices > 1 and any(shares) else None


def _gpu_layers(asked: int | None, spec: ModelSpec, n_devices: int) -> int:
    """Layers on GPUs, the output counted as the last one; negative values mean all."""
    everything = spec.n_layer_all + 1
    if n_devices == 0:
        return 0
    return everything if asked is None or asked < 0 else min(asked, everything)
