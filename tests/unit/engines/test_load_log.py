"""The log reader on the engine's own line formats: every backend's spelling, every layer of prefixes, hostile text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engines.load_log import LoadLog, backend_of, device_of, is_host, parse_load_log, totals
from advisor.engines.log_lines import MIB, number, read_buffer, read_build, read_row, size


def parse(text: str) -> LoadLog:
    return parse_load_log(text.split("\n"))


def sums(text: str) -> dict[tuple[str, str], float]:
    """MiB by (device, kind) of the load that counts, all its contexts."""
    load = parse(text).last
    assert load is not None
    buffers = [*load.weights, *(buffer for context in load.contexts for buffer in context.buffers)]
    return {key: round(n_bytes / MIB, 2) for key, (n_bytes, _) in totals(buffers).items()}


# ---------------------------------------------------------------- one backend after the other

CUDA = """\
llama_model_loader: loaded meta data with 29 key-value pairs and 292 tensors from /m/Llama 3 8B.gguf (version GGUF V3 (latest))
print_info: arch             = llama
print_info: general.name     = Llama 3 8B
load_tensors: offloading 32 repeating layers to GPU
load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
load_tensors:    CUDA_Host model buffer size =   281.81 MiB
llama_context: constructing llama_context
llama_context: n_seq_max     = 2
llama_context: n_ctx         = 8192
llama_context: n_ctx_seq     = 4096
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: flash_attn    = auto
llama_context: kv_unified    = false
llama_context:  CUDA_Host  output buffer size =     0.98 MiB
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
llama_kv_cache: size = 1024.00 MiB (  4096 cells,  32 layers,  2/2 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
sched_reserve: Flash Attention was auto, set to enabled
sched_reserve:      CUDA0 compute buffer size =   258.50 MiB
sched_reserve:  CUDA_Host compute buffer size =    16.01 MiB
"""  # noqa: E501


def test_a_load_on_cuda_line_by_line():
    log = parse(CUDA)
    load = log.last
    assert load is not None
    assert load.path == "/m/Llama 3 8B.gguf"
    assert load.facts == {"arch": "llama", "general.name": "Llama 3 8B"}
    assert load.offloaded == (33, 33)
    assert len(load.contexts) == 1
    context = load.contexts[0]
    assert context.role == "main"
    assert context.settings == {
        "n_seq_max": "2", "n_ctx": "8192", "n_ctx_seq": "4096", "n_batch": "2048", "n_ubatch": "512",
        "flash_attn": "auto", "kv_unified": "false", "flash_attn_resolved": "on",
    }  # fmt: skip
    assert context.caches[0][:6] == ("kv", 1024 * MIB, 4096, 32, "f16", "f16")
    assert sums(CUDA) == {
        ("CUDA0", "weights"): 4403.49, ("host", "weights"): 281.81, ("host", "output"): 0.98,
        ("CUDA0", "kv"): 1024.0, ("CUDA0", "compute"): 258.5, ("host", "compute"): 16.01,
    }  # fmt: skip


PREFIXES = {
    "none": "",
    "engine": "0.00.259.026 I ",
    "journal": "Nov 02 10:11:12 box llama-server[1234]: ",
    "journal iso": "2026-11-02T10:11:12+0100 box llama-server[1234]: 0.00.259.026 I ",
    "docker": "llama-1  | 2026-11-02T10:11:12.000000000Z ",
    "ollama": "Nov 02 10:11:12 box ollama[99]: time=2026-11-02T10:11:12.000Z level=INFO ",
    "colours": "\x1b[34m0.00.259.026\x1b[0m \x1b[32mI \x1b[0m",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_prefixes_and_line_ends_change_nothing(prefix, end):
    text = "".join(prefix + line + end for line in CUDA.splitlines())
    assert sums(text) == sums(CUDA)
    load, plain = parse(text).last, parse(CUDA).last
    assert load is not None
    assert plain is not None
    assert load.contexts[0].settings == plain.contexts[0].settings
    assert (load.offloaded, load.facts) == (plain.offloaded, plain.facts)


@pytest.mark.parametrize(
    ("name", "device", "backend"),
    [
        ("CUDA0", "CUDA0", "cuda"),
        ("CUDA11", "CUDA11", "cuda"),
        ("CUDA0_Split", "CUDA0", "cuda"),
        ("CUDA_Host", "host", None),
        ("CPU", "host", None),
        ("CPU_Mapped", "host", None),
        ("CPU_REPACK", "host", None),
        ("CPU_AARCH64", "host", None),
        ("AMX", "host", None),
        ("Host", "host", None),
        ("Vulkan0", "Vulkan0", "vulkan"),
        ("Vulkan_Host", "host", None),
        ("ROCm0", "ROCm0", "rocm"),
        ("ROCm_Host", "host", None),
        ("Metal", "MTL0", "metal"),
        ("Metal_Mapped", "MTL0", "metal"),
        ("Metal_Private", "MTL0", "metal"),
        ("MTL0", "MTL0", "metal"),
        ("MTL0_Mapped", "MTL0", "metal"),
        ("SYCL0", "SYCL0", "sycl"),
        ("SYCL_Host", "host", None),
        ("RPC[192.168.1.7:50052]", "RPC[192.168.1.7:50052]", "rpc"),
        ("RPC0[192.168.1.7:50052]", "RPC0[192.168.1.7:50052]", "rpc"),
        ("HTP0-REPACK", "HTP0-REPACK", None),
    ],
)
@pytest.mark.parametrize("kind", ["model", "KV", "RS", "compute", "output"])
def test_every_spelling_of_a_buffer(name, device, backend, kind):
    buffer = read_buffer(f"load_tensors: {name:>12} {kind} buffer size =  1234.56 MiB")
    assert buffer is not None
    assert buffer.name == name
    assert buffer.kind == {"model": "weights", "KV": "kv", "RS": "state"}.get(kind, kind)
    assert buffer.n_bytes == round(1234.56 * MIB)
    assert device_of(name) == device
    assert is_host(name) == (device == "host")
    if backend:
        assert backend_of(device) == backend


@pytest.mark.parametrize(
    ("line", "name", "kind", "mib"),
    [
        ("llm_load_tensors:      CUDA0 buffer size =  3820.94 MiB", "CUDA0", "weights", 3820.94),
        ("llm_load_tensors: mem required  =   70.44 MiB", "CPU", "weights", 70.44),
        ("llm_load_tensors: VRAM used: 3820.94 MiB", "GPU", "weights", 3820.94),
        ("llama_kv_cache_init: VRAM kv self = 256.00 MB", "GPU", "kv", 256),
        ("llama_kv_cache_init:      CUDA0 KV buffer size =   256.00 MiB", "CUDA0", "kv", 256),
        ("llama_kv_cache_unified:      Metal KV buffer size =   256.00 MiB", "Metal", "kv", 256),
        ("llama_new_context_with_model:  CUDA_Host input buffer size   =     8.01 MiB", "CUDA_Host", "compute", 8.01),
        ("llama_new_context_with_model: compute buffer total size = 144.13 MiB", "CPU", "compute", 144.13),
        ("llama_new_context_with_model: VRAM scratch buffer: 140.81 MiB", "GPU", "compute", 140.81),
        ("llama_init_from_model:      ROCm0 compute buffer size =   164,01 MiB", "ROCm0", "compute", 164.01),
        ("~llama_context:    Vulkan0 compute buffer size is  55.2520 MiB, matches expectation of  55.2520 MiB",
         "Vulkan0", "compute", 55.252),
        ("llama_adapter_lora_init_impl:      CUDA0 LoRA buffer size =    13.00 MiB", "CUDA0", "lora", 13),
        ("llama_kv_cache_dsv4:      CUDA0 DSV4 csa state buffer size =     1.50 MiB", "CUDA0", "state", 1.5),
        ("llama_memory_recurrent:      CUDA0 RS buffer size =   149.62 MiB", "CUDA0", "state", 149.62),
        ("load_tensors:   CPU_Mapped model buffer size = 1.234,50 MiB", "CPU_Mapped", "weights", 1234.5),
        ("load_tensors:   CPU_Mapped model buffer size = 1,234.50 MiB", "CPU_Mapped", "weights", 1234.5),
        ('level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="4.4 GiB"', "CUDA0", "weights", 4505.6),
        ('level=INFO source=device.go:251 msg="kv cache" device=ROCm0 size="896.0 MiB"', "ROCm0", "kv", 896),
        ('level=INFO source=device.go:262 msg="compute graph" device=CPU size="5.6 MiB"', "CPU", "compute", 5.6),
    ],
)  # fmt: skip
def test_old_and_other_spellings(line, name, kind, mib):
    buffer = read_buffer(line)
    assert buffer is not None
    assert (buffer.name, buffer.kind) == (name, kind)
    assert buffer.n_bytes == round(mib * MIB)


@pytest.mark.parametrize(
    "line",
    [
        "load_tensors: CUDA0 model buffer size = -12.00 MiB",
        "load_tensors: CUDA0 model buffer size = 99999999999999999999999999999.00 MiB",
        "load_tensors: CUDA0 model buffer size = 17592186029324.00 GiB",
        "load_tensors: CUDA0 model buffer size = nan MiB",
        "load_tensors: CUDA0 model buffer size = 1.2.3.4 MiB",
        "load_tensors: CUDA0 model buffer size = MiB",
        "load_tensors: CUDA0 model buffer size",
        "the model buffer size matters",
        "some_function: CUDA0 buffer size = 12.00 MiB",
        "",
    ],
)
def test_figures_that_are_none_are_ignored(line):
    assert read_buffer(line) is None
    assert parse(line).last is None


def test_precision_is_what_was_printed():
    assert size("55.25", "MiB") == (round(55.25 * MIB), round(MIB / 100))
    assert size("55.2520", "MiB") == (round(55.252 * MIB), round(MIB / 10000))
    assert size("55", "MiB") == (55 * MIB, MIB)
    assert size("4.4", "GiB") == (round(4.4 * 1024 * MIB), round(1024 * MIB / 10))
    assert number("1,5") == 1.5
    assert number("1,234,567") == 1234567


# ---------------------------------------------------------------- several loads, contexts, probes

PROBE = CUDA.replace("4403.49", "0.00").replace("281.81", "0.00")
PROBE = PROBE.replace("KV buffer size =  1024.00", "KV buffer size = 0.00")


def test_the_probe_of_fit_and_the_real_load_are_told_apart():
    start = "common_init_: fitting params to device memory ...\n"
    end = "common_fit_params: fitting params to free memory took 0.17 seconds\n"
    text = start + PROBE.replace("258.50", "6436.28") + end + CUDA
    log = parse(text)
    assert [load.probe for load in log.loads] == [True, False]
    assert sums(text) == sums(CUDA)
    # a probe without its marks is known by buffers of no size, or by no_alloc
    assert [load.probe for load in parse(PROBE + CUDA).loads] == [True, False]
    no_alloc = CUDA.replace("print_info: arch ", "print_info: no_alloc         = 1\nprint_info: arch ")
    assert [load.probe for load in parse(no_alloc + CUDA).loads] == [True, False]
    # only a probe: nothing was loaded
    assert parse(start + CUDA + end).last is None


def test_a_probe_that_prints_full_sizes_is_replaced_by_the_last_load():
    text = CUDA.replace("258.50", "6436.28") + CUDA
    assert len(parse(text).loads) == 2
    assert sums(text)["CUDA0", "compute"] == 258.5


def test_a_second_model_in_the_log_is_the_one_that_counts():
    other = CUDA.replace("Llama 3 8B.gguf", "other.gguf").replace("4403.49", "100.00")
    load = parse(CUDA + other).last
    assert load is not None
    assert load.path == "/m/other.gguf"
    assert sums(CUDA + other)["CUDA0", "weights"] == 100


def test_a_draft_model_is_no_load_of_its_own():
    draft = CUDA.replace("Llama 3 8B.gguf", "draft.gguf").replace("4403.49", "300.00")
    text = CUDA + "srv    load_model: loading draft model '/m/draft.gguf'\n" + draft
    log = parse(text)
    assert log.last is not None
    assert log.last.path == "/m/Llama 3 8B.gguf"
    assert [load.path for load in log.drafts] == ["/m/draft.gguf"]
    assert sums(text) == sums(CUDA)


def test_the_context_of_built_in_mtp_stands_beside_the_main_one():
    second = CUDA[CUDA.index("llama_context: constructing") :].replace("1024.00", "32.00").replace("258.50", "154.00")
    log = parse(CUDA + "srv    load_model: creating MTP draft context against the target model\n" + second)
    assert log.last is not None
    assert [context.role for context in log.last.contexts] == ["main", "draft"]
    main, draft = (totals(context.buffers) for context in log.last.contexts)
    assert main["CUDA0", "kv"][0] == 1024 * MIB
    assert draft["CUDA0", "kv"][0] == 32 * MIB
    assert draft["CUDA0", "compute"][0] == 154 * MIB


def test_more_contexts_of_one_model():
    again = CUDA[CUDA.index("llama_context: constructing") :]
    log = parse(CUDA + again * 4)
    assert log.last is not None
    assert [context.role for context in log.last.contexts] == ["main", *["extra"] * 4]
    # builds without the line "constructing": a context begins with its first setting
    old = "\n".join(line for line in (CUDA + again).splitlines() if "constructing" not in line)
    log = parse(old)
    assert log.last is not None
    assert [context.role for context in log.last.contexts] == ["main", "extra"]


def test_two_caches_of_a_device_are_added():
    line = "llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB"
    text = CUDA.replace(line, f"{line}\nllama_kv_cache:      CUDA0 KV buffer size =   576.00 MiB")
    assert sums(text)["CUDA0", "kv"] == 1600


def test_exact_sizes_at_the_end_replace_the_rounded_ones():
    text = (
        CUDA + "~llama_context:      CUDA0 compute buffer size is 258.5039 MiB, matches expectation of 258.5039 MiB\n"
    )
    load = parse(text).last
    assert load is not None
    assert totals(load.contexts[0].buffers)["CUDA0", "compute"][0] == round(258.5039 * MIB)
    assert len(load.contexts[0].buffers) == 4


def test_a_projector_stands_apart():
    text = CUDA + "alloc_compute_meta:      CUDA0 compute buffer size =   248.10 MiB\n"
    load = parse(text).last
    assert load is not None
    assert [buffer.n_bytes for buffer in load.projector] == [round(248.1 * MIB)]
    assert sums(text) == sums(CUDA)


def test_the_log_of_an_old_build():
    text = """\
llama_model_loader: loaded meta data with 20 key-value pairs and 291 tensors from llama-2-7b.gguf (version GGUF V2)
llm_load_print_meta: arch             = llama
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes
llm_load_tensors: offloaded 33/33 layers to GPU
llm_load_tensors:        CPU buffer size =    70.31 MiB
llm_load_tensors:      CUDA0 buffer size =  3820.94 MiB
llama_new_context_with_model: n_ctx      = 4096
llama_new_context_with_model: n_batch    = 2048
llama_new_context_with_model: n_ubatch   = 512
llama_new_context_with_model: flash_attn = 0
llama_kv_cache_init:      CUDA0 KV buffer size =  2048.00 MiB
llama_new_context_with_model: KV self size  = 2048.00 MiB, K (f16): 1024.00 MiB, V (f16): 1024.00 MiB
llama_new_context_with_model:  CUDA_Host  output buffer size =     0.12 MiB
llama_new_context_with_model:      CUDA0 compute buffer size =   296.00 MiB
llama_new_context_with_model:  CUDA_Host compute buffer size =    16.01 MiB
"""
    load = parse(text).last
    assert load is not None
    assert len(load.contexts) == 1
    assert load.contexts[0].settings == {"n_ctx": "4096", "n_batch": "2048", "n_ubatch": "512", "flash_attn": "0"}
    assert [(cache.n_bytes, cache.type_k) for cache in load.contexts[0].caches] == [(2048 * MIB, "f16")]
    assert sums(text) == {
        ("host", "weights"): 70.31, ("CUDA0", "weights"): 3820.94, ("CUDA0", "kv"): 2048, ("host", "output"): 0.12,
        ("CUDA0", "compute"): 296, ("host", "compute"): 16.01,
    }  # fmt: skip


# ---------------------------------------------------------------- builds, devices, tables


@pytest.mark.parametrize(
    ("line", "build"),
    [
        ("common_params_print_info: build 11434 (7e4c0a9) with GNU 11.4.0 for Linux x86_64", (11434, "7e4c0a9")),
        ("build: 6123 (0a1b2c3d) with cc (Debian 12.2.0) for x86_64-linux-gnu", (6123, "0a1b2c3d")),
        ("main: build = 3467 (01245f5b)", (3467, "01245f5b")),
        ("srv          init: build_info: b9010-d05fe1d7d", (9010, "d05fe1d7d")),
        ("version: 5581 (71e74a3a)", (5581, "71e74a3a")),
        ("version: 0.1.0-dev (build 10434, commit 7e4c0a9)", (10434, "7e4c0a9")),
        ("building the graph", None),
        ("version GGUF V3 (latest)", None),
    ],
)
def test_builds(line, build):
    assert read_build(line) == build
    assert parse(line).build == (build[0] if build else None)


def test_a_build_of_ones_own_has_no_number():
    log = parse("common_params_print_info: build 1 (7e4c0a9) with GNU 11.4.0 for Linux x86_64")
    assert (log.build, log.commit) == (None, "7e4c0a9")


def test_devices_and_the_free_memory_when_they_are_taken():
    text = """\
common_param:   - CUDA0   : NVIDIA GeForce RTX 3060 (12037 MiB, 11911 MiB free)
common_param:   - CPU     : AMD Ryzen 7 (64000 MiB, 60000 MiB free)
llama_prepare_model_devices: using device CUDA0 (NVIDIA GeForce RTX 3060) (0000:01:00.0) - 11802 MiB free
llama_model_load_from_file_impl: using device Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits)) (unknown id) - 2048 MiB free
"""
    devices = {device.id: device for device in parse(text).devices}
    assert devices["CUDA0"][1:] == ("NVIDIA GeForce RTX 3060", 12037 * MIB, 11802 * MIB)
    assert devices["CPU"].total_bytes == 64000 * MIB
    assert devices["Vulkan0"].free_bytes == 2048 * MIB


def test_the_breakdown_table_and_an_unaccounted_that_wrapped():
    text = """\
