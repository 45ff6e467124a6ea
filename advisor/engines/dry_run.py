"""Asking an engine for the memory of given settings without loading a weight.

`llama-server -fit on` measures the settings as they are before it changes or loads anything, and prints the table of
its memory per device; with -v also the compute buffers to a hundredth of a MiB. It is stopped right after that table.
`llama-fit-params --fit-print on` prints the same sums and ends, but it reserves logits for every token of a batch.
Source: common/fit.cpp and tools/fit-params/fit-params.cpp of llama.cpp b11434.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from advisor.engines.find import BINDINGS, EngineBinary
from advisor.engines.load_log import MARKS, LoadLog, device_of, is_host, parse_load_log, totals
from advisor.engines.log_filter import text_lines
from advisor.engines.log_lines import MIB, Listed, TableRow
from advisor.engines.process import Ran, run_until
from advisor.errors import EngineError
from advisor.llama_flags import FLAGS
from advisor.memory.types import Interval
from advisor.records import NamedTuple
from advisor.settings import ALL_LAYERS, AUTO_LAYERS, RequestedSettings

TIME_LIMIT_S = 10.0
_TABLE = "memory breakdown [MiB]"
_PRINTED_AT_END = 1 << 18  # characters
_COMPLAINTS = (b"error", b"Error", b"ERROR", b"invalid", b"Invalid")
# -c may be shrunk and layers moved only after the table; the margin is irrelevant to it
_SERVER = ("--host", "127.0.0.1", "--port", "0", "--no-warmup", "-fit", "on", "-v", "--log-colors", "off")
_OLD_LOAD_MODES = {"none": ("--no-mmap",), "mmap": (), "auto": (), "mlock": ("--mlock",), "mmap+mlock": ("--mlock",)}


class DryRun(NamedTuple):
    """The engine's answer: bytes it would take, as bounds, by (device, component); "host" is system memory."""

    binary: EngineBinary
    build: int | None
    commit: str | None
    devices: tuple[Listed, ...]  # those that the model uses, in the engine's order
    figures: dict[tuple[str, str], Interval]
    settings: dict[str, str]  # as the engine says it runs them
    every_row: bool  # logits are reserved for every token of the micro-batch
    seconds: float


def settings_words(asked: RequestedSettings, only_devices: Sequence[str] | None = None) -> list[str]:
    """Settings as words of llama.cpp's command line; what is left open is left out.

    `only_devices` restricts the engine to some of its GPUs, none included.
    """
    words: list[str] = []
    for field, value in asked._asdict().items():
        if value is None or value == () or (field == "n_gpu_layers" and value == AUTO_LAYERS):
            continue
        if field == "tensor_overrides":
            words += ["-ot", ",".join(f"{override.pattern}={override.buffer}" for override in value)]
        elif isinstance(value, bool):
            kind = "on" if value else "off"
            names = [flag.names[-1] for flag in FLAGS if flag.field == field and flag.kind == kind]
            words += names[:1]  # no name: the engine's default already
        else:
            flag = next(flag for flag in FLAGS if flag.field == field)
            text = ",".join(f"{share:g}" for share in value) if isinstance(value, tuple) else str(value)
            words += [flag.names[-1], "999" if field == "n_gpu_layers" and value == ALL_LAYERS else text]
    return words if only_devices is None else [*words, "--device", ",".join(only_devices) or "none"]


def ask_engine(
    engines: Sequence[EngineBinary],
    model_path: str,
    asked: RequestedSettings,
    environ: Mapping[str, str],
    *,
    only_devices: Sequence[str] | None = None,
    seconds: float = TIME_LIMIT_S,
) -> DryRun:
    """The first usable answer of `engines`, within `seconds` in all. Raises EngineError with the last one's reason.

    `only_devices` restricts the engine to some of its GPUs, none included.
    """
    deadline = time.monotonic() + seconds
    reason = "no engine was asked"
    words = settings_words(asked, only_devices)
    for binary in engines:
        left = deadline - time.monotonic()
        if left < 0.2:
            break
        try:
            if binary.kind == BINDINGS:
                from advisor.engines.bindings import ask_bindings

                return ask_bindings(binary, model_path, asked, only_devices, environ, left)
            return _ask(binary, model_path, list(words), environ, left)
        except EngineError as error:
            reason = str(error)
    raise EngineError(reason)


