"""`python -m advisor` and the script `advisor`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    from advisor.cli.main import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
