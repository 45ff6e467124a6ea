"""The corpus in the repository: one archive for each target, with what it starts from and what runs have found.

python -m tests.fuzz.corpus         writes the archives anew from seeds.py and the inputs that they hold
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
MAX_TOTAL_BYTES = 1 << 20
_WHEN = (2026, 1, 1, 0, 0, 0)  # the same inputs give the same archive


def inputs(target: str) -> dict[str, bytes]:
    """The kept inputs of a target, by name."""
    path = FOLDER / f"{target}.zip"
    if not path.exists():
        return {}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def keep(target: str, data: Iterable[bytes]) -> None:
    """Write the target's archive."""
    named = {sha256(each).hexdigest()[:16]: each for each in data}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(named):
            archive.writestr(zipfile.ZipInfo(name, _WHEN), named[name], zipfile.ZIP_DEFLATED)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{target}.zip").write_bytes(packed.getvalue())


def main() -> None:
    """Add the seeds to every archive."""
    from tests.fuzz.seeds import seeds
    from tests.fuzz.targets import TARGETS

    for target in TARGETS:
        keep(target, [*inputs(target).values(), *seeds(target)])


if __name__ == "__main__":
    main()
