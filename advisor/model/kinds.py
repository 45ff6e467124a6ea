"""Which kind of GGUF file this is: a language model, or something that only looks like one."""

from __future__ import annotations

from advisor.gguf_header.types import GgufHeader

_IMAGE_ARCHITECTURES = frozenset(
    [
        "aura",
        "cosmos",
        "flux",
        "hidream",
        "hunyuan_video",
        "hyvid",
        "ltxv",
        "lumina2",
        "pig",
        "qwen_image",
        "sd1",
        "sd3",
        "sdxl",
        "wan",
        "wanvideo",
        "chroma",
        "omnigen",
        "z_image",
        "flux2",
        "zimage",
    ]
)
_AUDIO_ARCHITECTURES = frozenset(("whisper", "wavtokenizer-dec", "acestep", "outetts-vocoder"))
_DRAFT_ARCHITECTURES = frozenset(("eagle3", "dflash", "gemma4-assistant"))

KIND_TEXT = {
    "model": "a language model",
    "mmproj": "a multimodal projector (vision or audio encoder) that is loaded beside a language model with --mmproj",
    "adapter": "an adapter (LoRA or control vector) that is loaded on top of a language model with --lora",
    "imatrix": "an importance matrix for quantizing, not a model",
    "vocabulary": "a vocabulary without weights, not a model",
    "image model": "an image or video diffusion model, which llama.cpp does not run",
    "audio model": "an audio model, which llama.cpp's server does not run by itself",
    "draft head": "a draft head that only works beside its target model (--spec-draft-model)",
}
ENCODER_TEXT = "an encoder (embeddings)"  # a model that reads and does not write


def kind_of(header: GgufHeader) -> str:
    """A key of KIND_TEXT, from the metadata and the tensor names; file names are not trusted."""
    metadata = header.metadata
    general_type = str(metadata.get("general.type", "model")).lower()
    architecture = str(metadata.get("general.architecture", "")).lower()
    if general_type == "mmproj" or architecture == "clip" or "clip.has_vision_encoder" in metadata:
        return "mmproj"
    if general_type in ("adapter", "lora") or architecture == "controlvector":
        return "adapter"
    if general_type == "imatrix" or "imatrix.datasets" in metadata or "imatrix.chunk_count" in metadata:
        return "imatrix"
    if general_type in ("vocab", "vocabulary") or not header.tensors:
        return "vocabulary"
    if architecture in _IMAGE_ARCHITECTURES or _looks_like_diffusion(header):
        return "image model"
    if architecture in _AUDIO_ARCHITECTURES:
        return "audio model"
    if architecture in _DRAFT_ARCHITECTURES:
        return "draft head"
    return "model"


def _looks_like_diffusion(header: GgufHeader) -> bool:
    """Converters of image models often leave the metadata empty; the tensor names tell."""
    if any(key.endswith(".block_count") for key in header.metadata):
        return False
    heads = ("double_blocks.", "single_blocks.", "joint_blocks.", "model.diffusion_model.", "transformer_blocks.")
    return any(tensor.name.startswith(heads) for tensor in header.tensors)


def drafting_of(header: GgufHeader, *, wished: bool) -> tuple[str, ...]:
    """--spec-type for a draft model where none is given: as the engine infers it from the file, () = it drafts nothing.

    `wished`: the type that makes the file draft, where the engine infers none. Source: llama.cpp b11549
    common/speculative.cpp (common_speculative_types_from_gguf); without a type the server loads the draft model and
    leaves it unused (ggml-org/llama.cpp issue 25345, comment of 2026-07-06).
    """
    architecture = header.metadata.get("general.architecture")
    names = {tensor.name for tensor in header.tensors}
    if architecture == "dflash":
        return ("draft-dspark",) if "markov_w1.weight" in names else ("draft-dflash",)
    count = header.metadata.get(f"{architecture}.block_count")
    if isinstance(count, int) and f"blk.{count - 1}.nextn.eh_proj.weight" in names:
        return ("draft-mtp",)
    if not wished or architecture == "gemma4-assistant":
        return ()
    return ("draft-eagle3",) if architecture == "eagle3" else ("draft-simple",)
