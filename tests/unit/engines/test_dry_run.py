"""Asking an engine: which words it gets, what is made of its answer, and engines that misbehave."""

from __future__ import annotations

import os
import time

import pytest

from advisor.engines.dry_run import ask_engine, environment, settings_words
from advisor.engines.find import EngineBinary, find_engines
from advisor.engines.log_lines import MIB
from advisor.engines.process import MAX_BYTES, run_until
from advisor.errors import EngineError
from advisor.llama_flags import parse_command
from advisor.settings import ALL_LAYERS, AUTO_LAYERS, RequestedSettings, TensorOverride
from tests.tools.fake_engine import program, table, talker

GPU = ("CUDA0", "NVIDIA GeForce RTX 3060", 12037, 11802, 4403, 1024, 258)
TEXT = table([GPU], (281, 0, 16))


def binary(path, kind="server"):
    return [EngineBinary(str(path), kind, "given")]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 2
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


# ---------------------------------------------------------------- the answer


def test_the_table_becomes_bounds_and_the_server_is_stopped(tmp_path):
    path = talker(tmp_path, TEXT)
    started = time.monotonic()
    answer = ask_engine(binary(path), "m.gguf", RequestedSettings(n_ctx=4096), os.environ)
    assert time.monotonic() - started < 5  # the program would have stayed for 30 s
    assert answer.build == 11434
    assert not answer.every_row
    assert [device[:1] + device[2:] for device in answer.devices] == [("CUDA0", 12037 * MIB, 11802 * MIB)]
    assert answer.figures["CUDA0", "weights"] == (4403 * MIB, 4403 * MIB, 4404 * MIB - 1)
    assert answer.figures["CUDA0", "cache"] == (1024 * MIB, 1024 * MIB, 1025 * MIB - 1)
    assert answer.figures["host", "compute"] == (16 * MIB, 16 * MIB, 17 * MIB - 1)
    words = (tmp_path / "arguments").read_text().split()
    assert words[:2] == ["-m", "m.gguf"]
    assert words[-2:] == ["--ctx-size", "4096"]
    assert words[words.index("-fit") + 1] == "on"
    assert words[words.index("--host") + 1] == "127.0.0.1"


def test_compute_to_a_hundredth_where_the_log_has_it(tmp_path):
    lines = "sched_reserve:      CUDA0 compute buffer size =   258.50 MiB\n" \
            "sched_reserve:  CUDA_Host compute buffer size =    99.00 MiB\n" \
            "llama_context:  CUDA_Host  output buffer size =     0.98 MiB\n"  # fmt: skip
    answer = ask_engine(binary(talker(tmp_path, lines + TEXT)), "m.gguf", RequestedSettings(), os.environ)
    value = round(258.5 * MIB)
    low, middle, high = answer.figures["CUDA0", "compute"]
    assert middle == value
    assert value - low == high - value <= MIB // 99
    assert answer.figures["host", "compute"].low == 16 * MIB  # contradicts the table, so the table stands
    assert answer.figures["host", "output"].value == round(0.98 * MIB)


def test_host_rows_are_added_and_their_roundings_too(tmp_path):
    text = table([], (222, 21, 21)).replace(
        "0.00.214.019", "x: |   - CPU_REPACK  |   12 =  12 + 0 + 0   |\n0.00.214.019"
    )
    answer = ask_engine(binary(talker(tmp_path, text)), "m.gguf", RequestedSettings(), os.environ)
    assert answer.devices == ()
    assert answer.figures["host", "weights"] == (234 * MIB, 234 * MIB, 236 * MIB - 2)


def test_fit_params_prints_sums_and_counts_every_row(tmp_path):
    path = talker(tmp_path, "CUDA0 4403 1024 258 \nHost 281 0 16 \n", name="llama-fit-params", linger_s=0)
    answer = ask_engine(binary(path, "fit-params"), "m.gguf", RequestedSettings(n_ctx=4096), os.environ)
    assert answer.every_row
    assert [device.id for device in answer.devices] == ["CUDA0"]
    assert answer.figures["CUDA0", "weights"].low == 4403 * MIB
    assert answer.figures["host", "compute"].low == 16 * MIB
    assert "--fit-print on" in (tmp_path / "arguments").read_text()


