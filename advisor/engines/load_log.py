"""What the log of a real load says about memory: pure, tolerant, never an exception for a line it does not know.

A log may hold several loads (a router, a restarted unit), each with the probe of `--fit` before it, more than one
context (a draft model, MTP), and a projector. The last load that is no probe counts; all are kept.
"""

from collections.abc import Iterable

from advisor.engines import log_lines as read
from advisor.engines.log_lines import Cache, Listed, Sized, TableRow
from advisor.records import NamedTuple

MAX_LINE = 500  # characters of a line that are looked at, but for a path; the engine's own are shorter
_MAX_PATH_LINE = 5000
MAX_LOADS = 1000  # the newest; as many tables
MAX_ITEMS = 200  # buffers, caches or rows of one load, and devices
_MAX_CONTEXTS = 32  # of one load
_MAX_EXACT = 200  # sizes of one load that are printed once more
# a line that says something of memory holds one of these
MARKS = (
    b"BLAS", b"memory breakdown [MiB]", b"|   - ", b"buffer size", b"VRAM", b"mem required", b"total size",
    b'msg="model weights"', b'msg="kv cache"', b'msg="compute graph"', b"llama_kv_cache", b"llama_memory_recurrent",
    b"KV self", b"kv self", b" MiB free", b"failed to allocate", b"alloc failed", b"llama_context",
    b"llama_new_context_with_model", b"llama_init_from_model", b"print_info", b"llm_load_print_meta",
    b"loaded meta data with", b"offloaded ", b"loading draft model", b"MTP draft context", b"MTP context",
    b"lash Att", b"lash att", b"fitting params to", b"build", b"version: ",
)  # fmt: skip

_BACKENDS = {
    "cuda": "cuda", "rocm": "rocm", "vulkan": "vulkan", "mtl": "metal", "metal": "metal", "sycl": "sycl", "gpu": "gpu",
    "musa": "musa", "cann": "cann", "opencl": "opencl", "htp": "hexagon", "rpc": "rpc",
}  # fmt: skip
_DRAFT = ("loading draft model", "creating MTP draft context", "creating the MTP context", "MTP context")
# "BLAS = 1" of older builds says nothing: it was printed for CUDA too
_BLAS = ("loaded BLAS backend", "registered backend BLAS", " - BLAS ")
_REAL_START, _REAL_END = "fitting params to", "fitting params to free memory took"


class Context(NamedTuple):
    """One context of a load. `role`: "main", "draft" or "extra"."""

    role: str
    settings: dict[str, str]
    buffers: list[Sized]
    caches: list[Cache]


class Load(NamedTuple):
    """One model as loaded, or as probed (`probe`), with its contexts."""

    path: str | None
    role: str  # "main" | "draft"
    probe: bool
    facts: dict[str, str]
    offloaded: tuple[int, int] | None
    weights: tuple[Sized, ...]
    contexts: tuple[Context, ...]
    projector: tuple[Sized, ...]  # weights and compute of an mmproj


class LoadLog(NamedTuple):
    """Everything of one log."""

    build: int | None  # None when the engine does not know its own (0 or 1)
    commit: str | None
    devices: tuple[Listed, ...]
    loads: tuple[Load, ...]
    tables: tuple[tuple[TableRow, ...], ...]
    failures: tuple[tuple[str, int], ...]
    blas: bool = False  # a BLAS backend was loaded

    @property
    def last(self) -> Load | None:
        """The load that counts: the last one that is no probe and no draft model."""
        return next((load for load in reversed(self.loads) if not load.probe and load.role == "main"), None)

    @property
    def drafts(self) -> tuple[Load, ...]:
        """Draft models loaded after the load that counts."""
        found: list[Load] = []
        for load in reversed(self.loads):
            if load.role == "main" and not load.probe:
                break
            if not load.probe:
                found.append(load)
        return tuple(reversed(found))


def is_host(name: str) -> bool:
    """Whether a buffer of this name is system memory: CPU, CPU_Mapped, CPU_REPACK, CUDA_Host, Host, ..."""
    upper = name.upper()
    return upper.startswith(("CPU", "HOST", "AMX", "BLAS")) or upper.endswith("_HOST")


