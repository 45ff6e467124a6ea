"""Lies in the config files of targets: of megabytes, of another kind, and such that stand for more than they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from advisor.errors import OutputError
from advisor.managed.change import plan_change
from advisor.managed.ledger import Ledger
from advisor.outputs.registry import OUTPUTS, forget_texts, load
from tests.hostile.lies import READ, Case, Group, Lie, Made
from tests.unit.outputs.cases import fitting

YAML = ("llama-swap", "localai", "text-generation-webui", "jan")


def texts(name: str) -> Iterator[tuple[str, str, str]]:
    """(what it is, text, the answer) for one format: up to what is read, and beyond it."""
    output, asked = fitting(name)
    written = output.edit(output.new_text, output.slots([asked], None))
    if name == "jan":  # a file that Jan has made
        written = f"model_path: m.gguf\n{written}"
    is_json = written.lstrip().startswith("{")
    yield "as advisor writes it", written, READ
    yield "4 MiB of newlines", written + "\n" * (4 << 20), "OutputError"
    yield "4 MiB and a byte", written + " " * (4 << 20), "OutputError"
    yield "25,000 lines", written + "\n" * 25_000, "OutputError"
    yield "19,000 lines", written + "\n" * 19_000, READ
    yield "a megabyte of one text", (written + "#" if not is_json else written + " ") + "x" * (2 << 20), "OutputError"
    yield "100,000 values", written + "[],{}:=" * 20_000, "OutputError"
    yield "lines that repeat", written + "".join(f"# {number % 150}\n" for number in range(19_000)), "either"
    if is_json:
        head = written.rstrip()[:-1]
        yield "lists", f'{head}, "l": [{"[]," * 28_000}1]}}', READ
        yield "lists in lists", f'{head}, "l": {"[" * 50_000}', "OutputError"
        for depth, answer in ((90, READ), (150, "OutputError"), (320, "OutputError"), (900, "OutputError")):
            yield f"{depth} lists", f'{head}, "l": {"[" * depth}{"]" * depth}}}', answer
            yield f"{depth} maps", f'{head}, "l": {chr(123)}"a":{"[" * depth}{"]" * depth}}}}}', answer
        yield "a long fraction", f'{head}, "l": 0.{"1" * 900_000}}}', "OutputError"
        yield "line ends of Unicode", f'{head}, "l": "{chr(0x2028) * 300_000}"}}', "OutputError"
        yield "escapes", head + ', "l": "' + "\\\\" * 250_000 + '"}', READ
        yield "names", head + "".join(f',"{number:x}":1' for number in range(27_000)) + "}", READ
    elif name in YAML:
        body = written.rstrip("\n") + "\n"
        yield "maps", body + "".join(f"{number}_: 1\n" for number in range(2000)), READ
        yield "more maps", body + "".join(f"{number}_: 1\n" for number in range(9000)), "OutputError"
        yield "brackets", f"{body}l_: [{'{a},' * 1500}1]\n", READ
        yield "more brackets", f"{body}l_: [{'{a},' * 14_000}1]\n", "OutputError"
        yield "brackets in brackets", f"{body}l_: {'[' * 20_000}", "OutputError"
        for depth, answer in ((90, READ), (150, "OutputError"), (400, "OutputError"), (1500, "OutputError")):
            yield f"{depth} brackets", f"{body}l_: {'[' * depth}{']' * depth}\n", answer
            yield f"{depth} items", f"{body}l_:\n  {'- ' * depth}a\n", answer
            yield f"{depth} maps", f"{body}l_:\n" + "".join(f"{' ' * (n + 1)}a:\n" for n in range(depth)), answer
        yield "open brackets", f"{body}l_: {'[' * 1500}\n", "OutputError"
        yield "aliases in each other", body + "a0_: &a0 [1]\n" + "".join(
            f"a{n}_: &a{n} [[*a{n - 1}]]\n" for n in range(1, 100)), "OutputError"  # fmt: skip
        for end in "\x85\u2028\u2029":
            yield f"line ends {end!a}", f"{body}l_: {f'a{end}' * 300_000}\n", "OutputError"
        yield "a long number", f"{body}l_: 0x{'f' * 900_000}\n", "OutputError"
        yield "plain maps", body + "".join(f"k{number}:\n  a: b\n" for number in range(5000)), READ
        yield "entries one by one", body + "".join(f"k{number}: 'it''s'\n" for number in range(1200)), READ
        yield (
            "more entries one by one",
            body + "".join(f"k{number}: 'it''s'\n" for number in range(5000)),
            "OutputError",
        )
        yield "aliases of aliases", body + "a0_: &a0 [1]\n" + "".join(
            f"a{n}_: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)), "OutputError"  # fmt: skip
    elif name == "ramalama":
        yield "tables", written + "".join(f"[t{number}]\n" for number in range(9000)), READ
        yield "escapes", 'a_ = "' + "\\\\" * 250_000 + '"\n' + written, READ
        yield "maps in maps", "a_ = [" + "{a.b.c=1}," * 6000 + "1]\n" + written, READ
        yield "more maps in maps", "a_ = [" + "{a.b.c=1}," * 15_000 + "1]\n" + written, "OutputError"
        for depth, answer in ((90, READ), (150, "OutputError"), (400, "OutputError")):
            yield f"{depth} lists", f"a_ = {'[' * depth}{']' * depth}\n" + written, answer
            yield f"{depth} tables", f"{'a.' * depth}a = 1\n" + written, answer
        for n_lines, answer in ((1200, READ), (15_000, "OutputError")):
            dotted = "".join(f"a{number}.b.c.d.e.f.g.h.i.j.k.l=1\n" for number in range(n_lines))
            yield f"{n_lines} lines of dots", dotted + written, answer
        yield "a long number", f"a_ = 0x{'f' * 900_000}\n" + written, "OutputError"
        yield "lists in lists", "a_ = " + "[" * 50_000 + "\n" + written, "OutputError"
    else:
        yield "sections", written + "".join(f"[t{number}]\n" for number in range(9000)), "either"
        yield "values", written + "".join(f"K{number}=1\n" for number in range(18_000)), "either"


def configs(folder: Path) -> Made:
    """One file after the other where a target is, changed for another model."""
    path = folder / "config"
    ledger = Ledger(str(folder / "ledger"))
    for name in OUTPUTS:
        output, asked = fitting(name)
        wanted = output.slots([asked._replace(id=f"{asked.id}2") if name != "jan" else asked], None)

        def plan(either: bool, output=load(name), wanted=wanted) -> str:  # type: ignore[no-untyped-def]
            forget_texts()
            planned = plan_change(str(path), output, wanted, ledger, adopt=True)
            if either:
                return "either"
            if planned.refused is not None:
                raise OutputError(planned.refused)
            return READ

        for label, text, answer in texts(name):
            path.write_text(text)
            yield Case(f"{name}: {label}", lambda either=answer == "either", p=plan: p(either), answer)
        path.write_bytes(b"\xff\xfe" * 100_000)
        yield Case(f"{name}: bytes", lambda p=plan: p(False), "OutputError")
        path.unlink()
        os.mkfifo(path)
        yield Case(f"{name}: a pipe", lambda p=plan: p(False), "OutputError")
        path.unlink()
        path.symlink_to("/dev/zero")
        yield Case(f"{name}: zeros", lambda p=plan: p(False), "OutputError")
        path.unlink()


GROUP = Group(
    "targets",
    (Lie("configs of megabytes", "parsers that take the square of a size, or a hundred times its memory", configs),),
)