def test_only_the_first_table_counts(tmp_path):
    later = table([(*GPU[:4], 1, 1, 1)], (1, 1, 1))
    answer = ask_engine(binary(talker(tmp_path, TEXT + later)), "m.gguf", RequestedSettings(), os.environ)
    assert answer.figures["CUDA0", "weights"].low == 4403 * MIB


def test_an_older_build_gets_the_older_word_for_no_mapping(tmp_path):
    body = f"""
open({str(tmp_path / "arguments")!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
if "--load-mode" in sys.argv:
    sys.exit("error: invalid argument: --load-mode")
sys.stderr.write({TEXT!r})
"""
    answer = ask_engine(
        binary(program(tmp_path, body)), "m.gguf", RequestedSettings(load_mode="none", n_ctx=512), os.environ
    )
    assert answer.figures["CUDA0", "weights"].low == 4403 * MIB
    first, second = (tmp_path / "arguments").read_text().splitlines()
    assert first.endswith("--ctx-size 512 --load-mode none")
    assert second.endswith("--ctx-size 512 --no-mmap")


def test_the_next_engine_is_asked_when_the_first_cannot_answer(tmp_path):
    (tmp_path / "a").mkdir()
    first = talker(tmp_path / "a", "error: invalid argument: -fit\n", status=1, linger_s=0)
    second = talker(tmp_path, TEXT)
    answer = ask_engine(binary(first) + binary(second), "m.gguf", RequestedSettings(), os.environ)
    assert answer.binary.path == str(second)


# ---------------------------------------------------------------- the words

ROUND_TRIP = [
    RequestedSettings(),
    RequestedSettings(n_ctx=4096, n_batch=1024, n_ubatch=256, n_parallel=2, kv_unified=True, n_gpu_layers=9),
    RequestedSettings(cache_type_k="q8_0", cache_type_v="q4_0", flash_attn="off", swa_full=True, kv_offload=False),
    RequestedSettings(op_offload=False, split_mode="none", main_gpu=1, tensor_split=(3.0, 1.0), load_mode="none"),
    RequestedSettings(n_cpu_moe=4, kv_unified=False, repack=False, n_threads=6),
    RequestedSettings(cpu_moe=True, tensor_overrides=(TensorOverride("exps", "CPU"), TensorOverride("a|b", "CUDA0"))),
]


@pytest.mark.parametrize("settings", ROUND_TRIP)
def test_settings_reach_the_engine_as_they_were_asked(settings):
    assert parse_command(["llama-server", *settings_words(settings)]).settings == settings


def test_layers_that_are_left_open():
    assert settings_words(RequestedSettings(n_gpu_layers=AUTO_LAYERS)) == []
    assert settings_words(RequestedSettings(n_gpu_layers=ALL_LAYERS))[-1] == "999"


def test_settings_in_the_environment_are_kept_from_the_engine(tmp_path):
    clean = environment(EngineBinary("/x/bin/llama-server", "server", "given"), {
        "LLAMA_ARG_CTX_SIZE": "1", "LLAMA_LOG_VERBOSITY": "0", "CUDA_VISIBLE_DEVICES": "1", "LD_LIBRARY_PATH": "/lib",
    })  # fmt: skip
    assert clean == {"CUDA_VISIBLE_DEVICES": "1", "LD_LIBRARY_PATH": f"/lib{os.pathsep}/x/bin"}


# ---------------------------------------------------------------- where engines are


def test_on_path_before_ollamas_folder(tmp_path):
    for folder in ("bin", "lib/ollama"):
        (tmp_path / folder).mkdir(parents=True)
    bin_folder = tmp_path / "bin"
    fit = talker(bin_folder, "", name="llama-fit-params")
    talker(bin_folder, "", name="ollama")
    ours = talker(tmp_path / "lib" / "ollama", "")
    engines = find_engines(None, {"PATH": str(bin_folder)})
    assert [(engine.path, engine.kind, engine.origin) for engine in engines] == [
        (str(fit), "fit-params", "PATH"),
        (str(ours), "server", "Ollama"),
    ]
    server = talker(bin_folder, "")
    assert find_engines(None, {"PATH": str(bin_folder)})[0].path == str(server)
    assert find_engines(str(bin_folder), {})[0].path == str(server)  # a folder is looked into


