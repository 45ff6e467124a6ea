"""Edits of JSON and YAML configs; what a person wrote stays, in whatever style."""

from __future__ import annotations

import time

import pytest
import yaml as pyyaml  # the reader of text-generation-webui

from advisor.errors import OutputError
from advisor.outputs.llama_swap import ids_in
from advisor.outputs.registry import load
from advisor.outputs.text_generation_webui import pattern_of, same_pattern
from advisor.outputs.types import GONE

KOBOLD = load("koboldcpp")
PYTHON = load("llama-cpp-python")
STUDIO = load("lm-studio")
SWAP = load("llama-swap")
LOCALAI = load("localai")
WEBUI = load("text-generation-webui")
JAN = load("jan")


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ('{"a":1,"b":[1, 2]}', {("a",): 2}, '{"a":2,"b":[1, 2]}'),
        ('{"a":1,"b":2}', {("c",): "x"}, '{"a":1,"b":2,"c": "x"}'),
        ('{\n\t"a": 1\n}\n', {("c",): [1], ("d",): None}, '{\n\t"a": 1,\n\t"c": [1],\n\t"d": null\n}\n'),
        ('{\r\n  "a": 1,\r\n  "b": 2\r\n}', {("a",): GONE}, '{\r\n  "b": 2\r\n}'),
        ('{"a": 1, "b": 2, "c": 3}', {("b",): GONE}, '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', {("b",): GONE, ("c",): GONE}, '{"a": 1}'),
        ('{"a": 1, "b": 2}', {("b",): GONE, ("c",): 3}, '{"a": 1, "c": 3}'),
        ('{"a": 1}', {("a",): GONE, ("b",): 2}, '{"b": 2}'),
        ('{"a": 1}', {("a",): GONE}, "{}"),
        (' { "a" : "x\\u0041" , "b" : 1.50 } ', {("b",): 2}, ' { "a" : "x\\u0041" , "b" : 2 } '),
        ('{"a": "}\\"]{"}', {("b",): 'q"\\'}, '{"a": "}\\"]{", "b": "q\\"\\\\"}'),
        ('{"a": 1.0, "b": true}', {("a",): 1.0, ("b",): True}, '{"a": 1.0, "b": true}'),
        ('{"a": 1}', {("a",): True}, '{"a": true}'),
        ('{"a": {"x": [1, {}]}}', {("a",): 5}, '{"a": 5}'),
        ("\ufeff{}\n", {("a",): "\u202e\U000e0001é"}, '\ufeff{\n  "a": "\\u202e\\udb40\\udc01é"\n}\n'),
    ],
)
def test_flat_json(before, changes, after):
    assert KOBOLD.edit(before, changes) == after


@pytest.mark.parametrize(
    "text", ["", "[]", "5", '{"a": 1, "a": 2}', "{'a': 1}", '{"a": 1,}', "[" * 100_000, '{"a":' * 160 + "1" + "}" * 160,
             "9" * 5000, '{"a": 1} x']
)  # fmt: skip
def test_no_config_of_koboldcpp(text):
    with pytest.raises(OutputError):
        KOBOLD.edit(text, {("b",): 1})


def test_koboldcpps_shell_command_is_never_written():
    with pytest.raises(OutputError, match="shell"):
        KOBOLD.edit('{"onready": ""}', {("onready",): "rm"})


SERVER = """{
    "port": 8000,
    "models": [
        {"model": "/mine.gguf", "n_ctx": 5},
        {"model_alias": "q", "model": "/q.gguf", "n_ctx": 1024}
    ]
}"""


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({("models", "q", "n_ctx"): 2048}, SERVER.replace("1024", "2048")),
        ({("models", "q", "flash_attn"): True}, SERVER.replace("1024}", '1024, "flash_attn": true}')),
        ({("models", "q", "n_ctx"): GONE}, SERVER.replace(', "n_ctx": 1024', "")),
        (
            {("models", "q", "n_ctx"): GONE, ("models", "q", "model"): GONE},
            SERVER.replace(',\n        {"model_alias": "q", "model": "/q.gguf", "n_ctx": 1024}', ""),
        ),
        (
            {("models", "r", "model"): "/r.gguf"},
            SERVER.replace(
                "1024}",
                '1024},\n        {\n            "model_alias": "r",\n            "model": "/r.gguf"\n        }',
            ),
        ),
    ],
)
def test_a_list_of_named_models(changes, after):
    assert PYTHON.edit(SERVER, changes) == after