def _ask(binary: EngineBinary, model_path: str, words: list[str], environ: Mapping[str, str], seconds: float) -> DryRun:
    started = time.monotonic()
    server = binary.kind == "server"
    clean = environment(binary, environ)
    extra = _SERVER if server else ("--fit-print", "on", "-v")
    ran = run_until([binary.path, "-m", model_path, *extra, *words], clean, seconds, _has_table if server else _never)
    if "--load-mode" in words and "invalid argument: --load-mode" in ran.text:  # builds before August 2026
        at = words.index("--load-mode")
        words[at : at + 2] = _OLD_LOAD_MODES.get(words[at + 1], ())
        left = seconds - (time.monotonic() - started)
        command = [binary.path, "-m", model_path, *extra, *words]
        ran = run_until(command, clean, max(left, 0.2), _has_table if server else _never)
    if ran.ended == "size":
        raise EngineError(_no_answer(binary, ran, seconds))
    log = parse_load_log(text_lines(ran.text, MARKS))
    rows = log.tables[0] if log.tables else ()
    if not server:
        rows = _printed_rows(ran.text) or rows
    if not rows:
        raise EngineError(_no_answer(binary, ran, seconds))
    return _answer(binary, log, rows, not server, time.monotonic() - started)


def environment(binary: EngineBinary, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for the question: no settings by LLAMA_ARG_*, and the libraries beside the program."""
    clean = {name: value for name, value in environ.items() if not name.startswith(("LLAMA_ARG_", "LLAMA_LOG_"))}
    folder = os.path.dirname(binary.path)
    before = clean.get("LD_LIBRARY_PATH")
    clean["LD_LIBRARY_PATH"] = f"{before}{os.pathsep}{folder}" if before else folder
    return clean


def _has_table(text: str) -> bool:
    """Whether the first table is complete: a line that is no row follows it."""
    rest = text.partition(_TABLE)[2].split("\n")
    return any(line.strip() and "| " not in line for line in rest[1:-1])


def _never(text: str) -> bool:  # noqa: ARG001
    return False


def _printed_rows(text: str) -> tuple[TableRow, ...]:
    """What llama-fit-params prints: `NAME model context compute` in MiB, the last line for Host."""
    rows = []
    for line in text[-_PRINTED_AT_END:].split("\n"):
        words = line.split()
        if len(words) == 4 and all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words[1:]):
            weights, context, compute = (int(word) * MIB for word in words[1:])
            rows.append(TableRow(words[0], None, None if words[0] == "Host" else 0, weights, context, compute, None))
    return tuple(rows) if rows and rows[-1].name == "Host" else ()


def _answer(binary: EngineBinary, log: LoadLog, rows: tuple[TableRow, ...], every_row: bool, seconds: float) -> DryRun:
    figures: dict[tuple[str, str], Interval] = {}
    devices = []
    listed = {device.id: device for device in log.devices}
    for row in rows:
        device = device_of(row.name)
        if not is_host(row.name) and row.free_bytes is not None:  # rows without are buffer types, not devices
            known = listed.get(row.name, Listed(row.name, row.name, None, None))
            total = known.total_bytes or row.total_bytes
            free = known.free_bytes if known.free_bytes is not None else row.free_bytes
            devices.append(known._replace(total_bytes=total, free_bytes=free))
        elif row.free_bytes is None:
            device = "host" if device not in [other.id for other in devices] else device
        parts = (("weights", row.weights_bytes), ("cache", row.context_bytes), ("compute", row.compute_bytes))
        for component, n_bytes in parts:
            low, value, high = figures.get((device, component), (0, 0, 0))
            figures[device, component] = Interval(low + n_bytes, value + n_bytes, high + n_bytes + MIB - 1)
    settings: dict[str, str] = {}
    context = log.loads[0].contexts[0] if log.loads and log.loads[0].contexts else None
    if context is not None:
        settings = context.settings
        for (device, kind), (n_bytes, slack) in totals(context.buffers).items():
            fine = Interval(n_bytes - slack, n_bytes, n_bytes + slack)
            rough = figures.get((device, kind))
            if kind == "output" or (kind == "compute" and rough and rough.low - slack <= n_bytes <= rough.high + slack):
                figures[device, kind] = fine
    return DryRun(binary, log.build, log.commit, tuple(devices), figures, settings, every_row, seconds)


def _no_answer(binary: EngineBinary, ran: Ran, seconds: float) -> str:
    if ran.ended == "time":
        return f"{binary.path} gave no memory table within {seconds:.0f} s; ask another one with --engine-binary."
    if ran.ended == "size":
        return f"{binary.path} printed {len(ran.text) >> 20} MiB without a memory table; it is no llama-server."
    words = [line.strip() for line in text_lines(ran.text, _COMPLAINTS, 1)]
    said = f": {words[0][:200]}" if words else ""
    if "fit" in said:
        said += "; builds before December 2025 cannot be asked, read a log with 'advisor observe'"
    return f"{binary.path} ended with status {ran.status} and no memory table{said}."
