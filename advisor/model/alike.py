"""A model's blocks sorted into those that differ by nothing but their number: what they need is worked out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from advisor.model.spec import LayerSpec


class Alike:
    """Blocks that follow one another; `kinds` are one of each, `of_layer` says for every block which stands for it."""

    def __init__(self, layers: Sequence[LayerSpec]) -> None:
        found: dict[tuple[object, ...], int] = {}
        kinds: list[LayerSpec] = []
        numbers = []
        for layer in layers:
            number = found.setdefault(layer[1:], len(kinds))  # whatever the number of the block
            if number == len(kinds):
                kinds.append(layer)
            numbers.append(number)
        self.kinds = tuple(kinds)
        self.of_layer = tuple(numbers)
        self._totals = tuple(Counter(numbers).items())
        self._begin = layers[0].il if layers else 0
        self._known: dict[tuple[int, ...], tuple[tuple[int, int, int], ...]] = {}

    def counts(self, placement: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
        """(place, number of a kind, how many blocks of it lie there); `placement` as place_layers has it."""
        known = self._known.get(placement)
        if known is None:
            places = placement[self._begin : self._begin + len(self.of_layer)]
            pairs = Counter(zip(places, self.of_layer, strict=True))
            known = self._known[placement] = tuple([(place, kind, count) for (place, kind), count in pairs.items()])
        return known

    def totals(self) -> tuple[tuple[int, int], ...]:
        """(number of a kind, how many blocks of it there are)."""
        return self._totals
