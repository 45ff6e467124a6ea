"""llama.cpp's own flags: one table for the command line, for pasted commands and for what we write out.

Source: llama.cpp b11434 common/arg.cpp. `ini` is the key of a llama-server preset (the long option without dashes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from advisor.errors import UsageError
from advisor.ggml_types import CACHE_TYPES
from advisor.settings import ALL_LAYERS, AUTO_LAYERS, RequestedSettings, TensorOverride

_MAX_TOKENS = 1 << 31


class Flag(NamedTuple):
    """One llama.cpp option. `kind`: int, layers, choice, cache, floats, overrides, on (sets True), off (sets False)."""

    names: tuple[str, ...]
    field: str
    kind: str
    help: str
    choices: tuple[str, ...] = ()
    minimum: int = 0


FLAGS: tuple[Flag, ...] = (
    Flag(("-c", "--ctx-size"), "n_ctx", "int", "context in tokens, the pool of all slots (0 = the model's own)"),
    Flag(("-b", "--batch-size"), "n_batch", "int", "logical batch in tokens", minimum=1),
    Flag(("-ub", "--ubatch-size"), "n_ubatch", "int", "micro-batch in tokens", minimum=1),
    Flag(("-np", "--parallel"), "n_parallel", "int", "slots (-1 = the tool's default)", minimum=-1),
    Flag(("-kvu", "--kv-unified"), "kv_unified", "on", "one cache shared by all slots"),
    Flag(("-no-kvu", "--no-kv-unified"), "kv_unified", "off", "one cache per slot"),
    Flag(("-ngl", "--n-gpu-layers", "--gpu-layers"), "n_gpu_layers", "layers", "layers on the GPU: N, all or auto"),
    Flag(("-ncmoe", "--n-cpu-moe"), "n_cpu_moe", "int", "keep the experts of the first N blocks on the CPU"),
    Flag(("-cmoe", "--cpu-moe"), "cpu_moe", "on", "keep all experts on the CPU"),
    Flag(("-ot", "--override-tensor"), "tensor_overrides", "overrides", "PATTERN=BUFFER for tensors by name"),
    Flag(("-ctk", "--cache-type-k"), "cache_type_k", "cache", "type of the K cache", CACHE_TYPES),
    Flag(("-ctv", "--cache-type-v"), "cache_type_v", "cache", "type of the V cache", CACHE_TYPES),
    Flag(("-fa", "--flash-attn"), "flash_attn", "choice", "flash attention", ("on", "off", "auto")),
    Flag(("--swa-full",), "swa_full", "on", "keep the whole context for sliding-window layers"),
    Flag(("-nkvo", "--no-kv-offload"), "kv_offload", "off", "keep the cache in system memory"),
    Flag(("-kvo", "--kv-offload"), "kv_offload", "on", "keep the cache on the GPU"),
    Flag(("--no-op-offload",), "op_offload", "off", "never compute host weights on the GPU"),
    Flag(("--op-offload",), "op_offload", "on", "compute host weights on the GPU for large batches"),
    Flag(("-sm", "--split-mode"), "split_mode", "choice", "how to split over GPUs", ("layer", "none", "row", "tensor")),
    Flag(("-ts", "--tensor-split"), "tensor_split", "floats", "shares per GPU, such as 3,1"),
    Flag(("-mg", "--main-gpu"), "main_gpu", "int", "the GPU for split mode none"),
    Flag(("--load-mode",), "load_mode", "choice", "how weights are read",
         ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")),
    Flag(("--no-mmap",), "load_mode", "none", "read weights into memory instead of mapping the file"),
    Flag(("--mmap",), "load_mode", "mmap", "map the file"),
    Flag(("-t", "--threads"), "n_threads", "int", "CPU threads", minimum=-1),
    Flag(("--no-repack",), "repack", "off", "do not repack weights for the CPU"),
)  # fmt: skip

BY_NAME: dict[str, Flag] = {name: flag for flag in FLAGS for name in flag.names}
_BARE = frozenset(("on", "off", "none", "mmap"))
MODEL_FLAGS = ("-m", "--model")
# Options of llama.cpp programs that take no value and mean nothing for memory; all other unknown ones take one.
_UNKNOWN_WITHOUT_VALUE = frozenset(
    [
        "--jinja",
        "--no-jinja",
        "--mlock",
        "--verbose",
        "-v",
        "--no-webui",
        "--embedding",
        "--embeddings",
        "--rerank",
        "--reranking",
        "--metrics",
        "--slots",
        "--no-slots",
        "--props",
        "--no-perf",
        "--perf",
        "--no-warmup",
        "--warmup",
        "--offline",
        "-cnv",
        "-no-cnv",
        "--conversation",
        "--no-conversation",
        "--color",
        "--interactive",
        "-i",
        "--special",
        "--ignore-eos",
        "--no-context-shift",
        "--context-shift",
        "--cont-batching",
        "-cb",
        "-nocb",
        "--no-cont-batching",
        "--log-disable",
        "--simple-io",
        "--check-tensors",
        "--no-mmproj",
        "--no-mmproj-offload",
        "--escape",
        "-e",
        "--no-escape",
        "--no-host",
        "--direct-io",
        "-dio",
        "--version",
        "--help",
        "-h",
        "--models-autoload",
        "--no-models-autoload",
    ]
)


def takes_value(flag: Flag) -> bool:
    """Whether the option is followed by a value."""
    return flag.kind not in _BARE


def parse_value(flag: Flag, text: str, name: str) -> object:
    """The value of `flag` from its text. Raises UsageError naming the option and the cure."""
    if flag.kind == "layers" and text in ("all", "auto"):
        return ALL_LAYERS if text == "all" else AUTO_LAYERS
    if flag.kind in ("int", "layers"):
        minimum = -2 if flag.kind == "layers" else flag.minimum
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if not minimum <= number < _MAX_TOKENS:
            hint = ", all or auto" if flag.kind == "layers" else ""
            raise UsageError(f"{name} '{text}' is no number from {minimum} on{hint}.")
        return number
    if flag.kind == "choice":
        alias = {"1": "on", "0": "off", "-1": "auto", "true": "on", "false": "off", "enabled": "on", "disabled": "off"}
        value = alias.get(text, text) if flag.field == "flash_attn" else text
        if value not in flag.choices:
            raise UsageError(f"{name} '{text}' is unknown; choose one of {', '.join(flag.choices)}.")
        return value
    if flag.kind == "cache":
        if text.lower() not in flag.choices:
            raise UsageError(f"{name} '{text}' is no cache type; choose one of {', '.join(flag.choices)}.")
        return text.lower()
    if flag.kind == "floats":
        try:
            shares = tuple(float(part) for part in text.replace("/", ",").split(","))
        except ValueError:
            shares = ()
        if not shares or any(not 0 <= share < 1e30 for share in shares):
            raise UsageError(f"{name} '{text}' is no list of shares; write for example 3,1.")
        return shares
    return _parse_overrides(text, name)


def _parse_overrides(text: str, name: str) -> tuple[TensorOverride, ...]:
    overrides = []
    for part in text.split(","):
        pattern, equals, buffer = part.rpartition("=")
        if not equals or not pattern or not buffer:
            raise UsageError(f"{name} '{text}' is no PATTERN=BUFFER; write for example '{name} exps=CPU'.")
        overrides.append(TensorOverride(pattern, buffer))
    return tuple(overrides)


def bare_value(flag: Flag) -> object:
    """What an option without value sets."""
    return {"on": True, "off": False, "none": "none", "mmap": "mmap"}[flag.kind]


class Pasted(NamedTuple):
    """What a pasted command line says."""

    settings: RequestedSettings
    model: str | None
    program: str | None
    ignored: tuple[str, ...]


def parse_command(words: Sequence[str]) -> Pasted:
    """Read a pasted llama.cpp command line. Unknown options are collected, never fatal.

    Raises UsageError for a known option whose value is missing or unusable.
    """
    values: dict[str, object] = {}
    ignored: list[str] = []
    model: str | None = None
    queue = list(words)
    program = None
    if queue and not queue[0].startswith("-"):
        first = queue.pop(0)
        if first.lower().endswith(".gguf"):
            model = first
        else:
            program = first.replace("\\", "/").rsplit("/", 1)[-1]
    while queue:
        word = queue.pop(0)
        name, equals, attached = word.partition("=") if word.startswith("--") else (word, "", "")
        flag = BY_NAME.get(name)
        if name in MODEL_FLAGS:
            if not equals and not queue:
                raise UsageError(f"{name} needs a model file after it.")
            model = attached if equals else queue.pop(0)
        elif flag is None:
            ignored.append(word)
            if word.startswith("-") and word not in _UNKNOWN_WITHOUT_VALUE and not equals and _is_value(queue):
                ignored[-1] = f"{word} {queue.pop(0)}"
        elif not takes_value(flag):
            values[flag.field] = bare_value(flag)
        elif flag.field == "flash_attn" and not equals and not _is_value(queue):
            values[flag.field] = "on"  # older builds: -fa alone
        else:
            if not equals and not queue:
                raise UsageError(f"{name} needs a value after it.")
            value = parse_value(flag, attached if equals else queue.pop(0), name)
            if flag.field == "tensor_overrides":
                value = (*values.get(flag.field, ()), *value)  # type: ignore[misc]
            values[flag.field] = value
    return Pasted(RequestedSettings(**values), model, program, tuple(ignored))  # type: ignore[arg-type]


def _is_value(queue: list[str]) -> bool:
    """Whether the next word is a value: anything but an option; negative numbers are values."""
    return bool(queue) and (not queue[0].startswith("-") or queue[0][1:2].isdigit())
