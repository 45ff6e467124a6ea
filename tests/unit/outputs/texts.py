"""Random config texts as people write them, for every format: odd blanks, comments, quotes, line ends, other keys.

Every comment holds a token of its own, so that a test sees whether all of them are left.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

_BLANKS = st.sampled_from(["", " ", "  ", "\t"])
_WORDS = st.sampled_from(
    ["q8_0", "x", "llama.cpp", "/srv/a.gguf", "größe", "a b", "it's", "on", "5", "0x1f", "4096", "~"]
)
_PLAIN = st.sampled_from(["q8_0", "x", "llama.cpp", "/srv/a.gguf", "auto-b_c"])


class Writer:
    """Lines with a random line end, some comments and blank lines between."""

    def __init__(self, draw: Draw, marks: str) -> None:
        self.draw, self.marks, self.lines, self.n_comments = draw, marks, list[str](), 0
        self.newline = draw(st.sampled_from(["\n", "\r\n"]))

    def comment(self) -> str:
        """A comment with its token."""
        self.n_comments += 1
        mark = self.draw(st.sampled_from(self.marks))
        rest = self.draw(st.sampled_from(["", "x = 1", "a: b", "[z]", mark]))
        return f"{mark}{self.draw(_BLANKS)}«{self.n_comments}» {rest}"

    def between(self, indent: str = "") -> None:
        """Nothing, a comment or a blank line."""
        kind = self.draw(st.integers(0, 5))
        if kind == 0:
            self.lines.append(indent + self.comment())
        elif kind == 1:
            self.lines.append("")

    def behind(self) -> str:
        """Nothing, or a comment at the end of a line."""
        return self.draw(st.sampled_from([" ", "  "])) + self.comment() if self.draw(st.integers(0, 3)) == 0 else ""

    def text(self) -> str:
        """All of it, with or without a last line end and a byte order mark."""
        mark = "\ufeff" if self.draw(st.integers(0, 7)) == 0 else ""
        return mark + self.newline.join(self.lines) + self.draw(st.sampled_from(["", self.newline]))


def _some(draw: Draw, pool: list[str], least: int = 0) -> list[str]:
    chosen: list[str] = draw(st.lists(st.sampled_from(pool), unique=True, min_size=least, max_size=5))
    return chosen


@st.composite
def ini(draw: Draw) -> str:
    """A preset: sections in any number, options in any spelling."""
    writer = Writer(draw, ";#")
    keys = ["c", "ctx-size", "LLAMA_ARG_CTX_SIZE", "ngl", "model", "nkvo", "kv-offload", "fit", "mine"]
    writer.between()
    for section in draw(st.lists(st.sampled_from(["*", "a", "b c", "org/x:Q4", "größe (1)"]), max_size=4)):
        writer.lines.append(f"[{draw(_BLANKS)}{section}]" + writer.behind())
        for key in _some(draw, keys):
            writer.between()
            value = draw(st.sampled_from(["1", "", "4096", "/srv/a b.gguf", "x=y", "größe", "[z]", "on"]))
            value = draw(st.sampled_from(["true", "false"])) if key in ("nkvo", "kv-offload") else value
            writer.lines.append(f"{key}{draw(_BLANKS)}={draw(_BLANKS)}{value}{draw(_BLANKS)}" + writer.behind())
    writer.between()
    return writer.text()


@st.composite
def env(draw: Draw) -> str:
    """An environment file."""
    writer = Writer(draw, "#;")
    for key in _some(draw, ["LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_MODEL", "A", "B_1"]):
        writer.between()
        style = draw(st.sampled_from(["{}", "'{}'", '"{}"']))
        value = draw(_PLAIN if style == "{}" else st.sampled_from(["a b", "x", "# no comment", "größe"]))
        writer.lines.append(f"{draw(_BLANKS)}{key}={draw(_BLANKS)}{style.format(value)}{draw(_BLANKS)}")
    writer.between()
    return writer.text()


@st.composite
def modelfile(draw: Draw) -> str:
    """A Modelfile, with texts over several lines that look like parameters."""
    writer = Writer(draw, "#")
    writer.lines.append(draw(st.sampled_from(["FROM qwen3:8b", "from  x", "FROM x "])))
    for key in _some(draw, ["num_ctx", "num_gpu", "stop", "temperature"]):
        writer.between()
        value = draw(st.sampled_from(["4096", '"a b"', "0.7"]))
        writer.lines.append(
            f"{draw(st.sampled_from(['PARAMETER', 'parameter']))}{draw(st.sampled_from([' ', '  ']))}{key} {value}"
        )
    if draw(st.booleans()):
        writer.lines += ['TEMPLATE """{{ .Prompt }}', "PARAMETER num_ctx 1", '# no comment """', "SYSTEM be kind"]
    return writer.text()


