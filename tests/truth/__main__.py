"""`make truth BUILD=11434` or BUILD=newest: measure a seeded grid on a build, record it, say what moved."""

from __future__ import annotations

import argparse
import os
import sys

from tests.truth import recorded, report
from tests.truth.measure import measured
from tests.truth.settings import drawn, zoo
from tests.truth.sources import CACHE_VARIABLE, SourceError, probe


def main() -> int:
    """Exit status 1 when there is no source or it does not build."""
    parser = argparse.ArgumentParser(prog="python -m tests.truth", description=__doc__)
    parser.add_argument("--build", default="newest", help='build number or "newest" (of those whose source PyPI has)')
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cells", type=int, default=3, metavar="N", help="settings per model")
    parser.add_argument("--models", nargs="*", default=None, help="zoo models (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compiler processes")
    parser.add_argument("--dry", action="store_true", help="do not write the file")
    parser.epilog = f"Sources and builds are kept in .truth, or in the folder that {CACHE_VARIABLE} names."
    asked = parser.parse_args()
    try:
        build, program = probe(asked.build, asked.jobs)
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    wanted = [cell for model in asked.models or zoo() for cell in drawn(model, asked.seed, asked.cells)]
    print(f"measuring {len(wanted)} cells on b{build} ...", file=sys.stderr)
    known = recorded.recorded_builds()
    before = {other: recorded.read(other) for other in known if other == build}
    before.update({other: recorded.read(other) for other in [b for b in known if b < build][-1:]})
    cells = list(measured(program, wanted))
    if not asked.dry:
        print(f"wrote {recorded.write(build, cells)}")
    refused = sum("error" in cell for cell in cells)
    print(f"b{build}: {len(cells)} cells, {refused} refused by the engine")
    for other, old in before.items():
        title = f"Moved since the last measurement of b{build}" if other == build else f"Moved since b{other}"
        report.show(f"{title}:", *report.moved(old, cells))
    report.show(f"Our prediction for b{build}:", *report.predicted(cells, build))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
