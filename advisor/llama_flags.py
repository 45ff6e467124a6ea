"""llama.cpp's own flags: one table for the command line, for pasted commands and for what we write out.

Source: llama.cpp b11434 common/arg.cpp. `ini` is the key of a llama-server preset (the long option without dashes).
"""

from collections.abc import Sequence

from advisor.errors import UsageError
from advisor.excerpts import excerpt
from advisor.ggml_types import CACHE_TYPES
from advisor.llama_variables import ENVIRONMENT
from advisor.records import NamedTuple
from advisor.settings import ALL_LAYERS, AUTO_LAYERS, RequestedSettings, TensorOverride
from advisor.whole_numbers import read_whole


class Flag(NamedTuple):
    """One llama.cpp option.

    `kind`: int, layers, choice, choices, cache, floats, overrides, file, files, on (sets True), off (sets False).
    """

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
    Flag(("-lm", "--load-mode"), "load_mode", "choice", "how weights are read",
         ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")),
    Flag(("--no-mmap",), "load_mode", "none", "read weights into memory instead of mapping the file"),
    Flag(("--mmap",), "load_mode", "mmap", "map the file"),
    Flag(("-t", "--threads"), "n_threads", "int", "CPU threads", minimum=-1),
    Flag(("-nr", "--no-repack"), "repack", "off", "do not repack weights for the CPU"),
    Flag(("--repack",), "repack", "on", "repack weights for the CPU (default)"),
    Flag(("--lora",), "lora", "files", "LoRA adapter; several with commas or by repeating it"),
    Flag(("-mm", "--mmproj"), "mmproj", "file", "multimodal projector loaded with the model"),
    Flag(("--mmproj-offload",), "mmproj_offload", "on", "keep the projector on the GPU (default)"),
    Flag(("--no-mmproj-offload",), "mmproj_offload", "off", "keep the projector in system memory"),
    Flag(("--image-max-tokens",), "image_max_tokens", "int", "most tokens of one image", minimum=1),
    Flag(("-md", "--model-draft", "--spec-draft-model"), "draft_model", "file", "draft model for speculative decoding"),
    Flag(("--spec-type",), "spec_type", "choices", "kinds of speculative decoding, such as draft-mtp",
         ("none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "ngram-simple",
          "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")),
    Flag(("--spec-draft-n-max",), "draft_n_max", "int", "most tokens drafted at once"),
    Flag(("-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl"), "draft_n_gpu_layers", "layers",
         "layers of the draft model on the GPU"),
    Flag(("-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"), "draft_cache_type_k", "cache",
         "type of the draft's K cache", CACHE_TYPES),
    Flag(("-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"), "draft_cache_type_v", "cache",
         "type of the draft's V cache", CACHE_TYPES),
    Flag(("-cram", "--cache-ram"), "cache_ram_mib", "int", "MiB of saved prompts (-1 = no limit)", minimum=-1),
    Flag(("-ctxcp", "--swa-checkpoints", "--ctx-checkpoints"), "n_ctx_checkpoints", "int", "checkpoints per slot"),
)  # fmt: skip

BY_NAME: dict[str, Flag] = {name: flag for flag in FLAGS for name in flag.names}
REPEATED = frozenset(("overrides", "files", "choices"))  # each time adds to the earlier ones
_BARE = frozenset(("on", "off", "none", "mmap"))
MODEL_FLAGS = ("-m", "--model")
_STORE_FLAGS = ("-hf", "-hfr", "--hf-repo")  # org/repo:QUANT of the Hugging Face cache, a MODEL too
# Options of llama.cpp programs that take no value and mean nothing for memory; all other unknown ones take one.
_VALUELESS = """
-h --help --usage --version -cl --cache-list --completion-bash --list-devices --offline --log-disable
-v --verbose --log-verbose --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --perf --no-perf
--mlock -dio --direct-io -ndio --no-direct-io --no-host --check-tensors --warmup --no-warmup
-e --escape --no-escape --ignore-eos -bs --backend-sampling --special -sp --spm-infill --simple-io --color
-i --interactive -cnv -no-cnv --conversation --no-conversation -cb --cont-batching -nocb --no-cont-batching
--context-shift --no-context-shift --cache-prompt --no-cache-prompt --cache-idle-slots --no-cache-idle-slots
--jinja --no-jinja --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant
--reasoning-preserve --no-reasoning-preserve --embedding --embeddings --rerank --reranking
--metrics --props --slots --no-slots --reuse-port --cors-credentials --no-cors-credentials
--ui --webui --no-ui --no-webui --ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy
-ag --agent -no-ag --no-agent --mmproj-auto --no-mmproj --no-mmproj-auto
--models-autoload --no-models-autoload --lora-init-without-apply
--spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-backend-sampling --no-spec-draft-backend-sampling
--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec
--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default
--vision-gemma-4b-default --vision-gemma-12b-default --spec-default
"""
_UNKNOWN_WITHOUT_VALUE = frozenset(_VALUELESS.split())
_TRUE = ("on", "enabled", "true", "1")
_FALSE = ("off", "disabled", "false", "0")
_CONTINUATIONS = ("\\", "^", "`")  # at the end of a line: sh, cmd, PowerShell
_STARTERS = ("$", "env", "exec", "nohup", "sudo", "time")


