"""What the user calls a MODEL, in every way it can be meant and every way it can be wrong."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import socket
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.errors import AdvisorError, ModelError
from advisor.gguf_header import GgufHeader, errors
from advisor.stores import errors as store_errors
from advisor.stores import hugging_face, ollama
from advisor.stores.resolve import expand, load_header
from tests.tools.gguf_files import F32, array, assemble, honest, kv, write_sparse
from tests.tools.stores import as_nobody

MODEL = honest([kv("general.architecture", "string", "llama"), kv("general.name", "string", "it")])
SNAPSHOT = (
    b'{"name":"s","n_vocab":3,"metadata":{"general.name":{"type":"string","value":"it"}},"tensors":[["t",[4],0]]}'
)


def write(path: Path, data: bytes = MODEL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def named(name: str) -> bytes:
    return honest([kv("general.name", "string", name)])


def name_of(header: GgufHeader) -> object:
    return header.metadata["general.name"]


def shard(number: int, count: int) -> bytes:
    entries = [kv("split.no", "uint16", number), kv("split.count", "uint16", count)]
    return honest(entries, [(f"blk.{number}", (32,), F32)])


def refused(argument: str | Path, kind: type[AdvisorError], *words: str) -> str:
    """The message for `argument`: of class `kind`, one sentence, in time."""
    start = time.monotonic()
    with pytest.raises(ModelError) as caught:
        load_header(str(argument))
    assert time.monotonic() - start < 1
    message = str(caught.value)
    assert type(caught.value) is kind, message
    assert message.isprintable()
    assert message.endswith(".")
    assert caught.value.exit_status == 1
    for word in words:
        assert word in message, message
    return message


# ---------------------------------------------------------------- files


def test_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a model.gguf")
    header = load_header(str(path))
    assert (header.path, header.file_bytes, header.source) == (str(path), len(MODEL), "gguf")
    assert name_of(header) == "it"


def test_the_name_of_the_file_does_not_matter(tmp_path: Path) -> None:
    assert name_of(load_header(str(write(tmp_path / "sha256-0123")))) == "it"


def test_links_and_the_home_folder(tmp_path: Path, home: Path) -> None:
    write(home / "real.gguf")
    (tmp_path / "link.gguf").symlink_to(home / "real.gguf")
    assert load_header(str(tmp_path / "link.gguf")).path == str(tmp_path / "link.gguf")
    assert name_of(load_header("~/real.gguf")) == "it"


@pytest.mark.parametrize("given", [1, 2, 3])
def test_any_shard_finds_all(given: int, tmp_path: Path) -> None:
    paths = [write(tmp_path / f"m-0000{n + 1}-of-00003.gguf", shard(n, 3)) for n in range(3)]
    header = load_header(str(paths[given - 1]))
    assert header.shard_paths == tuple(map(str, paths))
    assert [t.name for t in header.tensors] == ["blk.0", "blk.1", "blk.2"]
    assert header.path == str(paths[0])


def test_the_missing_shard_is_named(tmp_path: Path) -> None:
    for n in (0, 3):
        path = write(tmp_path / f"m-0000{n + 1}-of-00004.gguf", shard(n, 4))
    refused(path, errors.MissingShardError, f"{tmp_path}/m-00002-of-00004.gguf is missing (2 of 4")


def test_a_broken_shard_is_named(tmp_path: Path) -> None:
    first = write(tmp_path / "m-00001-of-00002.gguf", shard(0, 2))
    write(tmp_path / "m-00002-of-00002.gguf", shard(1, 2)[:-60])
    refused(first, errors.TruncatedDataError, "m-00002-of-00002.gguf is incomplete")


@pytest.mark.parametrize("ending", [".json", ".json.gz"])
@pytest.mark.parametrize("packed", [False, True])
def test_snapshots(ending: str, packed: bool, tmp_path: Path) -> None:
    path = write(tmp_path / f"s{ending}", gzip.compress(SNAPSHOT) if packed else SNAPSHOT)
    header = load_header(str(path))
    assert (header.path, header.source, header.n_vocab) == (str(path), "snapshot", 3)


BAD_FILES: list[tuple[str, bytes, type[AdvisorError], str]] = [
    ("empty.gguf", b"", errors.EmptyFileError, "is empty"),
    ("page.gguf", b"<!doctype html><html><head>", errors.HtmlPageError, "web page"),
    ("lfs.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", errors.LfsPointerError, "git lfs pull"),
    ("cut.gguf", MODEL[:-100], errors.TruncatedDataError, "incomplete"),
    ("header.gguf", MODEL[:60], errors.TruncatedHeaderError, "incomplete"),
    ("magic.gguf", b"\x7fELF" + bytes(99), errors.NotGgufError, "not a GGUF"),
    ("v1.gguf", assemble(version=1), errors.VersionOneError, "version 1"),
    ("big.gguf", assemble(order=">"), errors.BigEndianError, "big-endian"),
    ("ggml.bin", b"lmgg" + bytes(99), errors.OldGgmlError, "GGML"),
    ("empty.json", b"", errors.EmptyFileError, "is empty"),
    ("cut.json.gz", gzip.compress(SNAPSHOT)[:-20], errors.BadSnapshotError, "too early"),
    ("torn.json.gz", b"\x1f\x8b" + bytes(60), errors.BadSnapshotError, "damaged"),
    ("list.json", b"[]", errors.BadSnapshotError, "object"),
    ("config.json", b'{"model_type":"llama"}', errors.BadSnapshotError, "metadata"),
    ("gguf.json", MODEL, errors.BadSnapshotError, "not JSON"),
]


@pytest.mark.parametrize(("name", "data", "kind", "words"), BAD_FILES, ids=[bad[0] for bad in BAD_FILES])
def test_bad_files(name: str, data: bytes, kind: type[AdvisorError], words: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, data)
    assert refused(path, kind, words).startswith(str(path))


def test_a_gzip_bomb_is_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "bomb.json.gz", gzip.compress(bytes(200 * 2**20), 9))
    tracemalloc.start()
    try:
        refused(path, errors.BadSnapshotError, "larger than 8 MiB")
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


def test_a_sparse_terabyte_with_an_honest_header_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "huge.gguf"
    extents = (2**20, 2**18)
    size = write_sparse(str(path), [kv("general.name", "string", "huge")], [("w", extents, F32)])
    assert size > 2**40
    start = time.monotonic()
    assert load_header(str(path)).file_bytes == size
    assert time.monotonic() - start < 1


def test_not_there(tmp_path: Path) -> None:
    for argument in (tmp_path / "no.gguf", "./no.gguf", "no.gguf", "no.json.gz", "~/no.gguf", "/no/where"):
        refused(argument, store_errors.ModelNotFoundError, "does not exist")
    refused("no", store_errors.ModelNotFoundError, "No file, Ollama model or Hugging Face cache entry is called no")
    refused("", store_errors.ModelNotFoundError, "empty")
    refused("a\0b.gguf", store_errors.ModelNotFoundError, "a?b.gguf is not a possible file name")
    refused("/" + "x" * 5000, store_errors.ModelNotFoundError, "does not exist")
    refused(write(tmp_path / "file") / "x.gguf", store_errors.ModelNotFoundError, "does not exist")
    (tmp_path / "dangling.gguf").symlink_to(tmp_path / "gone")
    refused(tmp_path / "dangling.gguf", store_errors.ModelNotFoundError, "link to a file that does not exist")


def test_a_name_with_escape_codes_and_bad_bytes(tmp_path: Path) -> None:
    refused("\x1b[31m", store_errors.ModelNotFoundError, "?[31m")
    refused(os.fsdecode(b"/no\xff/m.gguf"), store_errors.ModelNotFoundError, "/no?/m.gguf")


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    refused(tmp_path / "loop.gguf", store_errors.UnreadableModelError, "leads back to itself")


def test_a_pipe_never_blocks(tmp_path: Path) -> None:
    for name in ("pipe.gguf", "pipe.json"):
        os.mkfifo(tmp_path / name)
        refused(tmp_path / name, store_errors.NotAFileError, "is a pipe")


def test_devices_and_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("/dev/zero", "/dev/null"):
        refused(device, store_errors.NotAFileError, f"{device} is a device")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.gguf")
        refused("s.gguf", store_errors.NotAFileError, "is a socket")


def test_a_pipe_put_in_place_between_looking_and_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, real = tmp_path / "pipe.gguf", write(tmp_path / "real.gguf")
    os.mkfifo(pipe)
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: stat(real if path == str(pipe) else path, **options))
    refused(pipe, store_errors.NotAFileError, "is a pipe")


def test_not_readable(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    path.chmod(0)
    with as_nobody():
        refused(path, store_errors.UnreadableModelError, "not readable for you", "ask its owner")


def test_an_error_of_the_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf")

    def broken(*arguments: object) -> GgufHeader:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("advisor.stores.resolve.read_header", broken)
    refused(path, store_errors.UnreadableModelError, "cannot be read (Input/output error)")


# ---------------------------------------------------------------- folders


def test_a_folder_with_one_model(tmp_path: Path) -> None:
    write(tmp_path / "publisher" / "repo" / "m.gguf", named("m"))
    write(tmp_path / "publisher" / "repo" / "mmproj-m-f16.gguf", named("projector"))
    write(tmp_path / "readme.md", b"x")
    write(tmp_path / "incomplete-x.gguf", b"GGUF")
    write(tmp_path / "y.gguf.part", b"GGUF")
    write(tmp_path / ".hidden.gguf", MODEL)
    write(tmp_path / ".cache" / "z.gguf", MODEL)
    assert name_of(load_header(str(tmp_path))) == "m"


def test_a_folder_with_one_split_model(tmp_path: Path) -> None:
    for n in range(2):
        write(tmp_path / f"m-0000{n + 1}-of-00002.gguf", shard(n, 2))
    assert len(load_header(str(tmp_path)).tensors) == 2


def test_a_folder_with_only_a_companion(tmp_path: Path) -> None:
    write(tmp_path / "mmproj.gguf", named("projector"))
    assert name_of(load_header(str(tmp_path))) == "projector"


def test_a_folder_with_several_models_lists_them(tmp_path: Path) -> None:
    for i in range(10):
        write(tmp_path / "sub" / f"m{i}.gguf")
    message = refused(tmp_path, store_errors.SeveralModelsError, "10 models", "sub/m0.gguf, sub/m1.gguf", "and 2 more")
    assert "m8" not in message


def test_a_folder_without_models(tmp_path: Path) -> None:
    write(tmp_path / "config.json", b"{}")
    refused(tmp_path, store_errors.NoModelError, f"{tmp_path} has no GGUF model")


def test_a_folder_that_cannot_be_listed(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0)
    with as_nobody():
        refused(folder, store_errors.UnreadableModelError, "not readable")


def test_expand_names_each_model_once(tmp_path: Path) -> None:
    names = ["a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "c-00002-of-00003.gguf",
             "c-00002-of-00004.gguf", "d/e/f.gguf", "d/mmproj-x.gguf"]  # fmt: skip
    for name in names:
        write(tmp_path / name)
    (tmp_path / "d" / "ring").symlink_to(tmp_path)
    (tmp_path / "gone.gguf").symlink_to("nowhere")
    (tmp_path / "folder.gguf").mkdir()
    names.remove("b-00002-of-00002.gguf")
    assert expand(str(tmp_path)) == [str(tmp_path / name) for name in names]


# ---------------------------------------------------------------- Ollama


def pulled(
    store: Path, name: str, data: bytes = MODEL, change: Callable[[dict[str, object]], None] | None = None
) -> Path:
    """An Ollama store with one model, as `ollama pull` leaves it."""
    digest = hashlib.sha256(data).hexdigest()
    blob = write(store / "blobs" / f"sha256-{digest}", data)
    media = "application/vnd.ollama.image."
    layers: list[dict[str, object]] = [
        {"mediaType": media + "template", "digest": "sha256:" + "0" * 64, "size": 3},
        {"mediaType": media + "model", "digest": f"sha256:{digest}", "size": len(data)},
        {"mediaType": media + "model", "digest": "sha256:" + "1" * 64, "size": 5},
    ]
    if change:
        change(layers[1])
    manifest = {"schemaVersion": 2, "mediaType": "x", "config": {}, "layers": layers}
    write(store / "manifests" / name, json.dumps(manifest).encode())
    return blob


OLLAMA = ".ollama/models"


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        (
            "registry.ollama.ai/library/llama3/8b",
            ["llama3:8b", "library/llama3:8b", "registry.ollama.ai/library/llama3:8b"],
        ),
        ("registry.ollama.ai/library/llama3.1/latest", ["llama3.1", "llama3.1:latest"]),
        ("registry.ollama.ai/me/mine/latest", ["me/mine", "me/mine:latest"]),
        ("hf.co/org/Repo-GGUF/Q4_K_M", ["hf.co/org/Repo-GGUF:Q4_K_M"]),
    ],
)
def test_ollama_names(path: str, arguments: list[str], home: Path) -> None:
    blob = pulled(home / OLLAMA, path)
    for argument in arguments:
        assert load_header(argument).path == str(blob)


def test_ollama_models_comes_first(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pulled(home / OLLAMA, "registry.ollama.ai/library/m/latest", named("home"))
    pulled(tmp_path, "registry.ollama.ai/library/m/latest", named("named"))
    assert name_of(load_header("m")) == "home"
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    assert name_of(load_header("m")) == "named"


def test_the_store_of_the_system_service_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ollama.stores()[-1] == "/usr/share/ollama/.ollama/models"
    monkeypatch.setattr(ollama, "_SYSTEM_STORE", str(tmp_path))
    pulled(tmp_path, "registry.ollama.ai/library/m/latest", named("system"))
    assert name_of(load_header("m")) == "system"


def test_a_file_goes_before_a_name(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pulled(home / OLLAMA, "registry.ollama.ai/library/m/latest", named("store"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "m", named("file"))
    assert name_of(load_header("m")) == "file"


def test_ollama_stores_that_are_not_whole(home: Path) -> None:
    at = "registry.ollama.ai/library/m/latest"
    blob = pulled(home / OLLAMA, at)
    blob.write_bytes(MODEL[:-1])
    refused("m", store_errors.IncompleteModelError, "not completely downloaded", "ollama pull m")
    blob.unlink()
    refused("m", store_errors.IncompleteModelError, "not completely downloaded")
    for digest in ("sha256:../../../etc/passwd", "sha256:" + "A" * 64, "md5:1", None, 7):
        pulled(home / OLLAMA, at, change=lambda layer, digest=digest: layer.update(digest=digest))  # type: ignore[misc]
        refused("m", store_errors.IncompleteModelError, "no usable blob")
    pulled(home / OLLAMA, at, change=lambda layer: layer.update(mediaType="application/vnd.ollama.image.tensor"))
    manifest = home / OLLAMA / "manifests" / at
    document = json.loads(manifest.read_text())
    del document["layers"][2]
    manifest.write_text(json.dumps(document))
    refused("m", store_errors.NoModelError, "no GGUF")
    for broken in (b"", b"{", b"[]", b'{"layers":3}', b'{"layers":[3]}', b"\xff", b"[" * 100_000):
        manifest.write_bytes(broken)
        refused("m", store_errors.IncompleteModelError, "damaged", "ollama pull m")


def test_an_ollama_store_that_is_closed_to_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "ollama" / "models"
    pulled(store, "registry.ollama.ai/library/m/latest")
    monkeypatch.setenv("OLLAMA_MODELS", str(store))
    store.chmod(0)
    try:
        with as_nobody():
            refused("m", store_errors.UnreadableModelError, "join the group ollama")
    finally:
        store.chmod(0o755)


@pytest.mark.parametrize("name", ["../m", "m:../x", "a/../b:c", "..", "m:", ":x", "a/b/c/d", "a//b", "m:a/b", "ä"])
def test_names_that_could_leave_the_store(name: str, home: Path) -> None:
    # each points to a real manifest if it is pasted into a path
    pulled(home / OLLAMA, "registry.ollama.ai/library/m/latest")
    pulled(home / OLLAMA, "registry.ollama.ai/m/latest/x")
    assert ollama.find(name) is None


# ---------------------------------------------------------------- Hugging Face


def cached(
    hub: Path, files: dict[str, bytes], commit: str = "a1", ref: str | None = "a1", repo: str = "org/Repo"
) -> None:
    """A repository in the cache, as huggingface_hub and llama.cpp's -hf leave it."""
    folder = hub / f"models--{repo.replace('/', '--')}"
    for name, data in files.items():
        blob = write(folder / "blobs" / hashlib.sha256(name.encode() + data).hexdigest(), data)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    if ref:
        write(folder / "refs" / "main", ref.encode())