@pytest.mark.parametrize("slot", [("models", "q", "model_alias"), ("port",), ("models",), ("models", "q"), ()])
def test_no_place_for_a_value(slot):
    with pytest.raises(OutputError):
        PYTHON.edit(SERVER, {slot: "x"})


@pytest.mark.parametrize(
    "text",
    [
        '{"models": {}}', '{"models": [1]}', '{"models": [{"model_alias": "x"}]}',
        '{"models": [{"model": "/x", "type_k": "q8_0"}]}', '{"models": [{"model": "/x", "n_threads": 0}]}',
        '{"models": [{"model": "/x", "n_ctx": true}]}', '{"models": [{"model": "/x", "flash_attn": 1}]}', "[]",
    ],
)  # fmt: skip
def test_what_llama_cpp_pythons_server_would_refuse(text):
    with pytest.raises(OutputError):
        PYTHON.validate(text)


STUDIO_TEXT = """{
  "preset": "@local:mine",
  "operation": {"fields": [{"key": "llm.load.contextLength", "value": 1}]},
  "load": {"fields": [
    {"key": "llm.load.contextLength", "value": 4096},
    {"value": {"checked": true}, "key": "other"}
  ]}
}
"""


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({("load", "fields", "llm.load.contextLength"): 8192}, STUDIO_TEXT.replace("4096", "8192")),
        ({("load", "fields", "other"): {"checked": False}}, STUDIO_TEXT.replace("true", "false")),
        (
            {("load", "fields", "llm.load.contextLength"): GONE},
            STUDIO_TEXT.replace('{"key": "llm.load.contextLength", "value": 4096},\n    ', ""),
        ),
    ],
)
def test_lm_studios_fields(changes, after):
    assert STUDIO.edit(STUDIO_TEXT, changes) == after


def test_lm_studios_frame_stays_when_its_last_field_goes():
    slot = ("load", "fields", "llm.load.contextLength")
    assert STUDIO.edit(STUDIO.edit(STUDIO.new_text, {slot: 1}), {slot: GONE}) == STUDIO.new_text


