"""What fuzzing starts from: small inputs of every kind, made here, and the shapes that have broken other programs."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from advisor.gguf_header.limits import MAX_KEPT_NUMBERS
from advisor.hardware.snapshot_file import to_json
from advisor.host import Cpu, Device, HostSnapshot, ProbeReport, Ram, Storage
from advisor.outputs.registry import OUTPUTS
from tests.fuzz.headers import GIB, ZOO
from tests.fuzz.texts import _BLOB, RULES
from tests.tools import gguf_files as files
from tests.unit.outputs.cases import fitting

RULE_FOLDER = Path(__file__).resolve().parents[2] / "rules"
LOG = """build: 11434 (abc1234) with cc
  - CUDA0   : NVIDIA RTX (24000 MiB, 23000 MiB free)
llama_model_loader: loaded meta data with 26 key-value pairs and 291 tensors from /m/x.gguf (version GGUF V3 (latest))
print_info: n_layer          = 32
common_fit_params: fitting params to free memory took 0.2 s
load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  4403.50 MiB
llama_context: constructing llama_context
llama_context: n_ctx         = 4096
llama_context: flash_attn    = auto
llama_kv_cache:      CUDA0 KV buffer size =   512,00 MiB
llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB
sched_reserve:      CUDA0 compute buffer size =   258.50 MiB
alloc_compute_meta:      CUDA0 compute buffer size =    97.11 MiB
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 123.00 MiB on device 0: cudaMalloc failed: out of memory
print: | memory breakdown [MiB] | total   free    self   model   context   compute    unaccounted |
print: |   - CUDA0 (RTX)        | 24000 = 18000 + (5174 =  4403 +     512 +     258) +         825 |
print: |   - Host               |                   300 =   281 +       0 +      18                |
time=1 level=INFO source=x msg="model weights" device=CUDA0 size="4.4 GiB"
Available devices:
  CUDA0: NVIDIA RTX (24000 MiB, 23000 MiB free)
CUDA0 4403 512 258
Host 281 0 18
-c,    --ctx-size N      size of the prompt context (default: 0)
--no-mmap                the argument has been removed
"""
MANIFEST = {
    "schemaVersion": 2,
    "layers": [
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{_BLOB}", "size": 2}
        for kind in ("model", "projector", "adapter", "params", "tensor")
    ],
}
CONFIG = """# mine
folders = ["~/models", '/srv']
[stores]
ollama = false
[engine."llama.cpp"]
build = 11434
url = "http://127.0.0.1:8080"
[target.router]
format = "llama-server-preset"
path = "~/x.ini"
enabled = true
[defaults]
intent = "balanced"
[[model]]
match = "qwen3*"
pins = { ctx-size = 4096 }
[budget]
keep_free = "1GiB"
[daemon]
quiet_hours = "22:00-07:00"
"""
TEMPLATES = {
    "http-answer": [
        {"data": [{"id": "a", "status": {"args": ["--ctx-size", "1"]}}, {"id": "b"}]},
        {"error": {"message": "no"}}, {"error": "no"}, {"parameters": "num_ctx 4096\nstop x"}, [], None, "x",
    ],
}  # fmt: skip
ADDRESSES = (
    "http://127.0.0.1:8080", "https://localhost/x/", "http://[::1]:1", "http://user:pw@127.0.0.1", "http://127.0.0.1:x",
    "http://127.0.0.1.evil.example", "http://0x7f.1", "file:///etc/passwd", "http://localhost@evil.example", "http://[",
    "http://127.0.0.1:99999", "HTTP://LOCALHOST", "http://\u2488\u2488", "http://127.1#a", "http://a\tb",
)  # fmt: skip
YAML_ODD = (
    "a:\n  ~: 1\n  b: 2\n  1: 3\n", "? [a, b]\n: c\n", "a: &x {b: 1}\nc: *x\n", "a: |\n  b\nc: >-\n  d\n",
    "a: 2001-01-01\n", "- a\n", "[? a, {b: c}: d]\n",
    "%YAML 1.1\n---\na: yes\n...\n",
    "<<: {a: 1}\n", "a: [1, {b: c}, 'd''e', \"f\\u0041\"]\n", f"a: {'1' * 4400}\n",
)  # fmt: skip


def gguf() -> Iterator[bytes]:
    """Whole files of every shape."""
    entries = [
        files.kv("general.architecture", "string", "llama"), files.kv("llama.block_count", "uint32", 2),
        *(files.kv(f"a.{kind}", kind, 1) for kind in files.CODES),
        files.array("tokenizer.ggml.tokens", "string", ["a", "b", "ccc"]),
        files.array("llama.attention.head_count_kv", "int32", [1, 2, 3]),
        files.kv("tokenizer.chat_template", "string", "{{ x }}"),
    ]  # fmt: skip
    tensors = [("token_embd.weight", (32, 4), 0), ("blk.0.ffn_up.weight", (256, 2), 12), ("output_norm.weight", (), 0)]
    yield files.honest(entries, tensors)
    yield files.honest(entries[:2], tensors[:1], version=2)
    yield files.honest([files.kv("general.alignment", "uint32", 64), *entries[:1]], tensors, alignment=64)
    many = [f"t{index:x}" for index in range(1500)]
    yield files.honest(
        [files.array("tokenizer.ggml.tokens", "string", many), files.kv("tokenizer.ggml.bos", "bool", True)]
    )
    yield files.honest([files.array("a", "uint8", [7] * 300), files.kv("split.count", "uint16", 3)], [])
    for lie in (2**63, 2**64 - 1, MAX_KEPT_NUMBERS + 1):
        yield files.assemble([files.array("a", "uint8", [1], length=lie)])
        yield files.assemble(entries[:1], [files.tensor("t", (lie, 2), 0, 0)], 64)
    yield files.assemble([files.raw_kv("deep", 9, (b"\x09\0\0\0" + (1).to_bytes(8, "little")) * 30)])
    yield from (b"GGUF", b"tjgg", b"PK\3\4", b"<html>", b"version https://git-lfs.github.com/spec/v1\n")


def numbers(count: int, size: int, seed: int) -> Iterator[bytes]:
    """Decisions for the targets that build their input."""
    chance = random.Random(seed)
    for _ in range(count):
        yield chance.randbytes(chance.randrange(4, size))
    yield bytes(size)


def texts_of(name: str) -> Iterator[str]:
    """Configs in one format: what advisor writes, and a person's."""
    output, asked = fitting(name)
    written = output.edit(output.new_text, output.slots([asked], None))
    yield written
    yield "\ufeff" + written.replace("\n", "\r\n")
    yield re.sub(r"\d+", "1e400", written)
    if written.lstrip().startswith("{"):
        fields = '"load": {"fields": [{"key": "llm.a", "value": 1}]}'
        yield '{"a": 1.0e3, "b": [], "models": [{"model_alias": "a", "x": {"y": [1, {}]}}], ' + fields + "}"
    elif name in ("llama-swap", "localai", "text-generation-webui", "jan"):
        yield from YAML_ODD
    elif name == "ramalama":
        yield '[ramalama]\nctx_size = 0x1F # c\na."b".c = 1\n[[t]]\nd = 1979-05-27\n[x]\ny = {z = """m\nn"""}\n'
    else:
        yield '# c\n[*]\nc = 1 ; d\n[b c]\nno-mmap\nA=\'x y\'\nB="q\\""\n'
        yield 'FROM x\nTEMPLATE """\nPARAMETER num_ctx 1\n"""\n'


