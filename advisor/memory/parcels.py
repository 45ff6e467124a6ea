"""A model's weights summed into parcels that always lie together, and these over blocks that follow each other."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from advisor.ggml_types import GGML_TYPES, row_bytes
from advisor.memory.engine_spec import BackendRules, EngineSpec
from advisor.memory.placement import Overrides, one_block
from advisor.model.spec import ModelSpec, WeightTensor
from advisor.records import NamedTuple
from advisor.settings import RunSettings
from advisor.units import round_up


def tensor_device_bytes(n_bytes: int, ggml_type: int, ne0: int, backend: BackendRules) -> int:
    """What one tensor takes on a device: bytes, row padding of odd quantised rows, alignment."""
    kind = GGML_TYPES[ggml_type]
    multiple = backend.quantized_row_multiple
    if multiple and kind.is_quantized and ne0 % multiple:
        n_bytes += row_bytes(kind, multiple - ne0 % multiple)
    return round_up(n_bytes, backend.alignment_bytes)


def on_device(tensor: WeightTensor, backend: BackendRules) -> int:
    """The same of a tensor of the file."""
    return tensor_device_bytes(tensor.n_bytes, tensor.ggml_type, tensor.shape[0] if tensor.shape else 1, backend)


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


class Row(NamedTuple):
    """What some parcels take together."""

    device: tuple[int, ...]  # by kind of backend
    host: int
    token: int
    repack: int
    with_experts: int  # blocks
    spans: Mapping[int, tuple[int, int]]  # shard -> first and last byte of what is not repacked


class Sums:
    """The parcels of every block, those before block i summed at i; without -ot rules. Experts and others apart.

    `fixed`: sums of what lies outside the blocks, by place.
    """

    def __init__(self, parcels: Sequence[Parcel], n_blocks: int, keys: Iterable[int]) -> None:
        self.keys = {key: at for at, key in enumerate(keys)}
        nothing = Row((0,) * len(self.keys), 0, 0, 0, 0, {})
        self.rest: list[Parcel] = []
        self.fixed: dict[str, Row] = {}
        blocks: dict[tuple[int, bool], list[Parcel]] = {}
        for parcel in parcels:
            if parcel.place == "block" and 0 <= parcel.block < n_blocks:
                blocks.setdefault((parcel.block, parcel.expert), []).append(parcel)
            elif parcel.expert or parcel.place == "block":
                self.rest.append(parcel)
            else:
                self.fixed[parcel.place] = self._more(self.fixed.get(parcel.place, nothing), (parcel,))
        self.others, self.experts = [nothing], [nothing]
        for block in range(n_blocks):
            self.others.append(self._more(self.others[-1], blocks.get((block, False), ())))
            self.experts.append(self._more(self.experts[-1], blocks.get((block, True), ())))

    def _more(self, row: Row, parcels: Sequence[Parcel]) -> Row:
        if not parcels:
            return row
        device = list(row.device)
        host, token, repack, spans = row.host, row.token, row.repack, row.spans
        for parcel in parcels:
            for key, at in self.keys.items():
                device[at] += parcel.device_bytes[key]
            host, token, repack = host + parcel.host_bytes, token + parcel.token_bytes, repack + parcel.repack_bytes
            spans = widened(spans, parcel.spans)
        with_experts = row.with_experts + any(parcel.has_experts for parcel in parcels)
        return Row(tuple(device), host, token, repack, with_experts, spans)


def widened(
    spans: Mapping[int, tuple[int, int]], more: Iterable[tuple[int, int, int]]
) -> dict[int, tuple[int, int]]:  # fmt: skip
    """Spans that reach over others too."""
    found = dict(spans)
    for shard, first, end in more:
        known = found.get(shard)
        found[shard] = (first, end) if known is None else (min(known[0], first), max(known[1], end))
    return found


def reached(several: Iterable[Mapping[int, tuple[int, int]]]) -> dict[int, tuple[int, int]]:
    """Spans that reach over all of several."""
    found: dict[int, tuple[int, int]] = {}
    for spans in several:
        for shard, (first, end) in spans.items():
            known = found.get(shard, (first, end))
            found[shard] = (min(known[0], first), max(known[1], end))
    return found


def stretches(placement: Sequence[int], without: Iterable[int]) -> list[tuple[int, int, int]]:
    """(place, first block, behind the last) of blocks that follow each other on one device, without some blocks."""
    found = []
    begin = 0
    apart = sorted(without)
    for place, blocks in groupby(placement):
        end = begin + len(list(blocks))
        for block in apart:
            if begin <= block < end:
                found.append((place, begin, block))
                begin = block + 1
        found.append((place, begin, end))
        begin = end
    return found


class Parcels:
    """A model's weights summed into parcels, for whatever devices; `engine` owns the backends' rules."""

    def __init__(self, spec: ModelSpec, engine: EngineSpec) -> None:
        self._spec, self._engine = spec, engine
        self._used_share = spec.n_expert_used / spec.n_expert if spec.n_expert else 1.0
        self._known: dict[tuple[object, ...], list[Parcel]] = {}
        self._sums: dict[tuple[object, ...], Sums] = {}
        self._in_block: dict[int, list[WeightTensor]] = {}
        self._sorted: dict[int, list[tuple[WeightTensor, bool, bool]]] = {}
        self._found: dict[tuple[int, str], list[WeightTensor]] = {}
        self._together: dict[tuple[object, ...], Parcel] = {}

    def in_block(self, block: int) -> Sequence[WeightTensor]:
        """The tensors of a block."""
        if not self._in_block:
            for tensor in self._spec.tensors:
                if tensor.place == "block":
                    self._in_block.setdefault(tensor.block, []).append(tensor)
        return self._in_block.get(block, ())

    def found(self, block: int, pattern: str) -> Sequence[WeightTensor]:
        """Those of them that a pattern finds, which finds none of another block."""
        known = self._found.get((block, pattern))
        if known is None:
            prefix = f"blk.{block}."
            if pattern.startswith(prefix) and pattern[len(prefix) :].isidentifier():  # as all of ours: none to compile
                known = [tensor for tensor in self.in_block(block) if tensor.name.startswith(pattern)]
            else:
                search = re.compile(pattern).search
                known = [tensor for tensor in self.in_block(block) if search(tensor.name)]
            self._found[block, pattern] = known
        return known

    def sums(self, settings: RunSettings, backends: Sequence[BackendRules]) -> Sums:
        """All of them without -ot rules, summed."""
        kinds = dict.fromkeys(map(id, backends))
        key = (settings.repack and not backends, *kinds)
        known = self._sums.get(key)
        if known is None:
            plain = settings._replace(tensor_overrides=())
            parcels = self.of(plain, Overrides(plain, ()), backends)
            known = self._sums[key] = Sums(parcels, self._spec.n_layer_all, dict.fromkeys(map(id, backends)))
        return known

    def of(self, settings: RunSettings, overrides: Overrides, backends: Sequence[BackendRules]) -> list[Parcel]:
        """All of them under the -ot rules of `settings`."""
        repacks = settings.repack and not backends
        kinds = {id(backend): backend for backend in backends}
        key = (repacks, tuple(kinds), tuple([override.pattern for override in settings.tensor_overrides]))
        known = self._known.get(key)
        if known is None:
            groups: dict[tuple[object, ...], list[WeightTensor]] = {}
            any_expert = self._spec.n_expert > 0
            for tensor in self._spec.tensors:
                if tensor.place != "skipped":
                    rule = overrides.rule(tensor.name) if settings.tensor_overrides else None
                    expert = any_expert and overrides.is_expert(tensor.name)
                    block = tensor.block if expert or tensor.place == "block" else -1
                    group = (tensor.place, block, expert, rule, "exps." in tensor.name)
                    groups.setdefault(group, []).append(tensor)
            known = [self._parcel(group, tensors, kinds, repacks=repacks) for group, tensors in groups.items()]
            self._known[key] = known
        return known

    def of_blocks(self, settings: RunSettings, overrides: Overrides, backends: Sequence[BackendRules]) -> list[Parcel]:
        """Those of the blocks that -ot rules of `settings` name, each of which finds tensors of one."""
        repacks = settings.repack and not backends
        kinds = {id(backend): backend for backend in backends}
        rules: dict[int, dict[str, int]] = {}  # block -> name -> number of the first rule that finds it
        for number, override in enumerate(settings.tensor_overrides):
            block = one_block(override.pattern)
            if block is not None:
                mine = rules.setdefault(block, {})
                for tensor in self.found(block, override.pattern):
                    mine.setdefault(tensor.name, number)
        known, found = self._together, list[Parcel]()
        for block, mine in rules.items():
            groups: dict[tuple[int | None, bool, bool], list[WeightTensor]] = {}
            for tensor, expert, has_experts in self._sorted_block(block, overrides):
                groups.setdefault((mine.get(tensor.name), expert, has_experts), []).append(tensor)
            for (rule, expert, has_experts), tensors in groups.items():
                key = (repacks, *kinds, *[tensor.name for tensor in tensors])  # what no rule finds is mostly the same
                parcel = known.get(key)
                if parcel is None:
                    group = ("block", block, expert, None, has_experts)
                    parcel = known[key] = self._parcel(group, tensors, kinds, repacks=repacks)
                found.append(parcel if rule is None else parcel._replace(rule=rule))
        return found

    def _sorted_block(self, block: int, overrides: Overrides) -> Sequence[tuple[WeightTensor, bool, bool]]:
        """(tensor, whether --cpu-moe moves it, whether a token reads a share of it) of a block."""
        known = self._sorted.get(block)
        if known is None:
            any_expert = self._spec.n_expert > 0
            known = self._sorted[block] = [
                (tensor, any_expert and overrides.is_expert(tensor.name), "exps." in tensor.name)
                for tensor in self.in_block(block)
            ]
        return known

    def _parcel(
        self, group: tuple[Any, ...], tensors: Sequence[WeightTensor], kinds: Mapping[int, BackendRules], *,
        repacks: bool,
    ) -> Parcel:  # fmt: skip
        place, block, expert, rule, has_experts = group
        align, share = self._engine.cpu_alignment_bytes, self._used_share if has_experts else 1.0
        host = token = repack = 0
        spans: dict[int, tuple[int, int, int]] = {}  # as the parcel's, by shard
        for tensor in tensors:
            begin, size, shard = tensor.offset, tensor.n_bytes, tensor.shard
            token += int(size * share)
            host += round_up(size, align)
            if repacks and _repacked(tensor, self._engine):
                repack += round_up(size, align)
            else:
                _, first, end = spans.get(shard, (shard, begin, 0))
                spans[shard] = (shard, min(first, begin), max(end, begin + size))
        device = {key: sum([on_device(tensor, backend) for tensor in tensors]) for key, backend in kinds.items()}
        read = 0 if place == "input" else token
        return Parcel(place, block, expert, rule, has_experts, device, host, read, repack, tuple(spans.values()))


def _repacked(tensor: WeightTensor, engine: EngineSpec) -> bool:
    """CPU_REPACK takes plain matrices and stacks of experts; lookup tables and other 3-D tensors stay as they are."""
    if tensor.place == "input" or not (len(tensor.shape) == 2 or "exps" in tensor.name):
        return False
    return (
        GGML_TYPES[tensor.ggml_type].name in engine.repack_types and tensor.shape[1] % engine.repack_row_multiple == 0
    )