llama_memory_breakdown_print: | memory breakdown [MiB]  | total   free     self   model   context   compute    unaccounted |
llama_memory_breakdown_print: |   - CUDA0 (RTX 3060)    | 12037 = 6000 + (5000 =  4000 +     700 +     300) +        1037 |
llama_memory_breakdown_print: |   - CUDA1 (RTX 3060)    | 12037 = 9000 + (5000 =  4000 +     700 +     300) +       -1963 |
llama_memory_breakdown_print: |   - CUDA2 (A (B) C)     | 12037 = 9000 + (5000 =  4000 +     700 +     300) + 17592186029324 |
llama_memory_breakdown_print: |   - Host                |                   343 =   267 +      64 +      12                |
llama_memory_breakdown_print: |   - CPU_REPACK          |                    12 =    12 +       0 +       0                |
"""  # noqa: E501
    (table,) = parse(text).tables
    assert [row.name for row in table] == ["CUDA0", "CUDA1", "CUDA2", "Host", "CPU_REPACK"]
    assert table[0][1:] == (12037 * MIB, 6000 * MIB, 4000 * MIB, 700 * MIB, 300 * MIB, 1037 * MIB)
    assert [row.unaccounted_bytes for row in table[1:]] == [None] * 4
    assert table[3][1:6] == (None, None, 267 * MIB, 64 * MIB, 12 * MIB)
    assert read_row("|   - CUDA0 | 1 = 1 + (1 = 99999999999999999999 + 1 + 1) + 1 |") is None


def test_allocations_that_failed():
    text = """\
ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 939524096
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4657.81 MiB on device 1: cudaMalloc failed: out of memory
"""
    assert parse(text).failures == (("CUDA0", 939524096), ("device 1", round(4657.81 * MIB)))


# ---------------------------------------------------------------- hostile logs


def test_one_line_of_a_hundred_megabytes():
    text = "load_tensors: CUDA0 model buffer size = " + "1" * (100 << 20)
    started = time.monotonic()
    load = parse_load_log([text, *CUDA.split("\n")]).last
    assert load is not None
    assert [buffer.n_bytes for buffer in load.weights] == [round(4403.49 * MIB), round(281.81 * MIB)]
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "junk", ["\0" * 50, "\ufffd\ufffd", "\ud800", "(" * 1000, "| - " * 500, "= " * 900, "1," * 900]
)
def test_junk_between_the_lines_changes_nothing(junk):
    text = "\n".join(f"{line}\n{junk}" for line in CUDA.splitlines())
    assert sums(text) == sums(CUDA)


def test_a_line_that_makes_a_slow_expression_slow_is_cut():
    lines = [f"| - {'(' * 1900} |", "llama_kv_cache: size = 1 MiB " + "K (" * 600, f"using device {'(' * 1900}"]
    lines += ["a" * 1900 + " buffer size", f"loaded meta data with 1 key-value pairs and 1 tensors from {'(' * 1900}"]
    started = time.monotonic()
    parse_load_log(["memory breakdown [MiB]", *(line for line in lines for _ in range(200))])
    assert time.monotonic() - started < 2


def test_the_number_of_things_kept_is_bounded():
    row = "llama_kv_cache: CUDA0 KV buffer size = 1.00 MiB"
    load = parse_load_log(["load_tensors: CUDA0 model buffer size = 1.00 MiB", *[row] * 50_000]).last
    assert load is not None
    assert len(load.contexts[0].buffers) == 200
    log = parse_load_log(["llama_model_loader: loaded meta data with 1 key-value pairs and 1 tensors from x",
                          "load_tensors: CUDA0 model buffer size = 1.00 MiB"] * 5000)  # fmt: skip
    assert len(log.loads) == 1000


_WORDS = st.sampled_from([*(line + "\n" for line in CUDA.splitlines()), "| memory breakdown [MiB] |\n", "\n", "= ",
                          "MiB",
                          "|   - CUDA0 (x) | 1 = 1 + (1 = 1 + 1 + 1) + 1 |\n", "fitting params to free memory took\n",
                          " buffer size = ", "9" * 30, "-1", "\0"])  # fmt: skip


@given(st.lists(st.one_of(_WORDS, st.text(max_size=20)), max_size=60))
def test_no_text_is_an_error(pieces):
    log = parse("".join(pieces))
    assert all(buffer.n_bytes >= 0 for load in log.loads for buffer in load.weights)
