"""One line of an engine's log as a fact, or nothing. Pure; what is not known is ignored.

Source: LLAMA_LOG_INFO lines of llama.cpp's src/llama-model.cpp, llama-context.cpp, llama-kv-cache.cpp,
llama-memory-recurrent.cpp and common/fit.cpp at b10435, b11434 and b11549, and their names in builds of 2024 and 2025.
"""

import re

from advisor.records import NamedTuple

MIB = 1 << 20
_MAX_CACHE_LINE = 250  # characters of a line that sums up a cache
_MAX_HEAD = 400  # characters before "buffer size" that can name the buffer
_MAX_MIB = float(1 << 34)  # 16 PiB: more is a line that lies
_SCALE = {"B": 1, "KIB": 1 << 10, "KB": 1 << 10, "MIB": MIB, "MB": MIB, "GIB": 1 << 30, "GB": 1 << 30}


class Sized(NamedTuple):
    """One buffer: where, what for ("weights", "kv", "state", "compute", "output", "lora"), bytes, printed precision."""

    name: str
    kind: str
    n_bytes: int
    precision_bytes: int
    origin: str  # the engine's function that printed it


class Cache(NamedTuple):
    """A summary line of one cache: all devices together."""

    kind: str  # "kv" | "state"
    n_bytes: int
    cells: int | None
    n_layers: int | None
    type_k: str | None
    type_v: str | None


class TableRow(NamedTuple):
    """One row of the memory breakdown, whole MiB in bytes; `unaccounted_bytes` is None where it wrapped."""

    name: str
    total_bytes: int | None
    free_bytes: int | None
    weights_bytes: int
    context_bytes: int
    compute_bytes: int
    unaccounted_bytes: int | None


class Listed(NamedTuple):
    """A device as the engine names it, with its memory where the line says so."""

    id: str
    name: str
    total_bytes: int | None
    free_bytes: int | None


_NUMBER = r"(\d[\d.,]*)"
# parts are looked for one after the other: one expression for a whole line takes the square of its length
_HELD = re.compile(rf" *(?:is|of|=)? *=? *{_NUMBER} *([KMG]i?B)\b")
_ORIGIN = re.compile(r"([\w~:]+):\Z")
_KIND = {
    "model": "weights", "KV": "kv", "RS": "state", "compute": "compute", "input": "compute", "output": "output",
    "LoRA": "lora",
}  # fmt: skip
# lines of 2023 and 2024: one figure for everything of a kind
_TOTALS = (
    (re.compile(rf"mem required +=? *{_NUMBER} *([KMG]i?B)"), "CPU", "weights"),
    (re.compile(rf"VRAM used(?: for model)? *[=:] *{_NUMBER} *([KMG]i?B)"), "GPU", "weights"),
    (re.compile(rf"VRAM kv self *= *{_NUMBER} *([KMG]i?B)"), "GPU", "kv"),
    (re.compile(rf"compute buffer total size *= *{_NUMBER} *([KMG]i?B)"), "CPU", "compute"),
    (re.compile(rf"VRAM scratch buffer *[=:] *{_NUMBER} *([KMG]i?B)"), "GPU", "compute"),
)
# Ollama's own runner: msg="model weights" device=CUDA0 size="4.4 GiB"
_OLLAMA = re.compile(
    rf'msg="(model weights|kv cache|compute graph)" +device=(\S+) +size="?{_NUMBER} *([KMG]i?B|B)\b'
)  # fmt: skip
_OLLAMA_KIND = {"model weights": "weights", "kv cache": "kv", "compute graph": "compute"}
_CACHE = re.compile(
    rf"(llama_kv_cache\w*|llama_memory_recurrent|KV self|kv self): *size *= *{_NUMBER} *([KMG]i?B)"
    r"(?: *\( *(\d+) cells, *(\d+) layers)?(?:.*?\bK \((\w+)\))?(?:.*?\bV \((\w+)\))?"
)
_OLD_SELF = re.compile(
    rf"(KV|kv) self size *= *{_NUMBER} *([KMG]i?B)()()(?:.*?\b(?:K|c\^KV) \((\w+)\))?(?:.*?\bV \((\w+)\))?"
)
_ROW = re.compile(
    r"\| +- (\S+)(?: \((?:.*)\))? *\| *(?:(\d+) = (\d+) \+ \( *)?\d+ = +(\d+) \+ +(\d+) \+ +(\d+)\)?(?: \+ +(-?\d+))?"
)
_MEMORY = re.compile(r" \((\d+) MiB, (\d+) MiB free\)")
_DEVICE = re.compile(r" - ([A-Za-z]+\d*) *: (.+)")
_FREE = re.compile(r"\) - (\d+) MiB free")
_USING = re.compile(r"using device (\S+) \((.*)")
_SETTING = re.compile(
    r"(?:llama_context|llama_new_context_with_model|llama_init_from_model): +"
    r"(n_ctx|n_ctx_seq|n_ctx_per_seq|n_batch|n_ubatch|n_seq_max|flash_attn|kv_unified|n_rs_seq) *= *([\w.-]+)"
)
_FACT = re.compile(r"(?:print_info|llm_load_print_meta): +([\w.]+(?: [a-z]+)?) *= *(.+)")
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_LOADED = re.compile(r"loaded meta data with \d+ key-value pairs and \d+ tensors from (.+?)(?: \(version .*)?$")
# each begins with what is looked for quickly
_BUILDS = tuple(map(re.compile, (
    r"build(?<!\wbuild)(?: = |: |_info: b| )(\d+) ?[(-]([0-9a-f]{6,12})",
    r"version: (?<!\wversion: )(\d+) \(([0-9a-f]{6,12})\)",
    r"\(build (\d+), commit ([0-9a-f]{6,12})\)",
)))  # fmt: skip
_FAILED = re.compile(
    r"failed to allocate (\S+) buffer of size (\d+)|allocating ([\d.,]+) MiB on device (\d+): \w*[Mm]alloc failed"
)