@st.composite
def toml(draw: Draw) -> str:
    """TOML with tables."""
    writer = Writer(draw, "#")
    values = st.sampled_from(["1", "-1", "true", '"a # b"', "'x y'", "0.5", "2026-01-01", "0x1F", "1_000", '"\\u0041"'])
    for table in ["", *_some(draw, ["ramalama", "ramalama.runtimes.llama_cpp", "other"])]:
        if table:
            writer.between()
            writer.lines.append(f"[{draw(_BLANKS)}{table}{draw(_BLANKS)}]" + writer.behind())
        for key in _some(draw, ["ctx_size", "threads", "ngl", "image"] if table else ["title"]):
            writer.between()
            writer.lines.append(f"{draw(_BLANKS)}{key}{draw(_BLANKS)}={draw(_BLANKS)}{draw(values)}" + writer.behind())
    return writer.text()


_ODD_JSON = [
    "1.0e3",
    "1E3",
    "1000.0",
    "-0.0",
    '"\\u0041\\/"',
    '"\\u00e9"',
]  # as people and programs write, and Python does not


def _json(draw: Draw, value: Any, indent: str, lines: bool, step: str, newline: str) -> str:
    if isinstance(value, dict | list) and not value:
        brackets = json.dumps(value)
        return brackets[0] + draw(st.sampled_from(["", "", " ", newline])) + brackets[1]
    if not isinstance(value, dict | list):
        return draw(st.sampled_from(_ODD_JSON)) if value == "odd" else json.dumps(value, ensure_ascii=False)
    blank = "" if lines else draw(st.sampled_from(["", " "]))
    start, comma = (newline + indent + step, newline + indent + step) if lines else (blank, blank)
    end = newline + indent if lines else blank
    colon = draw(st.sampled_from([":", ": ", " : "]))
    inner = [
        (f"{json.dumps(item[0], ensure_ascii=False)}{colon}" if isinstance(value, dict) else "")
        + _json(draw, item[1] if isinstance(value, dict) else item, indent + step,
                lines and draw(st.booleans()), step, newline)
        for item in (value.items() if isinstance(value, dict) else value)
    ]  # fmt: skip
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + start + f",{comma}".join(inner) + end + closing


def as_json(data: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """Documents in several styles of JSON."""

    @st.composite
    def text(draw: Draw) -> str:
        newline = draw(st.sampled_from(["\n", "\r\n"]))
        step = draw(st.sampled_from(["  ", "    ", "\t"]))
        body = _json(draw, draw(data), "", draw(st.booleans()), step, newline)
        return draw(st.sampled_from(["", "\ufeff"])) + body + draw(st.sampled_from(["", newline]))

    return text()


SCALARS = st.sampled_from([1, -1, 0.5, True, False, None, "q8_0", "", "größe", 'a "b" \\ {}[],:', "#x", "null"])
_WRITTEN = SCALARS | st.just("odd")
_ANY = st.recursive(_WRITTEN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3))
FLAT = st.dictionaries(st.sampled_from(["contextsize", "gpulayers", "mine", "größe", 'a "b"']), _ANY)
SERVER = st.builds(
    lambda top, models: {**top, "models": models},
    st.dictionaries(st.sampled_from(["host", "port"]), _WRITTEN),
    st.lists(
        st.builds(lambda name, rest: {"model_alias": name, "model": "/x", **rest}, st.sampled_from(["a", "b", "c d"]),
                  st.dictionaries(st.sampled_from(["n_ctx", "type_k"]), st.integers(0, 9))),
        unique_by=lambda item: item["model_alias"], max_size=3,
    ),
)  # fmt: skip
STUDIO = st.builds(
    lambda fields, preset: {"preset": preset, "operation": {"fields": []}, "load": {"fields": fields}},
    st.lists(
        st.builds(lambda key, value: {"key": key, "value": value}, st.sampled_from(["llm.a", "llm.b", "mine"]), _ANY),
        unique_by=lambda item: item["key"], max_size=3,
    ),
    st.sampled_from(["", "@local:x"]),
)  # fmt: skip