SWAP_TEXT = """# mine
models:
  "a b":   # why
    cmd: |
      llama-server
      --port ${PORT}   # no comment, part of the text

    # note
    ttl: 600   # ten minutes
    m: {x: 1, "y": [1, 2]}
  other: &o
    cmd: x
    env: ['A=1']
hooks: {}
# end
"""


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({("models", "a b", "ttl"): 60}, "600", "60"),
        ({("models", "a b", "ttl"): GONE}, "    ttl: 600   # ten minutes\n", "    # ten minutes\n"),
        (
            {("models", "a b", "cmd"): "one\ntwo"},
            "|\n      llama-server\n      --port ${PORT}   # no comment, part of the text\n",
            "|-\n      one\n      two\n",
        ),
        (
            {("models", "a b", "cmd"): "x"},
            "|\n      llama-server\n      --port ${PORT}   # no comment, part of the text\n",
            "x\n",
        ),
        ({("models", "a b", "name"): "on"}, '[1, 2]}\n', '[1, 2]}\n    name: "on"\n'),
        ({("models", "a b", "m"): {"x": 2}}, '{x: 1, "y": [1, 2]}', "{x: 2}"),
        ({("models", "other", "env"): ["B=2"]}, "['A=1']", '["B=2"]'),
        (
            {("models", "other", "cmd"): GONE, ("models", "other", "env"): GONE},
            "  other: &o\n    cmd: x\n    env: ['A=1']\n",
            "",
        ),
        (
            {("models", "new", "cmd"): "a\nb", ("models", "new", "metadata"): {"managed_by": "advisor"}},
            "    env: ['A=1']\n",
            "    env: ['A=1']\n  new:\n    cmd: |-\n      a\n      b\n    metadata: {managed_by: advisor}\n",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_yaml_in_blocks(changes, old, new, newline):
    assert old in SWAP_TEXT
    after = SWAP.edit(SWAP_TEXT.replace("\n", newline), changes)
    assert after == SWAP_TEXT.replace(old, new).replace("\n", newline)


def test_a_model_that_goes_leaves_its_comments():
    changes = {("models", "a b", key): GONE for key in ("cmd", "ttl", "m")}
    assert SWAP.edit(SWAP_TEXT, changes) == (
        "# mine\nmodels:\n  # why\n\n    # note\n    # ten minutes\n  other: &o\n    cmd: x\n    env: ['A=1']\n"
        "hooks: {}\n# end\n"
    )


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("", {("a",): 1}, "a: 1\n"),
        ("# only\n", {("a",): 1}, "# only\na: 1\n"),
        ("---\n", {("a",): 1}, "---\na: 1\n"),
        ("a: 1", {("b",): "x"}, "a: 1\nb: x"),
        ("a: 1", {("a",): GONE}, ""),
        ("a: 'x'\nb: \"y\"\n", {("a",): "it's", ("b",): "z"}, "a: 'it''s'\nb: \"z\"\n"),
        ("a:\nb: 2\n", {("a",): 1}, "a: 1\nb: 2\n"),
        ("a:   # c\n", {("a",): 1}, "a: 1   # c\n"),
        ("{a: 1, b: 2}\n", {("a",): GONE, ("c",): "on"}, '{b: 2, c: "on"}\n'),
        ("a: 1 # x\n", {("a",): "l1\nl2"}, 'a: "l1\\nl2" # x\n'),
        ("a: x\n  y\nb: 1\n", {("a",): "z"}, "a: z\nb: 1\n"),
        ("a:\n- 1\n- 2\nb: 1\n", {("a",): GONE}, "b: 1\n"),
        ("? a\n: 1\n", {("b",): GONE}, "? a\n: 1\n"),
        ("a: 1 #\n", {("a",): 2}, "a: 2 #\n"),
    ],
)
def test_flat_yaml(before, changes, after):
    assert JAN.edit(before, changes) == after


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("a: &x 1\nb: *x\n", {("a",): 2}),  # would change b too
        ("a: &x 1\nb: *x\n", {("b",): 2}),
        ("a: !!str 1\n", {("a",): "2"}),
        ("? a\n: 1\n", {("a",): GONE}),
        ("a: |  # c\n  x\n", {("a",): "y"}),
        ("a: 1\n...\n# tail\n", {("b",): [1, {}]}),
        ("{a: 1, # c\n b: 2}\n", {("a",): GONE}),
    ],
)
def test_yaml_that_cannot_be_changed_safely_is_refused_or_right(text, changes):
    try:
        after = JAN.edit(text, changes)
    except OutputError:
        return
    assert JAN.parse(after) == {
        slot: value for slot, value in {**JAN.parse(text), **changes}.items() if value is not GONE
    }
    assert text.count("#") == after.count("#")


_BLOCK = "models:\n  a:\n    cmd: |%s\n      x y\n      # no comment\n    ttl: 5\n"


@pytest.mark.parametrize(
    ("value", "after"),
    [
        ("p\n--q", "models:\n  a:\n    cmd: |-   # mine\n      p\n      --q\n    ttl: 5\n"),
        ("p", "models:\n  a:\n    cmd: p   # mine\n    ttl: 5\n"),
        (GONE, "models:\n  a:\n    # mine\n    ttl: 5\n"),
    ],
)
def test_a_comment_behind_a_blocks_mark_stays(value, after):
    assert SWAP.edit(_BLOCK % "   # mine", {("models", "a", "cmd"): value}) == after


