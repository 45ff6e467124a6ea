"""Prints what reading a header costs: ours, the gguf package's, and the floor of reading the same bytes.

usage: python -m tests.bench.header       (a few MB in a temporary folder; no assertions)
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from advisor.gguf_header import read_header
from advisor.gguf_header.metadata import MetadataReader
from tests.tools.gguf_files import assemble, llama3_entries, llama3_tensors, table, write_sparse


def cpu_ms(action: Callable[[], object], repeats: int) -> float:
    """Median CPU milliseconds of `action`."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append((time.process_time() - start) * 1000)
    return statistics.median(times)


def main() -> None:
    """Write the file, time the readers, print a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "llama3.gguf")
        entries, tensors = llama3_entries(), llama3_tensors()
        file_bytes = write_sparse(path, entries, tensors)
        header_bytes = len(assemble(entries, table(tensors)[0]))

        def ours() -> object:
            with open(path, "rb", buffering=0) as file:
                return read_header(file, path, file_bytes)

        def floor() -> object:
            with open(path, "rb", buffering=0) as file:
                return file.readinto(bytearray(header_bytes))

        def exact() -> object:
            find = MetadataReader._find_next_key
            MetadataReader._find_next_key = lambda self, n_texts: False  # type: ignore[method-assign]
            try:
                return ours()
            finally:
                MetadataReader._find_next_key = find  # type: ignore[method-assign]

        def package() -> object:
            from gguf import GGUFReader

            return GGUFReader(path)

        base = cpu_ms(floor, 30)
        print(f"header of {header_bytes / 1e6:.1f} MB, {len(tensors)} tensors; CPU ms, median")
        for name, action, repeats in (
            ("floor: read the bytes", floor, 30),
            ("advisor", ours, 30),
            ("advisor, every text stepped over", exact, 5),
            ("gguf package, GGUFReader", package, 1),
        ):
            spent = cpu_ms(action, repeats)
            print(f"  {name:34} {spent:9.2f}   {spent / base:8.1f} x floor")


if __name__ == "__main__":
    main()
