"""Lies on the disk: files that are none, and stores whose entries lead elsewhere."""

from __future__ import annotations

import io
import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor.gguf_header import read_header
from advisor.stores import hugging_face, jan, lm_studio, ollama, textgen
from advisor.stores.folder import list_models as list_folder
from advisor.stores.resolve import load_header
from advisor.stores.types import StoreReport
from tests.hostile.lies import MARK, READ, Case, Group, Lie, Made
from tests.tools.gguf_files import F32, honest, kv
from tests.tools.stores import LIBRARY, download, pull

GOOD = honest([kv("general.architecture", "string", "llama")])
TIB = 1 << 40


def files(folder: Path) -> Made:
    """What is no file, or not what its size says."""

    def put(name: str, data: bytes = GOOD) -> str:
        (folder / name).write_bytes(data)
        return str(folder / name)

    def load(label: str, path: str, answer: str) -> Case:
        return Case(label, lambda: load_header(path), answer)

    os.mkfifo(folder / "pipe.gguf")
    (folder / "loop.gguf").symlink_to("loop.gguf")
    (folder / "dead.gguf").symlink_to("nowhere")
    (folder / "folder.gguf").mkdir()
    (folder / "zero.gguf").symlink_to("/dev/zero")
    (folder / "tty.gguf").symlink_to("/dev/tty" if os.path.exists("/dev/tty") else "/dev/null")
    here = os.getcwd()
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket.gguf")
    os.chdir(here)
    for name, answer in (("pipe", "NotAFileError"), ("loop", "UnreadableModelError"), ("dead", "ModelNotFoundError"),
                         ("folder", "NoModelError"), ("zero", "NotAFileError"), ("tty", "NotAFileError"),
                         ("socket", "NotAFileError"), ("missing", "ModelNotFoundError")):  # fmt: skip
        yield load(name, str(folder / f"{name}.gguf"), answer)
    yield load("through a file", put("a.gguf") + "/b.gguf", "ModelNotFoundError")
    yield load("zero byte in its name", str(folder / "a\0b.gguf"), "ModelNotFoundError")
    yield load("a name of 5000", str(folder / ("x" * 5000 + ".gguf")), "ModelNotFoundError")
    yield load("an empty name", "", "ModelNotFoundError")
    yield load("a linked model", str(_linked(folder)), READ)
    sparse = put("sparse.gguf")
    os.truncate(sparse, TIB)
    yield load("1 TiB of nothing behind a good header", sparse, READ)
    yield load("1 TiB of nothing", _sparse(folder, b""), "NotGgufError")
    yield load(
        "1 TiB, a count and nothing", _sparse(folder, b"GGUF\3\0\0\0" + struct.pack("<QQ", 0, 16_000)), "EmptyKeyError"
    )
    for offset in (0, 24, 100, len(GOOD) - 1):
        shrunk = io.BytesIO(GOOD[:offset])
        call = lambda file=shrunk: read_header(file, "m.gguf", len(GOOD))  # noqa: E731
        yield Case(f"shrinks to {offset} while read", call, "TruncatedHeaderError")
    yield Case("is deleted while read", _deleted(folder), READ)


def _linked(folder: Path) -> Path:
    (folder / "real.bin").write_bytes(GOOD)
    (folder / "linked.gguf").symlink_to("real.bin")
    return folder / "linked.gguf"


def _sparse(folder: Path, start: bytes) -> str:
    path = folder / f"sparse-{len(start)}.gguf"
    path.write_bytes(start)
    os.truncate(path, TIB)
    return str(path)


def _deleted(folder: Path) -> Callable[[], Any]:
    (folder / "deleted.gguf").write_bytes(GOOD)
    opened = os.open(folder / "deleted.gguf", os.O_RDONLY)
    os.unlink(folder / "deleted.gguf")
    return lambda: load_header(f"/proc/self/fd/{opened}")


def _told(report: StoreReport, n_good: int) -> str:
    good = [model for model in report.models if model.problem is None]
    assert all((model.problem or "x.").isprintable() for model in report.models), report
    assert len(good) == n_good, report
    return f"{n_good} of {len(report.models)}"


