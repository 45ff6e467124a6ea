"""All targets by name: each takes bytes, and raises for nothing that advisor refuses in its own words."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import headers, texts
from tests.fuzz.edits import EDITORS

TARGETS: dict[str, Callable[[bytes], None]] = {
    "gguf": headers.gguf,
    "gguf-built": headers.gguf_built,
    "gguf-short": headers.gguf_short,
    "snapshot": headers.snapshot,
    "shards": headers.shards,
    "planned": headers.planned,
    "log": texts.log,
    "engine-output": texts.engine_output,
    "http-answer": texts.http_answer,
    "address": texts.address,
    "manifest": texts.manifest,
    "jan-model": texts.jan_model,
    "configuration": texts.configuration,
    "rules": texts.rules,
    "hardware": texts.hardware,
    **EDITORS,
}
