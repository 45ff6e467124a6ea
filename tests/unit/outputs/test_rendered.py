"""Whole texts for one model in every format, in the shape that the vendors' documents and sources show.

Only the preset and llama-cpp-python's JSON are read by real programs (elsewhere); the others are held against what was
read in the vendors' sources.
"""

from __future__ import annotations

import json
import shlex

import pytest

from advisor.errors import OutputError
from advisor.outputs.ollama import OUTPUT as OLLAMA
from advisor.outputs.ollama import Service
from advisor.outputs.ollama_service import drop_in_text, install_commands
from advisor.outputs.registry import OUTPUTS, load
from advisor.outputs.types import GONE
from advisor.settings import BesideSettings, RunSettings
from tests.unit.outputs.cases import Named, fitting, model

REQUEST = "-c 32768 -ngl 8 -ctk q8_0 -ctv q8_0 -np 1 -t 8"

PRESET = """; managed by advisor; edits are detected and kept
version = 1
[qwen3]
model = /srv/models/Qwen3-8B-Q4_K_M.gguf
ctx-size = 32768
n-gpu-layers = 8
cache-type-k = q8_0
cache-type-v = q8_0
flash-attn = on
parallel = 1
threads = 8
batch-size = 2048
ubatch-size = 512
fit = off
"""
ENV = """# managed by advisor; edits are detected and kept
LLAMA_ARG_MODEL=/srv/models/Qwen3-8B-Q4_K_M.gguf
LLAMA_ARG_CTX_SIZE=32768
LLAMA_ARG_N_GPU_LAYERS=8
LLAMA_ARG_CACHE_TYPE_K=q8_0
LLAMA_ARG_CACHE_TYPE_V=q8_0
LLAMA_ARG_FLASH_ATTN=on
LLAMA_ARG_N_PARALLEL=1
LLAMA_ARG_THREADS=8
LLAMA_ARG_BATCH=2048
LLAMA_ARG_UBATCH=512
LLAMA_ARG_FIT=off
"""
CONFIG_INI = """; managed by advisor; edits are detected and kept
[*]
threads = 8
cache-type-k = q8_0
cache-type-v = q8_0
"""
SWAP = """# managed by advisor; edits are detected and kept
models:
  qwen3:
    cmd: |-
      llama-server --port ${PORT}
      --model /srv/models/Qwen3-8B-Q4_K_M.gguf
      --ctx-size 32768
      --n-gpu-layers 8
      --cache-type-k q8_0
      --cache-type-v q8_0
      --flash-attn on
      --parallel 1
      --threads 8
      --batch-size 2048
      --ubatch-size 512
      --fit off
    metadata: {managed_by: advisor}
"""
LOCALAI = """# managed by advisor; edits are detected and kept
name: qwen3
backend: llama-cpp
parameters: {model: Qwen3-8B-Q4_K_M.gguf}
context_size: 32768
gpu_layers: 8
flash_attention: "on"
cache_type_k: q8_0
cache_type_v: q8_0
batch: 2048
mmap: true
threads: 8
options: ["n_ubatch:512", "fit_params:false", "parallel:1"]
"""
WEBUI = r"""qwen3\-8b\-q4_k_m\.gguf$:
  loader: llama.cpp
  ctx_size: 32768
  gpu_layers: 8
  cache_type: q8_0
  batch_size: 2048
  ubatch_size: 512
  parallel: 1
  threads: 8
"""
JAN = """ctx_size: 32768
n_gpu_layers: 8
flash_attn: "on"
cache_type_k: q8_0
cache_type_v: q8_0
parallel: 1
batch_size: 2048
ubatch_size: 512
"""
RAMALAMA = """# managed by advisor; edits are detected and kept
[ramalama]
ctx_size = 32768
threads = 8
[ramalama.runtimes.llama_cpp]
ngl = 8
ncmoe = 0
"""
OLLAMA_TEXT = """# managed by advisor; edits are detected and kept
FROM qwen3:8b
PARAMETER num_ctx 32768
PARAMETER num_gpu 8
PARAMETER num_batch 512
PARAMETER num_thread 8
"""


