"""Small readers for /proc and /sys, and the PCI Express arithmetic that several probes need.

Plain `os` calls instead of pathlib: a probe reads hundreds of tiny files and has three milliseconds.
"""

from __future__ import annotations

import os

_READ_LIMIT = 1 << 20
# Bytes per second of one lane after line coding, by transfer rate: 8b/10b up to 5 GT/s, 128b/130b
# up to 32 GT/s, 242/256 flit coding at 64 GT/s (PCI Express base specification).
_LANE_BYTES_PER_S = {
    2.5: 250_000_000,
    5.0: 500_000_000,
    8.0: 984_615_384,
    16.0: 1_969_230_769,
    32.0: 3_938_461_538,
    64.0: 7_562_500_000,
}
_GENERATION_GT_PER_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


def under(root: str, path: str) -> str:
    """`path` (absolute) below `root`; `root` is "/" on a real machine and a fixture folder in tests."""
    return path if root == "/" else root.rstrip("/") + path


def read_text(path: str, limit: int = _READ_LIMIT) -> str | None:
    """Return the first `limit` bytes of a file as text, or None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (OSError, ValueError):
        return None
    try:
        parts: list[bytes] = []
        left = limit
        while left > 0:
            part = os.read(descriptor, left)
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts).decode("utf-8", "replace")
    except OSError:  # some sysfs files open but refuse to be read
        return None
    finally:
        os.close(descriptor)


def read_int(path: str) -> int | None:
    """Return the whole number a sysfs file holds (decimal or 0x...), or None."""
    text = read_text(path, 64)
    if text is None:
        return None
    try:
        return int(text.strip(), 0)
    except ValueError:
        return None


def list_folder(path: str) -> list[str]:
    """Sorted names in a folder; empty where there is none."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def key_values(text: str, separator: str) -> dict[str, str]:
    """Lines of `key<separator>value` as a mapping; other lines are skipped."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, found, value = line.partition(separator)
        if found:
            pairs[key.strip()] = value.strip()
    return pairs


def pcie_bytes_per_s(generation: int, lanes: int) -> int | None:
    """One-way bytes per second of a PCI Express link, or None for a generation that does not exist."""
    rate = _GENERATION_GT_PER_S.get(generation)
    if rate is None or not 1 <= lanes <= 32:
        return None
    return _LANE_BYTES_PER_S[rate] * lanes


def sysfs_link_bytes_per_s(device_folder: str) -> int | None:
    """Slowest link between a PCI device and the processor, bytes per second, one way.

    `max_link_*` is used because the current speed drops when the card idles; a card in a slot with
    fewer lanes is limited by the bridges above it, so every bridge on the way up counts.
    """
    slowest: int | None = None
    folder = os.path.realpath(device_folder)
    for _ in range(8):
        speed = read_text(folder + "/max_link_speed", 64)
        width = read_int(folder + "/max_link_width")
        if speed is None or width is None:
            break
        try:
            lane = _LANE_BYTES_PER_S.get(float(speed.split()[0]))
        except (ValueError, IndexError):  # "Unknown" on devices without a link
            lane = None
        if lane is not None and 1 <= width <= 32:
            slowest = lane * width if slowest is None else min(slowest, lane * width)
        folder = os.path.dirname(folder)
    return slowest
