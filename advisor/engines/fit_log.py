"""What `-fit on` says that it chose: context, layers per device, and what it counts on each. Pure.

Source: the lines of common_params_fit_impl and common_fit_params in llama.cpp's common/fit.cpp at b10434 and b11434, as
printed with -v; llama_params_fit_impl in builds before.
"""

import re

from advisor.engines.log_filter import text_lines
from advisor.engines.log_lines import MIB
from advisor.engines.log_lines import read_build as build_of
from advisor.records import NamedTuple

END = "fitting params to free memory took"  # printed when it has chosen, before any weight is read
_MAX_DEVICES = 64
_MARKS = (b"build", b"version: ", b"fit_impl: ", b"_params", b"llama_context")
_N_CTX = re.compile(r"llama_context: +n_ctx *= *(\d{1,9})\b")
_REDUCED = re.compile(r"params_fit_impl: context size reduced from (\d{1,9}) to (\d{1,9})\b")
_DEVICE = re.compile(
    r"params_fit_impl: +- ([A-Za-z]+\d+) \(.*\): *(\d{1,6}) layers(?: \( *(\d{1,6}) overflowing\))?, "
    r"*(\d{1,9}) MiB used, *(-?\d{1,9}) MiB free"
)
# what the engine's lists leave out while all blocks are in part stands in its last look at the same layers and MiB
_TRIED = re.compile(
    r"params_fit_impl: id=(\d{1,2}), n_layer= *(\d{1,6}), n_part= *(\d{1,6}), overflow_type=\d+, mem= *(\d{1,9}) MiB"
)
_KEPT = re.compile(
    r"params_fit_impl: set ngl_per_device\[(\d{1,2})\]\.\(n_layer, n_part, overflow_type\)=\(\d+, *\d+, *(\w+)\)"
)
_FAILED = re.compile(r"_params\w*: failed to fit params to free device memory: ([^\n]{1,200})")
_KINDS = {"ATTN": "attn", "UP": "up", "GATE": "gate"}


class Filled(NamedTuple):
    """One device: its layers (the output counts as one), how many are there only in part, MiB used as bytes.

    `kept` is what stays of the first one in part, as in advisor.recommend.engine_fit.
    """

    device: str
    n_layer: int
    n_part: int
    kept: str
    used_bytes: int


class FitLog(NamedTuple):
    """The engine's choice. `devices` is empty while layers lie as it deals them by itself; `failed`: why it gave up."""

    n_ctx: int | None
    devices: tuple[Filled, ...]
    failed: str | None
    build: int | None
    ended: bool  # it came to an end


def parse_fit(text: str) -> FitLog:
    """What fit chose, from everything that the engine printed until then."""
    said = text.partition(END)[0]
    n_ctx: int | None = None
    build: int | None = None
    devices: dict[str, Filled] = {}
    kept: dict[int, str] = {}
    tried: dict[tuple[int, int, int], int] = {}  # (device, layers, MiB) -> in part
    failed: str | None = None
    for line in text_lines(said, _MARKS):
        line = line[:600]
        if build is None and "build" in line and (found := build_of(line)) is not None:
            build = found[0]
        if "fit" not in line and "llama_context" not in line:
            continue
        if n_ctx is None and (match := _N_CTX.search(line)):  # of the first look, at all that was asked for
            n_ctx = int(match[1])
        elif match := _REDUCED.search(line):
            n_ctx = int(match[2])
        elif match := _DEVICE.search(line):
            name, layers, part, used, _ = match.groups()
            if name not in devices and len(devices) >= _MAX_DEVICES:
                continue
            index = list(devices).index(name) if name in devices else len(devices)
            in_part = int(part) if part else tried.get((index, int(layers), int(used)), 0)
            devices[name] = Filled(name, int(layers), in_part, "moe", int(used) * MIB)
        elif match := _TRIED.search(line):
            number, layers, part, used = (int(figure) for figure in match.groups())
            tried[number, layers, used] = part
        elif match := _KEPT.search(line):
            kept[int(match[1])] = _KINDS.get(match[2], "moe")
        elif match := _FAILED.search(line):
            failed = match[1].strip()
    filled = tuple(device._replace(kept=kept.get(index, "moe")) for index, device in enumerate(devices.values()))
    return FitLog(n_ctx, filled, failed, build if build and build > 1 else None, END in text)