def test_quoted_keys_are_keys():
    text = '"models": # all\n  \'a\' :\n    "cmd": >-  # long\n      x\n      y\n'
    changes = {("models", "a", "cmd"): "z", ("models", "a", "ttl"): 5, ("models", "b", "cmd"): "w"}
    assert SWAP.edit(text, changes) == ('"models": # all\n  \'a\' :\n    "cmd": z  # long\n    ttl: 5\n  b: {cmd: w}\n')


@pytest.mark.parametrize(
    ("output", "text", "changes", "why"),
    [
        (SWAP, "# x\nmodels:\n  a:\n    cmd: &c x\n", {("models", "a", "cmd"): "y"}, "^line 4 .* an anchor"),
        (SWAP, "# x\nmodels: ~\n", {("models", "a", "cmd"): "y"}, "^line 2 .* a single value where a map belongs"),
        (SWAP, "models:\n  a:\n    cmd: [x, # y\n      z]\n", {("models", "a", "cmd"): "y"}, "^line 3 .* a comment"),
        (SWAP, "models:\n  ? a\n  : cmd: x\n", {("models", "a", "cmd"): "y", ("models", "b", "cmd"): "z"},
         r"^models.a.cmd, models.b.cmd cannot be changed safely here \(the text would then say something else\)"),
        (load("ramalama"), "ramalama.ctx_size = 5\n", {("ramalama", "threads"): 1},
         r"^ramalama.threads cannot be changed safely here \(the text would then say something else\)"),
        (STUDIO, '{\n  "load": {\n    "fields": null}}', {("load", "fields", "x"): 1}, "^line 3 holds null"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_and_the_reason(output, text, changes, why):
    with pytest.raises(OutputError, match=why):
        output.edit(text, changes)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), [float("-inf")]])
def test_a_number_that_json_does_not_have_is_never_written(value):
    with pytest.raises(OutputError, match="too large"):
        KOBOLD.edit('{"mine": 1e400, "x": 1}', {("x",): value})
    assert (
        KOBOLD.edit('{"mine": 1e400, "x": 1.0e3}', {("x",): 1000.0, ("y",): 2}) == '{"mine": 1e400, "x": 1.0e3, "y": 2}'
    )


BILLION = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + old] * 10)}]\n" for old, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    ["a: 1\na: 2\n", "- 1\n", "x\n", "a: [1\n", "a: 1\n---\nb: 1\n", "\ta: 1\n", "a: &a [*a]\n", "a: *b\n", BILLION,
     "[" * 3000, "a: !!python/object/apply:os.system [ls]\n", "\x00", "a: 2001-99-99\n", "!<x\n"],
    ids=range(14),
)  # fmt: skip
def test_no_config_of_jan(text):
    start = time.process_time()
    with pytest.raises(OutputError) as error:
        JAN.parse(text)
    assert str(error.value).isprintable()
    assert time.process_time() - start < 5


LOCALAI_TEXT = (
    'name: x\noptions: ["parallel:1", "mine", "fit_params:false"]\nparameters:\n  model: x.gguf\n  top_p: 0.9\n'
)


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({("options", "parallel"): "4"}, "parallel:1", "parallel:4"),
        ({("options", "fit_params"): GONE}, ', "fit_params:false"', ""),
        ({("options", "kv_unified"): "true"}, ':false"', ':false", "kv_unified:true"'),
        ({("options", "mine"): "1"}, '"mine"', '"mine:1"'),
        ({("parameters", "model"): "y.gguf"}, "x.gguf", "y.gguf"),
        ({("parameters", "model"): GONE}, "  model: x.gguf\n", ""),
        ({("options", "--no-repack"): None}, ':false"', ':false", "--no-repack"'),
    ],
)
def test_localais_options(changes, old, new):
    assert LOCALAI.edit(LOCALAI_TEXT, changes) == LOCALAI_TEXT.replace(old, new)


