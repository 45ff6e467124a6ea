"""What a person should know about a plan before trusting it."""

from __future__ import annotations

from advisor.gguf_header.errors import excerpt
from advisor.memory.engine_spec import EngineSpec
from advisor.memory.server import checkpoints_of_slot
from advisor.memory.types import MemoryPlan
from advisor.model.heads import HEADS_DERIVED
from advisor.model.spec import ModelSpec
from advisor.recommend.budget import Budget, ServerCaches, host_over_bytes, server_caches
from advisor.recommend.embedding import reads_at_once
from advisor.recommend.policy import Intent, Policy
from advisor.recommend.recommendation import Note
from advisor.recommend.warn_devices import device_warnings
from advisor.recommend.words import pace_text
from advisor.settings import RequestedSettings, RunSettings
from advisor.speed import Speed
from advisor.units import MIB, format_bytes, round_up


def warnings(
    spec: ModelSpec,
    engine: EngineSpec,
    request: RequestedSettings,
    plan: MemoryPlan,
    budget: Budget,
    speed: Speed,
    policy: Policy,
    intent: Intent | None = None,
) -> list[Note]:
    """Warnings for one plan, the gravest first; `intent`: what its settings were chosen for."""
    settings = plan.settings
    notes = []
    if plan.refused:
        notes.append(Note("refused", f"The engine refuses these settings: {plan.refused}."))
    if spec.n_ctx_train and settings.n_ctx_seq > round_up(spec.n_ctx_train, engine.defaults["context_padding"]):
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
        text = f"The architecture '{excerpt(spec.architecture)}' is not measured"
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
    if settings.beside.draft_model and not settings.beside.spec_type and engine.program == "llama-server":
        text = (
            "The server loads the draft model and drafts nothing with it: --spec-type is not given, and its default is "
            "none; --spec-type draft-simple makes an ordinary model draft."
        )
        notes.append(Note("draft_unused", text, "llama_cpp.toml: draft"))
    if settings.n_parallel > 1:
        notes.append(_slots_note(spec, engine, plan))
    asked = request.n_ctx
    if asked and asked != settings.n_ctx:
        notes.append(rounded_note(asked, settings.n_ctx))
    notes += _cut_batches(request, settings)
    if not plan.flash_attn and settings.flash_attn != "off":
        notes.append(
            Note(
                "flash_attention_off",
                _why_off(engine, plan, budget) + ", which makes the compute buffer grow with the context; "
                "a quantized V cache needs it too, so V stays f16"
                + (", whatever OLLAMA_KV_CACHE_TYPE says." if engine.program == "ollama" else "."),
            )
        )
    notes += device_warnings(spec, engine, plan, budget)
    if spec.answers:
        notes += _offload_warnings(spec, plan, policy, speed, intent)
    elif reads_at_once(spec) and settings.n_ubatch < settings.n_ctx_seq:
        text = (
            f"A text of more than {settings.n_ubatch:,} tokens is refused, since it is read at once; "
            f"-b {settings.n_ctx_seq} -ub {settings.n_ctx_seq} takes all {settings.n_ctx_seq:,}."
        )
        notes.append(Note("text_beyond_batch", text))
    kept, left = plan.host.extras["prompt_cache_bytes"], -host_over_bytes(plan, budget)
    if kept < 0:
        text = "With --cache-ram -1 the server keeps old prompts without a limit, until system memory is full."
        notes.append(Note("prompt_cache_unlimited", text, "llama_cpp.toml: server"))
    caches = server_caches(plan, budget, checkpoints_of_slot(settings, engine))
    if caches != ServerCaches(None, None):
        notes.append(_ram_note(engine, plan, left, caches))
    return notes


def _why_off(engine: EngineSpec, plan: MemoryPlan, budget: Budget) -> str:
    """Why flash attention is off although nobody asked for that."""
    keys, values = plan.settings.cache_type_k, plan.settings.cache_type_v
    if keys != values and any(engine.backends[limit.backend].equal_cache_types for limit in budget.devices):
        return f"Flash attention turns itself off: this build has no kernel for keys in {keys} and values in {values}"
    return "Flash attention turns itself off for this model on this device"


def rounded_note(asked: int, n_ctx: int) -> Note:
    """That a context is not a multiple of what the engine takes."""
    return Note("context_rounded", f"The engine rounds -c {asked:,} up to {n_ctx:,}.")


