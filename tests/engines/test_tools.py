"""The engine tools themselves, against real engines. Gemma 3 270M by hand:

18 layers, every sixth (5, 11, 17) sees everything, the other 15 a window of 512 tokens; one KV head of 256 wide.
A cell of one layer holds K and V: 2 x 256 values, 1,024 bytes in f16. A window cache has n_swa + n_ubatch cells.
"""

from __future__ import annotations

import os

import pytest

from tests.tools.engines import again_if_stillborn, dry_run_breakdown, engine_buffers, engine_process, wait_until

MIB = 1024 * 1024
CELL_BYTES = 2 * 256 * 2

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def answered(gemma3_270m_path, xllamacpp_server):
    settings = {"model": gemma3_270m_path, "n_ctx": 2048, "n_parallel": 1, "n_ubatch": 512, "load_mode": "none"}
    with xllamacpp_server(settings) as server:
        props = server.get("/props")
        answer = server.complete("The capital of France is", n_predict=3)
    return server, props, answer


def test_the_server_runs_with_the_settings_and_answers(answered):
    _, props, answer = answered
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert answer["tokens_predicted"] == 3
    assert answer["content"].strip()


def test_cache_bytes_equal_the_arithmetic_by_hand(answered):
    buffers = engine_buffers(answered[0].log_text())
    assert set(buffers) == {"host"}
    assert buffers["host"]["cache"] == 3 * 2048 * CELL_BYTES + 15 * (512 + 512) * CELL_BYTES == 21 * MIB
    # one row of logits and one of the embedding's hidden state would be more: a row is 262,144 tokens of 4 bytes
    assert buffers["host"]["output"] == 262_144 * 4
    assert buffers["host"]["compute"] > MIB
    # the file minus its header: tensors only
    assert 0.90 < buffers["host"]["weights"] / 253_113_024 < 1


def test_settings_reach_the_engine(gemma3_270m_path, xllamacpp_server):
    settings = {
        "model": gemma3_270m_path, "n_ctx": 4096, "n_parallel": 2, "kv_unified": True, "n_ubatch": 256,
        "swa_full": True, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attn": "on",
        "load_mode": "none", "repack": False,
    }  # fmt: skip
    with xllamacpp_server(settings) as server:
        log = server.log_text()
    # q8_0: 34 bytes for 32 values; with swa_full all 18 layers hold all cells, unified: one cache for both slots.
    # 3 layers of 4,096 cells are 6.375 MiB, printed as 6.38: the engine rounds each of its two caches
    expected = 18 * 4096 * 2 * (256 // 32 * 34)
    assert abs(engine_buffers(log)["host"]["cache"] - expected) <= 2 * 5243
    assert "CPU_REPACK" not in log


def test_a_refused_load_is_an_error_with_the_engines_words(tmp_path, xllamacpp_server):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 64)
    with pytest.raises(RuntimeError, match="gguf"), xllamacpp_server({"model": broken, "n_ctx": 512}):
        pass
    with pytest.raises(RuntimeError, match="no such setting: n_ctxx"), xllamacpp_server({"model": broken, "n_ctxx": 1}):
        pass


def test_the_software_device_takes_two_layers(gemma3_270m_path, vulkan_breakdown):
    args = ["-c", "4096", "-ngl", "3", "-np", "1", "-ub", "512"]
    result = vulkan_breakdown(gemma3_270m_path, args)
    assert set(result.buffers) == {"Vulkan0", "host"}
    # -ngl 3: output layer (its tied matrix, over 128 MiB, stays on the host), layer 17 (full), layer 16 (window)
    assert result.buffers["Vulkan0"]["cache"] == (4096 + 1024) * CELL_BYTES
    assert result.buffers["host"]["cache"] == (2 * 4096 + 14 * 1024) * CELL_BYTES
    assert result.buffers["Vulkan0"]["weights"] > MIB
    assert result.buffers["Vulkan0"]["compute"] > MIB
    assert result.dry_run == {}

    dry = vulkan_breakdown(gemma3_270m_path, [*args, "-fit", "on"])
    assert dry.buffers == result.buffers
    for device, sizes in dry.dry_run.items():
        for kind in ("weights", "cache", "compute"):
            assert sizes[kind] == dry.buffers[device][kind] // MIB * MIB, (device, kind)


def test_no_engine_is_left_behind(gemma3_270m_path, xllamacpp_server):
    def fail_while_it_runs():
        with xllamacpp_server({"model": gemma3_270m_path, "n_ctx": 512}) as server:
            os.killpg(server.process_group, 0)  # raises unless it lives
            raise LookupError(server.process_group)

    with pytest.raises(LookupError) as error:
        fail_while_it_runs()
    with pytest.raises(ProcessLookupError):
        os.killpg(error.value.args[0], 0)


def test_dry_run_table_of_a_cpu_only_engine():
    log = """
0.00.644.648 I common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute    unaccounted |
0.00.644.668 I common_memory_breakdown_print: |   - Host               |                  264 =   222 +      21 +      21                |
0.00.644.668 I common_memory_breakdown_print: |   - CPU_REPACK         |                   12 =    12 +       0 +       0                |
0.00.709.321 I common_params_fit_impl: projected to use 264 MiB of host memory vs. 24105 MiB of total host memory
"""  # noqa: E501
    assert dry_run_breakdown(log) == {"host": {"weights": 234 * MIB, "cache": 21 * MIB, "compute": 21 * MIB}}


def test_an_engine_that_was_not_born_is_started_once_more(tmp_path):
    """Only one that dies of an illegal instruction in silence; ggml's complaint about AMX is no word of the engine."""

    def started(script: str) -> tuple[int, str]:
        count = tmp_path / "count"
        count.write_text("")
        log = tmp_path / "log"

        def start() -> str:
            with engine_process(["sh", "-c", f"echo x >> {count}; {script}"], log, os.environ) as process:
                wait_until(lambda: "alive" in log.read_text(), process, log, 20)
                return log.read_text().strip()

        try:
            said = again_if_stillborn(start)
        except RuntimeError as error:
            said = type(error).__name__
        return count.read_text().count("x"), said

    second = f"test $(wc -l < {tmp_path}/count) = 2 && echo alive >&2 && sleep 5"
    assert started(f"{second}; kill -ILL $$") == (2, "alive")
    assert started(f"{second}; echo 'AMX is not ready to be used!' >&2; kill -ILL $$") == (2, "alive")
    assert started("kill -ILL $$") == (2, "StillbornError")
    assert started("echo loading >&2; kill -ILL $$") == (1, "RuntimeError")
    assert started("kill -SEGV $$") == (1, "RuntimeError")
