"""The type that llama-quantize gives each tensor of a model, by the rules of rules/quants.toml.

Source: llama.cpp b11434, src/llama-quant.cpp. Tensors that the rules cannot tell apart are judged once, as a group.
"""

from collections.abc import Sequence

from advisor.ggml_types import BY_NAME, GGML_TYPES, tensor_bytes
from advisor.model.spec import ModelSpec, WeightTensor
from advisor.quants.rules import CLASSES, Choice, Quantization, QuantRules
from advisor.records import NamedTuple

_F16, _Q8_0 = BY_NAME["f16"].id, BY_NAME["q8_0"].id
_PLAIN = frozenset(BY_NAME[name].id for name in ("f32", "f16", "bf16"))
_NOT_WORDS = -1  # no position


class Impossible(NamedTuple):
    """Why a quantization cannot be made of a model."""

    tensor: str
    n_row: int
    block_elements: int


class _Group(NamedTuple):
    """Tensors that every quantization treats alike. Positions are among the tensors of the class, -1 = none."""

    tensor_class: str  # "" for the others
    n_row: int
    is_output: bool
    stacked: bool
    floor: bool  # never below q8_0
    counted: int
    numbered: int
    free: bool  # may be made without an importance matrix


class Chooser:
    """Types for one model; what does not depend on the quantization is worked out once.

    `kept_bytes`: bytes of the tensors that no quantization touches. `n_elements`: of every tensor of the file.
    """

    def __init__(self, spec: ModelSpec, rules: QuantRules) -> None:
        self._rules = rules
        self._architecture = spec.architecture
        self._special = rules.document["architectures"].get(spec.architecture, {})
        self._n_expert = spec.n_expert
        n_head = _first(spec, "attention.head_count", 0)
        n_head_kv = _first(spec, "attention.head_count_kv", n_head)
        self._n_gqa = n_head // n_head_kv if n_head_kv else 0
        times = _first(spec, str(self._special.get("n_layer_times", "")), 1)
        self._n_layer = spec.n_layer_all * max(times, 1)
        if "n_layer_more" in self._special:
            self._n_layer = spec.n_layer + int(self._special["n_layer_more"])
        self._large = any(
            spec.architecture in row["architectures"]
            and spec.n_layer == row["n_layer"]
            and (n_head != n_head_kv or not row.get("grouped", False))
            for row in rules.document["large"]
        )
        self._n_attn_v = 0
        self._chosen: dict[tuple[str, bool], tuple[int | None, ...]] = {}
        self._groups: dict[_Group, list[int]] = {}
        self._elements: dict[_Group, int] = {}
        self._tensors = spec.tensors
        self.kept_bytes = self.n_elements = 0
        self._sort(spec.tensors)

    def types(self, name: str, *, imatrix: bool = False) -> tuple[int, ...] | Impossible:
        """The ggml type of each of the model's tensors, in their order, in the quantization `name`."""
        types = [kept_type(tensor) for tensor in self._tensors]
        for members, type_id in zip(self._groups.values(), self._choose(name, imatrix), strict=True):
            if type_id is None:
                return self._impossible(name, members[0])
            for index in members:
                types[index] = type_id
        return tuple(types)

    def total_bytes(self, name: str, *, imatrix: bool = False) -> int | Impossible:
        """Bytes of all tensors in the quantization `name`, as llama-quantize's dry run adds them up."""
        total = self.kept_bytes
        for (group, members), type_id in zip(self._groups.items(), self._choose(name, imatrix), strict=True):
            if type_id is None:
                return self._impossible(name, members[0])
            kind = GGML_TYPES[type_id]
            total += self._elements[group] // kind.block_elements * kind.block_bytes
        return total

    def fallback_share(self, name: str) -> float:
        """The share of the model's elements whose rows do not divide, so that another type stands in, 0 to 1."""
        quantization = self._rules.quantizations[name]
        if quantization.type_id in _PLAIN:
            return 0.0
        elsewhere = sum(
            self._elements[group]
            for group in self._groups
            if group.n_row % GGML_TYPES[self._wished(group, quantization, False)].block_elements
        )
        return elsewhere / max(self.n_elements, 1)

    def needs_imatrix(self, name: str) -> bool:
        """Whether llama-quantize refuses to make the quantization `name` without an importance matrix."""
        types = self._rules.imatrix_types | self._rules.quantizations[name].imatrix_types
        chosen = self._choose(name, False)
        return any(not group.free and type_id in types for group, type_id in zip(self._groups, chosen, strict=True))

    def _choose(self, name: str, imatrix: bool) -> tuple[int | None, ...]:
        """The type of each group, None where there is none."""
        known = self._chosen.get((name, imatrix))
        if known is None:
            quantization = self._rules.quantizations[name]
            known = tuple(self._type_of(group, quantization, imatrix) for group in self._groups)
            self._chosen[name, imatrix] = known
        return known

    def _sort(self, tensors: Sequence[WeightTensor]) -> None:
        """Group the tensors, counting positions in the engine's order."""
        tables = self._rules.document["tensors"]
        kept = (*tables["kept_parts"], *self._special.get("kept_parts", ()))
        floor = self._special.get("at_least_q8_0", ())
        stacked_classes = self._special.get("stacked_classes", (*CLASSES, ""))
        free_names = self._rules.document["imatrix"]["free_names"]
        tied = not any(tensor.name == "output.weight" for tensor in tensors)
        counts = dict.fromkeys(CLASSES, 0)
        for index in engine_order(tensors):
            tensor = tensors[index]
            elements = 1
            for extent in tensor.shape:
                elements *= extent
            self.n_elements += elements
            tensor_class = self._class_of(tensor.name)
            self._n_attn_v += tensor_class == "attn_v"
            flat = not any(extent > 1 for extent in tensor.shape[1:])
            name = tensor.name
            if flat or not name.endswith("weight") or name in tables["kept_names"] or any(p in name for p in kept):
                self.kept_bytes += tensor_bytes(GGML_TYPES[kept_type(tensor)], tensor.shape)
                continue
            is_output = tensor_class == "output" or (tied and tensor_class == "token_embd")
            floored = any(part in name for part in floor)
            counted = numbered = _NOT_WORDS
            if tensor_class in ("attn_v", "ffn_up", "ffn_gate", "ffn_down") and not floored:
                counted = counts[tensor_class]
                counts[tensor_class] += 1
                block = _engine_block(tensor)
                by_name = self._n_expert > 1 and tensor_class != "attn_v" and block >= 0
                numbered = block if by_name else counted
            group = _Group(
                tensor_class, tensor.shape[0], is_output,
                len(tensor.shape) > 2 and tensor.shape[2] > 1 and tensor_class in stacked_classes,
                floored, counted, numbered, name in free_names,
            )  # fmt: skip
            self._groups.setdefault(group, []).append(index)
            self._elements[group] = self._elements.get(group, 0) + elements

    def _class_of(self, name: str) -> str:
        for tensor_class, table in self._rules.document["tensors"]["classes"].items():
            if name in table.get("names", ()) or any(part in name for part in table.get("parts", ())):
                return str(tensor_class)
        return ""

    def _type_of(self, group: _Group, quantization: Quantization, imatrix: bool) -> int | None:
        """The group's type; None where its rows do not divide and no other type is known."""
        if quantization.type_id in _PLAIN:
            return quantization.type_id
        type_id = self._wished(group, quantization, imatrix)
        kind = GGML_TYPES[type_id]
        if group.n_row % kind.block_elements == 0:
            return type_id
        other = self._rules.fallback.get(type_id)
        if other is None and kind.block_elements > 32:
            return None
        if other is None or group.n_row % GGML_TYPES[other].block_elements:
            return _F16
        return other

    def _wished(self, group: _Group, quantization: Quantization, imatrix: bool) -> int:
        rules, type_id = self._rules, quantization.type_id
        if group.floor:
            return _Q8_0
        if group.is_output:
            if quantization.flat_type_id is not None:
                return quantization.flat_type_id
            wide = self._architecture in rules.document["output"]["wide_architectures"]
            if wide or group.n_row % GGML_TYPES[type_id].block_elements:
                return rules.wide_type_id
            return rules.output_type_id if quantization.output_type_id is None else quantization.output_type_id
        if quantization.flat_type_id is not None:
            return type_id if group.stacked else quantization.flat_type_id
        position = group.counted if quantization.by_count else group.numbered
        for choice in quantization.choices.get(group.tensor_class, ()):
            if self._holds(choice, imatrix) and (
                choice.where is None or _lies(choice.where, position, self._count(group.tensor_class))
            ):
                type_id = choice.type_id
                break
        if quantization.raised:
            for raised in rules.raises:
                if (
                    raised.tensor_class == group.tensor_class
                    and (not raised.large or self._large)
                    and (not raised.from_types or type_id in raised.from_types)
                    and raised.n_expert in (None, self._n_expert)
                ):
                    type_id = raised.type_id
        return type_id

    def _count(self, tensor_class: str) -> int:
        return self._n_attn_v if tensor_class == "attn_v" else self._n_layer

    def _holds(self, choice: Choice, imatrix: bool) -> bool:
        return (
            choice.architecture in (None, self._architecture)
            and (choice.not_architecture is None or choice.not_architecture != self._architecture)
            and choice.n_expert in (None, self._n_expert)
            and (choice.n_expert_at_least is None or self._n_expert >= choice.n_expert_at_least)
            and (choice.n_gqa_at_least is None or self._n_gqa >= choice.n_gqa_at_least)
            and choice.imatrix in (None, imatrix)
        )

    def _impossible(self, name: str, index: int) -> Impossible:
        tensor, kind = self._tensors[index], GGML_TYPES[self._rules.quantizations[name].type_id]
        return Impossible(tensor.name, tensor.shape[0], kind.block_elements)


