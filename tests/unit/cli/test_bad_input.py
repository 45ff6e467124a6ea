"""Every bad input a user can give, through the real command: one sentence on stderr, the right status, in time."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.gguf_files import F16, F32, array, assemble, honest, kv, tensor

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "advisor/data/llama-3-8b-q4_k_m.json.gz"
SECONDS = 5.0  # such an answer takes a fraction of a second; a loaded machine may need longer
GOOD = honest([kv("general.architecture", "string", "llama")])


class Answer(NamedTuple):
    """How the command ended."""

    status: int
    out: str
    err: str
    seconds: float


def advisor(*arguments: str | os.PathLike[str], start: tuple[str, ...] = (), cwd: Path = ROOT) -> Answer:
    """Run `python -m advisor …` in a process of its own; `start` is what starts the interpreter."""
    command = [*start, sys.executable, "-m", "advisor", *(os.fspath(argument) for argument in arguments)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def assert_one_sentence(answer: Answer, status: int) -> str:
    """Status, silence on stdout, one line on stderr and nothing of Python's; returns the line."""
    assert answer.status == status, answer
    assert answer.out == ""
    assert answer.err.endswith("\n")
    line = answer.err[:-1]
    assert line.startswith("advisor: ")
    assert "\n" not in line
    assert line.isprintable()
    for word in ("Traceback", "Error:", "Errno", "bug in advisor", "<class"):
        assert word not in line
    assert line.endswith((".", "?"))
    assert answer.seconds < SECONDS
    return line


# ---------------------------------------------------------------- the files


