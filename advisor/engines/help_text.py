"""What a llama-server of the user's says about its options; keys are held against it, since names change by build."""

import os
from collections.abc import Mapping

from advisor.engines.dry_run import environment
from advisor.engines.find import EngineBinary, kind_of_program
from advisor.engines.process import run_until
from advisor.errors import EngineError

TIME_LIMIT_S = 5.0
_known: dict[tuple[str, int, int], str] = {}


def help_text(path: str, environ: Mapping[str, str]) -> str:
    """What `PATH --help` prints; asked again when the program changed. Raises EngineError."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise EngineError(f"{path} cannot be asked for its options ({error.strerror}); correct its path.") from None
    key = (path, status.st_mtime_ns, status.st_size)
    if key not in _known:
        binary = EngineBinary(path, kind_of_program(path), "given")
        ran = run_until([path, "--help"], environment(binary, environ), TIME_LIMIT_S, lambda _: False)
        if ran.status != 0 or "--ctx-size" not in ran.text:
            raise EngineError(f"{path} --help lists no options of llama-server; correct its path.")
        _known[key] = ran.text
    return _known[key]
