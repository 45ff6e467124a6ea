"""Which quantization a file's tensors are: exactly what llama-quantize would have made, or a mix of their own."""

from advisor.model.spec import ModelSpec
from advisor.quants.choose import Chooser
from advisor.quants.names import without_quant
from advisor.quants.rules import QuantRules
from advisor.records import NamedTuple

_WHO = ("general.basename", "general.size_label", "general.finetune", "general.version")


class Recognized(NamedTuple):
    """A quantization, and whether an importance matrix decided some of its types."""

    name: str
    imatrix: bool


def recognize(spec: ModelSpec, rules: QuantRules) -> Recognized | None:
    """The quantization whose types the tensors of `spec` have one and all, None for a mix of their own.

    A file that says which quantization it is can only be that one.
    """
    names = [spec.quantization] if spec.quantization in rules.quantizations else list(rules.quantizations)
    actual = tuple(tensor.ggml_type for tensor in spec.tensors)
    chooser = Chooser(spec, rules)
    for name in names:
        for imatrix in (False, True):
            if chooser.types(name, imatrix=imatrix) == actual:
                return Recognized(name, imatrix)
    return None


def same_model(spec: ModelSpec, other: ModelSpec) -> bool:
    """Whether both are one model, whatever their quantization: architecture, tensors, and what they say who they are.

    Names may differ in the quantization at their end: where a file has no name, its own is taken.
    """
    if (spec.architecture, without_quant(spec.name)) != (other.architecture, without_quant(other.name)):
        return False
    for key in _WHO:
        one, two = spec.metadata.get(key), other.metadata.get(key)
        if one is not None and two is not None and one != two:
            return False
    return {t.name: t.shape for t in spec.tensors} == {t.name: t.shape for t in other.tensors}
