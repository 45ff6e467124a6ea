"""What each store lists, from folders laid out by hand as the programs lay them out."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from advisor.stores import folder, gpt4all, hugging_face, jan, llama_cache, lm_studio, ollama, ollama_service, textgen
from advisor.stores.resolve import find_model
from advisor.stores.types import Companion, StoredModel, StoreReport
from advisor.stores.walk import walk
from tests.tools.stores import LIBRARY, as_nobody, download, pull
from tests.tools.tiny_models import adapter, projector, tiny_model, write


def names(report: StoreReport) -> list[str]:
    return sorted(model.name for model in report.models)


def one(report: StoreReport, name: str) -> StoredModel:
    (found,) = [model for model in report.models if model.name == name]
    return found


# ---------------------------------------------------------------- plain folders


def test_a_folder_and_everything_below(tmp_path: Path) -> None:
    size = len(tiny_model())
    for name in ("a.gguf", "deep/er/b.gguf"):
        write(tmp_path / name, tiny_model())
    write(tmp_path / "notes.txt", b"x")
    write(tmp_path / ".hidden" / "c.gguf", tiny_model())
    report = folder.list_models(str(tmp_path))
    assert (report.store, report.folder, report.status, report.detail) == ("folder", str(tmp_path), "ok", "")
    assert names(report) == ["a", "deep/er/b"]
    model = one(report, "deep/er/b")
    path = tmp_path / "deep/er/b.gguf"
    assert (model.path, model.paths, model.file_bytes) == (str(path), (str(path),), size)
    status = path.stat()
    assert model.identity == ((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns),)
    assert model.problem is None


def test_parts_are_one_model(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"m-0000{n + 1}-of-00003.gguf", tiny_model(part=(n, 3), n_layer=3)) for n in range(3)]
    (model,) = folder.list_models(str(tmp_path)).models
    assert (model.name, model.path, model.problem) == ("m", str(parts[0]), None)
    assert model.paths == tuple(map(str, parts))
    assert model.file_bytes == sum(part.stat().st_size for part in parts)
    assert len(model.identity) == 3


@pytest.mark.parametrize(("gone", "named"), [(0, "00001"), (1, "00002"), (2, "00003")])
def test_a_missing_part_is_named(gone: int, named: str, tmp_path: Path) -> None:
    for n in range(3):
        if n != gone:
            write(tmp_path / f"m-0000{n + 1}-of-00003.gguf", tiny_model(part=(n, 3), n_layer=3))
    (model,) = folder.list_models(str(tmp_path)).models
    assert model.problem is not None
    assert f"m-{named}-of-00003.gguf is missing (1 of 3 parts are)" in model.problem


def test_downloads_that_go_on_and_links_to_nowhere(tmp_path: Path) -> None:
    for name in ("incomplete-a.gguf", "b.gguf.part", "c.gguf", "c.gguf.aria2", "d.json.part"):
        write(tmp_path / name, b"GGUF")
    (tmp_path / "e.gguf").symlink_to("nowhere")
    report = folder.list_models(str(tmp_path))
    problems = {os.path.basename(model.path): model.problem for model in report.models}
    assert set(problems) == {"incomplete-a.gguf", "b.gguf.part", "c.gguf", "e.gguf"}
    for name in ("incomplete-a.gguf", "b.gguf.part", "c.gguf"):
        assert problems[name] == (
            f"{tmp_path / name} is still being downloaded; wait until it is complete, or start it again."
        )
    assert "link to a file that does not exist" in str(problems["e.gguf"])


def test_pipes_and_folders_called_gguf_are_no_models(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    assert folder.list_models(str(tmp_path)).models == ()


def test_a_folder_that_is_not_there_or_closed_or_a_file(tmp_path: Path) -> None:
    absent = folder.list_models(str(tmp_path / "no"))
    assert (absent.status, absent.models) == ("absent", ())
    assert "does not exist" in absent.detail
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    with as_nobody():
        report = folder.list_models(str(closed))
    assert report.status == "unreadable"
    assert "not readable for you" in report.detail
    assert folder.list_models(str(write(tmp_path / "m.gguf", b"x"))).status == "absent"


def test_a_closed_folder_below_is_passed_over_and_said() -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to others
        os.chmod(place, 0o755)
        write(Path(place) / "open.gguf", tiny_model())
        (Path(place) / "closed").mkdir(mode=0)
        with as_nobody():
            report = folder.list_models(place)
    assert names(report) == ["open"]
    assert report.detail == "1 folder below cannot be read"


def test_rings_depth_and_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.gguf", tiny_model())
    (tmp_path / "ring").symlink_to(tmp_path)
    assert walk(str(tmp_path)).linked == (str(tmp_path),)
    assert len(walk(str(tmp_path)).files) == 1
    write(tmp_path / "/".join("123456789") / "b.gguf", tiny_model())
    assert "more than 8 levels down" in folder.list_models(str(tmp_path)).detail
    many = tmp_path / "many"
    for number in range(30):
        write(many / f"{number}.gguf", b"")
    monkeypatch.setattr("advisor.stores.walk.MAX_MODELS", 10)
    report = folder.list_models(str(many))
    assert 10 <= len(report.models) <= 11
    assert "only the first 100,000 entries or 10 files were looked at" in report.detail
    monkeypatch.setattr("advisor.stores.walk.MAX_MODELS", 1000)
    monkeypatch.setattr("advisor.stores.walk.MAX_ENTRIES", 20)
    assert len(folder.list_models(str(many)).models) <= 21


def test_a_folder_laid_out_as_a_store_is_read_as_that(tmp_path: Path) -> None:
    pull(tmp_path / "o", f"{LIBRARY}/m/latest")
    download(tmp_path / "h", "org/Repo", {"x-Q4_0.gguf": tiny_model()})
    assert (folder.list_models(str(tmp_path / "o")).store, names(folder.list_models(str(tmp_path / "o")))) == (
        "ollama",
        ["m:latest"],
    )
    assert names(folder.list_models(str(tmp_path / "h"))) == ["org/Repo:Q4_0"]


# ---------------------------------------------------------------- Ollama


def test_ollama_names_and_layers(tmp_path: Path) -> None:
    blob = pull(
        tmp_path,
        f"{LIBRARY}/llava/7b",
        tiny_model("llava"),
        [
            ("projector", projector()),
            ("adapter", adapter()),
            ("draft", tiny_model("draft")),
            ("params", b'{"num_ctx": 4096, "stop": ["a"]}'),
            ("template", b"x"),
        ],
    )
    pull(tmp_path, "hf.co/org/Repo/Q4_K_M")
    pull(tmp_path, "registry.ollama.ai/me/mine/latest", tiny_model("mine"))
    report = ollama.list_models(str(tmp_path))
    assert names(report) == ["hf.co/org/Repo:Q4_K_M", "llava:7b", "me/mine:latest"]
    for name in names(report):
        assert name == ollama.name_of(tuple(_parts(name)))  # type: ignore[arg-type]
    model = one(report, "llava:7b")
    assert (model.path, model.problem) == (str(blob), None)
    assert [companion.kind for companion in model.companions] == ["mmproj", "adapter", "draft"]
    assert Path(model.companions[0].path).read_bytes() == projector()
    assert model.params == {"num_ctx": 4096, "stop": ["a"]}


def _parts(name: str) -> list[str]:
    place, tag = name.rsplit(":", 1)
    parts = place.split("/")
    return ["registry.ollama.ai", "library"][: 3 - len(parts)] + parts + [tag]


def test_ollama_names_are_those_that_a_model_argument_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    for manifest in (f"{LIBRARY}/llama3/8b", "hf.co/org/Repo/Q4_K_M", "registry.ollama.ai/me/mine/latest"):
        pull(tmp_path, manifest)
    for model in ollama.list_models(str(tmp_path)).models:
        assert find_model(model.name) == model.path


def test_ollama_models_without_a_gguf(tmp_path: Path) -> None:
    write(tmp_path / "manifests" / LIBRARY / "cloud/latest", b'{"layers": []}')
    tensor = {"mediaType": "application/vnd.ollama.image.tensor", "digest": "sha256:" + "0" * 64, "size": 1}
    write(tmp_path / "manifests" / LIBRARY / "mlx/latest", json.dumps({"layers": [tensor]}).encode())
    report = ollama.list_models(str(tmp_path))
    assert "runs in the cloud" in str(one(report, "cloud:latest").problem)
    assert "safetensors" in str(one(report, "mlx:latest").problem)
    assert all(model.path == "" and model.paths == () for model in report.models)


def test_ollama_models_that_are_not_whole(tmp_path: Path) -> None:
    short = pull(tmp_path, f"{LIBRARY}/short/latest", tiny_model("short"))
    short.write_bytes(short.read_bytes()[:-1])
    pull(tmp_path, f"{LIBRARY}/gone/latest", tiny_model("gone")).unlink()
    half = pull(tmp_path, f"{LIBRARY}/half/latest", tiny_model("half"), [("projector", projector())])
    assert half.exists()
    for blob in (tmp_path / "blobs").iterdir():
        if blob.read_bytes() == projector():
            blob.unlink()
    for number, broken in enumerate((b"", b"{", b"[]", b'{"layers":3}', b'{"layers":[3]}', b"\xff", b"[" * 100_000)):
        write(tmp_path / "manifests" / LIBRARY / f"broken{number}/latest", broken)
    for index in ("../../etc/passwd", "A" * 64, 7):
        layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{index}", "size": 1}
        write(tmp_path / "manifests" / LIBRARY / f"digest{len(str(index))}/x", json.dumps({"layers": [layer]}).encode())
    report = ollama.list_models(str(tmp_path))
    assert len(report.models) == 13
    for model in report.models:
        assert model.problem is not None, model.name
        assert f"ollama pull {model.name}" in model.problem


def test_ollama_parameters_that_are_damaged_are_none(tmp_path: Path) -> None:
    for number, params in enumerate((b"", b"[1]", b"{", b"[" * 100_000, b'{"num_ctx": 1}')):
        pull(tmp_path, f"{LIBRARY}/m{number}/latest", tiny_model(str(number)), [("params", params)])
    report = ollama.list_models(str(tmp_path))
    assert [dict(one(report, f"m{number}:latest").params) for number in range(5)] == [{}, {}, {}, {}, {"num_ctx": 1}]


def test_ollama_downloads_that_go_on_are_counted(tmp_path: Path) -> None:
    pull(tmp_path, f"{LIBRARY}/m/latest")
    for name in ("sha256-00-partial", "sha256-00-partial-0", "sha256-00-partial-1"):
        write(tmp_path / "blobs" / name, b"x")
    assert ollama.list_models(str(tmp_path)).detail == "1 download of blobs not finished"


def test_the_store_of_the_service_that_is_closed_to_us(tmp_path: Path) -> None:
    place = tmp_path / "ollama"
    pull(place / "models", f"{LIBRARY}/m/latest")
    for path in (tmp_path.parent, tmp_path):
        path.chmod(0o755)
    place.chmod(0)
    try:
        with as_nobody():
            report = ollama.list_models(str(place / "models"))
    finally:
        place.chmod(0o755)
    assert (report.status, report.models) == ("unreadable", ())
    assert report.detail == f"{place}/models is not readable for you; join the group ollama and log in again."


def test_ollama_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ollama_service, "_FOLDERS", (str(tmp_path / "lib"), str(tmp_path / "etc")))
    system = "/usr/share/ollama/.ollama/models"
    assert ollama.default_folders({}, "/h") == ["/h/.ollama/models", system]
    assert ollama.default_folders({"OLLAMA_MODELS": "/o"}, "/h") == ["/o", "/h/.ollama/models", system]
    write(tmp_path / "lib/ollama.service", b"[Service]\nEnvironment=OLLAMA_MODELS=/unit\n")
    assert ollama.default_folders({}, "/h")[0] == "/unit"
    write(tmp_path / "etc/ollama.service.d/a.conf", b'[Service]\nEnvironment="A=1" "OLLAMA_MODELS=/drop in"\n')
    assert ollama.default_folders({}, "/h")[0] == "/drop in"
    write(tmp_path / "env", b"# c\nOLLAMA_MODELS=/env\n")
    write(tmp_path / "etc/ollama.service.d/b.conf", f"[Service]\nEnvironmentFile=-{tmp_path}/env\n".encode())
    assert ollama.default_folders({}, "/h")[0] == "/env"
    write(
        tmp_path / "etc/ollama.service.d/c.conf", b'Environment="OLLAMA_MODELS=/open\n#Environment=OLLAMA_MODELS=/c\n'
    )
    write(tmp_path / "etc/ollama.service.d/d.conf", b"EnvironmentFile=/no/where\n\xff\xfe")
    assert ollama.default_folders({}, "/h")[0] == "/env"


# ---------------------------------------------------------------- Hugging Face


def test_several_snapshots_of_one_blob_are_one_model(tmp_path: Path) -> None:
    old, new = {"m-Q4_0.gguf": tiny_model("4"), "gone-Q8_0.gguf": tiny_model("8")}, {"m-Q4_0.gguf": tiny_model("4")}
    download(tmp_path, "org/Repo", old, "0000aaaabbbb", current=False)
    snapshot = download(tmp_path, "org/Repo", new, "1111")
    report = hugging_face.list_models(str(tmp_path))
    assert names(report) == ["org/Repo:Q4_0", "org/Repo:gone-Q8_0@0000aaaa"]
    model = one(report, "org/Repo:Q4_0")
    assert model.path == str(snapshot / "m-Q4_0.gguf")  # the link: blobs have no name and change with an update
    assert model.identity[0].inode == (snapshot / "m-Q4_0.gguf").stat().st_ino


def test_hugging_face_names_are_those_that_a_model_argument_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        name: tiny_model(name)
        for name in ("R-Q4_K_M.gguf", "R-Q4_K_S.gguf", "R-UD-Q4_K_XL.gguf", "R_q8_0.gguf", "F16/R.f16.gguf",
                     "R-IQ2_XXS.gguf", "R-BF16.gguf", "R-MXFP4.gguf")
    }  # fmt: skip
    download(tmp_path, "org/Repo", files)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    report = hugging_face.list_models(str(tmp_path))
    assert len(report.models) == 8
    for model in report.models:
        assert ":" in model.name
        assert find_model(model.name) == model.path


def test_hugging_face_names_where_a_quantization_is_not_enough(tmp_path: Path) -> None:
    files = {"a-Q4_0.gguf": tiny_model("a"), "sub/longer-Q4_0.gguf": tiny_model("b"), "plain.gguf": tiny_model("c")}
    download(tmp_path, "org/Repo", files)
    assert names(hugging_face.list_models(str(tmp_path))) == [
        "org/Repo/plain", "org/Repo/sub/longer-Q4_0", "org/Repo:Q4_0",
    ]  # fmt: skip


def test_parts_in_the_hugging_face_cache(tmp_path: Path) -> None:
    download(
        tmp_path, "org/Repo", {f"Q8_0/m-Q8_0-0000{n + 1}-of-00002.gguf": tiny_model(part=(n, 2)) for n in range(2)}
    )
    (model,) = hugging_face.list_models(str(tmp_path)).models
    assert (model.name, len(model.paths), model.problem) == ("org/Repo:Q8_0", 2, None)


def test_a_repository_without_links_without_blobs_without_a_reference(tmp_path: Path) -> None:
    write(tmp_path / "models--org--Real/snapshots/aaaa/m-Q4_0.gguf", tiny_model())  # no links on this system
    (tmp_path / "models--org--Empty").mkdir()
    write(tmp_path / "models--org--Strange/refs/main", b"../../..")
    write(tmp_path / "models--org--Strange/snapshots/aaaa/m-Q4_0.gguf", tiny_model("x"))
    report = hugging_face.list_models(str(tmp_path))
    assert (names(report), report.detail) == (["org/Real:Q4_0", "org/Strange:Q4_0"], "")


def test_hugging_face_downloads_that_go_on(tmp_path: Path) -> None:
    snapshot = download(tmp_path, "org/Repo-GGUF", {"m-Q4_0.gguf": tiny_model()})
    (snapshot / "n-Q8_0.gguf").symlink_to("../../blobs/not-there")
    write(tmp_path / "models--org--Repo-GGUF/blobs/0123.incomplete", b"GGUF")
    write(tmp_path / "models--org--bert/blobs/0123.incomplete", b"x")  # most repositories have no GGUF
    report = hugging_face.list_models(str(tmp_path))
    problems = sorted(model.problem for model in report.models if model.problem)
    assert len(problems) == 2
    assert "0123.incomplete is still being downloaded" in problems[0]
    assert "n-Q8_0.gguf is a link to a file that does not exist" in problems[1]


def test_hugging_face_folders() -> None:
    variables = {
        "LLAMA_CACHE": "/1", "HF_HUB_CACHE": "/2", "HUGGINGFACE_HUB_CACHE": "/3", "HF_HOME": "/4",
        "XDG_CACHE_HOME": "/5",
    }  # fmt: skip
    last = "/h/.cache/huggingface/hub"
    assert hugging_face.default_folders(variables, "/h") == ["/1", "/2", "/3", "/4/hub", "/5/huggingface/hub", last]
    assert hugging_face.default_folders({}, "/h") == [last]


# ---------------------------------------------------------------- the others


def test_the_old_llama_cpp_cache_is_flat(tmp_path: Path) -> None:
    write(tmp_path / "org_repo_m.gguf", tiny_model())
    write(tmp_path / "org_repo_m.gguf.json", b"{}")
    write(tmp_path / "x.gguf.downloadInProgress", b"GGUF")
    write(tmp_path / "models--org--R/snapshots/a/new.gguf", tiny_model())
    report = llama_cache.list_models(str(tmp_path))
    assert sorted((model.name, model.problem is None) for model in report.models) == [
        ("org_repo_m", True), ("x.gguf.downloadInProgress", False),
    ]  # fmt: skip
    assert report.detail == ""


@pytest.mark.parametrize(
    ("platform", "folders"),
    [
        ("linux", ["/c/llama.cpp"]),
        ("darwin", ["/h/Library/Caches/llama.cpp"]),
        ("win32", ["/l/llama.cpp"]),
    ],
)
def test_places_of_the_old_cache(platform: str, folders: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    environ = {"XDG_CACHE_HOME": "/c", "LOCALAPPDATA": "/l"}
    assert llama_cache.default_folders(environ, "/h") == folders
    assert llama_cache.default_folders({**environ, "LLAMA_CACHE": "/own"}, "/h") == ["/own", *folders]


def test_lm_studio(tmp_path: Path, home: Path) -> None:
    usual = [f"{home}/.cache/lm-studio/models", f"{home}/.lmstudio/models"]
    assert lm_studio.default_folders({}, str(home)) == usual
    write(home / ".lmstudio-home-pointer", f"{tmp_path}/lm\n".encode())
    assert lm_studio.default_folders({}, str(home)) == [f"{tmp_path}/lm/models", *usual]
    write(tmp_path / "lm/settings.json", json.dumps({"downloadsFolder": str(tmp_path / "down")}).encode())
    assert lm_studio.default_folders({}, str(home)) == [f"{tmp_path}/down", f"{tmp_path}/lm/models", *usual]
    write(tmp_path / "down/pub/repo/m-Q4_0.gguf", tiny_model())
    write(tmp_path / "down/pub/repo/downloading_n.gguf.part", b"GGUF")
    report = lm_studio.list_models(str(tmp_path / "down"))
    assert one(report, "pub/repo/m-Q4_0").problem is None
    assert len(report.models) == 2
    for broken in (b"", b"[]", b"{", b'{"downloadsFolder": 3}', b'{"downloadsFolder": "rel"}', b"[" * 100_000):
        write(tmp_path / "lm/settings.json", broken)
        assert lm_studio.default_folders({}, str(home)) == [f"{tmp_path}/lm/models", *usual]
    for broken in (b"", b"relative", b"/a\0b", b"\xff"):
        write(home / ".lmstudio-home-pointer", broken)
        assert lm_studio.default_folders({}, str(home)) == usual


def test_jan(tmp_path: Path) -> None:
    data, models = tmp_path / "data", tmp_path / "data/llamacpp/models"
    elsewhere = write(tmp_path / "elsewhere/own.gguf", tiny_model("own"))
    inside = write(models / "org/Repo/model.gguf", tiny_model("in"))
    vision = write(models / "org/Repo/mmproj.gguf", projector())
    write(
        models / "org/Repo/model.yml",
        b"model_path: llamacpp/models/org/Repo/model.gguf\nmmproj_path: llamacpp/models/org/Repo/mmproj.gguf\n",
    )
    write(models / "own/model.yml", f"model_path: >-\n  {elsewhere}\n".encode())
    write(models / "gone/model.yml", b"model_path: /no/where.gguf\n")
    write(models / "api/model.yml", b"name: remote\n")
    loose = write(models / "loose.gguf", tiny_model("loose"))
    for n in range(2):
        write(models / f"split/m-0000{n + 1}-of-00002.gguf", tiny_model(part=(n, 2)))
    write(models / "split/model.yml", b"model_path: llamacpp/models/split/m-00001-of-00002.gguf\n")
    for number, broken in enumerate(
        (b"[1", b"a: &a [*a]", b"- 1", b"\xff", b"!!python/object:os.system x", b"[" * 999)
    ):
        write(models / f"bad{number}/model.yml", broken)
    report = jan.list_models(str(data))
    assert (report.store, report.folder) == ("jan", str(data))
    found = {model.name: model for model in report.models}
    assert found["org/Repo"].path == str(inside)
    assert found["org/Repo"].companions == (Companion("mmproj", str(vision)),)
    assert found["own"].path == str(elsewhere)
    assert found["loose"].path == str(loose)
    assert len(found["split"].paths) == 2
    assert "does not exist" in str(found["gone"].problem)
    usable = {name for name, model in found.items() if model.problem is None}
    assert usable == {"org/Repo", "own", "loose", "split"}
    assert jan.outside_folders(str(data)) == ["/no", str(tmp_path / "elsewhere")]


def test_jan_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jan.default_folders({}, "/h") == ["/h/.local/share/Jan/data", "/h/jan", "/h/.config/Jan/data"]
    assert jan.default_folders({"XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c"}, "/h")[::2] == [
        "/d/Jan/data",
        "/c/Jan/data",
    ]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jan.default_folders({}, "/h")[0] == "/h/Library/Application Support/Jan/data"
    monkeypatch.setattr(sys, "platform", "win32")
    assert jan.default_folders({"APPDATA": "/r"}, "/h")[0] == "/r/Jan/data"


def test_gpt4all(home: Path, tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": f"{home}/.config"}
    usual = [f"{home}/.local/share/nomic.ai/GPT4All", f"{home}/.cache/gpt4all"]
    assert gpt4all.default_folders(environ, str(home)) == usual
    ini = home / ".config/nomic.ai/GPT4All.ini"
    write(ini, f"[Other]\nmodelPath=/wrong\n[General]\nuserDefaultModel=x\nmodelPath={tmp_path}\n".encode())
    assert gpt4all.default_folders(environ, str(home)) == [str(tmp_path), *usual]
    write(ini, b'[General]\nmodelPath="/with, comma"\n')
    assert gpt4all.default_folders(environ, str(home))[0] == "/with, comma"
    for broken in (b"", b"modelPath=/x", b"[General]\nmodelPath=rel", b"[General]\nmodelPath=/a\0b", b"\xff"):
        write(ini, broken)
        assert gpt4all.default_folders(environ, str(home)) == usual
    write(tmp_path / "m.Q4_0.gguf", tiny_model())
    write(tmp_path / "incomplete-n.gguf", b"GGUF")
    report = gpt4all.list_models(str(tmp_path))
    assert [model.name for model in report.models if model.problem is None] == ["m.Q4_0"]


def test_textgen(tmp_path: Path) -> None:
    write(tmp_path / "server.py", b"")
    write(tmp_path / "user_data/models/m.gguf", tiny_model())
    report = folder.list_models(str(tmp_path))
    assert (report.store, names(report)) == ("textgen", ["m"])
    for line in (b"--listen --model-dir '%s'\n", b"# --model-dir /no\n--model-dir=%s\n"):
        write(tmp_path / "user_data/CMD_FLAGS.txt", line % os.fsencode(tmp_path / "own"))
        assert textgen.model_folder(str(tmp_path)) == str(tmp_path / "own")
        assert folder.outside_folders(str(tmp_path)) == [str(tmp_path / "own")]
    for broken in (b"--model-dir", b"--x 'open", b"\xff"):
        write(tmp_path / "user_data/CMD_FLAGS.txt", broken)
        assert textgen.model_folder(str(tmp_path)) == str(tmp_path / "user_data/models")
