"""Which device each block lives on. Everything else is a sum over that.

Source: llama.cpp b11434 src/llama-model.cpp, load_tensors (get_layer_buft_list).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from struct import Struct

from advisor.errors import UsageError
from advisor.settings import RunSettings

HOST = -1

# common/arg.cpp of llama.cpp b11434: what --cpu-moe and --n-cpu-moe expand to.
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


def place_layers(settings: RunSettings, n_layer_all: int, free_bytes: Sequence[int]) -> tuple[int, ...]:
    """Device index (HOST = -1) of each block 0..n_layer_all-1 and, last, of the output.

    `free_bytes` per device decides the split when there is no tensor_split.
    """
    n_devices = len(free_bytes)
    if n_devices == 0:
        return (HOST,) * (n_layer_all + 1)
    n_gpu_layers = settings.n_gpu_layers
    first = max(n_layer_all + 1 - n_gpu_layers, 0)
    active = min(n_gpu_layers, n_layer_all + 1)
    if settings.split_mode == "none":
        only = min(settings.main_gpu, n_devices - 1)
        return tuple(only if i >= first else HOST for i in range(n_layer_all + 1))
    shares = settings.tensor_split
    weights = list(shares[:n_devices]) if shares and any(shares) else [float(free) for free in free_bytes]
    weights += [0.0] * (n_devices - len(weights))
    bounds = _cumulative(weights)
    fractions, placed = _fractions(active), (HOST,) * first
    if not all(a <= b for a, b in pairwise(bounds)):  # shares below nothing
        return (*placed, *(min(bisect_right(bounds, at), n_devices - 1) for at in fractions))
    for device, bound in enumerate(bounds[:-1]):
        placed += (device,) * (first + bisect_left(fractions, bound) - len(placed))
    return placed + (n_devices - 1,) * (n_layer_all + 1 - len(placed))


@lru_cache(maxsize=1024)
def _fractions(count: int) -> tuple[float, ...]:
    """0, 1, ... of `count` as shares of it, in 32-bit floats."""
    return tuple(_f32(i / count) for i in range(count))


_FLOAT = Struct("f")


def _f32(value: float) -> float:
    return float(_FLOAT.unpack(_FLOAT.pack(value))[0])


def _cumulative(weights: Sequence[float]) -> list[float]:
    """Normalised cumulative sums in 32-bit floats, as the engine computes them."""
    sums: list[float] = []
    total = 0.0
    for weight in weights:
        total = _f32(total + _f32(weight))
        sums.append(total)
    if total == 0.0:
        return [1.0] * len(sums)
    return [_f32(value / total) for value in sums]


_EXPERTS = re.compile(EXPERTS)
_OF_ONE_BLOCK = re.compile(r"blk\\?\.(\d+)\\?\.[\w.\\]+")  # nothing that could find another one


@lru_cache(maxsize=1024)
def one_block(pattern: str) -> int | None:
    """The number of the only block whose tensors a pattern can find, None where that is not plain to see."""
    found = _OF_ONE_BLOCK.fullmatch(pattern)
    return int(found.group(1)) if found is not None else None


class Overrides:
    """`-ot`, `--cpu-moe` and `--n-cpu-moe` as one question: where does a tensor of this name go."""

    def __init__(self, settings: RunSettings, device_ids: Sequence[str]) -> None:
        self._n_cpu_moe = settings.n_cpu_moe
        self._rules: list[tuple[re.Pattern[str], int]] = []
        for override in settings.tensor_overrides:
            try:
                pattern = re.compile(override.pattern)
            except re.error as error:
                raise UsageError(f"-ot '{override.pattern}' is not a regular expression: {error}.") from None
            self._rules.append((pattern, _buffer_index(override.buffer, device_ids)))
        self.blocks = frozenset(one_block(override.pattern) for override in settings.tensor_overrides)
        self.any = bool(self._rules) or self._n_cpu_moe > 0
        self.buffers = tuple(index for _, index in self._rules)  # of each -ot rule, in their order
        self.patterns = _patterns(settings, self.buffers)

    def rule(self, name: str) -> int | None:
        """The number of the -ot rule that a tensor of this name follows: the first that finds it."""
        return next((number for number, (pattern, _) in enumerate(self._rules) if pattern.search(name)), None)

    def is_expert(self, name: str) -> bool:
        """Whether --cpu-moe would move a tensor of this name."""
        return "exps" in name and _EXPERTS.search(name) is not None

    def target(self, name: str, block: int) -> int | None:
        """Device index or HOST for an overridden tensor, None for the others. The first match wins."""
        number = self.rule(name)
        if number is not None:
            return self.buffers[number]
        if 0 <= block < self._n_cpu_moe and self.is_expert(name):
            return HOST
        return None


def _patterns(settings: RunSettings, indexes: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """(regular expression, device index) pairs, in the order in which the first match wins."""
    patterns = [(override.pattern, index) for override, index in zip(settings.tensor_overrides, indexes, strict=True)]
    if settings.n_cpu_moe:
        patterns.append((_experts_before(settings.n_cpu_moe), HOST))
    return tuple(patterns)


@lru_cache(maxsize=256)
def _experts_before(n_blocks: int) -> str:
    blocks = "|".join([str(block) for block in range(n_blocks)])
    return rf"blk\.({blocks}){EXPERTS}"


def _buffer_index(buffer: str, device_ids: Sequence[str]) -> int:
    if buffer.upper().startswith("CPU") or buffer.lower().endswith("_host"):
        return HOST
    for index, device_id in enumerate(device_ids):
        if device_id.lower() == buffer.lower():
            return index
    raise UsageError(f"-ot names the buffer '{buffer}', but this machine has {', '.join(('CPU', *device_ids))}.")