def manifests(folder: Path) -> Made:
    """Ollama's manifests."""
    digest = "a" * 64
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(GOOD)}
    made = 0

    def listed(label: str, text: bytes, answer: str) -> Case:
        nonlocal made
        made += 1
        store = folder / str(made)
        pull(store, f"{LIBRARY}/good/latest", GOOD)
        (store / f"blobs/sha256-{digest}").write_bytes(GOOD)
        path = store / f"manifests/{LIBRARY}/bad/latest"
        path.parent.mkdir()
        path.write_bytes(text)
        return Case(label, lambda: _told(ollama.list_models(str(store)), int(answer[0])), answer)

    def layers(*each: Any) -> bytes:
        return json.dumps({"layers": list(each)}).encode()

    yield listed("good", layers(layer), "2 of 2")
    for label, text in (
        ("empty", b""), ("null", b"null"), ("a list", b"[]"), ("no layers", b"{}"), ("layers a number", b'{"layers": 5}'),
        ("layers null", b'{"layers": null}'), ("layers an object", b'{"layers": {"a": 1}}'), ("a layer a number", layers(7)),
        ("a layer without type", layers({})), ("type a list", layers({**layer, "mediaType": []})), ("broken UTF-8", b"\xff\xfe"),
        ("deep", b"[" * 100_000), ("cut", layers(layer)[:-9]), ("many digits", b'{"layers": [' + b"9" * 9999 + b"]}"),
        ("digest a number", layers({**layer, "digest": 5})), ("digest short", layers({**layer, "digest": "sha256:aa"})),
        ("digest a path", layers({**layer, "digest": f"sha256:../../{MARK}"})), ("digest upper case", layers({**layer, "digest": "sha256:" + "A" * 64})),
        ("digest with a slash", layers({**layer, "digest": "sha256:" + "a" * 63 + "/"})), ("digest of another kind", layers({**layer, "digest": "md5:" + digest})),
        ("digest not there", layers({**layer, "digest": "sha256:" + "b" * 64})), ("size another", layers({**layer, "size": 1})),
        ("size a text", layers({**layer, "size": "608"})), ("size negative", layers({**layer, "size": -1})), ("size missing", layers({**layer, "size": None})),
        ("no model layer", layers({**layer, "mediaType": "application/vnd.ollama.image.tensor"})), ("1 MiB of lists", b'{"layers": [' + b"[]," * 400_000 + b"[]]}"),
        ("bad companion", layers(layer, {**layer, "mediaType": "application/vnd.ollama.image.projector", "digest": f"sha256:{MARK}"})),
        ("larger than 1 MiB", b" " * (2 << 20) + layers(layer)),
    ):  # fmt: skip
        yield listed(label, text, "1 of 2")
    params = {**layer, "mediaType": "application/vnd.ollama.image.params"}
    yield listed("params that are a model", layers(layer, params), "2 of 2")
    for name in (
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "a/../b:c",
        f"../{MARK}:x",
        "a:..",
        "a//b",
        "a\0b",
        "²",
        "x" * 300,
    ):
        yield Case(f"asked for {name[:20]}", lambda n=name: ollama.find(n) or "none", "none")


