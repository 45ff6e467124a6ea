"""`python -m advisor` and the script `advisor`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exit with its status."""
    gc.set_threshold(50_000)  # a short run makes no garbage worth looking for; saves 5 ms of CPU
    from advisor.cli.main import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
