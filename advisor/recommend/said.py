"""Sentences made from figures: what is said carries the numbers that it rests on."""

from collections.abc import Mapping

from advisor.recommend.words import pace_of, seconds_text
from advisor.records import NamedTuple
from advisor.units import format_bytes


class Said(NamedTuple):
    """A text with the figures in it, by name; the unit is the name's ending."""

    text: str
    figures: Mapping[str, float]


def say(template: str, **values: float | str) -> Said:
    """`template` with its {names} filled in: strings as they are, numbers written for people by their name's unit."""
    shown = {name: value if isinstance(value, str) else written(name, value) for name, value in values.items()}
    figures = {
        name: value for name, value in values.items() if not isinstance(value, str) and f"{{{name}}}" in template
    }
    return Said(template.format(**shown), figures)


def sentence(*parts: Said | None) -> Said:
    """One sentence of several parts, those that are None left out. ValueError where one name stands for two figures."""
    figures: dict[str, float] = {}
    told = _in_one_unit([part for part in parts if part is not None])
    for part in told:
        for name, value in part.figures.items():
            if figures.setdefault(name, value) != value:
                raise ValueError(f"two figures are called {name}: {figures[name]} and {value}")
    text = "; ".join(part.text for part in told)
    return Said(f"{text}.", figures)


def _in_one_unit(parts: list[Said]) -> list[Said]:
    """Speeds of one sentence in tokens/s where one is below 1 and another is not: nobody compares 1/x with x."""
    rates = [
        (name, rate) for part in parts for name, rate in part.figures.items() if name.endswith("tokens_per_s") and rate
    ]
    if len({rate < 1 for _, rate in rates}) < 2:
        return parts
    shown = {written(name, rate): compared(rate) for name, rate in rates if rate < 1}
    for old, new in shown.items():
        parts = [part._replace(text=part.text.replace(old, new)) for part in parts]
    return parts


def compared(rate: float) -> str:
    """A rate below 1 in tokens/s beside one above."""
    return f"about {rate:.2g} tokens/s"


def capital(said: Said) -> Said:
    """With a capital letter in front; not for what begins with a name."""
    return said._replace(text=said.text[:1].upper() + said.text[1:])


def written(name: str, value: float) -> str:
    """A figure as it stands in a text: bytes with their unit, a pace, seconds, else the number."""
    if name.endswith("_bytes"):
        return format_bytes(int(value))
    if name.endswith("tokens_per_s"):
        return pace_of(value)
    if name.endswith("_s"):
        return seconds_text(value)
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