def test_no_engine_is_one_clear_sentence(tmp_path):
    with pytest.raises(EngineError, match=r"no llama\.cpp engine was found .* --engine-binary"):
        find_engines(None, {"PATH": str(tmp_path)})
    for given, words in ((tmp_path / "no", "does not exist"), (tmp_path, "holds no llama-server")):
        with pytest.raises(EngineError, match=words):
            find_engines(str(given), {})
    plain = tmp_path / "plain"
    plain.write_text("x")
    with pytest.raises(EngineError, match="is not a program that can be run"):
        find_engines(str(plain), {})


# ---------------------------------------------------------------- engines that misbehave

HANGS = "time.sleep(60)"
FORKS = """
if os.fork() == 0:
    sys.stderr.write(f"child {os.getpid()}\\n"); sys.stderr.flush()
    time.sleep(60)
time.sleep(0.2)
"""
GARBAGE = "os.write(1, os.urandom(1 << 20)); sys.exit(3)"
FLOOD = """
try:
    while True: os.write(1, b"x" * (1 << 20))
except BrokenPipeError: pass
"""
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
CLOSES = "os.close(1); os.close(2); time.sleep(60)"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (HANGS, "gave no memory table within 1 s"),
        (IGNORES, "gave no memory table within 1 s"),
        (CLOSES, "gave no memory table within 1 s"),
        (FORKS, "ended with status 0"),
        (GARBAGE, "ended with status 3"),
        ("sys.exit('error: failed to load model')", "ended with status 1 .*error: failed to load model"),
        ("sys.exit('error: invalid argument: -fit')", "builds before December 2025"),
        ("os.kill(os.getpid(), 9)", "ended with status -9"),
        ("print('| memory breakdown [MiB] |'); print('|  - X | 1 = 1 |')", "no memory table"),
    ],
    ids=["hangs", "ignores SIGTERM", "closes its output", "forks", "garbage", "refuses", "old", "dies", "broken table"],
)
def test_a_bad_engine_is_one_sentence_in_time(body, words, tmp_path):
    path = program(tmp_path, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n{body}")
    started = time.monotonic()
    with pytest.raises(EngineError, match=words) as error:
        ask_engine(binary(path), "m.gguf", RequestedSettings(), os.environ, seconds=1)
    assert time.monotonic() - started < 3
    assert "\n" not in str(error.value)
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_gigabyte_of_output_is_cut(tmp_path):
    started = time.monotonic()
    with pytest.raises(EngineError, match="it is no llama-server"):
        ask_engine(binary(program(tmp_path, FLOOD)), "m.gguf", RequestedSettings(), os.environ, seconds=10)
    assert time.monotonic() - started < 8
    ran = run_until([str(program(tmp_path, FLOOD))], os.environ, 10, lambda text: False)
    assert ran.ended == "size"
    assert MAX_BYTES <= len(ran.text) <= MAX_BYTES + (1 << 16)


def test_a_child_that_keeps_the_pipe_open_is_ended_too(tmp_path):
    ran = run_until([str(program(tmp_path, FORKS))], os.environ, 5, lambda text: False)
    assert ran.seconds < 3
    assert (ran.ended, ran.status) == ("status", 0)
    assert gone(int(ran.text.split()[1]))


def test_what_cannot_be_started(tmp_path):
    path = tmp_path / "llama-server"
    path.write_text("no program")
    path.chmod(0o755)
    with pytest.raises(EngineError, match="cannot be run"):
        ask_engine(binary(path), "m.gguf", RequestedSettings(), os.environ)
    with pytest.raises(EngineError, match="cannot be run"):
        ask_engine(binary(tmp_path / "none"), "m.gguf", RequestedSettings(), os.environ)
    with pytest.raises(EngineError, match="cannot be run"):
        ask_engine(binary("nul\0byte"), "m.gguf", RequestedSettings(), os.environ)
