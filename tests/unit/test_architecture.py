"""The arrows of the house and the purity of its core, held by walking every import of advisor/.

    leaves  errors units ggml_types settings host llama_flags rulebook whole_numbers (import leaves)
    feet    regular                                                        (import leaves)
    core    gguf_header -> model -> quants -> memory -> speed -> recommend -> together  (leaves, the core before them)
    edges   hardware stores engines outputs managed configuration plots ... (leaves, feet and core, never each other)
    wiring  registry app planner joint what_gpu keeper                      (import everything but faces)
    faces   cli daemon __main__                                       (import everything)

A new top-level module must be given its place in ROOMS. Leaves and core are pure: whatever depends on the machine, the
clock or the environment comes to them as a value.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "advisor"
MAX_LINES = 330

LEAVES = (
    "calibration",
    "errors",
    "excerpts",
    "units",
    "ggml_types",
    "settings",
    "host",
    "llama_flags",
    "llama_variables",
    "records",
    "rulebook",
    "slots",
    "whole_numbers",
)
FEET = ("regular",)  # not pure, but for everything above the core
CORE = ("gguf_header", "model", "quants", "memory", "speed", "recommend", "together")  # in the order of the arrows
EDGES = (
    "hardware", "stores", "engines", "outputs", "managed", "configuration",
    "calibration_file", "overheads", "plots", "rule_folders", "state", "watch",
)  # fmt: skip
WIRING = ("registry", "app", "calibrated", "planner", "joint", "steady", "keeper", "what_gpu")
FACES = ("cli", "daemon", "__main__")
ROOMS = (*LEAVES, *FEET, *CORE, *EDGES, *WIRING, *FACES)

MAY_IMPORT: dict[str, set[str]] = {
    **{room: set(LEAVES) for room in LEAVES},
    **{room: {*LEAVES, *CORE[:index]} for index, room in enumerate(CORE)},
    **{room: set(LEAVES) for room in FEET},
    **{room: {*LEAVES, *FEET, *CORE} for room in EDGES},
    **{room: {*LEAVES, *FEET, *CORE, *EDGES, *WIRING} for room in WIRING},
    **{room: set(ROOMS) for room in FACES},
}

IMPURE_MODULES = {
    "asyncio", "click", "concurrent", "ctypes", "datetime", "fcntl", "fileinput", "getpass", "gguf", "glob",
    "http", "importlib", "linecache", "llama_cpp", "locale", "logging", "mmap", "multiprocessing", "numpy", "os",
    "pathlib", "pkgutil", "platform", "platformdirs", "posix", "psutil", "pty", "pwd", "pynvml", "random",
    "requests", "resource", "rich", "runpy", "secrets", "select", "shelve", "shutil", "signal", "socket",
    "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "tomli", "tomllib", "urllib", "uuid",
    "watchdog", "webbrowser",
}  # fmt: skip
IMPURE_CALLS = frozenset(("open", "input", "print", "eval", "exec", "compile", "breakpoint", "__import__"))
IMPURE_ATTRIBUTES = frozenset(
    ("environ", "getenv", "read_text", "read_bytes", "write_text", "write_bytes", "argv", "stdin", "stdout", "stderr")
)


def imports(tree: ast.AST, module: str) -> list[tuple[int, str]]:
    """(line, dotted name) of every import anywhere in a module, also inside functions and TYPE_CHECKING blocks."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")[: -node.level]
                base = ".".join([*parts, base] if base else parts)
            # `from advisor import units` imports advisor.units
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def arrows_broken(source: str, module: str) -> list[str]:
    """What a module ("advisor.model.spec") imports from advisor although its room may not."""
    own = module.split(".")[1]
    broken = []
    for line, name in imports(ast.parse(source), module):
        parts = name.split(".")
        if parts[0] != "advisor" or len(parts) == 1 or parts[1] == own or parts[1] == "__version__":
            continue
        if parts[1] not in MAY_IMPORT[own]:
            broken.append(f"{module}:{line}: {own} may not import {name}")
        elif any(part.startswith("_") for part in parts[2:-1]):
            broken.append(f"{module}:{line}: {name} is private to {parts[1]}")
    return broken


