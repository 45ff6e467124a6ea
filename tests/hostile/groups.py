"""All groups of lies."""

from __future__ import annotations

from tests.hostile import headers, models, tables

GROUPS = (headers.GROUP, tables.GROUP, models.MODELS, models.SNAPSHOTS, models.SHARDS)
