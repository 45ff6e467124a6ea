"""All groups of lies."""

from __future__ import annotations

from tests.hostile import engines, headers, logs, machines, models, parts, places, tables, written

GROUPS = (
    headers.GROUP,
    tables.GROUP,
    models.MODELS,
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
    written.RULES,
    written.CONFIGURATION,
)
