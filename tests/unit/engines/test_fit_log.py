"""What `-fit on` printed, as read: lines of real runs of b10434 on one device, and lines that lie."""

from __future__ import annotations

import pytest

from advisor.engines.fit_log import Filled, parse_fit

MIB = 1 << 20
P = "0.00.813.825 I common_params_fit_impl: "
DEVICE = "  - Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits)): "
END = "0.01.494.506 I common_fit_params: fitting params to free memory took 1.37 seconds\n"
CONTEXT = "0.00.281.011 I llama_context: n_ctx                 = 131072\n"


def test_a_shorter_context_and_nothing_else():
    reduced = f"{P}context size reduced from 131072 to 15360 -> need 3732 MiB less memory in total\n"
    text = CONTEXT + reduced + f"{P}entire model can be fit by reducing context\n" + END
    assert parse_fit(text) == (15360, (), None, None, True)


def test_everything_fits_as_it_is():
    text = CONTEXT + f"{P}will leave 1200 >= 1024 MiB of free device memory, no changes needed\n" + END
    assert parse_fit(text) == (131072, (), None, None, True)


def test_experts_and_a_part_of_one_block():
    """The lists come several times; the last counts. What is printed after the end is the load."""
    text = (
        f"{CONTEXT}{P}context size reduced from 131072 to 4096 -> need 1612 MiB less memory in total\n"
        "0.00.417.624 I llama_context: n_ctx                 = 4096\n"
        f"{P}id=0, n_layer=13, n_part=12, overflow_type=4, mem=   156 MiB\n"
        f"{P}{DEVICE}13 layers,    156 MiB used,   1891 MiB free\n"
        f"{P}set ngl_per_device[0].(n_layer, n_part)=(13, 9), id_dense_start=0\n"
        f"{P}set ngl_per_device[0].(n_layer, n_part, overflow_type)=(13, 9, UP), id_dense_start=0\n"
        f"{P}set ngl_per_device[0].(n_layer, n_part, overflow_type)=(13, 9, GATE), id_dense_start=0\n"
        f"{P}{DEVICE}13 layers ( 9 overflowing),    267 MiB used,   1780 MiB free\n"
        f"0.01 I common_fit_params: successfully fit params to free device memory\n{END}"
        f"{P}context size reduced from 131072 to 8192 -> later\n"
    )
    assert parse_fit(text) == (4096, (Filled("Vulkan0", 13, 9, "gate", 267 * MIB),), None, None, True)


def test_blocks_whose_experts_all_stay_are_in_part_though_the_list_does_not_say_so():
    text = (
        f"0.00 I llama_context: n_ctx                 = 32768\n{P}context size set by user to 32768 -> no change\n"
        f"{P}id=0, n_layer=22, n_part=21, overflow_type=4, mem=  1089 MiB\n"
        f"{P}id=0, n_layer=20, n_part=19, overflow_type=4, mem=  1006 MiB\n"
        f"{P}id=0, n_layer=21, n_part=20, overflow_type=4, mem=  1047 MiB\n"
        f"{P}{DEVICE}20 layers,   1006 MiB used,   1041 MiB free\n{END}"
    )
    assert parse_fit(text).devices == (Filled("Vulkan0", 20, 19, "moe", 1006 * MIB),)


def test_two_devices_and_the_older_name():
    p = "llama_params_fit_impl: "
    text = (
        f"build: 11434 (7e4c0a9) with GNU\n{CONTEXT}"
        f"{p}  - CUDA0 (NVIDIA RTX 3060): 20 layers, 9000 MiB used, 1024 MiB free\n"
        f"{p}set ngl_per_device[1].(n_layer, n_part, overflow_type)=(13, 9, ATTN), id_dense_start=1\n"
        f"{p}  - CUDA1 (Tesla P40): 13 layers (9 overflowing), 8000 MiB used, -5 MiB free\n{END}"
    )
    found = parse_fit(text)
    assert found.build == 11434
    assert found.devices == (
        Filled("CUDA0", 20, 0, "moe", 9000 * MIB), Filled("CUDA1", 13, 9, "attn", 8000 * MIB),
    )  # fmt: skip


def test_why_it_gave_up():
    line = (
        "W common_fit_params: failed to fit params to free device memory: n_gpu_layers already set by user to 99, abort"
    )
    assert parse_fit(f"{CONTEXT}{line}\n{END}").failed == "n_gpu_layers already set by user to 99, abort"


@pytest.mark.parametrize(
    "text",
    [
        "", "\n" * 10000, P * 10000, f"{P}{DEVICE}{'9' * 5000} layers, 1 MiB used, 1 MiB free\n",
        "llama_context: n_ctx = " + "9" * 1000, f"{P}  - {'A' * 100000}0 (x): 1 layers, 1 MiB used, 1 MiB free",
        f"{P}set ngl_per_device[99].(n_layer, n_part, overflow_type)=(1, 1, \udcff)",
    ],
)  # fmt: skip
def test_lines_that_lie(text):
    assert parse_fit(text) == (None, (), None, None, False)


def test_no_more_devices_than_any_machine_has():
    lines = "".join(f"{P}  - CUDA{n} (x): 1 layers, 1 MiB used, 1 MiB free\n" for n in range(1000))
    assert len(parse_fit(lines).devices) == 64
