"""Headers that can be read but are no model: what llama.cpp refuses when it looks for the tensors."""

from __future__ import annotations

from advisor.gguf_header.errors import HeaderFaultError

_AGAIN = "which llama.cpp refuses; download the file again or convert the model again."


class ExtraBlockError(HeaderFaultError):
    """A tensor of a block beyond block_count. Facts: key, count, tensor."""

    template = "{path} says '{key}' is {count}, but holds the tensor '{tensor}', " + _AGAIN


class MissingBlockError(HeaderFaultError):
    """A block without any tensor. Facts: key, count, block."""

    template = "{path} says '{key}' is {count}, but has no tensors of block {block}, counted from 0, " + _AGAIN


class MissingTensorError(HeaderFaultError):
    """A tensor that every model has is not there. Facts: tensor."""

    template = "{path} has no tensor '{tensor}', " + _AGAIN


class NoMatrixError(HeaderFaultError):
    """A matrix without a second dimension. Facts: tensor, shape."""

    template = "{path} gives the matrix '{tensor}' the shape ({shape}), " + _AGAIN


class ImpossibleModelError(HeaderFaultError):
    """Hyper-parameters and tensors of which no graph can be made. Facts: why."""

    template = "{path} has hyper-parameters that do not go with its tensors ({why}), " + _AGAIN


class ContradictionError(HeaderFaultError):
    """A key and a tensor that do not go together. Facts: key, value, tensor, why."""

    template = "{path} says '{key}' is {value}, but the tensor '{tensor}' {why}, " + _AGAIN
