"""Weight bytes per device, exact: each tensor's place, its padding, and the second copy of tied embeddings.

Source: llama.cpp b11434 src/llama-model-loader.cpp, ggml-alloc.c and the backends' get_alloc_size.
"""

from collections.abc import Iterable, Mapping, Sequence

from advisor.ggml_types import GGML_TYPES
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.memory.parcels import Parcel, Parcels, Sums, on_device, reached, stretches, widened
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


class Place(NamedTuple):
    """Where blocks and named tensors go; per device its blocks, first and last, and how many these are."""

    placement: tuple[int, ...]
    overrides: Overrides
    spans: list[tuple[tuple[int, int] | None, int]]
    weights: dict[tuple[bool, bool], WeightBytes]  # with and without mmap and repacking, as far as they were asked for


class WeightTable:
    """A model's weights on one set of devices: any placement is a short sum over parcels."""

    def __init__(self, spec: ModelSpec, engine: EngineSpec, backends: Sequence[BackendRules], parcels: Parcels) -> None:
        self._spec, self._engine, self._backends, self.parcels = spec, engine, backends, parcels
        self._keys = [id(backend) for backend in backends]
        self._has_rope = any(tensor.place == "rope" for tensor in spec.tensors)
        self._table = next((t for t in spec.tensors if t.name == "token_embd.weight"), None)

    def matched_bytes(self, block: int, pattern: str) -> int:
        """What the tensors of a block that a pattern finds take on the first device."""
        return sum(on_device(tensor, self._backends[0]) for tensor in self.parcels.found(block, pattern))

    def _apart(
        self, settings: RunSettings, placement: Sequence[int], overrides: Overrides
    ) -> tuple[Sequence[Parcel], Sums | None, list[tuple[int, int, int]]]:
        """(what goes parcel by parcel, sums over blocks for the rest, which of these lie where).

        Without sums where blocks on the host do not come first, or -ot rules may find tensors in any of them.
        """
        n_blocks, special = self._spec.n_layer_all, overrides.blocks
        blocks = placement[:n_blocks]
        n_host = blocks.count(HOST)
        first = max(n_host, settings.n_cpu_moe)
        in_order = HOST not in blocks[n_host:] and first <= n_blocks
        if not in_order or any(block is None or not first <= block < n_blocks for block in special):
            return self.parcels.of(settings, overrides, self._backends), None, []
        sums = self.parcels.sums(settings, self._backends)
        apart = self.parcels.of_blocks(settings, overrides, self._backends) if special else []
        return [*sums.rest, *apart], sums, stretches(blocks, [block for block in special if block is not None])

    def place(self, settings: RunSettings, placement: Sequence[int], overrides: Overrides) -> WeightBytes:
        """Distribute every loaded tensor. `placement` is place_layers' answer."""
        spec, backends, align = self._spec, self._backends, self._engine.cpu_alignment_bytes
        keys = self._keys
        devices, read_devices = [0] * len(backends), [0] * len(backends)
        host = repack = read_host = expert_blocks = 0
        spans: Mapping[int, tuple[int, int]] = {}  # shard -> first and last byte of its host tensors
        rope_homes = set(placement[: spec.n_layer_all]) if self._has_rope else set()
        if self._has_rope and spec.rope_factors_in_full_blocks:
            rope_homes = {placement[layer.il] for layer in spec.layers if not layer.n_window} or rope_homes
        last, away = spec.n_layer_all - 1, settings.n_cpu_moe
        outside = {"first": placement[0], "output": placement[last + 1]}
        parcels, sums, runs = self._apart(settings, placement, overrides)
        if sums is not None:
            others, experts = sums.others, sums.experts
            on_host = []  # (sums before, sums behind)
            for home, begin, end in runs:
                if home == HOST:
                    on_host += [(others[begin], others[end]), (experts[begin], experts[end])]
                    continue
                kept, key = experts[min(max(begin, away), end)], sums.keys[keys[home]]
                devices[home] += others[end].device[key] - others[begin].device[key]
                devices[home] += experts[end].device[key] - kept.device[key]
                read_devices[home] += others[end].token - others[begin].token + experts[end].token - kept.token
                if begin < away:
                    on_host.append((experts[begin], kept))
                    expert_blocks += kept.with_experts - experts[begin].with_experts
            n_host = placement[: last + 1].count(HOST)
            reach = [others[n_host].spans, experts[max(n_host, away)].spans]
            for place, row in sums.fixed.items():
                for home in rope_homes if place == "rope" else (outside.get(place, HOST),):
                    if home == HOST:
                        on_host.append((others[0], row))
                        reach.append(row.spans)
                    else:
                        devices[home] += row.device[sums.keys[keys[home]]]
                        read_devices[home] += row.token
            for before, behind in on_host:
                host += behind.host - before.host
                read_host += behind.token - before.token
                repack += behind.repack - before.repack
            spans = reached(reach)
        with_experts: set[int] = set()
        for parcel in parcels:
            if parcel.rule is not None:
                homes: Iterable[int] = (overrides.buffers[parcel.rule],)
            elif parcel.expert and 0 <= parcel.block < away:
                homes = (HOST,)
            elif parcel.place == "block":
                homes = (placement[min(parcel.block, last)],)
            elif parcel.place == "rope":
                homes = rope_homes
            else:
                homes = (outside.get(parcel.place, HOST),)
            for home in homes:
                if home != HOST:
                    devices[home] += parcel.device_bytes[keys[home]]
                    read_devices[home] += parcel.token_bytes
                    continue
                host += parcel.host_bytes
                read_host += parcel.token_bytes
                if parcel.has_experts and placement[min(parcel.block, last)] != HOST:
                    with_experts.add(parcel.block)
                repack += parcel.repack_bytes
                spans = widened(spans, parcel.spans)
        if spec.style.head_tied and self._table is not None:  # the table is read where it lies
            read_host += self._table.n_bytes
        if spec.tied_output and self._table is not None:
            table = self._table
            target = overrides.target(table.name, table.block) if overrides.any else None  # the copy goes by its name
            home = placement[last + 1] if target is None else HOST
            if target is not None and target != HOST:
                read_devices[target] += table.n_bytes  # in one buffer with the table, so it is the table
            elif home != HOST:
                devices[home] += on_device(table, backends[home])
                read_devices[home] += table.n_bytes
            else:
                read_host += table.n_bytes
                if _second_copy_on_host(spec, settings, table, backends):
                    host += round_up(table.n_bytes, align)
        mapped = sum([end - begin for begin, end in spans.values()]) if settings.mmap else 0
        n_expert_blocks = expert_blocks + len(with_experts)
        return WeightBytes(tuple(devices), host, mapped, repack, tuple(read_devices), read_host, n_expert_blocks)


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
