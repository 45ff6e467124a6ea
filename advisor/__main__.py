"""`python -m advisor` and the script `advisor`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exit with its status."""
    gc.disable()  # a short run makes no garbage worth looking for, and looking costs 10 ms of CPU
    from advisor.cli.main import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