def _cut_batches(request: RequestedSettings, settings: RunSettings) -> list[Note]:
    """Batches that the engine makes smaller than asked for: n_batch to the context, n_ubatch to n_batch."""
    notes, n_batch = [], settings.n_batch
    if request.n_batch and request.n_batch > n_batch:
        notes.append(Note("batch_cut", f"The engine cuts -b {request.n_batch:,} to {n_batch:,}, the context."))
    if request.n_ubatch and request.n_ubatch > settings.n_ubatch:
        cut = f"The engine cuts -ub {request.n_ubatch:,} to {settings.n_ubatch:,}, the batch"
        room = min(request.n_ubatch, settings.n_ctx)
        cure = f"; with -b {room} it is {room:,}" if room > n_batch and not request.n_batch else ""
        notes.append(Note("ubatch_cut", f"{cut}{cure}."))
    return notes


def _ram_note(engine: EngineSpec, plan: MemoryPlan, left: int, caches: ServerCaches) -> Note:
    """What the server keeps in system memory over time, and what would keep it within the `left` bytes."""
    extras, slots, most = plan.host.extras, plan.settings.n_parallel, checkpoints_of_slot(plan.settings, engine)
    kept, states = extras["prompt_cache_bytes"], extras["context_checkpoints_bytes"]
    parts = [f"up to {format_bytes(kept)} of old prompts"] if kept > 0 else []
    if states:
        for_slots = f" for each of {slots} slots" if slots > 1 else ""
        one = states // (most * slots) / MIB
        parts.append(f"{format_bytes(states)} of checkpoints ({most} of {one:,.1f} MiB{for_slots})")
    cures = [f"--cache-ram {caches.cache_ram_mib}"] if caches.cache_ram_mib is not None else []
    cures += [f"--ctx-checkpoints {caches.n_ctx_checkpoints}"] if caches.n_ctx_checkpoints is not None else []
    text = (
        f"The server keeps {' and '.join(parts)} in system memory; only {format_bytes(left)} is left: "
        f"{' '.join(cures)} keeps it within that."
    )
    code = "prompt_cache_fills_ram" if caches.cache_ram_mib is not None else "context_checkpoints_fill_ram"
    return Note(code, text, "llama_cpp.toml: server")


def _slots_note(spec: ModelSpec, engine: EngineSpec, plan: MemoryPlan) -> Note:
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
    if engine.program == "llama-server" and settings.n_ctx <= (spec.n_ctx_train or settings.n_ctx):
        text += f"; -kvu makes them one pool, and -np 1 leaves all {settings.n_ctx:,} to one"
    elif engine.program == "llama-server" and spec.answers:  # more than the model was trained for is of no use to one
        text += "; -kvu makes them one pool"
    return Note("context_divided", f"{text}.")


def _offload_warnings(
    spec: ModelSpec, plan: MemoryPlan, policy: Policy, speed: Speed, intent: Intent | None
) -> list[Note]:
    notes = []
    total = sum(plan.read_device_bytes) + plan.read_host_bytes
    share = plan.read_host_bytes / total if total else 0.0
    on_gpu = sum(plan.read_device_bytes) > 0
    from_disk = speed.bound_by == "disk"  # which is said by itself
    if on_gpu and not spec.n_expert and share > policy.warnings["dense_cliff_share"] and not from_disk:
        notes.append(
            Note(
                "dense_on_cpu",
                f"{share:.0%} of the weights are read from system memory by the CPU for every token"
                + (", which sets the pace." if speed.bound_by == "ram bandwidth" else "."),
                "policy.toml: warnings.dense_cliff_share",
            )
        )
    pace = pace_text(speed)
    if speed.decode_tokens_per_s.value < policy.warnings["slow_tokens_per_s"] and speed.bound_by != "disk":
        text = f"{pace[0].upper()}{pace[1:]} is slower than people read."
        if intent is not None and 0 < intent.least_tokens_per_s <= speed.decode_tokens_per_s.value:
            least = f"{intent.least_tokens_per_s:g} token{'s' if intent.least_tokens_per_s != 1 else ''}/s"
            text += f" For {intent.name} all counts from {least} on; --min-tps asks for more."
        notes.append(Note("slow", text, "policy.toml: warnings.slow_tokens_per_s"))
    return notes
