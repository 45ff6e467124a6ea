"""Layers dealt to several GPUs: whole layers in their order, the fastest GPUs as full as they get."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

_EVEN_STEPS = 7  # halvings: to a hundredth of the room


def layer_counts(layer_bytes: Sequence[int], room_bytes: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """How many of the layers, in their order, go to each device; more than there is room for where not all fit."""
    counts = deal(layer_bytes, fastest_first(layer_bytes, room_bytes, speeds))
    if overfull(layer_bytes, counts, room_bytes):
        even = evenest(layer_bytes, room_bytes)
        if even is None:
            return counts
        counts = even
    return tightened(layer_bytes, counts, room_bytes, speeds)


def tightened(
    layer_bytes: Sequence[int], counts: Sequence[int], room_bytes: Sequence[int], speeds: Sequence[float]
) -> list[int]:
    """Counts that fit, with layers moved from slower devices to faster ones for as long as they find room there."""
    ends = [0, *accumulate(layer_bytes)]

    def fits(trial: Sequence[int]) -> bool:
        at = 0
        for count, room in zip(trial, room_bytes, strict=True):
            if ends[at + count] - ends[at] > room:
                return False
            at += count
        return True

    best = list(counts)
    by_speed = sorted(range(len(best)), key=lambda index: -speeds[index])
    pairs = [(fast, slow) for fast in by_speed for slow in reversed(by_speed) if speeds[slow] < speeds[fast]]
    moved = True
    while moved:  # what lies on other devices moves along, so that one more may find room after another
        moved = False
        for fast, slow in pairs:
            while best[slow]:
                trial = list(best)
                trial[slow] -= 1
                trial[fast] += 1
                if not fits(trial):
                    break
                best, moved = trial, True
    return best


def fastest_first(layer_bytes: Sequence[int], room_bytes: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """Bytes for each device: the fastest ones full up to a layer, equally fast ones to the same share.

    All the room where that is not enough.
    """
    largest = max(layer_bytes, default=0)
    room = [max(n_bytes - largest, 0) for n_bytes in room_bytes]
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
