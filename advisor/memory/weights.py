"""Weight bytes per device, exact: each tensor's place, its padding, and the second copy of tied embeddings.

Source: llama.cpp b11434 src/llama-model-loader.cpp, ggml-alloc.c and the backends' get_alloc_size.
"""

from collections.abc import Sequence

from advisor.ggml_types import GGML_TYPES, row_bytes
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.memory.placement import HOST, Overrides
from advisor.model.spec import ModelSpec, WeightTensor
from advisor.records import NamedTuple
from advisor.settings import RunSettings
from advisor.units import round_up


class WeightBytes(NamedTuple):
    """Bytes per device; on the host also what is repacked and which block matrices stay there."""

    devices: tuple[int, ...]
    host: int
    mapped: int  # file span from the first to the last host tensor that is not repacked, what CPU_Mapped prints
    repack: int
    host_tensors: tuple[WeightTensor, ...]  # block tensors and output that live on the host
    read_devices: tuple[int, ...]  # bytes read for one token: of experts only the share that is used
    read_host: int
    host_expert_blocks: int  # blocks on a GPU whose experts stay on the host


def tensor_device_bytes(n_bytes: int, ggml_type: int, ne0: int, backend: BackendRules) -> int:
    """What one tensor takes on a device: bytes, row padding of odd quantised rows, alignment."""
    kind = GGML_TYPES[ggml_type]
    multiple = backend.quantized_row_multiple
    if multiple and kind.is_quantized and ne0 % multiple:
        n_bytes += row_bytes(kind, multiple - ne0 % multiple)
    return round_up(n_bytes, backend.alignment_bytes)


def place_weights(
    spec: ModelSpec,
    settings: RunSettings,
    engine: EngineSpec,
    placement: Sequence[int],
    backends: Sequence[BackendRules],
    overrides: Overrides,
) -> WeightBytes:
    """Distribute every loaded tensor. `placement` is place_layers' answer."""
    devices = [0] * len(backends)
    read_devices = [0] * len(backends)
    host = repack = read_host = 0
    expert_blocks: set[int] = set()
    spans: dict[int, tuple[int, int]] = {}  # shard -> first and last byte of its host tensors
    used_share = spec.n_expert_used / spec.n_expert if spec.n_expert else 1.0
    host_tensors: list[WeightTensor] = []
    output_device = placement[spec.n_layer_all]
    homes = set(placement[: spec.n_layer_all])
    rope_homes = homes
    if spec.rope_factors_in_full_blocks:
        rope_homes = {placement[layer.il] for layer in spec.layers if not layer.n_window} or homes
    align = engine.cpu_alignment_bytes
    repacks = settings.repack and not backends

    def add(tensor: WeightTensor, device: int) -> None:
        nonlocal host, repack, read_host
        read = 0 if tensor.place == "input" else tensor.n_bytes
        if "exps." in tensor.name:
            read = int(read * used_share)
            if device == HOST and placement[min(tensor.block, spec.n_layer_all - 1)] != HOST:
                expert_blocks.add(tensor.block)
        if device != HOST:
            read_devices[device] += read
        else:
            read_host += read
        if device == HOST:
            host += round_up(tensor.n_bytes, align)
            if tensor.place in ("block", "output"):
                host_tensors.append(tensor)
            if repacks and _repacked(tensor, engine):
                repack += round_up(tensor.n_bytes, align)
            else:
                end = tensor.offset + tensor.n_bytes
                first, last = spans.get(tensor.shard, (tensor.offset, end))
                spans[tensor.shard] = (min(first, tensor.offset), max(last, end))
        else:
            devices[device] += tensor_device_bytes(tensor.n_bytes, tensor.ggml_type, tensor.shape[0], backends[device])

    for tensor in spec.tensors:
        place = tensor.place
        if place == "skipped":
            continue
        target = overrides.target(tensor.name, tensor.block) if overrides.any else None
        if target is not None:
            add(tensor, target)
        elif place == "rope":
            for device in rope_homes:
                add(tensor, device)
        elif place == "block":
            add(tensor, placement[min(tensor.block, spec.n_layer_all - 1)])
        elif place == "first":
            add(tensor, placement[0])
        elif place == "output":
            add(tensor, output_device)
        else:
            add(tensor, HOST)
    if spec.style.head_tied:  # the table is read where it lies
        read_host += next((t.n_bytes for t in spec.tensors if t.name == "token_embd.weight"), 0)
    if spec.tied_output:
        table = next(tensor for tensor in spec.tensors if tensor.name == "token_embd.weight")
        target = overrides.target(table.name, table.block) if overrides.any else None  # the copy goes by its name
        if target is not None and target != HOST:
            read_devices[target] += table.n_bytes  # in one buffer with the table, so it is the table
        elif target is None and output_device != HOST:
            add(table._replace(place="output"), output_device)
        else:
            read_host += table.n_bytes
            if _second_copy_on_host(spec, settings, table, backends):
                host += round_up(table.n_bytes, align)
    return WeightBytes(
        devices=tuple(devices),
        host=host,
        mapped=sum(last - first for first, last in spans.values()) if settings.mmap else 0,
        repack=repack,
        host_tensors=tuple(host_tensors),
        read_devices=tuple(read_devices),
        read_host=read_host,
        host_expert_blocks=len(expert_blocks),
    )


def _repacked(tensor: WeightTensor, engine: EngineSpec) -> bool:
    """CPU_REPACK takes plain matrices and stacks of experts; lookup tables and other 3-D tensors stay as they are."""
    if tensor.place == "input" or not (len(tensor.shape) == 2 or "exps" in tensor.name):
        return False
    return (
        GGML_TYPES[tensor.ggml_type].name in engine.repack_types and tensor.shape[1] % engine.repack_row_multiple == 0
    )


def _second_copy_on_host(
    spec: ModelSpec, settings: RunSettings, table: WeightTensor, backends: Sequence[BackendRules]
) -> bool:
    """With the tied output on the host the table is shared, except where the two uses need two buffer types.

    With a GPU and without mmap, matrices go to the GPU's pinned host buffer; a table whose type the GPU cannot look
    rows up in goes to plain memory instead, so the output needs a copy of its own. gemma3n and gemma4 always copy.
    """
    if spec.tied_output_on_host:
        return True
    if not backends or settings.mmap:
        return False
    types = backends[0].get_rows_types
    return types is not None and GGML_TYPES[table.ggml_type].name not in types
