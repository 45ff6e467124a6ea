"""How CUDA numbers the cards: NVML lists them by slot, CUDA by speed, and the environment hides some."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.host import Device


class Card:
    """One CUDA-visible device before it gets its number. A plain class: a dataclass costs a millisecond to define."""

    __slots__ = ("device", "parent_uuid", "speed")

    def __init__(self, device: Device, speed: int, parent_uuid: str | None = None) -> None:
        self.device = device
        self.speed = speed  # cores x clock, the nearest NVML gets to CUDA's "fastest first"
        self.parent_uuid = parent_uuid  # of a MIG instance


def cuda_order(cards: list[Card], environ: Mapping[str, str]) -> tuple[list[Card], str]:
    """Cards as CUDA numbers them, and a remark where that is an estimate."""
    if environ.get("CUDA_DEVICE_ORDER", "").upper() == "PCI_BUS_ID" or len(cards) < 2:
        return cards, ""
    if len({(card.device.name, card.speed) for card in cards}) == 1:
        return cards, ""
    ordered = sorted(cards, key=lambda card: -card.speed)  # stable: equals stay in PCI order
    return ordered, "unequal cards numbered fastest first by estimate; CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain"


def visible_cards(cards: list[Card], environ: Mapping[str, str]) -> list[Card]:
    """Keep what CUDA_VISIBLE_DEVICES leaves, in its order. As in CUDA, the list ends at its first invalid entry."""
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return cards
    chosen: list[Card] = []
    for entry in (part.strip() for part in wanted.split(",")):
        found = None
        if entry.isascii() and entry.isdecimal():
            found = cards[int(entry)] if int(entry) < len(cards) else None
        elif entry.startswith(("GPU-", "MIG-")):
            found = next((card for card in cards if (card.device.uuid or "").startswith(entry)), None)
            if found is None:  # a split card named as a whole: its first instance
                found = next((card for card in cards if (card.parent_uuid or "").startswith(entry)), None)
        if found is None or found in chosen:
            break
        chosen.append(found)
    return chosen
