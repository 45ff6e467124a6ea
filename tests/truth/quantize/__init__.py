"""What llama-quantize's own dry run makes of headers: the lines of tests/data/cases/quantized.jsonl.gz."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from advisor.ggml_types import BY_NAME, GGML_TYPES, tensor_bytes
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.quantized import header_of, rules

_HEAD = re.compile(r"== (\d+) ([01]) (\d+)$")
_TENSOR = re.compile(r"\[ *\d+/ *\d+\] +(\S+) +- \[.*\], type = +(\S+), size = .*?(?:\((\S+)\))?$")
_F16 = BY_NAME["f16"].id


def dry_run_program(llama_cpp: Path, libraries: Path, out: Path) -> Path:
    """Compile dry_run.cpp against built libraries."""
    command = ["g++", "-std=c++17", "-O1", f"-I{llama_cpp / 'include'}", f"-I{llama_cpp / 'ggml/include'}"]
    command += [str(Path(__file__).parent / "dry_run.cpp"), "-o", str(out), f"-L{libraries}"]
    command += ["-lllama", "-lggml", "-lggml-base", "-lggml-cpu", f"-Wl,-rpath,{libraries.resolve()}"]
    subprocess.run(command, check=True)
    return out


def measured(program: Path, reference: str) -> dict[str, Any]:
    """The line of one model, made from an F16 file of its shapes."""
    document = header_of(reference)
    shapes = {}
    for tensor in document["tensors"]:
        if GGML_TYPES[tensor[2]].is_quantized:
            tensor[2] = _F16
        shapes[tensor[0]] = tuple(tensor[1])
    names = {quantization.file_type: name for name, quantization in rules().quantizations.items()}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.gguf"
        write_empty_gguf(document, file)
        command = [str(program), str(file), *map(str, names)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    line: dict[str, Any] = {"model": reference, "bytes": {}, "with_imatrix": {}, "needs_imatrix": []}
    total = hashlib.sha256()
    for name, imatrix, types, says in sorted(_runs(text, names)):
        n_bytes = sum(tensor_bytes(BY_NAME[kind.lower()], shapes[each]) for each, kind in types.items()) or None
        for each in sorted(types):
            total.update(f"{each}={types[each]}\n".encode())
        if not imatrix:
            line["bytes"][name] = n_bytes
            if "will require an imatrix" in says:
                line["needs_imatrix"].append(name)
        elif n_bytes != line["bytes"][name]:
            line["with_imatrix"][name] = n_bytes
    return {**line, "types": total.hexdigest()[:16]}


def _runs(text: str, names: dict[int, str]) -> list[tuple[str, bool, dict[str, str], str]]:
    """(quantization, with an importance matrix, type by tensor, the log) of each run; no types where it failed."""
    runs = []
    for part in re.split(r"(?m)^(?=== )", text)[1:]:
        first, _, log = part.partition("\n")
        head = _HEAD.match(first)
        assert head, first
        found = [_TENSOR.match(line) for line in log.splitlines()] if head[3] == "0" else []
        types = {match[1]: match[3] or match[2] for match in found if match}
        runs.append((names[int(head[1])], head[2] == "1", types, log))
    return runs


def dumped(line: dict[str, Any]) -> str:
    """A line as it is stored."""
    return json.dumps(line, separators=(",", ":"))
