"""Compare the graph model's compute buffers with the measured cells: one line per class of settings.

Run as `python tests/bench/graph.py [MODEL ...]`; with `--worst N` the N worst cells are listed too.
"""

from __future__ import annotations

import gzip
import json
import statistics
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from advisor.ggml_types import BY_NAME
from advisor.memory.graph import (
    CPU,
    GraphModel,
    GraphPlacement,
    GraphSettings,
    Hyper,
    UnmodelledGraphError,
    compute_bytes,
)

DATA = Path(__file__).parents[1] / "data"
HELD_OUT = frozenset(
    (
        *("glm4-9b", "ernie45-21b-a3b", "plamo2-8b", "granite33-8b", "gemma4-26b-a4b", "lfm2moe-8b"),
        *("seed-oss-36b", "dots1", "rwkv7-2.9b", "exaone4-32b"),
    )
)
FLASH = {"1": "on", "0": "off", "auto": "auto"}


def load_model(name: str) -> GraphModel:
    """A zoo snapshot as the graph's input."""
    data = json.loads(gzip.decompress((DATA / "zoo" / f"{name}.json.gz").read_bytes()))
    meta = {}
    for key, entry in data["metadata"].items():
        value = entry["value"]
        if not isinstance(value, dict):
            meta[key] = value
        elif "values" in value:
            meta[key] = tuple(value["values"])
    tensors = {t[0]: (tuple(t[1]), t[2]) for t in data["tensors"]}
    return GraphModel(meta, tensors, data["n_vocab"])