def _lies(where: str, position: int, count: int) -> bool:
    """Whether a position is `where` among `count`."""
    if where == "first_2":
        return position < 2
    if where == "first_4":
        return position < 4
    if where == "first_16th":
        return position < count // 16
    if where == "first_8th":
        return position < count // 8
    first, last = count // 8, 7 * count // 8
    if where == "middle":
        return first <= position < last
    return position < first or position >= last or (position - first) % 3 == 2


def kept_type(tensor: WeightTensor) -> int:
    """The type of a tensor that llama-quantize leaves alone; f16, as converters write it, where it was quantized."""
    return _F16 if GGML_TYPES[tensor.ggml_type].is_quantized else tensor.ggml_type


def engine_order(tensors: Sequence[WeightTensor]) -> list[int]:
    """Indices of the tensors in the order in which the engine goes through them: by block, then by name."""
    return sorted(range(len(tensors)), key=lambda index: (_engine_block(tensors[index]), tensors[index].name))


def _engine_block(tensor: WeightTensor) -> int:
    """The block a name begins with; names such as enc.blk.0 count as none, and come first."""
    return tensor.block if tensor.name.startswith("blk.") else -1


def _first(spec: ModelSpec, key: str, default: int) -> int:
    """A hyper-parameter of block 0."""
    value = spec.metadata.get(f"{spec.architecture}.{key}")
    if isinstance(value, tuple):
        value = value[0] if value else None
    return value if isinstance(value, int) and value >= 0 else default
