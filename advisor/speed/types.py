"""What is asked and what is answered: one exchange, and how it will feel."""

from advisor.records import NamedTuple


class Turn(NamedTuple):
    """One exchange: tokens to read, tokens already in the cache, tokens to answer."""

    prompt_tokens: int
    depth_tokens: int
    answer_tokens: int

    @property
    def n_tokens(self) -> int:
        """What a context must hold for it: the engine refuses a longer prompt, it does not cut it."""
        return self.prompt_tokens + self.depth_tokens + self.answer_tokens


class Range(NamedTuple):
    """A figure with its bounds."""

    value: float
    low: float
    high: float


class Speed(NamedTuple):
    """What a person will feel. `at_depth` is the tokens in the cache for the decode figure."""

    turn_seconds: Range
    decode_tokens_per_s: Range
    prefill_tokens_per_s: Range
    at_depth: int
    confidence: str  # "calibrated" | "formula" | "low"
    bound_by: str  # "gpu bandwidth" | "ram bandwidth" | "disk" | "compute"
    when_full: Range | None = None  # decode with `full_depth` tokens in the cache: all that one slot holds
    full_depth: int = 0
