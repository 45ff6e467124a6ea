"""Names of cards as people, drivers and vendors write them, as words that can be compared."""

from __future__ import annotations

from collections.abc import Sequence

# Words around a name that vendors, drivers and people put there or leave away.
_NOISE = frozenset({
    "nvidia", "geforce", "tesla", "amd", "ati", "radeon", "instinct", "intel", "apple", "corporation", "inc",
    "gpu", "graphics", "generation", "edition", "r", "tm", "the", "with", "chip",
})  # fmt: skip
_SYNONYMS = {"mobile": "laptop", "notebook": "laptop", "pcie4": "pcie"}


def shown(text: str) -> str:
    """What a person typed, fit for one line of an error."""
    printable = "".join(character for character in text.strip() if character.isprintable())
    return printable if len(printable) <= 60 else printable[:57] + "..."


def listed(names: Sequence[str], limit: int) -> str:
    """The names in one line; an ellipsis says that there are more."""
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")


def is_run_of_words(base: str, known: Sequence[str]) -> bool:
    """Whether `base` ("3060ti") is a run of whole words of a name ("rtx", "3060", "ti")."""
    return any(
        "".join(known[start:end]) == base for start in range(len(known)) for end in range(start + 1, len(known) + 1)
    )


def words_of(name: str) -> tuple[tuple[str, ...], float | None]:
    """Words of a name without vendor and noise, in lower case, and the memory size in GiB it holds, if any."""
    lower = name.lower()
    for mark in ("(r)", "(tm)", "®", "™"):
        lower = lower.replace(mark, " ")
    if "(" in lower and "pascal)" not in lower:  # a remark in parentheses
        lower = lower.partition("(")[0] + lower.rpartition(")")[2]
    raw = lower.replace("-", " ").replace("_", " ").replace("/", " ").replace(",", " ").split()
    raw = [word.strip("()") for word in raw]
    words: list[str] = []
    size: float | None = None
    for index, word in enumerate(raw):
        number = word
        for unit in ("gib", "gb", "g"):
            if word.endswith(unit):
                number = word[: -len(unit)]
                break
        following = raw[index + 1] if index + 1 < len(raw) else ""
        if number != word and number.replace(".", "", 1).isdecimal():
            size = float(number)
        elif word.isdecimal() and following in ("gb", "gib"):
            size = float(word)
        elif word in ("gb", "gib") or word in _NOISE or not word:
            continue
        elif index > 0 or not (word.endswith("x") and word[:-1].isdecimal()):  # not the "2x" of "2x RTX 3090"
            words.append(_SYNONYMS.get(word, word))
    return tuple(words), size