HUB = ".cache/huggingface/hub"
FILES = {
    "Repo-Q4_K_M.gguf": named("q4km"), "Repo-Q4_K.gguf": named("q4k"), "Repo-UD-Q4_K_XL.gguf": named("ud"),
    "Repo_q8_0.gguf": named("q8"), "mmproj-Repo-F16.gguf": named("projector"), "F16/Repo-f16.gguf": named("f16"),
    "config.json": b"{}",
}  # fmt: skip


@pytest.mark.parametrize(
    ("quant", "name"),
    [(":Q4_K_M", "q4km"), (":q4_k_m", "q4km"), (":Q4_K", "q4k"), (":UD-Q4_K_XL", "ud"), (":Q4_K_XL", "ud"),
     (":Q8_0", "q8"), (":F16", "f16"), ("", "q4km")],
)  # fmt: skip
def test_hugging_face_ids(quant: str, name: str, home: Path) -> None:
    cached(home / HUB, FILES)
    header = load_header("org/Repo" + quant)
    assert name_of(header) == name
    assert "/snapshots/a1/" in header.path  # the link: a blob's name says nothing


@pytest.mark.parametrize(
    ("variable", "below"),
    [("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("LLAMA_CACHE", ""), ("HF_HOME", "hub"),
     ("XDG_CACHE_HOME", "huggingface/hub")],
)  # fmt: skip
def test_the_variables_of_the_cache(
    variable: str, below: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(home / HUB, {"m.gguf": named("home")})
    assert name_of(load_header("org/Repo")) == "home"
    monkeypatch.setenv(variable, str(tmp_path))
    assert name_of(load_header("org/Repo")) == "home"  # nothing there
    cached(tmp_path / below, {"m.gguf": named("named")})
    assert name_of(load_header("org/Repo")) == "named"


def test_the_current_commit_and_without_one_the_newest(home: Path) -> None:
    for commit in ("a1", "b2", "c3"):
        cached(home / HUB, {"m.gguf": named(commit)}, commit, ref=None)
    snapshots = home / HUB / "models--org--Repo" / "snapshots"
    for age, commit in ((30, "a1"), (10, "b2"), (20, "c3")):
        os.utime(snapshots / commit, (1000 - age, 1000 - age))
    assert name_of(load_header("org/Repo")) == "b2"
    write(snapshots.parent / "refs" / "main", b"c3\n")
    assert name_of(load_header("org/Repo")) == "c3"
    write(snapshots.parent / "refs" / "main", b"../../../x")
    assert name_of(load_header("org/Repo")) == "b2"


def test_a_split_model_of_the_cache(home: Path) -> None:
    cached(home / HUB, {f"Q6_K/R-Q6_K-0000{n + 1}-of-00002.gguf": shard(n, 2) for n in range(2)})
    assert [t.shard for t in load_header("org/Repo:Q6_K").tensors] == [0, 1]


def test_caches_that_have_no_such_file(home: Path) -> None:
    cached(home / HUB, {"R-Q5_K_M.gguf": MODEL, "R-Q6_K.gguf": MODEL})
    refused("org/Repo", store_errors.SeveralModelsError, "2 models", "R-Q5_K_M.gguf, R-Q6_K.gguf", "add :QUANT")
    refused("org/Repo:Q4_0", store_errors.NoModelError, "no Q4_0", "R-Q5_K_M.gguf, R-Q6_K.gguf")
    refused("org/Other", store_errors.ModelNotFoundError, "org/Other")
    cached(home / HUB, {"config.json": b"{}"}, repo="org/Safe")
    refused("org/Safe", store_errors.NoModelError, "no GGUF")
    cached(home / HUB, {"m.gguf": MODEL}, repo="org/Half")
    for blob in (home / HUB / "models--org--Half" / "blobs").iterdir():
        blob.rename(f"{blob}.incomplete")
    refused("org/Half", store_errors.IncompleteModelError, "not completely in the cache")
    (home / HUB / "models--org--Void" / "snapshots").mkdir(parents=True)
    refused("org/Void", store_errors.ModelNotFoundError, "org/Void")


@pytest.mark.parametrize("name", ["../Repo", "org/..", "org/Repo:../x", "org/Repo/x", "org", "org/"])
def test_ids_that_could_leave_the_cache(name: str, home: Path) -> None:
    cached(home / HUB, {"m.gguf": MODEL})
    assert hugging_face.find(name) is None


def test_quants_are_whole_words() -> None:
    assert hugging_face.has_quant("a/Llama-3.1-8B-Q4_K_M-00001-of-00002.gguf", "q4_k_m")
    assert hugging_face.has_quant("a/llama.Q5_0.gguf", "Q5_0")
    assert hugging_face.has_quant("a/llama_Q5_0.gguf", "Q5_0")
    assert not hugging_face.has_quant("a/x-IQ4_XS.gguf", "Q4_XS")
    assert not hugging_face.has_quant("Q4_0/x-Q8_0.gguf", "Q4_0")


def test_arrays_reach_the_caller_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", honest([array("deci.attention.head_count_kv", "int32", range(200))]))
    assert load_header(str(path)).metadata["deci.attention.head_count_kv"] == tuple(range(200))


@pytest.mark.parametrize("target", ["l.gguf", "gone", "a.gguf/below"], ids=["itself", "gone", "below a file"])
@pytest.mark.parametrize("name", ["l.gguf", "l"])
def test_a_link_that_leads_nowhere_hides_nothing(target: str, name: str, tmp_path: Path) -> None:
    write(tmp_path / "a.gguf")
    (tmp_path / name).symlink_to(name if target == "l.gguf" else target)
    assert name_of(load_header(str(tmp_path))) == "it"


def test_a_link_to_itself_beside_the_snapshots(home: Path) -> None:
    cached(home / HUB, {"m.gguf": MODEL})
    (home / HUB / "models--org--Repo" / "snapshots" / "l").symlink_to("l")
    assert name_of(load_header("org/Repo")) == "it"
