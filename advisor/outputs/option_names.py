"""llama-server's options by all their spellings, and which of them the user's own binary has.

Source: llama.cpp b11434 common/arg.cpp; `--help` of b10434 (tests/data/llama_server_help).
"""

from __future__ import annotations

from advisor.errors import OutputError
from advisor.gguf_header.errors import excerpt
from advisor.llama_flags import FLAGS
from advisor.llama_variables import ENVIRONMENT

# (canonical name, other spellings) of options that say nothing about memory's figures but stand in configs
_MORE = (
    ("model", ("m", "LLAMA_ARG_MODEL")),
    ("device", ("dev", "LLAMA_ARG_DEVICE")),
    ("fit", ("LLAMA_ARG_FIT",)),
    ("fit-target", ("fitt", "LLAMA_ARG_FIT_TARGET")),
    ("fit-ctx", ("fitc", "LLAMA_ARG_FIT_CTX")),
    ("threads-batch", ("tb",)),
    ("embeddings", ("embedding", "LLAMA_ARG_EMBEDDINGS")),
)
# Left out without harm where the binary does not know them: then there is nothing to switch off or to limit.
_DISPENSABLE = frozenset((("fit", "off"), ("no-kv-unified", "")))
_DISPENSABLE_NAMES = frozenset(("cache-ram", "ctx-checkpoints"))


def _table() -> tuple[dict[str, tuple[str, bool]], dict[str, str]]:
    spellings: dict[str, tuple[str, bool]] = {}
    variables: dict[str, str] = {}
    of_variable = {options[0].lstrip("-"): name for name, options in ENVIRONMENT.items()}
    for flag in FLAGS:
        longs = [name.lstrip("-") for name in flag.names if name.startswith("--")]
        negated = flag.kind in ("off", "none") and longs[0].startswith("no-")
        names = [name.removeprefix("no-") for name in longs] if negated else longs
        canonical = next((name for name in names if name in of_variable), names[-1])
        for name in flag.names:
            spellings[name.lstrip("-")] = (canonical, negated)
        if canonical in of_variable:
            variables[canonical] = of_variable[canonical]
            spellings[of_variable[canonical]] = (canonical, False)
    for canonical, others in _MORE:
        for name in (canonical, *others):
            spellings[name] = (canonical, False)
            if name.startswith("LLAMA_ARG_"):
                variables[canonical] = name
    return spellings, variables


SPELLINGS, VARIABLES = _table()  # spelling -> (canonical name, negated); canonical name -> variable


def canonical_name(key: str) -> tuple[str, bool]:
    """(The long name of an option however spelled, whether the spelling negates it); unknown keys are themselves."""
    return SPELLINGS.get(key, (key, False))


def known_to(
    options: list[tuple[str, str]], supported: frozenset[str] | None, model_id: str, *, respell: bool = True
) -> list[tuple[str, str]]:
    """`options` as the user's binary takes them, None = not known; `respell`: in another spelling where it has one.

    Raises OutputError for an option that the prediction rests on and the binary does not have.
    """
    if supported is None:
        return options
    return [known for name, value in options for known in _known(name, value, supported, model_id, respell)]


def _known(name: str, value: str, supported: frozenset[str], model_id: str, respell: bool) -> list[tuple[str, str]]:
    if name in supported:
        return [(name, value)]
    if (name, value) == ("no-mmap", "") and "load-mode" in supported:
        return [("load-mode", "none")]
    if (name, value) == ("load-mode", "none") and "no-mmap" in supported:
        return [("no-mmap", "")]
    for other, meant in SPELLINGS.items() if respell else ():
        if meant == canonical_name(name) and other in supported:
            return [(other, value)]
    if (name, value) in _DISPENSABLE or name in _DISPENSABLE_NAMES:
        return []
    raise OutputError(
        f"{excerpt(model_id)}: your llama-server has no --{excerpt(name)}, which the settings need; "
        f"install a newer llama.cpp, or plan without it."
    )