def number(text: str) -> float | None:
    """A figure with a decimal point or comma, thousands marked or not; None when it is none or too large."""
    text = text.rstrip(".,")
    if "," in text and "." in text:
        text = text.replace("," if text.rfind(".") > text.rfind(",") else ".", "").replace(",", ".")
    elif text.count(",") == 1:
        text = text.replace(",", ".")
    else:
        text = text.replace(",", "")
    try:
        value = float(text) if len(text) < 32 else -1.0
    except ValueError:
        return None
    return value if 0 <= value < _MAX_MIB else None


def size(text: str, unit: str) -> tuple[int, int] | None:
    """(bytes, printed precision in bytes) of a figure in `unit`; llama.cpp's MB are MiB."""
    value = number(text)
    if value is None:
        return None
    scale = _SCALE[unit.upper()]
    separator = max(text.rfind("."), text.rfind(","))
    decimals = len(text.rstrip(".,")) - separator - 1 if separator >= 0 else 0
    return round(value * scale), max(round(scale / 10**decimals), 1)


def read_buffer(line: str) -> Sized | None:
    """A line that gives one buffer's size."""
    head, mark, tail = line.partition("buffer size")
    match = _HELD.match(tail) if mark and head.endswith(" ") else None
    if match:
        return _named_buffer(head[-_MAX_HEAD:].split(), *match.groups())
    match = _OLLAMA.search(line)
    if match:
        found = size(match[3], match[4])
        return Sized(match[2].strip('"'), _OLLAMA_KIND[match[1]], *found, "ollama") if found else None
    for pattern, name, kind in _TOTALS:
        match = pattern.search(line)
        if match:
            found = size(match[1], match[2])
            return Sized(name, kind, *found, "total") if found else None
    return None