def seeds(target: str) -> Iterator[bytes]:
    """The inputs that the target starts from."""
    if target == "gguf":
        yield from gguf()
    elif target == "gguf-short":
        yield from (b"\x10\0" + data for data in gguf())
    elif target == "snapshot":
        yield from (gzip.decompress((ZOO / f"{name}.json.gz").read_bytes()) for name in ("small-llama", "small-gptoss"))
        yield b'{"metadata": {"a": {"type": "uint8", "value": 1}}, "tensors": [["t", [32], 0]], "n_vocab": 5}'
    elif target in ("gguf-built", "shards", "planned"):
        yield from numbers(24, 60, len(target))
    elif target == "log":
        yield LOG.encode()
        yield from (line.encode() for line in LOG.split("\n"))
    elif target == "engine-output":
        yield from (bytes([program, ended]) + LOG.encode() for program in range(2) for ended in range(5))
    elif target == "http-answer":
        yield from (bytes([0, act]) + json.dumps(each).encode() for act in range(4) for each in TEMPLATES[target])
    elif target == "address":
        yield from (url.encode() for url in ADDRESSES)
    elif target == "manifest":
        yield json.dumps(MANIFEST).encode()
        yield json.dumps(MANIFEST).replace("sha256:", "sha256:../../").encode()
    elif target == "jan-model":
        yield from (
            text.encode() for text in ("model_path: /m/x.gguf\nmmproj_path: llamacpp/m.gguf\nname: x\n", *YAML_ODD)
        )
    elif target == "configuration":
        yield from (bytes([0, 0, key]) + CONFIG.encode() for key in range(6))
    elif target == "rules":
        texts = {name: (RULE_FOLDER / name).read_bytes() for name in RULES}
        yield from (bytes([index]) + texts[name][:6000] for index, name in enumerate(RULES))
    elif target == "hardware":
        card = Device("CUDA0", "cuda", "RTX", 8 * GIB, 7 * GIB)
        probes, disks = (ProbeReport("nvidia", "ok", "", 0.1),), (Storage("/m", "sda", "ssd", 10**9, "rules"),)
        host = HostSnapshot((card,), Ram(GIB, GIB), Cpu("c", 4, 8, ("avx2",)), "linux", storage=disks, probes=probes)
        yield json.dumps(to_json(host)).encode()
    elif target.removeprefix("edit-") in OUTPUTS:
        for text in texts_of(target.removeprefix("edit-")):
            yield from (bytes([which, act, 3 * act]) + text.encode() for which in (0, 1, 5) for act in (0, 1))
