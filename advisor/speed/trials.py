"""What to let an engine do to learn how fast this CPU is, and what its answers say.

A trial is a model of random weights, as large as it must be to come from memory and as small as it can be. Times
differ in what a trial has more of than another: weights of one storage type, short rows of matrices (each is a call of
its own), blocks, vocabulary, attention. Attention of one token over an f16 cache costs, by ggml-cpu's flash attention
(ggml_compute_forward_flash_attn_ext_f16, b11434), a dot product, an exponential and a weighted sum for every head and
token of the cache, and fetching keys and values that lie between those of other heads; the tokens are dealt to the
threads by the padded size of the cache.
"""

from collections.abc import Mapping, Sequence

from advisor.calibration import CpuTimes, HeadTimes, TypeTimes, median
from advisor.ggml_types import BY_NAME, row_bytes
from advisor.records import NamedTuple
from advisor.speed.measured import CELLS_PADDING, shortness
from advisor.units import MIB, round_up

_EMBEDDING = 2048  # of the trials of types
PROMPT_TOKENS = 64
DEPTH_TOKENS = 1000  # with the answer just below a multiple of the padding
_TYPES = (
    "q4_K", "q6_K", "q8_0", "q5_K", "f16", "q4_0", "q5_0", "iq4_xs", "q3_K", "bf16", "q2_K", "iq4_nl", "mxfp4",
    "q5_1", "q4_1", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "f32",
)  # fmt: skip
_HEAD_SIZES = (64, 128, 256)
_LEAST_SECONDS = 1e-9


class Trial(NamedTuple):
    """One model of the architecture llama.

    `what`: "type" | "rows" | "blocks" | "vocabulary" | "shared" (one key head) | "apart" (a key head for each head).
    """

    what: str
    kind: str  # storage type of the matrices
    output: str  # and of the output; "" = the input's matrix is the output's too
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_size: int
    n_vocab: int

    @property
    def tensors(self) -> tuple[tuple[str, tuple[int, ...], str], ...]:
        """(name, shape with ne0 first, type) of the file, architecture llama."""
        q, kv = self.n_head * self.head_size, self.n_head_kv * self.head_size
        found: list[tuple[str, tuple[int, ...], str]] = [("token_embd.weight", (self.n_embd, self.n_vocab), self.kind)]
        for block in range(self.n_layer):
            for name, shape, kind in (
                ("attn_norm", (self.n_embd,), "f32"), ("attn_q", (self.n_embd, q), self.kind),
                ("attn_k", (self.n_embd, kv), self.kind), ("attn_v", (self.n_embd, kv), self.kind),
                ("attn_output", (q, self.n_embd), self.kind), ("ffn_norm", (self.n_embd,), "f32"),
                ("ffn_gate", (self.n_embd, self.n_ff), self.kind), ("ffn_up", (self.n_embd, self.n_ff), self.kind),
                ("ffn_down", (self.n_ff, self.n_embd), self.kind),
            ):  # fmt: skip
                found.append((f"blk.{block}.{name}.weight", shape, kind))
        found.append(("output_norm.weight", (self.n_embd,), "f32"))
        if self.output:
            found.append(("output.weight", (self.n_embd, self.n_vocab), self.output))
        return tuple(found)

    @property
    def block_parameters(self) -> int:
        """Parameters that one token of a prompt multiplies: without the output."""
        q, kv = self.n_head * self.head_size, self.n_head_kv * self.head_size
        return self.n_layer * self.n_embd * (2 * q + 2 * kv + 3 * self.n_ff)

    def weights_read(self) -> dict[str, int]:
        """Bytes that one token reads, by type."""
        found: dict[str, int] = {}
        for name, shape, kind in self.tensors:
            if len(shape) == 2 and (name != "token_embd.weight" or not self.output):
                found[kind] = found.get(kind, 0) + row_bytes(BY_NAME[kind.lower()], shape[0]) * shape[1]
        return found

    @property
    def short_rows(self) -> float:
        """Rows of the blocks' matrices, each for as much as it is shorter than WIDE (negative: longer)."""
        return sum(
            shape[1] * shortness(shape[0])
            for name, shape, _ in self.tensors
            if len(shape) == 2 and name.startswith("blk.")
        )

    @property
    def deep(self) -> bool:
        """Whether it is also timed with DEPTH_TOKENS in the cache."""
        return self.what in ("shared", "apart")


class Timed(NamedTuple):
    """A trial's answer; seconds per token."""

    trial: Trial
    decode_s: float
    prefill_s: float | None = None  # a token of a prompt of PROMPT_TOKENS
    deep_s: float | None = None
    deep_prefill_s: float | None = None  # a token of a prompt of DEPTH_TOKENS, on average


