"""What a person should know about a plan before trusting it."""

from __future__ import annotations

from advisor.memory.engine_spec import EngineSpec
from advisor.memory.plan import checkpoints_of_slot
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget, host_over_bytes, server_caches
from advisor.recommend.policy import Policy
from advisor.recommend.recommendation import Note
from advisor.recommend.words import pace_text
from advisor.settings import RequestedSettings
from advisor.speed import Speed
from advisor.units import format_bytes


def warnings(
    spec: ModelSpec,
    engine: EngineSpec,
    request: RequestedSettings,
    plan: MemoryPlan,
    budget: Budget,
    speed: Speed,
    policy: Policy,
) -> list[Note]:
    """Warnings for one plan, the gravest first."""
    settings = plan.settings
    notes = []
    if plan.refused:
        notes.append(Note("refused", f"The engine refuses these settings: {plan.refused}."))
    if spec.n_ctx_train and settings.n_ctx_seq > -(-spec.n_ctx_train // 256) * 256:
        notes.append(
            Note(
                "beyond_trained_context",
                f"{settings.n_ctx_seq:,} tokens is beyond the {spec.n_ctx_train:,} "
                f"that the model was trained for; answers degrade there.",
            )
        )
    if spec.confidence == "assumed":
        text = f"The architecture '{spec.architecture}' is not measured"
        detail = next((note for note in spec.notes), "plain attention is assumed")
        notes.append(Note("assumed_architecture", f"{text}: {detail}.", spec.arch_rule or "no rule file"))
    if engine.confidence == "extrapolated":
        notes.append(
            Note(
                "extrapolated_build",
                f"{engine.name} build {engine.build} is not measured; "
                f"the rules of the nearest measured build are used.",
                "llama_cpp.toml: builds",
            )
        )
    if settings.n_parallel > 1 and not settings.kv_unified:
        notes.append(
            Note(
                "context_divided",
                f"Each of {settings.n_parallel} slots gets {settings.n_ctx_seq:,} tokens of the {settings.n_ctx:,}.",
            )
        )
    if settings.n_parallel > 1 and settings.kv_unified:
        notes.append(
            Note("context_shared", f"{settings.n_parallel} slots share one pool of {settings.n_ctx:,} tokens.")
        )
    asked = request.n_ctx
    if asked and asked != settings.n_ctx:
        notes.append(Note("context_rounded", f"The engine rounds -c {asked:,} up to {settings.n_ctx:,}."))
    if not plan.flash_attn and settings.flash_attn != "off":
        notes.append(
            Note(
                "flash_attention_off",
                "Flash attention turns itself off for this model on this device, "
                "which makes the compute buffer grow with the context.",
            )
        )
    notes += _offload_warnings(spec, plan, policy, speed)
    kept, left = plan.host.extras["prompt_cache_bytes"], -host_over_bytes(plan, budget)
    if kept < 0:
        text = "With --cache-ram -1 the server keeps old prompts without a limit, until system memory is full."
        notes.append(Note("prompt_cache_unlimited", text, "llama_cpp.toml: server"))
    checkpoints = checkpoints_of_slot(settings, engine)
    mib, count = server_caches(plan, budget, checkpoints)
    states = plan.host.extras["context_checkpoints_bytes"]
    if count is not None:
        text = (
            f"The server keeps up to {checkpoints} checkpoints a slot of what cannot be rewound, "
            f"{format_bytes(states)} of system memory in all; only {format_bytes(left)} is left: "
            f"--ctx-checkpoints {count} keeps them within that."
        )
        notes.append(Note("context_checkpoints_fill_ram", text, "llama_cpp.toml: server"))
    if mib is not None:
        notes.append(
            Note(
                "prompt_cache_fills_ram",
                f"The server keeps old prompts in up to {format_bytes(kept)} of system memory; "
                f"only {format_bytes(left)} is left: --cache-ram {mib} keeps them within that.",
                "llama_cpp.toml: server",
            )
        )
    return notes


def _offload_warnings(spec: ModelSpec, plan: MemoryPlan, policy: Policy, speed: Speed) -> list[Note]:
    notes = []
    total = sum(plan.read_device_bytes) + plan.read_host_bytes
    share = plan.read_host_bytes / total if total else 0.0
    on_gpu = sum(plan.read_device_bytes) > 0
    if on_gpu and not spec.n_expert and share > policy.warnings["dense_cliff_share"]:
        notes.append(
            Note(
                "dense_on_cpu",
                f"{share:.0%} of the weights are read from system memory for every token, which sets the pace.",
                "policy.toml: warnings.dense_cliff_share",
            )
        )
    pace = pace_text(speed)
    if speed.decode_tokens_per_s.value < policy.warnings["slow_tokens_per_s"] and speed.bound_by != "disk":
        notes.append(
            Note(
                "slow",
                f"{pace[0].upper()}{pace[1:]} is slower than reading.",
                "policy.toml: warnings.slow_tokens_per_s",
            )
        )
    return notes