@pytest.mark.parametrize(
    ("name", "request_text", "text"),
    [
        ("llama-server-preset", REQUEST, PRESET),
        ("env-file", REQUEST, ENV),
        ("llama-config-ini", REQUEST, CONFIG_INI),
        ("llama-swap", REQUEST, SWAP),
        ("localai", REQUEST, LOCALAI),
        ("text-generation-webui", REQUEST, WEBUI),
        ("jan", REQUEST.replace("-np 1 -t 8", "-np 3"), JAN.replace("32768", "33024")),
        ("ramalama", "-c 32768 -ngl 8 -t 8", RAMALAMA),
        ("ollama", "-c 32768 -ngl 8 -np 1 -t 8", OLLAMA_TEXT),
    ],
)
def test_the_whole_text(name, request_text, text):
    output = load(name)
    slots = output.slots([model(request_text, engine=output.engine, store_name="qwen3:8b")], None)
    written = output.edit(output.new_text, slots)
    assert written == text
    assert output.parse(written) == {**output.parse(output.new_text), **slots}
    assert output.edit(written, dict.fromkeys(slots, GONE)) == output.new_text


def test_llama_cpp_python_json():
    output = load("llama-cpp-python")
    request = REQUEST + " -fa on"  # off is its default
    written = output.edit(output.new_text, output.slots([model(request, engine=output.engine)], None))
    output.validate(written)
    assert json.loads(written) == {
        "host": "127.0.0.1",
        "port": 8000,
        "models": [
            {
                "model_alias": "qwen3", "model": "/srv/models/Qwen3-8B-Q4_K_M.gguf", "n_ctx": 32768, "n_gpu_layers": 8,
                "n_batch": 512, "n_ubatch": 512, "n_threads": 8, "flash_attn": True, "type_k": 8, "type_v": 8,
                "use_mlock": False,
            }
        ],
    }  # fmt: skip


def test_koboldcpp_json():
    output = load("koboldcpp")
    request = REQUEST + " --n-cpu-moe 3"
    written = output.edit(output.new_text, output.slots([model(request, engine=output.engine)], None))
    output.validate(written)
    assert json.loads(written) == {
        "model_param": "/srv/models/Qwen3-8B-Q4_K_M.gguf", "contextsize": 32768, "gpulayers": 8, "usecuda": ["0"],
        "quantkv": "q8_0", "noflashattention": False, "batchsize": 512, "threads": 8, "usemmap": True,
        "usemlock": False, "moecpu": 3,
    }  # fmt: skip


def test_lm_studio_json():
    output = load("lm-studio")
    written = output.edit(output.new_text, output.slots([model(REQUEST + " --n-cpu-moe 3")], None))
    document = json.loads(written)
    assert {**document, "load": None} == {"preset": "", "operation": {"fields": []}, "load": None}
    fields = {field["key"]: field["value"] for field in document["load"]["fields"]}
    ratio = fields.pop("llm.load.llama.acceleration.offloadRatio")
    assert [int(ratio * 13), round(ratio * 13)] == [8, 8]  # 12 blocks and the output
    experts = fields.pop("llm.load.numCpuExpertLayersRatio")
    assert [int(experts * 12), round(experts * 12)] == [3, 3]
    assert fields == {
        "llm.load.contextLength": 32768,
        "llm.load.llama.autoFit": False,
        "llm.load.llama.kCacheQuantizationType": {"checked": True, "value": "q8_0"},
        "llm.load.llama.vCacheQuantizationType": {"checked": True, "value": "q8_0"},
        "llm.load.llama.flashAttention": True,
        "llm.load.llama.evalBatchSize": 2048,
        "llm.load.llama.physicalBatchSize": 512,
        "llm.load.numParallelSessions": 1,
        "llm.load.useUnifiedKvCache": False,
        "llm.load.llama.tryMmap": True,
        "llm.load.llama.cpuThreadPoolSize": 8,
    }


@pytest.mark.parametrize(("layers", "ratio"), [("99", "max"), ("0", "off")])
def test_lm_studio_all_layers_and_none(layers, ratio):
    slots = load("lm-studio").slots([model(f"-c 4096 -np 1 -ngl {layers}")], None)
    assert slots["load", "fields", "llm.load.llama.acceleration.offloadRatio"] == ratio


@pytest.mark.parametrize("layers", range(1, 13))
def test_a_share_of_layers_gives_the_layers_again(layers):
    slots = load("lm-studio").slots([model(f"-c 4096 -np 1 -ngl {layers}")], None)
    ratio = slots["load", "fields", "llm.load.llama.acceleration.offloadRatio"]
    assert int(ratio * 13) == round(ratio * 13) == layers
    assert layers - 1 <= int(ratio * 12) <= round(ratio * 12) <= layers  # were the output not counted


