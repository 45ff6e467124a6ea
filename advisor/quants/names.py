"""Quantizations in names: of files, of models."""

import re

# the last word of a name when it is a quantization (llama.cpp takes any last word for one)
QUANT = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|B?F16|FP16|F32|MXFP4\w*|NVFP4))$", re.IGNORECASE)


def without_quant(name: str) -> str:
    """`name` without the quantizations at its end."""
    while found := QUANT.search(name):
        name = name[: found.start()]
    return name