def _yaml_value(writer: Writer, indent: str) -> list[str]:
    draw = writer.draw
    style = draw(st.integers(0, 8))
    if style == 8:
        return [
            draw(st.sampled_from(["", " ", " ~", " 1.0e3", " 1_0", " 0x1F", " yes", ' "\\u0041"'])) + writer.behind()
        ]
    if style == 0:
        return [f" {draw(_PLAIN)}" + writer.behind()]
    if style == 1:
        return [" '" + draw(_WORDS).replace("'", "''") + "'" + writer.behind()]
    if style == 2:
        return [" " + json.dumps(draw(_WORDS), ensure_ascii=False) + writer.behind()]
    if style == 3:
        return [f" {draw(st.sampled_from(['1', '-1', '0.5', 'true', 'false']))}" + writer.behind()]
    if style == 4:
        head = draw(st.sampled_from(["|", "|-", ">", ">-", "|+", "|2-" if not indent else "|"])) + writer.behind()
        return [f" {head}", f"{indent}    one # no comment", *draw(st.sampled_from([[], [""]])), f"{indent}    two: x"]
    if style == 5:
        return [
            draw(st.sampled_from([' ["a", 1]', " [a, 'b']", " {x: 1, y: [z]}", " []", " {}", " { }", " [ ]"]))
            + writer.behind()
        ]
    if style == 6:
        return [writer.behind(), f"{indent}  - a" + writer.behind(), f"{indent}  - 'b'"]
    return [writer.behind(), f"{indent}  x: 1", f"{indent}  y:" + writer.behind(), f"{indent}    - z"]


def _yaml_map(writer: Writer, keys: list[str], indent: str) -> None:
    for key in keys:
        writer.between(indent)
        first, *more = _yaml_value(writer, indent)
        writer.lines += [f"{indent}{key}:{first}", *more]


@st.composite
def yaml_flat(draw: Draw) -> str:
    """One map."""
    writer = Writer(draw, "#")
    writer.between()
    if draw(st.integers(0, 4)) == 0:
        writer.lines.append("---")
    keys = ["ctx_size", "n_gpu_layers", "mine", '"a b"', "'it''s'", "größe"]
    _yaml_map(writer, _some(draw, keys), "")
    writer.between()
    return writer.text()


def yaml_nested(outer: list[str], top: str | None = None) -> st.SearchStrategy[str]:
    """Maps below the keys `outer`, themselves below the key `top` if given, with other things beside."""

    @st.composite
    def text(draw: Draw) -> str:
        writer = Writer(draw, "#")
        step = draw(st.sampled_from(["  ", "    "]))
        indent = step if top else ""
        names = _some(draw, outer)
        if top:
            _yaml_map(writer, _some(draw, ["startPort", "hooks"]), "")
            if names or draw(st.booleans()):
                written = "" if names else draw(st.sampled_from(["", " {}", " { }"]))
                writer.lines.append(f"{top}:{written}" + writer.behind())
        for name in names:
            writer.between(indent)
            if draw(st.integers(0, 4)) == 0:
                written = draw(st.sampled_from([": {a: 1, cmd: 'x y'}", ":", ": {}", ": { }", ": "]))
                writer.lines.append(f"{indent}{name}{written}" + writer.behind())
                continue
            writer.lines.append(f"{indent}{name}:" + writer.behind())
            _yaml_map(writer, _some(draw, ["cmd", "ttl", "mine", "ctx_size"], 1), indent + step)
        if top:
            _yaml_map(writer, _some(draw, ["macros"]), "")
        return writer.text()

    return text()


@st.composite
def localai(draw: Draw) -> str:
    """A model file with a list of options, in brackets or by line."""
    writer = Writer(draw, "#")
    _yaml_map(writer, _some(draw, ["name", "threads", "mine"]), "")
    if draw(st.booleans()):
        written = draw(st.sampled_from(["", " {}", " { }", " {model: 'x y'}"]))
        writer.lines.append(f"parameters:{written}" + writer.behind())
    options = _some(draw, ['"parallel:1"', "'fit_params:false'", "mine", '"a:b c"'])
    if not options:
        written = draw(st.sampled_from(["", " []", " [ ]"]))
        writer.lines += [f"options:{written}" + writer.behind()] if draw(st.booleans()) else []
    elif draw(st.booleans()):
        writer.lines.append(f"options: [{', '.join(options)}]" + writer.behind())
    else:
        writer.lines.append("options:" + writer.behind())
        for option in options:
            writer.between("  ")
            writer.lines.append(f"  - {option}" + writer.behind())
    writer.between()
    return writer.text()