def impurities(source: str, module: str) -> list[str]:
    """What a module does that belongs to an edge."""
    tree = ast.parse(source)
    found = [
        f"{module}:{line}: imports {name}"
        for line, name in imports(tree, module)
        if name.split(".")[0] in IMPURE_MODULES or name in ("io.open", "io.FileIO", "gzip.open")
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"{module}:{node.lineno}: calls {node.func.id}()")
        if isinstance(node, ast.Attribute) and node.attr in IMPURE_ATTRIBUTES:
            found.append(f"{module}:{node.lineno}: uses .{node.attr}")
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("open", "FileIO")
            and isinstance(node.value, ast.Name)
            and node.value.id in ("io", "gzip", "bz2", "lzma")
        ):
            found.append(f"{module}:{node.lineno}: uses {node.value.id}.{node.attr}")
    return found


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("advisor", *path.relative_to(PACKAGE).with_suffix("").parts)
        # a package keeps its "__init__": "." then means the package itself, as for every module in it
        found.append((".".join(parts), path))
    return found


def rooms(names: tuple[str, ...]) -> list[tuple[str, Path]]:
    return [(module, path) for module, path in modules() if module.split(".")[1] in names]


def test_every_module_has_its_place():
    tops = {module.split(".")[1] for module, _ in modules()} - {"__init__"}
    assert tops - set(ROOMS) == set(), "give the module its place in ROOMS"
    assert {"errors", "gguf_header", "rule_folders"} <= tops, "the walk does not see the package"


def test_arrows_hold():
    broken = []
    for module, path in rooms(ROOMS):
        broken += arrows_broken(path.read_text("utf-8"), module)
    assert broken == []


def test_the_package_itself_imports_nothing():
    assert imports(ast.parse((PACKAGE / "__init__.py").read_text("utf-8")), "advisor.__init__") in (
        [],
        [(3, "__future__.annotations")],
    )


def test_leaves_and_core_are_pure():
    found = []
    for module, path in rooms((*LEAVES, *CORE)):
        found += impurities(path.read_text("utf-8"), module)
    assert found == []


def test_named_tuples_are_made_at_once():
    """With postponed annotations each field's type is compiled when its class is made: 4 ms over the core."""
    slow = []
    for module, path in rooms((*LEAVES, *CORE)):
        text = path.read_text("utf-8")
        if "(NamedTuple):" in text and "from __future__ import annotations" in text:
            slow.append(module)
    assert slow == []


def test_rooms_are_small():
    lines = {module: len(path.read_text("utf-8").splitlines()) for module, path in modules()}
    assert {module: count for module, count in lines.items() if count > MAX_LINES} == {}


# ---------------------------------------------------------------- the walk itself


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("advisor.units", "from advisor.model.spec import ModelSpec"),
        ("advisor.units", "from advisor import model"),
        ("advisor.model.spec", "import advisor.memory.plan"),
        ("advisor.model.spec", "def f():\n    from advisor.recommend import search"),
        ("advisor.memory.plan", "if True:\n    from advisor.speed import x"),
        ("advisor.model.spec", "from ..memory import plan"),
        ("advisor.model.__init__", "from ..memory import plan"),
        ("advisor.model.spec", "from .. import memory"),
        ("advisor.recommend.search", "from advisor.hardware import nvidia"),
        ("advisor.hardware.amd", "from advisor.stores import ollama"),
        ("advisor.stores.ollama", "from advisor.rule_folders import RuleFolders"),
        ("advisor.hardware.amd", "from advisor.app import main"),
        ("advisor.app", "from advisor.cli import main"),
        ("advisor.app", "from advisor.hardware._read import read_text"),
    ],
)
def test_a_broken_arrow_is_seen(module, source):
    assert len(arrows_broken(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("advisor.units", "from advisor.errors import UsageError"),
        ("advisor.memory.plan", "from advisor.model.spec import ModelSpec\nfrom . import cache\nfrom .types import X"),
        ("advisor.hardware.amd", "from advisor.host import Device\nfrom advisor.hardware._read import read_text"),
        ("advisor.app", "from advisor.stores import ollama\nfrom advisor.registry import probes"),
        ("advisor.cli.recommend", "from advisor import __version__\nfrom advisor.app import run"),
        ("advisor.hardware.amd", "import os, advisor"),
    ],
)
def test_a_right_arrow_is_left_alone(module, source):
    assert arrows_broken(source, module) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os.path",
        "from os import path",
        "def f():\n    import subprocess",
        "from pathlib import Path",
        "import time as t",
        "from rich.table import Table",
        "open('x')",
        "from io import open as o",
        "import io\nio.open('x')",
        "import gzip\ngzip.open('x')",
        "import sys\nsys.argv",
        "def f(path):\n    return path.read_text()",
        "__import__('os')",
    ],
)
def test_an_impurity_is_seen(source):
    assert len(impurities(source, "advisor.model.x")) == 1


def test_pure_code_is_left_alone():
    source = 'import gzip, json, struct\nfrom io import BytesIO\n"""open(path)"""\ngzip.decompress(b"")\nx.open = 1\n'
    assert impurities(source, "advisor.model.x") == []