def write(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


def truncated_body(path: Path) -> None:
    path.write_bytes(honest([kv("general.architecture", "string", "llama")], [("t", (32, 64), F16)])[:-1000])


def empty_folder(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("no model here")


def two_models(path: Path) -> None:
    path.mkdir()
    for name in ("a.gguf", "b.gguf"):
        (path / name).write_bytes(GOOD)


def missing_shard(path: Path) -> None:
    entries = [kv("split.no", "uint16", 0), kv("split.count", "uint16", 2)]
    path.write_bytes(honest(entries, [("blk.0", (32,), F32)]))


def unix_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the whole path may be too long for a socket's name
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def mmproj(path: Path) -> None:
    path.write_bytes(honest([kv("general.architecture", "string", "clip")], [("v.t", (32, 4), F16)]))


def half_a_model(path: Path) -> None:
    entries = [kv("general.architecture", "string", "llama"), kv("llama.block_count", "uint32", 2)]
    path.write_bytes(honest(entries, [("token_embd.weight", (32, 4), F16)]))


def evil_names(path: Path) -> None:
    rows = [tensor("t\x1b[31m\n" + "x" * 20, (32,), 9999, 0)]
    path.write_bytes(assemble([kv("general.architecture", "string", "llama")], rows, 128))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4920734112\n"
HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
V1 = b"GGUF" + struct.pack("<IIQ", 1, 0, 0)
BIG_ENDIAN = assemble([kv("a", "uint32", 1, order=">")], order=">")
CUT_HEADER = honest([array("tokenizer.ggml.tokens", "string", ["token"] * 500)])[:900]

# what is wrong, the name, how it is made, what the sentence says, what it tells to do
Case = tuple[str, str, Callable[[Path], object] | None, str, str]
CASES: list[Case] = [
    ("missing", "m.gguf", None, "does not exist", "check the path"),
    ("missing folder", "no/m.gguf", None, "does not exist", "check the path"),
    ("folder without models", "models", empty_folder, "has no GGUF model in it", "give a folder with one, or a file"),
    ("folder named as a model", "m.gguf", empty_folder, "has no GGUF model in it", "give a folder with one, or a file"),
    ("folder with two models", "models", two_models, "has 2 models in it", "give the path of one"),
    ("web page", "m.gguf", write(HTML), "is a web page", "download it from the link of the file"),
    ("git-lfs pointer", "m.gguf", write(LFS), "is a git-lfs pointer", "git lfs pull"),
    ("cut in the header", "m.gguf", write(CUT_HEADER), "incomplete", "download"),
    ("cut in the data", "m.gguf", truncated_body, "incomplete", "download"),
    ("four bytes", "m.gguf", write(b"GGUF"), "incomplete", "download"),
    ("wrong magic", "m.gguf", write(b"NOPE" + b"\1" * 100), "is not a GGUF file", "give a GGUF model"),
    ("pickle", "m.gguf", write(b"PK\3\4" + b"\0" * 100), "is not a GGUF file (it is a zip", "give a GGUF model"),
    ("zeros", "m.gguf", write(bytes(1000)), "is not a GGUF file", "download"),
    ("old format", "m.gguf", write(b"tjgg" + bytes(100)), "GGJT", "convert it again"),
    ("version 1", "m.gguf", write(V1 + bytes(100)), "GGUF version 1", "download a newer file"),
    ("version 0", "m.gguf", write(b"GGUF" + bytes(100)), "version 0", "download"),
    ("version 99", "m.gguf", write(b"GGUF" + struct.pack("<IQQ", 99, 0, 0)), "version 99", "update advisor"),
    ("big-endian", "m.gguf", write(BIG_ENDIAN + bytes(100)), "big-endian", "gguf_convert_endian.py"),
    ("big-endian of old", "m.gguf", write(b"FUGG" + bytes(100)), "big-endian", "gguf_convert_endian.py"),
    ("pipe", "m.gguf", os.mkfifo, "is a pipe", "give the path of a GGUF file"),
    ("socket", "m.gguf", unix_socket, "is a socket", "give the path of a GGUF file"),
    ("ring of links", "m.gguf", link_to_itself, "leads back to itself", "remove it"),
    ("dead link", "m.gguf", lambda path: path.symlink_to("gone"), "does not exist", "download the model again"),
    ("empty", "m.gguf", write(b""), "is empty", "download"),
    ("missing part", "m-00001-of-00002.gguf", missing_shard, "is missing", "download it there"),
    ("projector", "m.gguf", mmproj, "multimodal projector", "name the language model's own .gguf file"),
    ("no hyper-parameters", "m.gguf", half_a_model, "embedding_length", "download it again"),
    ("unknown tensor type", "m.gguf", evil_names, "type 9999", "update advisor"),
    ("broken snapshot", "m.json", write(b'{"metadata": '), "not a usable header snapshot", "write it again"),
    (
        "broken packed snapshot",
        "m.json.gz",
        write(b"\x1f\x8b\x08junk"),
        "not a usable header snapshot",
        "write it again",
    ),
    ("empty snapshot", "m.json", write(b""), "is empty", "download"),
]


@pytest.mark.parametrize(
    ("name", "make", "says", "cure"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_one_clear_sentence(tmp_path, name, make, says, cure):
    path = tmp_path / name
    if make is not None:
        make(path)
    line = assert_one_sentence(advisor("recommend", path, "--no-gpu", "--ram", "32GiB"), 1)
    shown = name.replace("00001-of", "00002-of")  # of a split model the missing part is named
    assert str(tmp_path / shown) in line
    assert says in line
    assert cure in line


@pytest.mark.parametrize("verb", ["estimate", "inspect"])
@pytest.mark.parametrize(
    "case", ["missing", "web page", "cut in the data", "pipe", "version 1", "folder without models"]
)
def test_the_other_commands_say_the_same(tmp_path, verb, case):
    _, name, make, says, _ = next(entry for entry in CASES if entry[0] == case)
    if make is not None:
        make(tmp_path / name)
    hardware = ("--no-gpu",) if verb == "estimate" else ()
    lines = [assert_one_sentence(advisor(verb, tmp_path / name, *hardware, *json), 1) for json in ((), ("--json",))]
    assert lines[0] == lines[1] == assert_one_sentence(advisor("recommend", tmp_path / name, "--no-gpu"), 1)
    assert says in lines[0]


WITHOUT_PRIVILEGES = """
import ctypes, os, sys
if os.geteuid() == 0:
    # root reads everything through two capabilities; without them in the bounding set the new program lacks them
    libc = ctypes.CDLL(None, use_errno=True)
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="drops capabilities, which only Linux has")
@pytest.mark.parametrize("what", ["file", "folder", "below a folder", "snapshot"])
def test_unreadable_even_for_root(tmp_path, what):
    start = (sys.executable, "-c", WITHOUT_PRIVILEGES)
    path = tmp_path / "box" / ("m.json" if what == "snapshot" else "m.gguf")
    path.parent.mkdir()
    path.write_bytes(GOOD)
    closed = path if what in ("file", "snapshot") else path.parent
    closed.chmod(0)
    target = path.parent if what == "folder" else path
    try:
        answer = advisor("recommend", target, "--no-gpu", "--ram", "32GiB", start=start)
    finally:
        closed.chmod(0o700)
    if answer.status == 77:
        pytest.skip("these capabilities cannot be dropped here")
    line = assert_one_sentence(answer, 1)
    assert str(target) in line
    assert "is not readable for you; ask its owner for permission to read it." in line
    if what == "file":  # the same start reads what is open
        assert "not readable" not in advisor("recommend", target, "--no-gpu", start=start).err


def test_devices_are_not_opened():
    for path in ("/dev/zero", "/dev/tty"):
        if not Path(path).exists():
            continue
        line = assert_one_sentence(advisor("recommend", path, "--no-gpu"), 1)
        assert f"{path} is a device, not a model file" in line


def test_names_that_no_store_knows():
    for name in ("llama3:8b", "org/repo:Q4_K_M", "nosuchmodel"):
        line = assert_one_sentence(advisor("recommend", name, "--no-gpu"), 1)
        assert name in line
        assert "check the spelling, or download it first" in line


def test_a_name_with_escape_codes(tmp_path):
    path = tmp_path / "m\x1b[31m\n\u202e.gguf"
    path.write_bytes(b"")
    line = assert_one_sentence(advisor("recommend", path, "--no-gpu"), 1)
    assert "is empty" in line


def test_a_name_that_is_no_utf_8(tmp_path):
    path = os.fsencode(tmp_path) + b"/m\xff.gguf"
    with open(path, "wb"):
        pass
    line = assert_one_sentence(advisor("recommend", os.fsdecode(path), "--no-gpu"), 1)
    assert "is empty" in line


def test_a_full_size_file_cut_short(tmp_path):
    """A download that stopped one byte before its end: 4.9 GB that take no space."""
    path = tmp_path / "8b.gguf"
    size = write_empty_gguf(SHIPPED, path)
    os.truncate(path, size - 64)
    line = assert_one_sentence(advisor("recommend", path, "--no-gpu"), 1)
    assert "incomplete" in line
    os.truncate(path, size)
    assert advisor("recommend", path, "--no-gpu", "--ram", "32GiB").status == 0


# ---------------------------------------------------------------- hardware and rules that cannot be used


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"", "is no hardware snapshot"),
        (b"[]", "is no hardware snapshot"),
        (b"\xff\xfe", "is no hardware snapshot"),
        (b"[" * 100_000, "is no hardware snapshot"),
    ],
    ids=["missing", "empty", "a list", "not text", "deep"],
)
def test_a_hardware_file(tmp_path, content, says):
    path = tmp_path / "h.json"
    if content is not None:
        path.write_bytes(content)
    # a path that leads to no file is wrong usage; a file that is none is an error of its own
    status = 2 if content is None else 1
    line = assert_one_sentence(advisor("recommend", SHIPPED, "--hardware", path), status)
    assert f"{path} {says}" in line


def test_a_rule_folder(tmp_path):
    line = assert_one_sentence(advisor("recommend", SHIPPED, "--no-gpu", "--rules", tmp_path / "no"), 2)
    assert f"{tmp_path / 'no'}: not a folder; --rules takes a folder" in line


# ---------------------------------------------------------------- wrong usage


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--nosuch"], "--nosuch"),
        (["recomend", "m.gguf"], "recomend"),
        (["recommend"], "MODEL"),
        (["recommend", str(SHIPPED), str(ROOT / "tests/data/zoo/gemma3-4b.json.gz")], "add --together"),
        (["recommend", "m.gguf", "--nosuch"], "--nosuch"),
        (["recommend", "m.gguf", "--ram"], "--ram"),
        (["recommend", "m.gguf", "--ram", "12XB"], "12XB"),
        (["recommend", "m.gguf", "--ram", "-1GiB"], "-1GiB"),
        (["recommend", "m.gguf", "--ram", "lots"], "lots"),
        (["recommend", "m.gguf", "--ram", "9" * 40], "larger than any memory"),
        (["recommend", "m.gguf", "--keep-free", "1YB"], "1YB"),
        (["recommend", "m.gguf", "-c", "abc"], "--ctx-size 'abc'"),
        (["recommend", "m.gguf", "-c", "-5"], "--ctx-size '-5'"),
        (["recommend", "m.gguf", "-ctk", "q9"], "--cache-type-k 'q9'"),
        (["recommend", "m.gguf", "-sm", "diagonal"], "--split-mode 'diagonal'"),
        (["recommend", "m.gguf", "-ts", "a,b"], "--tensor-split 'a,b'"),
        (["recommend", "m.gguf", "-ot", "CPU"], "PATTERN=BUFFER"),
        (["recommend", "m.gguf", "--tool", "oven"], "'oven'"),
        (["recommend", "m.gguf", "--min-ctx", "many"], "--min-ctx"),
        (["recommend", "m.gguf", "--min-ctx", "9000", "--max-ctx", "100"], "--min-ctx 9000 is above --max-ctx 100"),
        (["recommend", "m.gguf", "--max-ctx", "100"], "--max-ctx 100 is less than the engine's shortest context"),
        (["recommend", str(SHIPPED), "--for", "parallel:8", "-np", "4"], "asks for 8 slots, -np 4 for 4"),
        (["plot", str(SHIPPED), "--json", "--for", "parallel:2", "-np", "4"], "asks for 2 slots, -np 4 for 4"),
        (["recommend", "m.gguf", "--min-ctx", "0"], "--min-ctx '0' is below the smallest possible, 1"),
        (["recommend", "m.gguf", "--min-ctx", "16k"], "--min-ctx '16k' is no whole number; write 16384."),
        (["estimate", "m.gguf", "-c", "16k"], "--ctx-size '16k' is no whole number; write 16384."),
        (["recommend", "m.gguf", "-ub", "1K"], "--ubatch-size '1K' is no whole number; write 1024."),
        (["recommend", "m.gguf", "-c", "16,384"], "write 16384."),
        (["recommend", "m.gguf", "-c", "many"], "give a number from 0 to 2,147,483,647."),
        (["recommend", "m.gguf", "-c", "99999999999"], "above the largest possible, 2,147,483,647; give"),
        (["recommend", "m.gguf", "-ngl", "some"], "give a number from -2 to 2,147,483,647, all or auto."),
        (["recommend", "m.gguf", "--ram", "32"], "'32' has no unit; did you mean 32GiB?"),
        (["recommend", "m.gguf", "--ram", "500"], "'500' has no unit; did you mean 500MiB or 500GiB?"),
        (["recommend", "m.gguf", "--ram", "32000"], "'32000' has no unit; did you mean 32000MiB?"),
        (["recommend", "m.gguf", "--ram", ""], "'' is not a size"),
        (["estimate", "m.gguf", "--keep-free", "1"], "'1' has no unit; did you mean 1GiB?"),
        (["hardware", "--ram", "9.5"], "'9.5' has no unit; did you mean 9.5GiB?"),
        (["recommend", "m.gguf", "--min-tps", "nan"], "--min-tps nan"),
        (["recommend", "m.gguf", "--mmap", "--no-mmap"], "contradicts another option"),
        (["recommend", "m.gguf", "-kvo", "-nkvo"], "contradicts another option"),
        (["recommend", "m.gguf", "--load-mode", "mmap", "--no-mmap"], "contradicts another option"),
        (["recommend", "m.gguf", "--repack", "-nr"], "contradicts another option"),
        (["estimate"], "MODEL"),
        (["estimate", "--no-gpu", "--", "llama-server", "-c", "5"], "names no model"),
        (["estimate", "--no-gpu", "--", "llama-server", "-m", "m.gguf", "-c"], "-c needs a value"),
        (["estimate", "--no-gpu", "--", "llama-server", "-m", "m.gguf", "-ngl", "some"], "-ngl 'some'"),
        (["hardware", "--nosuch"], "--nosuch"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)  # fmt: skip
def test_wrong_usage(arguments, says):
    """Told before any file is opened: m.gguf does not exist."""
    assert says in assert_one_sentence(advisor(*arguments), 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--for", "nonsense", "--no-gpu"], "--for 'nonsense'"),
        (["--for", "parallel:x", "--no-gpu"], "--for 'parallel:x'"),
        (["--engine", "abacus", "--no-gpu"], "--engine 'abacus'"),
        (["--engine", "llama.cpp@new", "--no-gpu"], "the build must be a number"),
        (["--no-gpu", "--gpu", "cuda:8GiB"], "--gpu and --no-gpu contradict each other"),
        (["--no-gpu", "-ot", "([=CPU"], "not a regular expression"),
        (["--gpu", "cuda:8GiB", "-ot", "exps=NOWHERE"], "'NOWHERE'"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_wrong_usage_that_needs_the_model(arguments, says):
    assert says in assert_one_sentence(advisor("recommend", SHIPPED, *arguments), 2)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("abacus:12GiB", "'abacus'"),
        ("cuda:lots", "lots"),
        ("cuda", "write for example cuda:12GiB"),
        ("Vulkan", "write for example vulkan:12GiB"),
        ("cuda@8GiB", "write for example cuda:12GiB"),
        ("nvidia", "'nvidia' names no card"),
        ("12GB", "'12GB' names no card"),
        ("cuda:12", "not a size with a unit"),
        ("RTX 3060@9", "not a size with a unit"),
        ("RTX", ", …; give one of these names"),
        ("cuda:0", "no memory to plan with"),
        ("cuda:8GiB@9GiB", "more free memory"),
        ("RTX 99999", "No card 'RTX 99999'"),
        ("3060", "may be several cards"),
        ("", "--gpu needs a card"),
    ],
)
def test_a_card_that_cannot_be_meant(spec, says):
    answer = advisor("recommend", SHIPPED, "--gpu", spec)
    line = assert_one_sentence(answer, answer.status)
    assert says in line
    assert re.search(r"cuda:12GiB|one of|give|write", line)
    assert answer.status in (1, 2)


def test_a_bad_card_is_wrong_usage():
    assert advisor("recommend", SHIPPED, "--gpu", "abacus:12GiB").status == 2


def test_no_command_at_all_shows_the_help():
    answer = advisor()
    assert (answer.status, answer.out) == (2, "")
    assert "recommend" in answer.err
    assert "Traceback" not in answer.err


def test_a_number_without_unit_that_can_be_meant(tmp_path):
    answer = advisor("hardware", "--no-gpu", "--ram", "1073741824", "--keep-free", "0")
    assert (answer.status, answer.err) == (0, "")
    assert "RAM      1.00 GiB, 1.00 GiB available" in answer.out


def test_nobody_can_leave_less_than_nothing_free(tmp_path):
    for table, key in (("margins", "cuda"), ("host", "margin_bytes")):
        rule = tmp_path / "policy.toml"
        rule.write_text(f'schema_version = 1\n[{table}]\n{key} = -5\nsource = "mine"\n')
        line = assert_one_sentence(advisor("recommend", SHIPPED, "--no-gpu", "--rules", tmp_path), 1)
        assert f"{rule}: {table}.{key} is -5, expected a whole number of at least 0." in line


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("policy", '[intents.balanced]\ncache_types = ["zz"]', 'intents.balanced.cache_types[0] is "zz"'),
        ("policy", "[intents.balanced]\ncache_types = []", "intents.balanced.cache_types is an empty list"),
        (
            "policy",
            "[intents.balanced]\ncomfortable_n_ctx = 0",
            "comfortable_n_ctx is 0, expected a whole number from 1",
        ),
        ("policy", "[intents.balanced]\nfloor_n_ctx = -5", "floor_n_ctx is -5"),
        ("policy", "[intents.balanced]\nanswer_tokens = 0", "answer_tokens is 0"),
        ("policy", "[search]\nn_ctx_step = 0", "search.n_ctx_step is 0"),
        ("policy", '[search]\ntable_cache_types = ["zz"]', 'search.table_cache_types[0] is "zz"'),
        ("policy", "[search]\ntable_n_ctx = []", "search.table_n_ctx is an empty list"),
        ("policy", '[search]\nsmaller_quantizations = ["Q9_X"]', "names 'Q9_X', which quants.toml does not have"),
        ("quants", "[quality.weights.values.Q9_X]\nkld = 0.1", "quality.weights.values.Q9_X is of no quantization"),
        ("quants", "[quality.weights.values.Q2_0]\nperplexity_more = 0.1", "Q2_0 lacks kld or with_imatrix_kld"),
    ],
)
def test_rules_that_nobody_can_plan_by(tmp_path, file, text, says):
    (tmp_path / f"{file}.toml").write_text(f'schema_version = 1\nsource = "mine"\n{text}\n')
    words = ["recommend", SHIPPED, "--gpu", "cuda:4GiB", "--ram", "32GiB", "--rules", tmp_path, "--explain"]
    assert says in assert_one_sentence(advisor(*words), 1)


def test_an_unknown_architecture_is_told_once(tmp_path):
    plain = ["block_count", "embedding_length", "attention.head_count", "feed_forward_length", "context_length"]
    entries = [kv("general.architecture", "string", "zorglub"), *(kv(f"zorglub.{key}", "uint32", 32) for key in plain)]
    path = tmp_path / "m.gguf"
    path.write_bytes(honest(entries, [("token_embd.weight", (32, 64), F16)]))
    answer = advisor("estimate", path, "--no-gpu", "--ram", "32GiB")
    assert answer.status == 0
    said = " ".join(answer.out.split())
    assert "is not measured: without a rule file, plain full attention in every block is assumed." in said
    assert said.count("rule file") == 1


@pytest.mark.parametrize(
    "verb", ["", "recommend", "estimate", "inspect", "verify", "observe", "hardware", "rules", "rules show",
             "rules check", "doctor"],
)  # fmt: skip
def test_every_help_is_laid_out(verb):
    answer = advisor(*verb.split(), "--help")
    assert (answer.status, answer.err) == (0, "")
    assert "\\b" not in answer.out
    assert "\b" not in answer.out
    assert "..." not in answer.out.replace("COMMAND...", "").replace("[ARGS]...", "").replace(
        "MODEL...", ""
    )  # nothing is cut short
    for line in answer.out.splitlines():  # an example stands in one line of its own
        if ("advisor recommend " in line and "'" not in line) or "advisor estimate " in line:
            assert line.startswith(("  advisor ", "Usage: "))
            assert len(line) <= 80