def cells(name: str) -> list[dict]:
    """The measured cells of one grid file."""
    text = gzip.decompress((DATA / "cases" / f"{name}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def float32(x: float) -> float:
    """Round to single precision, as the engine's split does."""
    return struct.unpack("f", struct.pack("f", x))[0]


def place(cell: dict, n_layer_all: int) -> GraphPlacement:
    """The engine's layer split for a cell."""
    s, free = cell["settings"], cell.get("free_mib") or []
    n = len(free)
    if n == 0:
        return GraphPlacement(0, (CPU,) * (n_layer_all + 1))
    weights = [float(x) for x in s["ts"].split(",")] if "ts" in s else [float(x) * 2**20 for x in free]
    weights += [0.0] * (n - len(weights))
    running, sums = 0.0, []
    for w in weights[:n]:
        running = float32(running + float32(w))
        sums.append(running)
    sums = [float32(x / running) for x in sums]
    ngl = s["ngl"] if s["ngl"] >= 0 else n_layer_all + 1
    first = max(n_layer_all + 1 - ngl, 0)
    active = min(ngl, n_layer_all + 1)
    layers = []
    for il in range(n_layer_all + 1):
        if il < first or active == 0:
            layers.append(CPU)
        else:
            x = float32((il - first) / active)
            layers.append(next(j for j in range(n) if sums[j] > x))
    return GraphPlacement(n, tuple(layers), ((s["ot"], CPU),) if s.get("ot") else ())


def settings_of(cell: dict, causal: bool = True, n_batch: int = 2048) -> GraphSettings:
    """A cell's settings. Causal models cap the batch at the context, before the slots' contexts are rounded up."""
    s = cell["settings"]
    batch = s.get("b", n_batch)
    if causal:
        batch = min(batch, -(-s["c"] // 256) * 256)
    return GraphSettings(
        n_ctx=cell["n_ctx"], n_ctx_seq=cell["n_ctx_seq"], n_batch=batch, n_ubatch=min(s["ub"], batch),
        n_seq=s["np"], unified=bool(s["kvu"]), flash=FLASH[str(s.get("fa", "auto"))],
        type_k=BY_NAME[s.get("ctk", "f16")].id, type_v=BY_NAME[s.get("ctv", "f16")].id,
        swa_full=bool(s.get("swafull")), kv_offload=s.get("kvo", 1) != 0, n_outputs=s.get("no", 0),
    )  # fmt: skip


def is_causal(model: GraphModel) -> bool:
    """False for encoders and diffusion models."""
    return not Hyper(model).style.no_cache and bool(model.meta.get(f"{model.arch}.attention.causal", True))


def truth(cell: dict) -> dict[int, int]:
    """Measured compute bytes by device."""
    result: dict[int, int] = {CPU: 0}
    for name, (_, _, compute) in cell["bufs"].items():
        if name.startswith("FAKE") and name[4:].isdigit():
            result[int(name[4:])] = compute
        else:
            result[CPU] += compute
    return result


def kind(cell: dict, n_layer_all: int) -> str:
    """The class of a cell's settings."""
    s, free = cell["settings"], cell.get("free_mib") or []
    if not free:
        return "cpu only"
    if s.get("ot"):
        return "experts on CPU"
    if s.get("kvo", 1) == 0:
        return "cache on host"
    if s["ngl"] == 0:
        return "ngl 0"
    if s["ngl"] <= n_layer_all:
        return "partial"
    if len(free) > 1:
        return f"{len(free)} GPUs"
    if str(s["fa"]) == "0":
        return "1 GPU, FA off"
    if s["ctk"] != "f16" or s["ctv"] != "f16":
        return "1 GPU, quantised"
    return "1 GPU, FA, f16"


class Row:
    """One device of one cell: expected and predicted bytes."""

    __slots__ = ("device", "kind", "measured", "model", "ms", "predicted", "text")

    def __init__(self, model: str, kind: str, device: int, measured: int, predicted: int, ms: float, text: str):
        self.model, self.kind, self.device = model, kind, device
        self.measured, self.predicted, self.ms, self.text = measured, predicted, ms, text

    @property
    def error(self) -> float:
        """Relative error."""
        if self.measured == 0:
            return 0.0 if self.predicted == 0 else 1.0
        return (self.predicted - self.measured) / self.measured


def run(all_cells: Iterable[dict], full: bool = False) -> Iterator[Row]:
    """Predict every cell that the engine accepted."""
    models: dict[str, GraphModel] = {}
    hypers: dict[str, Hyper] = {}
    for cell in all_cells:
        name = cell["model"]
        if "bufs" not in cell:
            continue
        if name not in models:
            models[name] = load_model(name)
            hypers[name] = Hyper(models[name])
        model, hyper = models[name], hypers[name]
        start = time.process_time()
        try:
            predicted = compute_bytes(
                model, settings_of(cell, is_causal(model)), place(cell, hyper.n_layer_all), hyper, full
            )
        except UnmodelledGraphError as error:
            predicted = {}
            cell = {**cell, "why": repr(error)}
        ms = (time.process_time() - start) * 1000
        text = json.dumps(cell["settings"]) + str(cell.get("free_mib", "")) + cell.get("why", "")
        for device, measured in truth(cell).items():
            yield Row(name, kind(cell, hyper.n_layer_all), device, measured, predicted.get(device, 0), ms, text)


def line(title: str, rows: list[Row]) -> str:
    """Shares of one group."""
    errors = [abs(r.error) for r in rows]
    n = len(errors)

    def share(limit: float) -> str:
        return f"{100 * sum(e <= limit for e in errors) / n:6.1f}"

    shares = " ".join(share(x) for x in (0.0, 0.01, 0.02, 0.05, 0.10))
    return f"{title:28} {n:5} {shares}  {100 * max(errors):8.1f}  {statistics.median(r.ms for r in rows):6.1f}"


def table(rows: list[Row]) -> None:
    """Print all groups."""
    print(f"{'':28} cells  exact    1 %    2 %    5 %   10 %   worst %  median ms")
    groups: dict[str, list[Row]] = defaultdict(list)
    for r in rows:
        groups[("host, " if r.device == CPU and r.kind != "cpu only" else "") + r.kind].append(r)
    for title in sorted(groups):
        print(line(title, groups[title]))


def main() -> None:
    """Command line."""
    arguments = sys.argv[1:]
    worst = int(arguments[arguments.index("--worst") + 1]) if "--worst" in arguments else 0
    full = "--full" in arguments
    names = [a for i, a in enumerate(arguments) if not a.startswith("--") and (i == 0 or arguments[i - 1] != "--worst")]
    held = "--held-out" in arguments
    wanted = [c for c in cells("grid") + cells("grid-cpu") if (c["model"] in names if names else True)]
    wanted = [c for c in wanted if (c["model"] in HELD_OUT) == held]
    rows = list(run(wanted, full))
    table(rows)
    if "--models" in arguments:
        for name in sorted({r.model for r in rows}):
            print(line(name, [r for r in rows if r.model == name]))
    for r in sorted(rows, key=lambda r: -abs(r.error))[:worst]:
        print(f"{100 * r.error:8.2f} % {r.model} dev {r.device} {r.measured} {r.predicted} {r.text}")


if __name__ == "__main__":
    main()
