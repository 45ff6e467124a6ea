"""Free memory as plans that last see it: small changes are none, so that nothing is planned anew for a few MiB."""

from __future__ import annotations

import json
from hashlib import sha256

from advisor.host import HostSnapshot
from advisor.stores.cache import Cache
from advisor.units import MIB

_LESS_ON_DEVICE_BYTES = 256 * MIB  # half of the usual margins of policy.toml
_LESS_RAM_BYTES = 512 * MIB
_MORE_RAM_SHARE = 16  # of the total: what other programs hold comes and goes


def steady(host: HostSnapshot, cache: Cache, *, devices: bool, ram: bool) -> HostSnapshot:
    """`host` with the free memory that was planned with before, where it has hardly changed since.

    Free memory is another at every look, and a thousand models shall not be planned anew for a few MiB. Kept is the
    memory at rest (as make_budget counts it), of the GPUs if `devices` and of the system if `ram`. Where there is less
    now, the difference stays within half of the margin that plans keep free; system memory may be somewhat more.
    """
    rest = [min(device.free_bytes + device.used_by_engines_bytes, device.total_bytes) for device in host.devices]
    available = min(host.ram.available_bytes + host.ram.used_by_engines_bytes, host.ram.total_bytes)
    limits = [(devices, _LESS_ON_DEVICE_BYTES, _LESS_ON_DEVICE_BYTES) for _ in rest]
    limits.append((ram, _LESS_RAM_BYTES, max(_LESS_RAM_BYTES, host.ram.total_bytes // _MORE_RAM_SHARE)))
    rest.append(available)
    totals = [host.ram.total_bytes, *([device.id, device.name, device.total_bytes] for device in host.devices)]
    name = f"memory at rest of {sha256(json.dumps(totals).encode()).hexdigest()}"
    known = cache.note(name)
    if not isinstance(known, list) or [type(value) for value in known] != [int] * len(rest):
        known = rest
    planned = [
        before if keeps and -less <= now - before <= more else now
        for before, now, (keeps, less, more) in zip(known, rest, limits, strict=True)
    ]
    if planned != cache.note(name):
        cache.remember_note(name, planned)
    return host._replace(
        devices=tuple(
            device._replace(free_bytes=free, used_by_engines_bytes=0)
            for device, free in zip(host.devices, planned[:-1], strict=True)
        ),
        ram=host.ram._replace(available_bytes=planned[-1], used_by_engines_bytes=0),
    )


_KEPT_DAYS = 3


def at_rest(host: HostSnapshot, cache: Cache, now_s: float) -> HostSnapshot:
    """`host` with the most memory that was free at once within the last three days, for configs that are to last.

    A game that takes the card for an evening must not shrink what is written; what others hold all the time counts.
    Small differences count no more than in `steady`.
    """
    free = [min(device.free_bytes + device.used_by_engines_bytes, device.total_bytes) for device in host.devices]
    free.append(min(host.ram.available_bytes + host.ram.used_by_engines_bytes, host.ram.total_bytes))
    totals = [host.ram.total_bytes, *([device.id, device.name, device.total_bytes] for device in host.devices)]
    name = f"most free of {sha256(json.dumps(totals).encode()).hexdigest()}"
    note = cache.note(name)
    today = int(now_s // 86400)
    rows = _rows(note, len(free))
    used = rows.pop(-1, None)  # what was planned with last
    kept = {day: known for day, known in rows.items() if 0 <= today - day < _KEPT_DAYS}
    kept[today] = [max(pair) for pair in zip(kept.get(today, free), free, strict=True)]
    most = [max(values) for values in zip(*kept.values(), strict=True)]
    small = [_LESS_ON_DEVICE_BYTES] * len(host.devices) + [_LESS_RAM_BYTES]
    if used is not None:
        most = [
            before if abs(now - before) <= limit else now
            for before, now, limit in zip(used, most, small, strict=True)
        ]  # fmt: skip
    written = [[-1, *most], *([day, *known] for day, known in sorted(kept.items()))]
    if written != note:
        cache.remember_note(name, written)
    return host._replace(
        devices=tuple(
            device._replace(free_bytes=n_bytes, used_by_engines_bytes=0)
            for device, n_bytes in zip(host.devices, most[:-1], strict=True)
        ),
        ram=host.ram._replace(available_bytes=most[-1], used_by_engines_bytes=0),
    )


def _rows(note: object, count: int) -> dict[int, list[int]]:
    """What the note says by day (-1: what was planned with), as far as it can be used."""
    rows = note if isinstance(note, list) else []
    usable = [
        row for row in rows if isinstance(row, list) and len(row) == count + 1 and all(type(v) is int for v in row)
    ]  # fmt: skip
    return {row[0]: row[1:] for row in usable}