def takes_value(flag: Flag) -> bool:
    """Whether the option is followed by a value."""
    return flag.kind not in _BARE


def parse_value(flag: Flag, text: str, name: str) -> object:
    """The value of `flag` from its text. Raises UsageError naming the option and the cure."""
    if flag.kind == "layers" and text in ("all", "auto"):
        return ALL_LAYERS if text == "all" else AUTO_LAYERS
    if flag.kind in ("int", "layers"):
        minimum = -2 if flag.kind == "layers" else flag.minimum
        return read_whole(text, name, minimum, ", all or auto" if flag.kind == "layers" else "")
    if flag.kind == "choice":
        alias = {"1": "on", "0": "off", "-1": "auto", "true": "on", "false": "off", "enabled": "on", "disabled": "off"}
        value = alias.get(text, text) if flag.field == "flash_attn" else text
        if value not in flag.choices:
            raise UsageError(f"{name} '{excerpt(text)}' is unknown; choose one of {', '.join(flag.choices)}.")
        return value
    if flag.kind == "cache":
        if text.lower() not in flag.choices:
            raise UsageError(f"{name} '{excerpt(text)}' is no cache type; choose one of {', '.join(flag.choices)}.")
        return text.lower()
    if flag.kind == "floats":
        try:
            shares = tuple(float(part) for part in text.replace("/", ",").split(","))
        except ValueError:
            shares = ()
        if not shares or any(not 0 <= share < 1e30 for share in shares):
            raise UsageError(f"{name} '{excerpt(text)}' is no list of shares; write for example 3,1.")
        return shares
    if flag.kind in ("choices", "files"):
        words = tuple(word for word in text.split(",") if word)
        wrong = [word for word in words if flag.choices and word not in flag.choices]
        if wrong or not words:
            known = f"; choose of {', '.join(flag.choices)}" if flag.choices else ""
            raise UsageError(f"{name} '{excerpt(text)}' names {'an unknown kind' if wrong else 'nothing'}{known}.")
        return words if flag.kind == "files" else tuple(word for word in words if word != "none")
    if flag.kind == "file":
        if not text:
            raise UsageError(f"{name} needs a file.")
        return text
    return _parse_overrides(text, name)


def _parse_overrides(text: str, name: str) -> tuple[TensorOverride, ...]:
    overrides = []
    for part in text.split(","):
        pattern, equals, buffer = part.rpartition("=")
        if not equals or not pattern or not buffer:
            raise UsageError(f"{name} '{excerpt(text)}' is no PATTERN=BUFFER; write for example '{name} exps=CPU'.")
        overrides.append(TensorOverride(pattern, buffer))
    return tuple(overrides)


def bare_value(flag: Flag) -> object:
    """What an option without value sets."""
    return {"on": True, "off": False, "none": "none", "mmap": "mmap"}[flag.kind]


_NEGATED = "LLAMA_ARG_NO_"
DEVICE_FLAGS = ("-dev", "--device")
# Options that change memory and that no figure here counts.
UNCOUNTED = frozenset((
    "--rpc", "--override-kv", "--control-vector", "--control-vector-scaled", "--fit-target", "-fitt", "--fit-ctx",
    "-fitc", "-devd", "--device-draft", "-otd", "--override-tensor-draft", "--mmproj-device", "--rope-scaling",
    "--yarn-orig-ctx", "--lora-scaled", "--mmproj-url", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR", "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
    "-cd", "--ctx-size-draft", "--embedding", "--embeddings", "--reranking", "--rerank", "-mv", "--model-vocoder",
))  # fmt: skip


