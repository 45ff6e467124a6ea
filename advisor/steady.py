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
