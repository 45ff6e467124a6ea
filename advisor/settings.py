"""Engine settings under llama.cpp's own names: as wished (`None` = left open) and as run (every value known)."""

from advisor.records import NamedTuple

ALL_LAYERS = -2  # `-ngl all`
AUTO_LAYERS = -1  # `-ngl auto`


class TensorOverride(NamedTuple):
    """`-ot PATTERN=BUFFER`: tensors whose name the regular expression finds go to that buffer type ("CPU", "CUDA0")."""

    pattern: str
    buffer: str


class RequestedSettings(NamedTuple):
    """What the user (or a candidate of the search) sets; `None` leaves the engine's default in force."""

    n_ctx: int | None = None  # -c; 0 = the model's trained context
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_parallel: int | None = None  # -np; None or -1 = the tool's default
    kv_unified: bool | None = None
    n_gpu_layers: int | None = None  # ALL_LAYERS and AUTO_LAYERS allowed
    n_cpu_moe: int | None = None
    cpu_moe: bool | None = None
    tensor_overrides: tuple[TensorOverride, ...] = ()
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    flash_attn: str | None = None  # "on" | "off" | "auto"
    swa_full: bool | None = None
    kv_offload: bool | None = None
    op_offload: bool | None = None
    split_mode: str | None = None  # "layer" | "none" | "row" | "tensor"
    tensor_split: tuple[float, ...] | None = None
    main_gpu: int | None = None
    load_mode: str | None = None  # "auto" | "mmap" | "none" | ...
    n_threads: int | None = None
    repack: bool | None = None
    lora: tuple[str, ...] = ()  # adapter files
    mmproj: str | None = None  # projector file
    mmproj_offload: bool | None = None
    image_max_tokens: int | None = None
    draft_model: str | None = None
    spec_type: tuple[str, ...] = ()  # "draft-mtp", "draft-simple", ...
    draft_n_max: int | None = None
    draft_n_gpu_layers: int | None = None
    draft_cache_type_k: str | None = None
    draft_cache_type_v: str | None = None
    cache_ram_mib: int | None = None  # -1 = no limit, 0 = none
    n_ctx_checkpoints: int | None = None


def without_beside(asked: RequestedSettings) -> RequestedSettings:
    """`asked` for the model alone."""
    first = RequestedSettings._fields.index("lora")
    return RequestedSettings._make((*asked[:first], *RequestedSettings()[first:]))


def without_draft(asked: RequestedSettings) -> RequestedSettings:
    """`asked` without its draft model and what it would do."""
    kinds = tuple(kind for kind in asked.spec_type if not kind.startswith("draft-"))
    plain = RequestedSettings()
    names = [name for name in asked._fields if name.startswith("draft_")]
    return asked._replace(spec_type=kinds, **{name: getattr(plain, name) for name in names})


class BesideSettings(NamedTuple):
    """What is loaded beside the model, as asked."""

    lora: tuple[str, ...] = ()
    mmproj: str | None = None
    mmproj_offload: bool = True
    image_max_tokens: int | None = None
    draft_model: str | None = None
    spec_type: tuple[str, ...] = ()
    draft_n_max: int | None = None
    draft_n_gpu_layers: int | None = None  # None, ALL_LAYERS or AUTO_LAYERS = all
    draft_cache_type_k: str = "f16"
    draft_cache_type_v: str = "f16"
    cache_ram_mib: int | None = None
    n_ctx_checkpoints: int | None = None

    @property
    def mtp(self) -> bool:
        """Whether the model's own NextN blocks draft."""
        return "draft-mtp" in self.spec_type


class RunSettings(NamedTuple):
    """Every setting that memory and speed rest on, resolved for one model, tool and engine build."""

    n_ctx: int  # tokens, as the engine rounds them; the pool of all sequences
    n_ctx_seq: int  # tokens that one sequence can reach
    n_batch: int
    n_ubatch: int
    n_parallel: int
    kv_unified: bool
    n_gpu_layers: int  # 0 .. n_layer_all + 1; the output counts as one layer, the last
    n_cpu_moe: int  # blocks 0 .. n-1 keep their experts on the CPU; n_layer_all for --cpu-moe
    tensor_overrides: tuple[TensorOverride, ...]
    cache_type_k: str
    cache_type_v: str
    flash_attn: str  # "on" | "off" | "auto", as asked; what it resolves to is in the plan
    swa_full: bool
    kv_offload: bool
    op_offload: bool
    split_mode: str
    tensor_split: tuple[float, ...] | None
    main_gpu: int
    mmap: bool
    n_threads: int | None
    repack: bool
    n_outputs: int  # rows of logits the engine reserves, 0 = one per token of the micro-batch
    n_rollback: int = 0  # recurrent states kept per sequence for speculative decoding, besides the current one
    beside: BesideSettings = BesideSettings()
