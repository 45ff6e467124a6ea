"""All groups of lies."""

from __future__ import annotations

from tests.hostile import beside, engines, headers, logs, machines, models, parts, places, tables, targets, written

GROUPS = (
    headers.GROUP,
    tables.GROUP,
    models.MODELS,
    beside.GROUP,
    parts.SNAPSHOTS,
    parts.SHARDS,
    places.FILES,
    places.STORES,
    logs.LOGS,
    engines.STDOUT,
    engines.HTTP,
    machines.TREE,
    machines.NVML,
    machines.REPLAYED,
    targets.GROUP,
    written.RULES,
    written.CONFIGURATION,
)
