"""What a person should know about a plan before trusting it."""

from __future__ import annotations

from advisor.memory.engine_spec import EngineSpec
from advisor.memory.types import MemoryPlan
from advisor.model.heads import HEADS_DERIVED
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget, host_over_bytes
from advisor.recommend.policy import Policy
from advisor.recommend.recommendation import Note
from advisor.recommend.warn_devices import device_warnings
from advisor.recommend.words import pace_text
from advisor.settings import RequestedSettings
from advisor.speed import Speed
from advisor.units import MIB, format_bytes


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
    derived = next((note for note in spec.notes if note.startswith(HEADS_DERIVED)), "")
    if derived:
        notes.append(Note("heads_derived", f"{derived[0].upper()}{derived[1:]}."))
    if spec.confidence == "assumed":
        text = f"The architecture '{spec.architecture}' is not measured"
        detail = next((note for note in spec.notes if note != derived), "plain attention is assumed")
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
    if settings.n_parallel > 1:
        notes.append(_slots_note(engine, plan))
    asked = request.n_ctx
    if asked and asked != settings.n_ctx:
        notes.append(Note("context_rounded", f"The engine rounds -c {asked:,} up to {settings.n_ctx:,}."))
    if not plan.flash_attn and settings.flash_attn != "off":
        notes.append(
            Note(
                "flash_attention_off",
                "Flash attention turns itself off for this model on this device, "
                "which makes the compute buffer grow with the context; "
                "a quantized V cache needs it too, so V stays f16"
                + (", whatever OLLAMA_KV_CACHE_TYPE says." if engine.program == "ollama" else "."),
            )
        )
    notes += device_warnings(spec, engine, plan, budget)
    notes += _offload_warnings(spec, plan, policy, speed)
    kept, left = plan.host.extras["prompt_cache_bytes"], -host_over_bytes(plan, budget)
    if kept < 0:
        text = "With --cache-ram -1 the server keeps old prompts without a limit, until system memory is full."
        notes.append(Note("prompt_cache_unlimited", text, "llama_cpp.toml: server"))
    mib = cache_ram_mib(plan, budget)
    if mib is not None:
        notes.append(_ram_note(engine, plan, left, mib))
    return notes


def cache_ram_mib(plan: MemoryPlan, budget: Budget) -> int | None:
    """What --cache-ram must say so that saved prompts do not fill system memory, None where the default is well."""
    left = -host_over_bytes(plan, budget)
    extras = plan.host.extras
    if (
        extras["prompt_cache_bytes"] > 0
        and 0 <= left < extras["prompt_cache_bytes"] + extras["context_checkpoints_bytes"]
    ):
        return (left // 2 >> 20) // 256 * 256
    return None


def _ram_note(engine: EngineSpec, plan: MemoryPlan, left: int, mib: int) -> Note:
    """What the server keeps in system memory over time, and what would keep it within the `left` bytes."""
    extras, slots = plan.host.extras, plan.settings.n_parallel
    asked = plan.settings.beside.n_ctx_checkpoints
    most = engine.server["context_checkpoints"] if asked is None else asked
    keeps = f"up to {format_bytes(extras['prompt_cache_bytes'])} of old prompts"
    cure = f"--cache-ram {mib}"
    if extras["context_checkpoints_bytes"]:
        one = extras["context_checkpoints_bytes"] // (most * slots)
        for_slots = f" for each of {slots} slots" if slots > 1 else ""
        keeps += (
            f" and {format_bytes(extras['context_checkpoints_bytes'])} of checkpoints ({most} of {one / MIB:,.1f} MiB"
            f"{for_slots})"
        )
        fewer = max(left - (mib << 20), 0) // (one * slots)
        cure += f" --ctx-checkpoints {fewer}" if fewer < most else ""
    text = f"The server keeps {keeps} in system memory; only {format_bytes(left)} is left: {cure} keeps it within that."
    return Note("prompt_cache_fills_ram", text, "llama_cpp.toml: server")


def _slots_note(engine: EngineSpec, plan: MemoryPlan) -> Note:
    """What one request can count on where several share the context."""
    settings = plan.settings
    slots = settings.n_parallel
    cache = sum(device.cache_bytes for device in plan.devices) + plan.host.cache_bytes
    if engine.program == "ollama":
        text = (
            f"OLLAMA_NUM_PARALLEL={slots} makes Ollama reserve num_ctx {slots} times: {slots} x {settings.n_ctx_seq:,} "
            f"= {settings.n_ctx:,} tokens, {format_bytes(cache)} of cache. OLLAMA_NUM_PARALLEL=1 with the same num_ctx "
            f"takes {format_bytes(cache // slots)}."
        )
        return Note("context_multiplied", text, "ollama.toml: source")
    if settings.kv_unified:
        text = (
            f"{slots} slots share one pool of {settings.n_ctx:,} tokens: one request may fill it, several together run "
            f'out of it, and the server then ends them with "Context size has been exceeded". '
            f"With -np {slots} each would have {settings.n_ctx // slots:,} to itself."
        )
        return Note("context_shared", text)
    text = f"Each of {slots} slots gets {settings.n_ctx_seq:,} tokens of the {settings.n_ctx:,}, and no request more"
    if engine.program == "llama-server":
        text += f"; -kvu makes them one pool, and -np 1 leaves all {settings.n_ctx:,} to one"
    return Note("context_divided", f"{text}.")


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
