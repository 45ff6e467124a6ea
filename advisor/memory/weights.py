"""Weight bytes per device, exact: each tensor's place, its padding, and the second copy of tied embeddings.

Source: llama.cpp b11434 src/llama-model-loader.cpp, ggml-alloc.c and the backends' get_alloc_size.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from advisor.ggml_types import GGML_TYPES, row_bytes
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.memory.placement import HOST, Overrides
from advisor.model.spec import ModelSpec, WeightTensor
from advisor.records import NamedTuple
from advisor.settings import RunSettings
from advisor.units import round_up


class WeightBytes(NamedTuple):
    """Bytes per device; on the host also what is repacked."""

    devices: tuple[int, ...]
    host: int
    mapped: int  # file span from the first to the last host tensor that is not repacked, what CPU_Mapped prints
    repack: int
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


class Parcel(NamedTuple):
    """Tensors that always lie together: of one place, block and kind, under the same -ot rule."""

    place: str
    block: int
    expert: bool  # --n-cpu-moe moves them
    rule: int | None  # number of the -ot rule that they follow
    has_experts: bool  # of which one token reads a share
    device_bytes: Mapping[int, int]  # what they take on a device, by the identity of its backend
    host_bytes: int
    token_bytes: int  # read for one token
    repack_bytes: int
    spans: tuple[tuple[int, int, int], ...]  # (shard, first, last byte) of what is not repacked


class Parcels:
    """A model's weights summed into parcels, for whatever devices; `engine` owns the backends' rules."""

    def __init__(self, spec: ModelSpec, engine: EngineSpec) -> None:
        self._spec, self._engine = spec, engine
        self._used_share = spec.n_expert_used / spec.n_expert if spec.n_expert else 1.0
        self._known: dict[tuple[object, ...], list[Parcel]] = {}

    def of(self, settings: RunSettings, overrides: Overrides, backends: Sequence[BackendRules]) -> list[Parcel]:
        """All of them under the -ot rules of `settings`."""
        repacks = settings.repack and not backends
        kinds = {id(backend): backend for backend in backends}
        key = (repacks, tuple(kinds), tuple(override.pattern for override in settings.tensor_overrides))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._grouped(settings, overrides, backends, kinds, repacks=repacks)
        return known

    def _grouped(
        self, settings: RunSettings, overrides: Overrides, backends: Sequence[BackendRules],
        kinds: Mapping[int, BackendRules], *, repacks: bool,
    ) -> list[Parcel]:  # fmt: skip
        blocks = overrides.blocks
        others: list[Parcel] = []
        if blocks and None not in blocks:  # rules of a few blocks leave the others as they are
            plain = settings._replace(tensor_overrides=())
            others = [parcel for parcel in self.of(plain, Overrides(plain, ()), backends) if parcel.block not in blocks]
        groups: dict[tuple[object, ...], list[WeightTensor]] = {}
        experts = self._spec.n_expert > 0
        for tensor in self._spec.tensors:
            if tensor.place != "skipped" and (not others or (tensor.block in blocks and tensor.place == "block")):
                rule, expert = overrides.rule(tensor.name), experts and overrides.is_expert(tensor.name)
                block = tensor.block if expert or tensor.place == "block" else -1
                group = (tensor.place, block, expert, rule, "exps." in tensor.name)
                groups.setdefault(group, []).append(tensor)
        return others + [self._parcel(group, tensors, kinds, repacks=repacks) for group, tensors in groups.items()]

    def _parcel(
        self, group: tuple[Any, ...], tensors: Sequence[WeightTensor], kinds: Mapping[int, BackendRules], *,
        repacks: bool,
    ) -> Parcel:  # fmt: skip
        place, block, expert, rule, has_experts = group
        align, share = self._engine.cpu_alignment_bytes, self._used_share if has_experts else 1.0
        repacked = {tensor.name for tensor in tensors if repacks and _repacked(tensor, self._engine)}
        spans: dict[int, tuple[int, int]] = {}
        for tensor in tensors:
            if tensor.name not in repacked:
                first, end = spans.get(tensor.shard, (tensor.offset, 0))
                spans[tensor.shard] = (min(first, tensor.offset), max(end, tensor.offset + tensor.n_bytes))
        return Parcel(
            place=place,
            block=block,
            expert=expert,
            rule=rule,
            has_experts=has_experts,
            device_bytes={
                key: sum(_on_device(tensor, backend) for tensor in tensors) for key, backend in kinds.items()
            },
            host_bytes=sum(round_up(tensor.n_bytes, align) for tensor in tensors),
            token_bytes=0 if place == "input" else sum(int(tensor.n_bytes * share) for tensor in tensors),
            repack_bytes=sum(round_up(tensor.n_bytes, align) for tensor in tensors if tensor.name in repacked),
            spans=tuple((shard, first, end) for shard, (first, end) in spans.items()),
        )


def _on_device(tensor: WeightTensor, backend: BackendRules) -> int:
    return tensor_device_bytes(tensor.n_bytes, tensor.ggml_type, tensor.shape[0] if tensor.shape else 1, backend)


class WeightTable:
    """A model's weights on one set of devices: any placement is a short sum over parcels."""

    def __init__(self, spec: ModelSpec, engine: EngineSpec, backends: Sequence[BackendRules], parcels: Parcels) -> None:
        self._spec, self._engine, self._backends, self.parcels = spec, engine, backends, parcels
        self._in_block: dict[int, list[WeightTensor]] = {}
        self._table = next((t for t in spec.tensors if t.name == "token_embd.weight"), None)

    def matched_bytes(self, block: int, pattern: str) -> int:
        """What the tensors of a block that a pattern finds take on the first device."""
        if not self._in_block:
            for tensor in self._spec.tensors:
                if tensor.place == "block":
                    self._in_block.setdefault(tensor.block, []).append(tensor)
        expression = re.compile(pattern)
        mine = [tensor for tensor in self._in_block.get(block, ()) if expression.search(tensor.name)]
        return sum(_on_device(tensor, self._backends[0]) for tensor in mine)

    def place(self, settings: RunSettings, placement: Sequence[int], overrides: Overrides) -> WeightBytes:
        """Distribute every loaded tensor. `placement` is place_layers' answer."""
        spec, backends, align = self._spec, self._backends, self._engine.cpu_alignment_bytes
        keys = [id(backend) for backend in backends]
        devices, read_devices = [0] * len(backends), [0] * len(backends)
        host = repack = read_host = 0
        expert_blocks: set[int] = set()
        spans: dict[int, tuple[int, int]] = {}  # shard -> first and last byte of its host tensors
        rope_homes = set(placement[: spec.n_layer_all])
        if spec.rope_factors_in_full_blocks:
            rope_homes = {placement[layer.il] for layer in spec.layers if not layer.n_window} or rope_homes
        last = spec.n_layer_all - 1
        for parcel in self.parcels.of(settings, overrides, backends):
            if parcel.rule is not None:
                homes: Iterable[int] = (overrides.buffers[parcel.rule],)
            elif parcel.expert and 0 <= parcel.block < settings.n_cpu_moe:
                homes = (HOST,)
            elif parcel.place == "block":
                homes = (placement[min(parcel.block, last)],)
            elif parcel.place == "rope":
                homes = rope_homes
            else:
                homes = ({"first": placement[0], "output": placement[last + 1]}.get(parcel.place, HOST),)
            for home in homes:
                if home != HOST:
                    devices[home] += parcel.device_bytes[keys[home]]
                    read_devices[home] += parcel.token_bytes
                    continue
                host += parcel.host_bytes
                read_host += parcel.token_bytes
                if parcel.has_experts and placement[min(parcel.block, last)] != HOST:
                    expert_blocks.add(parcel.block)
                repack += parcel.repack_bytes
                for shard, first, end in parcel.spans:
                    known = spans.get(shard, (first, end))
                    spans[shard] = (min(known[0], first), max(known[1], end))
        if spec.style.head_tied and self._table is not None:  # the table is read where it lies
            read_host += self._table.n_bytes
        if spec.tied_output and self._table is not None:
            table = self._table
            target = overrides.target(table.name, table.block) if overrides.any else None  # the copy goes by its name
            home = placement[last + 1] if target is None else HOST
            if target is not None and target != HOST:
                read_devices[target] += table.n_bytes  # in one buffer with the table, so it is the table
            elif home != HOST:
                devices[home] += _on_device(table, backends[home])
                read_devices[home] += table.n_bytes
            else:
                read_host += table.n_bytes
                if _second_copy_on_host(spec, settings, table, backends):
                    host += round_up(table.n_bytes, align)
        return WeightBytes(
            devices=tuple(devices),
            host=host,
            mapped=sum(end - first for first, end in spans.values()) if settings.mmap else 0,
            repack=repack,
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
