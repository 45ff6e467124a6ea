"""How layers are dealt to several GPUs by what each has room for."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

_EVEN_STEPS = 7  # halvings: to a hundredth of the room


def fastest_first(layer_bytes: Sequence[int], room_bytes: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """Bytes for each device: the fastest ones full up to a layer, equally fast ones to the same share.

    All the room where that is not enough.
    """
    room = [max(n_bytes - max(layer_bytes, default=0), 0) for n_bytes in room_bytes]
    left = sum(layer_bytes)
    shares = [0] * len(room)
    for speed in sorted(set(speeds), reverse=True):
        members = [index for index, value in enumerate(speeds) if value == speed]
        together = sum(room[index] for index in members)
        taken = min(together, left)
        for index in members:
            shares[index] = taken * room[index] // together if together else 0
        left -= taken
    return shares if left == 0 else list(room_bytes)


def deal(layer_bytes: Sequence[int], room_bytes: Sequence[int]) -> list[int]:
    """How many of the layers, in their order, go to each device, so that all are filled to the same share."""
    total, rooms = sum(layer_bytes), sum(room_bytes)
    counts = [0] * len(room_bytes)
    if not total or not rooms:
        return counts
    ends = list(accumulate(layer_bytes))
    dealt = 0
    for device, room in enumerate(accumulate(room_bytes[:-1])):
        limit = room * total / rooms
        behind = bisect_left(ends, limit, dealt)  # of this layer the middle decides
        if behind < len(ends) and ends[behind] - layer_bytes[behind] / 2 < limit:
            behind += 1
        counts[device] = behind - dealt
        dealt = behind
    counts[-1] = len(ends) - dealt
    return counts


def overfull(layer_bytes: Sequence[int], counts: Sequence[int], room_bytes: Sequence[int]) -> bool:
    """Whether a device gets more than it has room for."""
    at = 0
    for count, room in zip(counts, room_bytes, strict=True):
        if sum(layer_bytes[at : at + count]) > room:
            return True
        at += count
    return False


def evenest(layer_bytes: Sequence[int], room_bytes: Sequence[int]) -> list[int] | None:
    """Counts with which the device that is filled most is filled least, None where not all layers find room."""
    ends = list(accumulate(layer_bytes))

    def filled_to(share: float) -> list[int] | None:
        counts, at = [], 0
        for room in room_bytes:
            start = at
            at = bisect_right(ends, share * room + (ends[at - 1] if at else 0), at)
            counts.append(at - start)
        return counts if at == len(ends) else None

    best, low, high = filled_to(1.0), 0.0, 1.0
    for _ in range(_EVEN_STEPS if best is not None else 0):
        middle = (low + high) / 2
        counts = filled_to(middle)
        if counts is not None:
            best, high = counts, middle
        else:
            low = middle
    return best