def device_of(name: str) -> str:
    """The device that a buffer belongs to: "host", or the device without its kind (MTL0_Mapped is MTL0)."""
    if is_host(name):
        return "host"
    stem = name.split("[", 1)[0]
    head, found, tail = stem.rpartition("_")
    short = head if found and tail.lower() in ("mapped", "private", "split", "shared", "repack") else stem
    if short.lower() == "metal":
        return "MTL0"
    return name if "[" in name else short


def backend_of(device: str) -> str | None:
    """The backend of a device's name: CUDA0 is cuda, MTL0 and Metal are metal."""
    return _BACKENDS.get(device.split("[", 1)[0].rstrip("0123456789").lower())


def totals(buffers: Iterable[Sized]) -> dict[tuple[str, str], tuple[int, int]]:
    """(device, kind) -> (bytes, how far the printed figures may be off together)."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for buffer in buffers:
        key = (device_of(buffer.name), buffer.kind)
        n_bytes, slack = sums.get(key, (0, 0))
        sums[key] = (n_bytes + buffer.n_bytes, slack + buffer.precision_bytes)
    return sums


class _Load:
    def __init__(self, role: str) -> None:
        self.role, self.probe, self.n_exact = role, False, 0
        self.path: str | None = None
        self.facts: dict[str, str] = {}
        self.offloaded: tuple[int, int] | None = None
        self.weights: list[Sized] = []
        self.contexts: list[Context] = []
        self.projector: list[Sized] = []

    @property
    def empty(self) -> bool:
        return not (self.weights or self.contexts or self.projector)

    def done(self) -> Load:
        nothing = self.weights and not any(buffer.n_bytes for buffer in self.weights)
        probe = self.probe or self.facts.get("no_alloc") == "1" or bool(nothing)
        return Load(self.path, self.role, probe, self.facts, self.offloaded, tuple(self.weights), tuple(self.contexts),
                    tuple(self.projector))  # fmt: skip


class _Reader:
    """The state between lines."""

    def __init__(self) -> None:
        self.loads: list[_Load] = []
        self.devices: dict[str, Listed] = {}
        self.tables: list[list[TableRow]] = []
        self.failures: list[tuple[str, int]] = []
        self.build: tuple[int, str] | None = None
        self.draft_next = False
        self.fit_from: int | None = None
        self.blas = False
        self.in_table = False

    def load(self) -> _Load:
        if not self.loads:
            self.loads.append(_Load("main"))
        return self.loads[-1]

    def new_load(self) -> None:
        if len(self.loads) >= MAX_LOADS:
            del self.loads[0]
            self.fit_from = max(self.fit_from - 1, 0) if self.fit_from is not None else None
        self.loads.append(_Load("draft" if self.draft_next else "main"))
        self.draft_next = False

    def context(self) -> Context:
        load = self.load()
        if not load.contexts:
            self.new_context()
        return load.contexts[-1]

    def new_context(self) -> None:
        load = self.load()
        role = "main" if not load.contexts else "draft" if self.draft_next else "extra"
        if load.contexts:
            self.draft_next = False
        if len(load.contexts) < _MAX_CONTEXTS:
            load.contexts.append(Context(role, {}, [], []))

    def line(self, line: str) -> None:
        if "BLAS" in line and any(mark in line for mark in _BLAS):
            self.blas = True
        if "memory breakdown [MiB]" in line:
            if len(self.tables) >= MAX_LOADS:
                del self.tables[0]
            self.tables.append([])
            self.in_table = True
            return
        if self.in_table and (row := read.read_row(line)):
            if len(self.tables[-1]) < MAX_ITEMS:
                self.tables[-1].append(row)
            return
        if " MiB" in line or " MB" in line or "iB" in line:
            self._sized(line)
        if "fail" in line and len(self.failures) < MAX_ITEMS and (failure := read.read_failure(line)):
            self.failures.append(failure)
        if "=" in line:
            self._setting(line)
        if "loaded meta data with" in line and (path := read.read_path(line)):
            self.in_table = False
            self.new_load()
            self.load().path = path
        elif "constructing llama_context" in line:
            self.new_context()
        elif "offloaded " in line and (layers := read.read_offloaded(line)):
            self.load().offloaded = layers
        elif any(mark in line for mark in _DRAFT):
            self.draft_next = True
        elif "lash " in line and "ttention" in line and ("enabled" in line or "disabled" in line):
            self.context().settings["flash_attn_resolved"] = "on" if "enabled" in line else "off"
        elif _REAL_END in line:
            for load in self.loads[self.fit_from or 0 :]:
                load.probe = True
            self.fit_from = len(self.loads)
        elif _REAL_START in line:
            self.fit_from = len(self.loads)
        if self.build is None and ("build" in line or "version" in line):
            self.build = read.read_build(line)

    def _sized(self, line: str) -> None:
        if "buffer size" in line or "VRAM" in line or "mem required" in line or "total size" in line or "msg=" in line:
            buffer = read.read_buffer(line)
            if buffer is not None:
                self._buffer(buffer)
                return
        if "size" in line and (cache := read.read_cache(line)):
            caches = self.context().caches
            if len(caches) < MAX_ITEMS:
                caches.append(cache)
        elif " MiB free" in line and (device := read.read_device(line)):
            known = self.devices.get(device.id)
            if known is not None and device.total_bytes is None:  # free memory when the engine takes the device
                device = known._replace(free_bytes=device.free_bytes)
            if known is not None or len(self.devices) < MAX_ITEMS:
                self.devices[device.id] = device

    def _buffer(self, buffer: Sized) -> None:
        load = self.load()
        if buffer.origin.startswith(("clip", "alloc_compute_meta", "mtmd")):
            if len(load.projector) < MAX_ITEMS:
                load.projector.append(buffer)
        elif buffer.kind == "weights":
            if load.contexts and not load.empty:  # weights again without a header line: another load
                self.new_load()
            if len(self.load().weights) < MAX_ITEMS:
                self.load().weights.append(buffer)
        elif buffer.origin.startswith("~"):  # printed once more, to four decimals, when a context ends
            self._exact(load, buffer)
        elif len(self.context().buffers) < MAX_ITEMS:
            self.context().buffers.append(buffer)

    @staticmethod
    def _exact(load: _Load, exact: Sized) -> None:
        load.n_exact += 1
        if load.n_exact > _MAX_EXACT:
            return
        for context in load.contexts:
            for index, buffer in enumerate(context.buffers):
                near = abs(buffer.n_bytes - exact.n_bytes) <= buffer.precision_bytes
                if buffer.kind == "compute" and buffer.name == exact.name and near:
                    context.buffers[index] = exact._replace(origin=buffer.origin)
                    return

    def _setting(self, line: str) -> None:
        setting = read.read_setting(line)
        if setting is not None:
            settings = self.context().settings
            if setting[0] == "n_seq_max" or (setting[0] == "n_ctx" and "n_seq_max" not in settings):
                if setting[0] in settings or self.context().buffers:  # no "constructing" line in old builds
                    self.new_context()
                settings = self.context().settings
            settings[setting[0]] = setting[1]
            return
        if "print_info" in line or "print_meta" in line:
            fact = read.read_fact(line)
            if fact and len(self.load().facts) < 200:
                self.load().facts.setdefault(fact[0], fact[1][:300])


def parse_load_log(lines: Iterable[str]) -> LoadLog:
    """The facts of a log, given as its lines."""
    reader = _Reader()
    for line in lines:
        reader.line(line[:_MAX_PATH_LINE] if "loaded meta data with" in line else line[:MAX_LINE])
    build, commit = reader.build or (None, None)
    return LoadLog(
        build=build if build and build > 1 else None,
        commit=commit,
        devices=tuple(reader.devices.values()),
        loads=tuple(load.done() for load in reader.loads if not load.empty),
        tables=tuple(tuple(table) for table in reader.tables),
        failures=tuple(reader.failures),
        blas=reader.blas,
    )