def _named_buffer(words: list[str], figure: str, unit: str) -> Sized | None:
    """The buffer that `words` name, the last ones before its size: [ORIGIN:] NAME [KIND]."""
    kind = "weights"
    if len(words) > 3 and words[-1] == "state" and words[-3] == "DSV4":
        kind, words = "state", words[:-3]
    elif len(words) > 1 and words[-1] in _KIND and not words[-2].endswith(":"):
        kind, words = _KIND[words[-1]], words[:-1]
    elif len(words) < 2 or "load_tensors" not in words[-2]:
        return None
    origin = _ORIGIN.search(words[-2]) if len(words) > 1 else None
    found = size(figure, unit)
    return Sized(words[-1], kind, *found, origin[1] if origin else "") if found else None


def read_cache(line: str) -> Cache | None:
    """A line that sums up one cache."""
    line = line[:_MAX_CACHE_LINE]
    match = _CACHE.search(line) or _OLD_SELF.search(line)
    found = size(match[2], match[3]) if match else None
    if match is None or found is None:
        return None
    cells, layers = (int(text) if text else None for text in (match[4], match[5]))
    kind = "state" if "recurrent" in match[1] else "kv"
    return Cache(kind, found[0], cells, layers, *((match[6], match[7]) if kind == "kv" else (None, None)))


def read_row(line: str) -> TableRow | None:
    """A row of the memory breakdown table."""
    match = _ROW.search(line)
    if match is None or any(len(figure) > 17 for figure in match.groups()[1:6] if figure):
        return None
    total, free, weights, context, compute = (
        int(figure) * MIB if figure else None for figure in match.groups()[1:6]
    )  # fmt: skip
    assert weights is not None
    assert context is not None
    assert compute is not None
    rest = int(match[7]) * MIB if match[7] and len(match[7]) < 18 else None
    if rest is not None and (rest < 0 or (total is not None and rest > total)):
        rest = None  # an unsigned difference that wrapped, or memory that another program returned meanwhile
    return TableRow(match[1], total, free, weights, context, compute, rest)


def read_device(line: str) -> Listed | None:
    """A line of the engine's list of devices, or the line in which it takes one."""
    memory = _MEMORY.search(line)
    match = _DEVICE.search(line[: memory.start()]) if memory else None
    if match and memory and len(memory[1]) < 16 and len(memory[2]) < 16:
        return Listed(match[1], match[2], int(memory[1]) * MIB, int(memory[2]) * MIB)
    memory = _FREE.search(line)
    match = _USING.search(line[: memory.start()]) if memory else None
    if match and memory and len(memory[1]) < 16:
        return Listed(match[1], match[2].partition(") (")[0], None, int(memory[1]) * MIB)
    return None


def read_failure(line: str) -> tuple[str, int] | None:
    """(device, bytes) of an allocation that failed."""
    match = _FAILED.search(line)
    if match is None:
        return None
    if match[1]:
        return (match[1], int(match[2])) if len(match[2]) < 20 else None
    found = size(match[3], "MiB")
    return (f"device {match[4]}", found[0]) if found else None


def read_setting(line: str) -> tuple[str, str] | None:
    """(name, value) of a context's setting."""
    match = _SETTING.search(line)
    return (match[1], match[2]) if match else None


def read_fact(line: str) -> tuple[str, str] | None:
    """(name, value) of what the engine says about the model."""
    match = _FACT.search(line)
    return (match[1].strip(), match[2].strip()) if match else None


def read_offloaded(line: str) -> tuple[int, int] | None:
    """(layers on GPUs, layers in all)."""
    match = _OFFLOADED.search(line)
    return (int(match[1]), int(match[2])) if match and len(match[1]) < 7 and len(match[2]) < 7 else None


def read_path(line: str) -> str | None:
    """Path of the model file that is being read."""
    match = _LOADED.search(line)
    return match[1] if match else None


def read_build(line: str) -> tuple[int, str] | None:
    """(build number, commit); builds of one's own say 0 or 1."""
    matches = [match for pattern in _BUILDS if (match := pattern.search(line))]
    if not matches:
        return None
    digits, commit = min(matches, key=lambda match: match.start()).groups()
    return (int(digits), commit) if len(digits) < 9 else None
