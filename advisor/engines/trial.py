"""Timing an engine with one model: a short prompt, single tokens, and single tokens behind a long prompt."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.engines.find import EngineBinary
from advisor.engines.http import Address, ask
from advisor.engines.serve import running
from advisor.engines.timings import Timing, timing_of
from advisor.errors import EngineError
from advisor.ggml_types import BY_NAME, tensor_bytes
from advisor.records import NamedTuple
from advisor.speed.trials import DEPTH_TOKENS, PROMPT_TOKENS, Timed, Trial
from advisor.units import round_up

STEPS = 12  # tokens that are timed at once
REPEATS = 5
_ALIGNMENT = 32
_FIRST_TOKEN = 300  # of the prompts: an ordinary one in every vocabulary
_ANSWER_LIMIT_S = 120.0
_STRING, _ARRAY, _U32, _F32, _I32 = 8, 9, 4, 6, 5
_BYTE, _NORMAL = 6, 1  # kinds of tokens


def write_trial(trial: Trial, path: str, n_ctx: int) -> None:
    """Write the model's file: its header, and a hole for the zeros, which takes no space on the disk."""
    ints = {
        "block_count": trial.n_layer, "context_length": n_ctx, "embedding_length": trial.n_embd,
        "feed_forward_length": trial.n_ff, "attention.head_count": trial.n_head,
        "attention.head_count_kv": trial.n_head_kv, "attention.key_length": trial.head_size,
        "attention.value_length": trial.head_size, "rope.dimension_count": trial.head_size,
    }  # fmt: skip
    entries = [_entry("general.architecture", _STRING, _text("llama"))]
    entries += [_entry(f"llama.{name}", _U32, struct.pack("<I", value)) for name, value in ints.items()]
    entries.append(_entry("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5)))
    n_vocab = trial.n_vocab
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += [f"t{number}" for number in range(n_vocab - len(tokens))]
    kinds = [2, 3, 3, *[_BYTE] * 256, *[_NORMAL] * (n_vocab - 259)]
    entries += [
        _entry("tokenizer.ggml.model", _STRING, _text("llama")),
        _entry("tokenizer.ggml.tokens", _ARRAY, struct.pack("<IQ", _STRING, n_vocab) + b"".join(map(_text, tokens))),
        _entry("tokenizer.ggml.scores", _ARRAY, struct.pack("<IQ", _F32, n_vocab) + bytes(4 * n_vocab)),
        _entry("tokenizer.ggml.token_type", _ARRAY, struct.pack(f"<IQ{n_vocab}i", _I32, n_vocab, *kinds)),
        _entry("tokenizer.ggml.bos_token_id", _U32, struct.pack("<I", 1)),
        _entry("tokenizer.ggml.eos_token_id", _U32, struct.pack("<I", 2)),
    ]
    rows, offset = [], 0
    for name, shape, kind in trial.tensors:
        storage = BY_NAME[kind.lower()]
        rows.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, storage.id, offset))
        offset += round_up(tensor_bytes(storage, shape), _ALIGNMENT)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(rows), len(entries)) + b"".join(entries) + b"".join(rows)
    start = round_up(len(header), _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(start + offset)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _entry(key: str, kind: int, body: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + body


def run_trial(binary: EngineBinary, trial: Trial, folder: str, environ: Mapping[str, str]) -> Timed:
    """Let `binary` run `trial`, whose file is made in `folder` and removed again. Raises EngineError."""
    path = os.path.join(folder, "trial.gguf")
    n_ctx = round_up(DEPTH_TOKENS + 2 * STEPS, 1024) if trial.deep else 256
    try:
        write_trial(trial, path, n_ctx)
        with running(binary, path, n_ctx, environ, cpu_only=True) as address:
            return _time_trial(address, trial)
    finally:
        if os.path.exists(path):
            os.unlink(path)


def _time_trial(address: Address, trial: Trial) -> Timed:
    decode = typical([step_seconds(complete(address, prompt(2), STEPS + 1)) for _ in range(REPEATS)])
    prefill = deep = None
    if trial.what == "type":
        prompts = [complete(address, prompt(PROMPT_TOKENS), 1, cached=False) for _ in range(3)]
        prefill = typical([timing.prompt_seconds / timing.prompt_tokens for timing in prompts])
    if trial.deep:
        deep = typical([step_seconds(complete(address, prompt(DEPTH_TOKENS), STEPS + 1)) for _ in range(REPEATS)])
    return Timed(trial, decode, prefill, deep)


class AtDepth(NamedTuple):
    """Seconds per token with that many tokens in the cache."""

    depth: int
    seconds: float


def time_model(address: Address, depths: Sequence[int], *, steps: int = 2 * STEPS) -> tuple[list[AtDepth], Timing]:
    """(decode at each depth, the timing of the longest prompt) of the server at `address`. Raises EngineError."""
    complete(address, prompt(PROMPT_TOKENS), 2, cached=False)  # what was not yet in memory is now
    found, longest = [], Timing(0, 0.0, 0, 0.0, None)
    for depth in depths:
        runs = [complete(address, prompt(max(depth, 2)), steps + 1) for _ in range(REPEATS)]
        longest = max((longest, *runs), key=lambda timing: timing.prompt_tokens)
        found.append(AtDepth(depth + steps // 2, typical([step_seconds(timing) for timing in runs])))
    return found, longest


def prompt(n_tokens: int) -> list[int]:
    """Tokens that say nothing; a shorter prompt is the beginning of a longer one."""
    return [_FIRST_TOKEN + number * 7919 % 200 for number in range(n_tokens)]


def complete(address: Address, tokens: Sequence[int], n_predict: int, *, cached: bool = True) -> Timing:
    """One request without sampling. Raises EngineError when it is not answered with its timing."""
    body: dict[str, Any] = {
        "prompt": list(tokens), "n_predict": n_predict, "temperature": 0, "ignore_eos": True, "cache_prompt": cached,
    }  # fmt: skip
    answer = ask(address, "POST", "/completion", body, seconds=_ANSWER_LIMIT_S)
    timing = timing_of(answer.body) if answer.status == 200 else None
    if timing is None:
        detail = answer.body.get("error") if isinstance(answer.body, dict) else None
        reason = detail.get("message") if isinstance(detail, dict) else f"status {answer.status}"
        raise EngineError(f"{address.shown} gives no timing of an answer ({str(reason):.200}).")
    return timing


def step_seconds(timing: Timing) -> float:
    """Of one decoded token. Raises EngineError where none was."""
    if not timing.steps or timing.seconds <= 0:
        raise EngineError("the engine ended its answer at once, so nothing was timed.")
    return timing.seconds / timing.steps


def typical(values: Sequence[float]) -> float:
    """The lower quartile: other programs only ever slow one down, and a single good moment is none."""
    return sorted(values)[len(values) // 4]
