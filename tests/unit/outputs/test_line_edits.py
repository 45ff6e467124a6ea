"""Edits of line-wise configs: presets, environment files, Modelfiles, TOML; what a person wrote stays."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from advisor.errors import OutputError
from advisor.outputs.registry import load
from advisor.outputs.types import GONE

PRESET = load("llama-server-preset")
CONFIG = load("llama-config-ini")
ENV = load("env-file")
OLLAMA = load("ollama")
RAMALAMA = load("ramalama")


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        # a value where it stands: spelling, blanks, comment and line ends stay
        ("[a]\r\nc =  1 ; mine\r\n", {("a", "ctx-size"): "2"}, "[a]\r\nc =  2 ; mine\r\n"),
        ("[a]\nLLAMA_ARG_CTX_SIZE=1", {("a", "ctx-size"): "2"}, "[a]\nLLAMA_ARG_CTX_SIZE=2"),
        ("[a]\nnkvo = on\n", {("a", "kv-offload"): "true"}, "[a]\nnkvo = false\n"),
        ("[a]\nfit =#x\n", {("a", "fit"): "off"}, "[a]\nfit =off#x\n"),
        # of several spellings the last in byte order counts, of one the last line
        ("[a]\nctx-size=1\nc=2\n", {("a", "ctx-size"): "3"}, "[a]\nctx-size=3\nc=2\n"),
        ("[a]\nc=1\nc=2\n", {("a", "ctx-size"): "3"}, "[a]\nc=1\nc=3\n"),
        ("[a]\nc=1\nd=0\nctx-size=2\n", {("a", "ctx-size"): GONE}, "[a]\nd=0\n"),
        # a new key after the last one of its section, a new section at the end
        ("[a]\nx=1\n\n; b\n[b]\ny=2", {("a", "fit"): "off"}, "[a]\nx=1\nfit = off\n\n; b\n[b]\ny=2"),
        ("[b]\ny=2", {("a", "fit"): "off"}, "[b]\ny=2\n[a]\nfit = off"),
        # a new section comes after what is new in the last one
        (
            "[a]\nx=1\n[b]\ny=2\n",
            {("c", "fit"): "on", ("b", "fit"): "off"},
            "[a]\nx=1\n[b]\ny=2\nfit = off\n[c]\nfit = on\n",
        ),
        ("v = 1\n[b]\ny=2", {("c", "fit"): "on", ("b", "fit"): "off"}, "v = 1\n[b]\ny=2\nfit = off\n[c]\nfit = on"),
        ("", {("a", "kv-offload"): "false"}, "[a]\nno-kv-offload = true\n"),
        ("[a] ; h\r", {("a", "fit"): "off"}, "[a] ; h\rfit = off\r"),
        # a repeated section replaces the earlier one
        ("[a]\nc=1\n[a]\nx=2\n", {("a", "ctx-size"): "3"}, "[a]\nc=1\n[a]\nx=2\nctx-size = 3\n"),
        ("[a]\nc=1\n[a]\nx=2\n", {("a", "x"): GONE}, "[a]\nc=1\n[a]\n"),
        # taking out: comments stay, the header of an empty section goes
        ("[a]\nc=1 # why\n[b]\ny=2\n", {("a", "ctx-size"): GONE}, "# why\n[b]\ny=2\n"),
        ("[a] ; mine\n; more\nc=1\n", {("a", "ctx-size"): GONE}, "; mine\n; more\n"),
        ("[a]\nc=1\nx=2\n", {("a", "ctx-size"): GONE}, "[a]\nx=2\n"),
        ("[a]\nc=1\n", {("a", "ctx-size"): GONE, ("a", "fit"): "off"}, "[a]\nfit = off\n"),
        ("\ufeff[a]\nc=1\n", {("a", "ctx-size"): "2"}, "\ufeff[a]\nc=2\n"),
        # nothing to do
        ("[a]\nc=1\n", {("a", "ctx-size"): "1", ("b", "x"): GONE}, "[a]\nc=1\n"),
    ],
)
def test_preset(before, changes, after):
    assert PRESET.edit(before, changes) == after


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("c = 5\n[*]\nfit=on;x\n", {("default", "ctx-size"): "5", ("*", "fit"): "on"}),
        ("[a]\nmodel = /x y/z.gguf  # c\n[a]\nt=1\n", {("a", "threads"): "1"}),
        ("[a]\nno-kv-offload = off\n", {("a", "kv-offload"): "true"}),
        ("[ org/repo:Q4 ]\n_x.y-z=\n", {("org/repo:Q4 ", "_x.y-z"): ""}),
    ],
)
def test_reading_a_preset(text, slots):
    assert PRESET.parse(text) == slots


@pytest.mark.parametrize("text", [" c = 1\n", "[a]\n  c = 1\n", "c\n", "[a\nc=1\n", "[]\n", "1c = 2\n", "[a] b\n"])
def test_what_llama_server_does_not_read_is_refused(text):
    with pytest.raises(OutputError, match=r"^line [12] is no line of llama\.cpp's config format"):
        PRESET.parse(text)


@pytest.mark.parametrize("text", ["\ufeff[a]\nc=1\n", "c = 1\n[*]\n"])
def test_a_preset_that_the_server_reads_otherwise_is_not_valid(text):
    with pytest.raises(OutputError, match=r"byte order mark|before its first section"):
        PRESET.validate(text)
    PRESET.validate("; x\nversion = 1\n[*]\nc = 1\n")


@pytest.mark.parametrize("value", ["a#b", "a;b", "a\nb", " a", "a ", "a\tb", 1, None, "a\u202eb", "\udcff"])
def test_a_value_that_a_preset_cannot_hold(value):
    with pytest.raises(OutputError):
        PRESET.edit("[a]\nc=1\n", {("a", "ctx-size"): value})


@pytest.mark.parametrize("slot", [("a]b", "c"), ("a\nb", "c"), ("a", "c=d"), ("a", "c d"), ("a:b", "c"), ("a", "")])
def test_a_place_that_a_preset_cannot_hold(slot):
    with pytest.raises(OutputError):
        PRESET.edit("", {slot: "1"})


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("threads = 4\n[other]\nx=1\n", {("*", "threads"): "8"}, "threads = 8\n[other]\nx=1\n"),
        ("threads = 4\n", {("*", "fit-target"): "512"}, "threads = 4\n[*]\nfit-target = 512\n"),
        ("t=4\n[*]\nthreads=5\n", {("*", "threads"): "8"}, "t=4\n[*]\nthreads=8\n"),
        ("t=4\n[*]\nthreads=5\n", {("*", "threads"): GONE}, ""),
        ("[llama-cli]\nx=1\n", {("*", "threads"): "8"}, "[llama-cli]\nx=1\n[*]\nthreads = 8\n"),
    ],
)
def test_llama_cpps_own_config(before, changes, after):
    assert CONFIG.edit(before, changes) == after


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=x y # z", "x y # z"), ("A= x ", "x"), ("A='a\"b\\n'", 'a"b\\n'), ('A="a\\"b\\$c\\d"', 'a"b$c\\d'),
        ("A=a\\ b\\'", "a b'"), ("A=a\\\nb", "ab"), ('A="a\nb"', "a\nb"), ("A='a' \"b\"c ", "abc"), ("A=", ""),
        ("  A=1\n#A=2\n;A=3", "1"), ("A=1\nA=2", "2"), ("A=it's", "it's"), ('A=a"b"', 'a"b"'), ("A=x\\", "x\\"),
        ('A="x"  ', "x"), ("A=''", ""),
    ],
)  # fmt: skip
def test_an_environment_file_as_systemd_reads_it(text, value):
    assert ENV.parse(text) == {("A",): value}


@pytest.mark.parametrize("text", ["A='x", 'A="x', "A", "1A=x", "A B=x", "# x\\\nA=1", "export A=1"])
def test_no_environment_file(text):
    with pytest.raises(OutputError):
        ENV.parse(text)


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("A=1\nB='x'\n# c\n", {("B",): "y z"}, "A=1\nB='y z'\n# c\n"),
        ("A=1\nB='x'\n", {("B",): "it's"}, 'A=1\nB="it\'s"\n'),
        ('A="1"\n', {("A",): "2"}, 'A="2"\n'),
        ("A=1", {("B",): '$x "y" \\ `z`'}, 'A=1\nB="\\$x \\"y\\" \\\\ \\`z\\`"'),
        ('A="two\nlines"\nB=1\n', {("A",): GONE}, "B=1\n"),
        ("A=1\nB=2\nA=3\n", {("A",): GONE}, "B=2\n"),
        ("A = 1 \r\n", {("A",): "22"}, "A = 22 \r\n"),
        ("", {("A",): "größe"}, 'A="größe"\n'),
    ],
)
def test_environment_file(before, changes, after):
    assert ENV.edit(before, changes) == after


@pytest.mark.parametrize("value", ["a\nb", "\x1b", "\udcff", "\u202e", 5])
def test_a_value_that_an_environment_file_cannot_hold(value):
    with pytest.raises(OutputError):
        ENV.edit("", {("A",): value})


@pytest.mark.parametrize("value", ["plain", "it's", 'a "b" $HOME `x` \\', "größe (1)", "#x", "a;b", "  "])
def test_a_shell_reads_the_written_value_back(value, tmp_path):
    """A POSIX shell stands in for systemd: for double-quoted and plain words both have the same rules."""
    path = tmp_path / "env"
    path.write_text(ENV.edit("", {("A",): value}))
    script = f". {path}; printf '%s' \"$A\""
    done = subprocess.run([shutil.which("sh") or "sh", "-c", script], capture_output=True, timeout=20, check=True)
    assert done.stdout.decode() == value


MODELFILE = '''FROM qwen3:8b
# mine
TEMPLATE """{{ .Prompt }}
PARAMETER num_ctx 1
"""
parameter num_ctx 4096
PARAMETER stop "a b"
PARAMETER stop "c"
SYSTEM you are kind
'''


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({("PARAMETER", "num_ctx"): "8192"}, MODELFILE.replace("4096", "8192")),
        ({("PARAMETER", "num_ctx"): GONE}, MODELFILE.replace("parameter num_ctx 4096\n", "")),
        (
            {("PARAMETER", "num_gpu"): "3"},
            MODELFILE.replace('stop "c"\n', 'stop "c"\nPARAMETER num_gpu 3\n'),
        ),
        ({("FROM",): "qwen3:4b"}, MODELFILE.replace("qwen3:8b", "qwen3:4b")),
    ],
)
def test_modelfile(changes, after):
    assert OLLAMA.edit(MODELFILE, changes) == after


@pytest.mark.parametrize("text", ['FROM x\nSYSTEM """open', "FROM x\nnum_ctx 5\n", "FROM x\nSET a b\n", "{}"])
def test_no_modelfile(text):
    with pytest.raises(OutputError):
        OLLAMA.parse(text)


