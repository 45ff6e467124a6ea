"""Who holds memory on an AMD or Intel GPU: the kernel's DRM client counters in /proc/PID/fdinfo.

Only processes of the same user are visible; the kernel documents the keys in
Documentation/gpu/drm-usage-stats.rst.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from advisor.hardware._read import key_values, read_text, under
from advisor.hardware.engine_processes import describe_process, process_ids
from advisor.host import ProcessUse

_SCAN_SECONDS = 0.03  # a desktop with hundreds of programs must not hold up the answer


def _size_bytes(text: str) -> int:
    """Bytes of a counter such as `123 KiB`; 0 for anything else."""
    words = text.split()
    if not words or not words[0].isdecimal():
        return 0
    factor = {"KiB": 1024, "MiB": 1024**2}.get(words[1] if len(words) > 1 else "", 1)
    return int(words[0]) * factor


def drm_process_use(root: str, pci_id: str, regions: Sequence[str]) -> tuple[ProcessUse, ...]:
    """Device memory per process on the GPU at `pci_id`, largest first.

    `regions` are the DRM region names that count (for example `vram`, `gtt`, `local0`).
    """
    found: list[ProcessUse] = []
    stop = time.perf_counter() + _SCAN_SECONDS
    for pid in reversed(process_ids(root)):
        if time.perf_counter() > stop:
            break
        folder = under(root, f"/proc/{pid}/fd")
        try:
            names = os.listdir(folder)
        except OSError:  # another user's process, or gone
            continue
        per_client: dict[str, int] = {}
        for name in names:
            try:
                if not os.readlink(f"{folder}/{name}").startswith("/dev/dri/"):
                    continue
            except OSError:
                continue
            pairs = key_values(read_text(under(root, f"/proc/{pid}/fdinfo/{name}"), 8192) or "", ":")
            if pairs.get("drm-pdev") != pci_id:
                continue
            used = 0
            for region in regions:
                # resident is what is held now; older kernels know only drm-memory-, xe also drm-total-.
                for prefix in ("drm-resident-", "drm-memory-", "drm-total-"):
                    if prefix + region in pairs:
                        used += _size_bytes(pairs[prefix + region])
                        break
            # Several file descriptors may belong to one client, which must count once.
            client = pairs.get("drm-client-id", name)
            per_client[client] = max(per_client.get(client, 0), used)
        total = sum(per_client.values())
        if total:
            process_name, is_engine = describe_process(root, pid)
            found.append(ProcessUse(pid, process_name, total, is_engine))
    return tuple(sorted(found, key=lambda use: (-(use.used_bytes or 0), use.pid)))
