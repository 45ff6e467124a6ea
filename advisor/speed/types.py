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

    def slowed(self, factor: float) -> "Speed":
        """So many times slower, by a factor of other machines: the upper bounds stay, and confidence is low."""

        def slower(rate: Range) -> Range:
            return Range(rate.value / factor, rate.low / factor, rate.high)

        turn = self.turn_seconds
        return self._replace(
            turn_seconds=Range(turn.value * factor, turn.low, turn.high * factor),
            decode_tokens_per_s=slower(self.decode_tokens_per_s),
            prefill_tokens_per_s=slower(self.prefill_tokens_per_s),
            when_full=slower(self.when_full) if self.when_full is not None else None,
            confidence="low",
            bound_by="disk" if self.bound_by == "disk" else "compute",
        )
