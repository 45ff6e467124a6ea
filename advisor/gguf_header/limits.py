"""Caps that hold before anything is allocated, each far above any published model.

Published models reach 262,144 tokens with 514,000 merges (Gemma), about 2,000 tensors and 80 metadata entries, and
headers of 35 MB (with an embedded tokenizer.json).
"""

from __future__ import annotations

FIRST_READ_BYTES = 64 * 1024  # the metadata before the token texts, or a whole header without them
WINDOW_BYTES = 1024 * 1024  # what is held of a file at any time
MAX_READ_BYTES = 256 * 1024 * 1024  # of one header, per pass
MAX_KEPT_BYTES = 32 * 1024 * 1024  # cost of what one header leaves in memory, estimated from above

MAX_KV = 16_384
MAX_TENSORS = 65_536
MAX_KEY_BYTES = 65_535  # the GGUF specification's limit
MAX_STRING_BYTES = 1 << 30  # llama.cpp's own limit
MAX_KEPT_STRING_BYTES = 1 << 20  # longer texts are cut: a chat template takes 100 KB, a tokenizer.json is of no use
MAX_ARRAY_LENGTH = 1 << 30  # llama.cpp's own limit
MAX_TEXTS = 1 << 21  # entries of all string arrays together
MAX_COMPARED_TEXTS = (
    1 << 20
)  # tokens of a model and its draft model; with texts before theirs; stepping over so many takes 0.1 s
MAX_COMPARED_BYTES = 32 * 1024 * 1024  # of their texts, with lengths; those of 262,144 tokens take 5 MB
MAX_KEPT_NUMBERS = 65_536  # entries of a numeric array that is kept whole
MAX_KEPT_TEXTS = 64  # entries of a string array that is kept whole
MAX_DIMENSIONS = 4
MAX_TENSOR_NAME_BYTES = 63  # GGML_MAX_NAME less the closing zero
MAX_SHARDS = 65_535  # split.count is a uint16
MAX_SNAPSHOT_BYTES = 8 * 1024 * 1024

MIN_KV_BYTES = 8 + 1 + 4 + 1
MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8