def test_ollamas_create_request():
    asked = model("-c 32768 -ngl 8 -np 1 -t 8 --no-mmap", engine="ollama", store_name="qwen3:8b")
    assert OLLAMA.create_request(asked) == {
        "model": "qwen3:8b-advisor",
        "from": "qwen3:8b",
        "parameters": {"num_ctx": 32768, "num_gpu": 8, "num_batch": 512, "num_thread": 8, "use_mmap": False},
        "stream": False,
    }
    assert OLLAMA.tag(asked._replace(store_name="me/mine")) == "me/mine:latest-advisor"


def test_ollama_with_slots_counts_the_context_of_one():
    asked = model("-c 8192 -ngl 8 -np 2 --no-kv-unified", engine="ollama", store_name="qwen3:8b")
    assert OLLAMA.with_service(Service(num_parallel=2)).parameters(asked)["num_ctx"] == 4096


def test_ollamas_service_drop_in():
    assert drop_in_text(Service("q8_0", 2, 1024)) == (
        "# managed by advisor; edits are detected and kept\n[Service]\nEnvironment=OLLAMA_FLASH_ATTENTION=1\n"
        "Environment=OLLAMA_KV_CACHE_TYPE=q8_0\nEnvironment=OLLAMA_NUM_PARALLEL=2\n"
        "Environment=LLAMA_ARG_CACHE_RAM=1024\n"
    )
    assert "FLASH" not in drop_in_text(Service())
    assert [shlex.split(line) for line in install_commands("/tmp/a b")] == [
        ["sudo", "install", "-D", "-m", "644", "/tmp/a b", "/etc/systemd/system/ollama.service.d/50-advisor.conf"],
        ["sudo", "systemctl", "daemon-reload"],
        ["sudo", "systemctl", "restart", "ollama"],
    ]
    with pytest.raises(OutputError, match="is no cache type"):
        drop_in_text(Service("q8_0\nExecStart=/bin/sh"))


@pytest.mark.parametrize(
    ("name", "present", "absent"),
    [
        ("llama-server-preset", {("qwen3", "fit"): "on", ("qwen3", "fit-target"): "512"}, ("qwen3", "n-gpu-layers")),
        ("env-file", {("LLAMA_ARG_FIT",): "on", ("LLAMA_ARG_FIT_TARGET",): "512"}, ("LLAMA_ARG_N_GPU_LAYERS",)),
        ("localai", {("options", "fit_params"): "true", ("options", "fit_params_target"): "512"}, ("gpu_layers",)),
        ("text-generation-webui", {(r"qwen3\-8b\-q4_k_m\.gguf$", "gpu_layers"): -1,
                                   (r"qwen3\-8b\-q4_k_m\.gguf$", "fit_target"): 512}, ()),
        ("koboldcpp", {("gpulayers",): -1, ("autofit",): True, ("autofitpadding",): 512}, ()),
        ("lm-studio", {("load", "fields", "llm.load.llama.autoFit"): True,
                       ("load", "fields", "llm.load.autoFitMinContextLength"): 4096},
         ("load", "fields", "llm.load.llama.acceleration.offloadRatio")),
        ("ollama", {}, ("PARAMETER", "num_gpu")),
        ("jan", {("n_gpu_layers",): -1}, ()),
    ],
)  # fmt: skip
def test_safe_mode_leaves_the_layers_to_the_engine(name, present, absent):
    output, asked = fitting(name, mode="safe")
    slots = output.slots([asked], None)
    assert {slot: slots[slot] for slot in present} == present
    assert absent not in slots


@pytest.mark.parametrize(
    ("device", "slots"),
    [
        (Named("Vulkan1", "vulkan"), {("usevulkan",): [1]}),
        (Named("ROCm0", "rocm"), {("usecuda",): ["0"]}),
        (Named("MTL0", "metal"), {}),
    ],
)
def test_koboldcpp_names_the_backend(device, slots):
    found = load("koboldcpp").slots([model("-c 4096 -ngl 5 -np 1", engine="koboldcpp", cards=(device,))], None)
    assert {slot: value for slot, value in found.items() if slot[0].startswith("use") and slot[0][3] in "cv"} == slots


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_output_says_what_it_is(name):
    output = load(name)
    assert output.name == name
    assert output.shares in ("own", "merge")
    known = set(RunSettings._fields)
    assert output.expresses() <= known
    assert set(output.fixed()) <= known | set(BesideSettings._fields)
    assert output.engine in ("llama.cpp", "ollama", "llama-cpp-python", "koboldcpp")
    assert output.parse(output.new_text) == ({("default", "version"): "1"} if name == "llama-server-preset" else {})


def test_an_unknown_output():
    with pytest.raises(OutputError, match="is no config format; choose one of llama-server-preset, env-file"):
        load("nano\x1b")