def trials(cache_bytes: int, used_types: Sequence[str] = (), used_heads: Sequence[int] = ()) -> tuple[Trial, ...]:
    """What to try, in this order. `cache_bytes`: the CPU's last cache; types and heads of models at hand.

    What everything rests on comes again in the middle and at the end: the pace of a machine changes within a minute.
    """
    target = min(max(4 * cache_bytes, 128 * MIB), 512 * MIB)
    known = [name for name in (*used_types, *_TYPES) if name in _TYPES]
    by_type = [_of_type(name, target) for name in dict.fromkeys(known)]
    heads = [size for size in dict.fromkeys((*used_heads, *_HEAD_SIZES)) if 32 <= size <= 512 and size % 8 == 0]
    vocabulary = min(round_up(2 * cache_bytes // 1024, 1024), 262144)  # its output sweeps the cache between tokens
    deep = [
        Trial(what, "q8_0", "f16", 4, 512, 256, n_head, n_head_kv, size, vocabulary)
        for size in heads[:8]
        for what, n_head, n_head_kv in (("shared", 32, 1), ("apart", 16, 16))
    ]
    small = [
        Trial("rows", "q8_0", "q8_0", round(target / 5.2e6), 640, 2048, 10, 2, 64, 2048),
        Trial("blocks", "q8_0", "q8_0", 128, 256, 256, 4, 4, 64, 512),
        Trial("vocabulary", "q8_0", "", 2, 128, 128, 2, 2, 64, 262144),
    ]
    first = [entry for entry in by_type if entry.kind in ("q8_0", "f16")]  # the others rest on these
    others = [entry for entry in by_type if entry not in first]
    telling, others = (*first, *small, *deep[:4], *others[:4]), others[4:]
    middle = len(others) // 2
    return (*telling, *deep[4:6], *others[:middle], *telling, *others[middle:], *deep[6:], *telling)


def _of_type(name: str, target_bytes: int) -> Trial:
    one = Trial("type", name, name, 1, _EMBEDDING, 4 * _EMBEDDING, 32, 8, 64, 2048)
    return one._replace(n_layer=min(max(round(target_bytes / sum(one.weights_read().values())), 1), 16))


def fit(timed: Sequence[Timed], engine: str, build: int | None) -> CpuTimes | None:
    """The CPU's times, of each trial once; None without the trials that the others rest on."""
    by_kind = {entry.trial.kind: entry for entry in timed if entry.trial.what == "type"}
    small = {entry.trial.what: entry for entry in timed if entry.trial.what in ("rows", "blocks", "vocabulary")}
    if "q8_0" not in by_kind or "rows" not in small or "blocks" not in small:
        return None
    block_s = row_s = vocabulary_s = 0.0
    rates: dict[str, float] = {}
    for _ in range(12):  # each rests on the others; they hardly change after the fifth time
        rates = {
            kind: sum(entry.trial.weights_read().values())
            / max(entry.decode_s - _beside(entry.trial, block_s, row_s, vocabulary_s), entry.decode_s / 4)
            for kind, entry in by_kind.items()
        }
        trial = small["rows"].trial
        row_s = max(small["rows"].decode_s - _reading(trial, rates) - _beside(trial, block_s, 0, vocabulary_s), 0.0)
        row_s /= trial.short_rows
        trial = small["blocks"].trial
        block_s = max(small["blocks"].decode_s - _reading(trial, rates) - _beside(trial, 0, row_s, vocabulary_s), 0.0)
        block_s /= trial.n_layer
        if "vocabulary" in small:
            trial = small["vocabulary"].trial
            left = small["vocabulary"].decode_s - _reading(trial, rates) - _beside(trial, block_s, row_s, 0)
            vocabulary_s = max(left, 0.0) / trial.n_vocab
    types = tuple(
        TypeTimes(kind, rates[kind], 2 * entry.trial.block_parameters / entry.prefill_s if entry.prefill_s else None)
        for kind, entry in by_kind.items()
    )
    flops = next((entry.flops for entry in types if entry.name == "q8_0"), None)
    return CpuTimes(engine, build, block_s, row_s, vocabulary_s, types, _heads(timed, flops))


def middles(timed: Sequence[Timed]) -> list[Timed]:
    """One for each trial: of those that were made more than once the median of each time."""
    again: dict[Trial, list[Timed]] = {}
    for entry in timed:
        again.setdefault(entry.trial, []).append(entry)
    found = []
    for trial, entries in again.items():
        times = [tuple(time for time in column if time is not None) for column in zip(*entries, strict=True)][1:]
        found.append(Timed(trial, *(median(column) if column else None for column in times)))  # type: ignore[arg-type]
    return found


def _beside(trial: Trial, block_s: float, row_s: float, vocabulary_s: float) -> float:
    return trial.n_layer * block_s + trial.short_rows * row_s + trial.n_vocab * vocabulary_s


def _reading(trial: Trial, rates: Mapping[str, float]) -> float:
    return sum(n_bytes / rates[kind] for kind, n_bytes in trial.weights_read().items())


def _heads(timed: Sequence[Timed], flops: float | None) -> tuple[HeadTimes, ...]:
    """Of each head size both trials; the keys of a single key head come as fast as they are used."""
    found = []
    by_size = {(entry.trial.head_size, entry.trial.what): entry for entry in timed if entry.deep_s is not None}
    for size in sorted({size for size, _ in by_size}):
        shared, apart = by_size.get((size, "shared")), by_size.get((size, "apart"))
        if shared is not None and apart is not None:
            pair = _pair_seconds(shared)
            found.append(HeadTimes(size, pair, max(_pair_seconds(apart) - pair, 0.0), _prompt_seconds(shared, flops)))
    return tuple(found)


def _pair_seconds(entry: Timed) -> float:
    trial = entry.trial
    pairs = trial.n_layer * trial.n_head * round_up(DEPTH_TOKENS, CELLS_PADDING)
    return max(((entry.deep_s or 0.0) - entry.decode_s) / pairs, _LEAST_SECONDS)


def _prompt_seconds(entry: Timed, flops: float | None) -> float | None:
    """A head and an earlier token, for each token of a prompt; a token has half of the prompt before it on average."""
    if entry.deep_prefill_s is None or flops is None:
        return None
    left = entry.deep_prefill_s - 2 * entry.trial.block_parameters / flops
    return max(left / (entry.trial.n_layer * entry.trial.n_head * DEPTH_TOKENS / 2), _LEAST_SECONDS / 100)