def test_a_modelfile_needs_a_base():
    with pytest.raises(OutputError, match="needs a FROM"):
        OLLAMA.validate("PARAMETER num_ctx 5\n")


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("[ramalama]\nctx_size = 1 # c\n", {("ramalama", "ctx_size"): 2}, "[ramalama]\nctx_size = 2 # c\n"),
        ("[ramalama]\r\nx = 'y'\r\n", {("ramalama", "x"): "z"}, "[ramalama]\r\nx = 'z'\r\n"),
        ("[ramalama]\nctx_size = 1\n", {("ramalama", "ctx_size"): GONE}, ""),
        (
            'a = """\n[ramalama]\n"""\n[ramalama]\nx = 1\n[[l]]\ny = 1\n',
            {("ramalama", "ctx_size"): 5},
            'a = """\n[ramalama]\n"""\n[ramalama]\nx = 1\nctx_size = 5\n[[l]]\ny = 1\n',
        ),
    ],
)
def test_toml(before, changes, after):
    assert RAMALAMA.edit(before, changes) == after


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("ramalama = {ctx_size = 1}\n", {("ramalama", "ctx_size"): 2}),  # an inline table
        ("ramalama.ctx_size = 1\n", {("ramalama", "ctx_size"): 2}),  # a dotted key
        ('x = """\n[ramalama]\nctx_size = 1\n"""\n', {("ramalama", "ctx_size"): 2}),  # a look-alike in a text
        ("[ramalama]\nctx_size = [\n1]\n", {("ramalama", "ctx_size"): 2}),
    ],
)
def test_toml_that_cannot_be_changed_safely_is_refused(text, changes):
    with pytest.raises(OutputError):
        RAMALAMA.edit(text, changes)


@pytest.mark.parametrize("text", ["[ramalama\n", "a = \n", "a = 1\na = 2\n", "\x00", "[" * 5000])
def test_no_toml(text):
    with pytest.raises(OutputError):
        RAMALAMA.parse(text)