def test_localais_options_by_line():
    text = "options:\n- parallel:1\n# c\n- b:2 # d\nname: x\n"
    assert LOCALAI.edit(text, {("options", "c"): "3"}) == text.replace("# d\n", '# d\n- "c:3"\n')
    assert LOCALAI.edit(text, {("options", "b"): GONE}) == text.replace("- b:2 # d", "# d")
    gone = {("options", "b"): GONE, ("options", "parallel"): GONE}
    assert LOCALAI.edit(text, gone) == "# c\n# d\nname: x\n"


@pytest.mark.parametrize(
    ("key", "same"),
    [
        ("Qwen3-8B-Q4_K_M.gguf$", r"qwen3\-8b\-q4_k_m\.gguf$"),  # as the program writes it
        (r"Qwen3-8B-Q4_K_M\.gguf$", r"qwen3\-8b\-q4_k_m\.gguf$"),
        (r"qwen3\-8b\-q4_k_m\.gguf$", r"qwen3\-8b\-q4_k_m\.gguf$"),
        ("qwen.*", "qwen.*"), (".*gguf$", ".*gguf$"), (r"\d+$", r"\d+$"), ("a(b)$", "a(b)$"), ("", ""),
    ],
)  # fmt: skip
def test_keys_that_name_one_file(key, same):
    assert same_pattern(key) == same


@pytest.mark.parametrize("name", ["Qwen3-8B.Q4.gguf", "a+b (1) [x] {y} ^$.gguf", "größe #1~&.gguf", "a b.gguf"])
def test_a_pattern_matches_its_file_however_the_program_lowers(name):
    import re

    for pattern in (pattern_of(name), pattern_of(name).lower()):
        assert re.match(pattern, name.lower())
        assert not re.match(pattern, "x" + name.lower())
        assert not re.match(pattern, name.lower() + "x")
    assert same_pattern(pattern_of(name)) == pattern_of(name)


def test_an_entry_that_the_program_wrote_is_the_same_model():
    text = "Q.gguf$:\n  loader: llama.cpp\n  ctx_size: 1\nq\\.gguf$:\n  ctx_size: 2\n"
    key = pattern_of("Q.gguf")
    assert WEBUI.parse(text) == {(key, "loader"): "llama.cpp", (key, "ctx_size"): 2}  # the last entry counts
    changes = {(key, "ctx_size"): 3, (key, "loader"): "x", (key, "threads"): 1}
    after = WEBUI.edit(text, changes)
    assert after == "Q.gguf$:\n  loader: x\n  ctx_size: 1\nq\\.gguf$:\n  ctx_size: 3\n  threads: 1\n"
    assert WEBUI.edit(text, {(key, "ctx_size"): GONE}) == "Q.gguf$:\n  loader: llama.cpp\n"
    assert list(pyyaml.safe_load(after)) == ["Q.gguf$", "q\\.gguf$"]


def test_a_key_that_is_no_expression():
    with pytest.raises(OutputError, match="no regular expression"):
        WEBUI.validate('"a(b": {x: 1}\n')


def test_ids_and_aliases_of_a_users_file():
    text = "models:\n  a: {cmd: x, aliases: [b, 5]}\n  c:\n    cmd: y\ngroups: {}\n"
    assert ids_in(text) == {"a", "b", "c"}
    assert ids_in("") == frozenset()


@pytest.mark.parametrize("text", ["models:\n  a: {ttl: 5}\n", "models:\n  a: {cmd: ''}\n", "models:\n  a: {cmd: 5}\n"])
def test_a_model_of_llama_swap_needs_a_command(text):
    with pytest.raises(OutputError, match="has no cmd"):
        SWAP.validate(text)


def test_a_text_of_megabytes_is_refused_at_once():
    with pytest.raises(OutputError, match="larger than 1 MiB"):
        JAN.parse("a: 1\n" * 1_000_000)
