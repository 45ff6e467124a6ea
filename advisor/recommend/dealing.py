"""Layers dealt to several GPUs: whole layers in their order, the fastest GPUs as full as they get."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

_EVEN_STEPS = 7  # halvings: to a hundredth of the room
_A_LITTLE_OVER = 1.125  # times the room


class Dealer:
    """Deals layers to GPUs of these speeds; what it has dealt it knows."""

    def __init__(self, speeds: Sequence[float]) -> None:
        self._speeds = speeds
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[float, ...]] = {}

    def split(self, layer_bytes: tuple[int, ...], room_bytes: tuple[int, ...]) -> tuple[float, ...]:
        """Counts of layers as a tensor_split."""
        known = self._known.get((layer_bytes, room_bytes))
        if known is None:
            known = tuple(map(float, layer_counts(layer_bytes, room_bytes, self._speeds)))
            self._known[layer_bytes, room_bytes] = known
        return known


def layer_counts(layer_bytes: Sequence[int], room_bytes: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """How many of the layers, in their order, go to each device; more than there is room for where not all fit."""
    ends = [0, *accumulate(layer_bytes)]
    counts = deal(layer_bytes, fastest_first(layer_bytes, room_bytes, speeds), ends)
    if overfull(layer_bytes, counts, room_bytes, ends):
        even = evenest(layer_bytes, room_bytes, _A_LITTLE_OVER)  # buffers are known roughly: it may fit after all
        if even is None:
            return counts
        if overfull(layer_bytes, even, room_bytes, ends):
            return even
        counts = even
    return _tightened(ends, counts, room_bytes, speeds)


def _tightened(
    ends: Sequence[int], counts: Sequence[int], room_bytes: Sequence[int], speeds: Sequence[float]
) -> list[int]:
    """Counts that fit, with layers moved from slower devices to faster ones for as long as they find room there.

    `ends`: bytes of the layers before each, and of all.
    """
    borders = [0, *accumulate(counts)]  # layers before each device, and all
    moved = True
    while moved:  # what lies on other devices moves along, so that one more may find room after another
        moved = False
        for fast, slow in _by_speed(tuple(speeds))[1]:
            first, behind, step = (fast + 1, slow + 1, 1) if fast < slow else (slow + 1, fast + 1, -1)
            while borders[slow + 1] > borders[slow]:
                for border in range(first, behind):
                    borders[border] += step
                for device in range(first - 1, behind):
                    if ends[borders[device + 1]] - ends[borders[device]] > room_bytes[device]:
                        break
                else:
                    moved = True
                    continue
                for border in range(first, behind):
                    borders[border] -= step
                break
    return [end - begin for begin, end in pairwise(borders)]


@lru_cache(maxsize=64)
def _by_speed(speeds: tuple[float, ...]) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """(devices equally fast, the fastest first; pairs of a faster and a slower one)."""
    fastest = [[index for index, value in enumerate(speeds) if value == speed] for speed in sorted(set(speeds))[::-1]]
    order = sorted(range(len(speeds)), key=lambda index: -speeds[index])
    return fastest, [(fast, slow) for fast in order for slow in reversed(order) if speeds[slow] < speeds[fast]]


def fastest_first(layer_bytes: Sequence[int], room_bytes: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """Bytes for each device: the fastest ones full up to a layer, equally fast ones to the same share.

    All the room where that is not enough.
    """
    largest = max(layer_bytes, default=0)
    room = [max(n_bytes - largest, 0) for n_bytes in room_bytes]
    left = sum(layer_bytes)
    shares = [0] * len(room)
    for members in _by_speed(tuple(speeds))[0]:
        together = sum([room[index] for index in members])
        taken = min(together, left)
        for index in members:
            shares[index] = taken * room[index] // together if together else 0
        left -= taken
    return shares if left == 0 else list(room_bytes)


def deal(layer_bytes: Sequence[int], room_bytes: Sequence[int], ends: Sequence[int] | None = None) -> list[int]:
    """How many of the layers, in their order, go to each device, so that all are filled to the same share.

    `ends`, where they are known: bytes of the layers before each, and of all.
    """
    ends = ends or [0, *accumulate(layer_bytes)]
    total, rooms, n_layers = ends[-1], sum(room_bytes), len(layer_bytes)
    counts = [0] * len(room_bytes)
    if not total or not rooms:
        return counts
    dealt = 0
    for device, room in enumerate(accumulate(room_bytes[:-1])):
        limit = room * total / rooms
        behind = bisect_left(ends, limit, dealt + 1) - 1  # of this layer the middle decides
        if behind < n_layers and ends[behind + 1] - layer_bytes[behind] / 2 < limit:
            behind += 1
        counts[device] = behind - dealt
        dealt = behind
    counts[-1] = n_layers - dealt
    return counts


def overfull(
    layer_bytes: Sequence[int], counts: Sequence[int], room_bytes: Sequence[int], ends: Sequence[int] | None = None
) -> bool:
    """Whether a device gets more than it has room for. `ends` as for deal."""
    ends = ends or [0, *accumulate(layer_bytes)]
    at = 0
    for count, room in zip(counts, room_bytes, strict=True):
        if ends[at + count] - ends[at] > room:
            return True
        at += count
    return False


def evenest(layer_bytes: Sequence[int], room_bytes: Sequence[int], at_most: float = 1.0) -> list[int] | None:
    """Counts with which the fullest device is filled least, None where it takes more than `at_most` times its room."""
    ends = list(accumulate(layer_bytes))

    def filled_to(share: float) -> list[int] | None:
        counts, at = [], 0
        for room in room_bytes:
            start = at
            at = bisect_right(ends, share * room + (ends[at - 1] if at else 0), at)
            counts.append(at - start)
        return counts if at == len(ends) else None

    best, low, high = filled_to(1.0), 0.0, 1.0
    if best is None and at_most > 1.0:
        best, low, high = filled_to(at_most), 1.0, at_most
    for _ in range(_EVEN_STEPS if best is not None else 0):
        middle = (low + high) / 2
        counts = filled_to(middle)
        if counts is not None:
            best, high = counts, middle
        else:
            low = middle
    return best