def caches(folder: Path) -> Made:
    """Hugging Face caches, and folders of other programs."""
    hub = folder / "hub"
    snapshot = download(hub, "org/repo", {"m-Q4_K_M.gguf": GOOD})
    (snapshot / f"../../../{MARK}").parent.mkdir(exist_ok=True)
    (snapshot / "gone.gguf").symlink_to("../../blobs/gone")
    (snapshot / "out.gguf").symlink_to("/etc/passwd")
    (snapshot / "loop.gguf").symlink_to("loop.gguf")
    (snapshot / "up").symlink_to("../../..", target_is_directory=True)
    os.mkfifo(snapshot / "pipe.gguf")
    yield Case(
        "links that lead nowhere, out, round", lambda: str(len(hugging_face.list_models(str(hub)).models) >= 1), "True"
    )
    refs = snapshot.parents[1] / "refs/main"
    for label, text in (
        ("a path", f"../../../{MARK}"),
        ("empty", ""),
        ("NUL", "\0"),
        ("very long", "a" * 100_000),
        ("another", "bbbb"),
    ):
        yield Case(f"ref is {label}", _with_ref(refs, text, hub), "m-Q4_K_M.gguf")
    for name in ("../repo", "org/..", f"org/{MARK}/../x", "org/repo:../x", "a/b/c", "org/repo:" + "Q" * 300, "\0/x"):
        yield Case(f"asked for {name[:20]}", lambda n=name: hugging_face.find(n) or "none", "none")
    other = folder / "other"
    (other / "llamacpp/models/m").mkdir(parents=True)
    model_yml = other / "llamacpp/models/m/model.yml"
    merges = "a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)
    )
    for label, text in (
        ("nothing", ""), ("a list", "- a"), ("merged aliases", merges), ("a tag that runs", f"!!python/object/apply:os.system [touch {MARK}]"),
        ("a path out", f"model_path: ../../../{MARK}.gguf"), ("a number", "model_path: 5"), ("a NUL", 'model_path: "a\\0b.gguf"'),
        ("deep", "[" * 5000), ("long", "- a\n" * 100_000), ("digits", "size: " + "1" * 5000), ("broken", "a: b: c: ["), ("keys that are maps", "[? a, {b: c}: d]"),
    ):  # fmt: skip
        yield Case(f"model.yml: {label}", _with_text(model_yml, text, lambda: jan.list_models(str(other))), READ)
    home = folder / "home"
    (home / ".lmstudio").mkdir(parents=True)
    for label, text in (("deep", "[" * 100_000), ("a number", "5"), ("a path", json.dumps({"downloadsFolder": f"../{MARK}"})),
                        ("much", '{"a": [' + "[]," * 300_000 + "[]]}")):  # fmt: skip
        yield Case(
            f"settings.json: {label}",
            _with_text(home / ".lmstudio/settings.json", text, lambda: lm_studio.default_folders({}, str(home))),
            READ,
        )
    (home / "user_data").mkdir()
    for label, text in (
        ("quotes", "--model-dir 'x"),
        ("a path", f"--model-dir ../../{MARK}"),
        ("nothing behind", "--model-dir"),
        ("NUL", "--model-dir a\0"),
    ):
        yield Case(
            f"CMD_FLAGS.txt: {label}",
            _with_text(home / "user_data/CMD_FLAGS.txt", text, lambda: textgen.list_models(str(home))),
            READ,
        )


def _with_ref(path: Path, text: str, hub: Path) -> Callable[[], Any]:
    return _with_text(path, text, lambda: os.path.basename(_in_hub(hub) or "none"))


def _in_hub(hub: Path) -> str | None:
    os.environ["HF_HUB_CACHE"] = str(hub)
    return hugging_face.find("org/repo:Q4_K_M")


def _with_text(path: Path, text: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """Cases are made one by one, each just before it is called."""
    path.write_text(text)
    return call


def folders(folder: Path) -> Made:
    """Folders of models with everything in them that is no model."""
    place = folder / "models"
    (place / "deep").mkdir(parents=True)
    for name in (
        "a\x1b[2Jb.gguf",
        "a\nb.gguf",
        "'$(id)'.gguf",
        "-rf.gguf",
        "ü\u202e.gguf",
        "²-00001-of-00002.gguf",
        ".gguf",
        ".hidden.gguf",
    ):
        (place / name).write_bytes(GOOD)
    with open(os.fsencode(place) + b"/\xff\xfe.gguf", "wb") as file:
        file.write(GOOD)
    (place / "up").symlink_to("..", target_is_directory=True)
    (place / "sitecustomize.py").write_text(f"raise SystemExit('{MARK}')")
    (place / "tokenizer_config.json").write_text("[" * 9999)
    for number in range(40):
        (place / ("deep/" * (number % 5) + "x")).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place / "pipe.gguf")
    yield Case("listed", lambda: str(len(list_folder(str(place)).models)), "7")
    yield Case("two models in it", lambda: load_header(str(place)), "SeveralModelsError")
    two = folder / "shards"
    two.mkdir()
    for number in range(1, 200):
        (two / f"m{number}-00001-of-{number:05d}.gguf").write_bytes(honest([], [("t", (32,), F32)]))
    yield Case("199 split models with parts missing", lambda: str(len(list_folder(str(two)).models)), "199")


FILES = Group("files", (
    Lie("what is no file, or shrinks", "hangs on a pipe, SIGBUS under mmap, zeros of a sparse file (aprender#2011)", files),
    Lie("folders with everything in them", "names as commands; code beside models", folders),
))  # fmt: skip
STORES = Group("stores", (
    Lie("Ollama's manifests", "index out of range (CVE-2025-1975); digests that are paths (CVE-2024-37032)", manifests),
    Lie("Hugging Face caches and other programs", "links and refs that lead out of the cache", caches),
))  # fmt: skip
