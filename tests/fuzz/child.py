"""`python -m tests.fuzz.child TARGET [libFuzzer's options and folders]`: one target under atheris."""

from __future__ import annotations

import importlib
import pkgutil
import resource
import sys

import atheris

import advisor
from tests.fuzz.laws import MAX_INPUT_BYTES

CPU_S = 5.0  # of one input, with every branch counted; without it is a second


def main() -> None:
    """Instrument advisor, then hand over to libFuzzer."""
    sys.setrecursionlimit(1000)  # as it is for users: what needs more has to refuse
    with atheris.instrument_imports(include=["advisor"]):
        for module in pkgutil.walk_packages(advisor.__path__, "advisor."):  # most are imported when they are needed
            if not module.name.startswith(("advisor.cli", "advisor.daemon", "advisor.__main__")):
                importlib.import_module(module.name)
        from tests.fuzz.targets import TARGETS
    target = TARGETS[sys.argv[1]]

    def once(data: bytes) -> None:
        if len(data) > MAX_INPUT_BYTES:
            return
        began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        target(data)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
        if used > CPU_S:
            raise TimeoutError(f"{used:.1f} s of CPU for {len(data)} bytes")

    atheris.Setup([sys.argv[0], *sys.argv[2:]], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