class Pasted(NamedTuple):
    """What a pasted command line says."""

    settings: RequestedSettings
    model: str | None
    program: str | None
    ignored: tuple[str, ...]
    devices: tuple[str, ...] | None = None  # ids after --device, () for none, None without the option


def split_command(text: str) -> list[str]:
    """The words of a command line given in one piece. Quotes group words; a backslash is a letter (Windows paths).

    Raises UsageError for a quote that is not closed.
    """
    import shlex

    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        return list(lexer)
    except ValueError:
        raise UsageError("a quote in the pasted command line is not closed; close it or leave it away.") from None


def parse_command(words: Sequence[str]) -> Pasted:
    """Read a pasted llama.cpp command line. Unknown options are collected, never fatal.

    Variables in front of the program (LLAMA_ARG_CTX_SIZE=4096 llama-server) are read as llama.cpp reads them; options
    win over them. Raises UsageError for a known option whose value is missing or unusable.
    """
    values: dict[str, object] = {}
    ignored: list[str] = []
    model: str | None = None
    store_model: str | None = None
    devices: tuple[str, ...] | None = None
    queue = [_unquote(word) for word in words if word.strip() and word.strip() not in _CONTINUATIONS]
    from_variables: list[str] = []
    while queue and (queue[0] in _STARTERS or _is_assignment(queue[0])):
        word = queue.pop(0)
        if "=" in word:
            options = _variable_options(word)
            from_variables += options
            if not options:
                ignored.append(word)
    program = None
    if queue and not queue[0].startswith("-"):
        first = queue.pop(0)
        if first.lower().endswith(".gguf"):
            model = first
        else:
            program = first.replace("\\", "/").rsplit("/", 1)[-1]
    queue = from_variables + queue
    while queue:
        word = queue.pop(0)
        name, equals, attached = word.partition("=") if word.startswith("--") else (word, "", "")
        if name.startswith("--"):
            name = name.replace("_", "-")  # llama.cpp takes --ctx_size too
        flag = BY_NAME.get(name)
        if name in MODEL_FLAGS or name in _STORE_FLAGS or name in DEVICE_FLAGS:
            if not equals and not queue:
                what = "none or device names" if name in DEVICE_FLAGS else "a model"
                raise UsageError(f"{name} needs {what} after it.")
            value = attached if equals else queue.pop(0)
            if name in DEVICE_FLAGS:
                devices = () if value == "none" else tuple(value.split(","))
            elif name in MODEL_FLAGS:
                model = value
            else:
                store_model = value
        elif flag is None:
            ignored.append(word)
            if word.startswith("-") and name not in _UNKNOWN_WITHOUT_VALUE and not equals and _is_value(queue):
                ignored[-1] = f"{word} {queue.pop(0)}"
        elif not takes_value(flag):
            values[flag.field] = bare_value(flag)
        elif flag.field == "flash_attn" and not equals and not _is_value(queue):
            values[flag.field] = "on"  # older builds: -fa alone
        else:
            if not equals and not queue:
                raise UsageError(f"{name} needs a value after it.")
            parsed = parse_value(flag, attached if equals else queue.pop(0), name)
            if flag.kind in REPEATED:
                parsed = (*values.get(flag.field, ()), *parsed)  # type: ignore[misc]
            values[flag.field] = parsed
    return Pasted(RequestedSettings(**values), model or store_model, program, tuple(ignored), devices)  # type: ignore[arg-type]


def _is_value(queue: list[str]) -> bool:
    """Whether the next word is a value: anything but an option; negative numbers are values."""
    return bool(queue) and (not queue[0].startswith("-") or queue[0][1:2].isdecimal())


def _unquote(word: str) -> str:
    """`word` without quotes around it, which a shell of another kind has left there."""
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isascii() and name.isidentifier()


def _variable_options(word: str) -> list[str]:
    """The options that NAME=value stands for; none for a variable without meaning for memory."""
    name, _, value = word.partition("=")
    if name.startswith(_NEGATED):  # llama.cpp reads LLAMA_ARG_NO_X, whatever its value, as --no-x
        return list(ENVIRONMENT.get(name.replace(_NEGATED, "LLAMA_ARG_", 1), ())[1:])
    options = ENVIRONMENT.get(name, ())
    if len(options) < 2:
        return [*options, _unquote(value)] if options else []
    chosen = options[0] if value in _TRUE else options[1] if value in _FALSE else ""
    return [chosen] if chosen else []
