"""All stores together: each file once, companions with their models, headers read once, folders to watch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor.stores import facts, ollama_service
from advisor.stores.cache import Cache
from advisor.stores.scan import scan_stores, watched_folders
from advisor.stores.types import Companion, SeenAs, StoredModel
from tests.tools.gguf_files import F32, Q8_0, kv
from tests.tools.stores import LIBRARY, as_nobody, download, pull
from tests.tools.tiny_models import N_EMBD, adapter, filled, imatrix, projector, tiny_model, write


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ollama_service, "_FOLDERS", ())
    monkeypatch.setattr("advisor.stores.ollama._SYSTEM_STORE", str(tmp_path / "no-system-store"))


def found(*folders: Path, defaults: bool = False) -> dict[str, StoredModel]:
    reports = scan_stores(os.environ, [str(folder) for folder in folders], defaults, cache=Cache(None))
    return {model.name: model for report in reports for model in report.models}


def beside(model: StoredModel) -> list[tuple[str, str]]:
    return [(companion.kind, os.path.basename(companion.path)) for companion in model.companions]


# ---------------------------------------------------------------- facts


def test_what_headers_say(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", tiny_model("My model", n_ctx_train=8192))
    model = found(tmp_path)["m"]
    assert model.facts is not None
    assert model.facts[:5] == ("model", "llama", "My model", "Q8_0", 8192)
    # two blocks: 4 square and 3 feed-forward matrices, embedding and output at 34 bytes per 32; three norms and one
    elements = 2 * (4 * 64 * 64 + 3 * 64 * 128) + 2 * 64 * 96
    assert model.facts.weights_bytes == elements // 32 * 34 + (2 * 2 + 1) * 64 * 4


def test_parts_are_read_together(tmp_path: Path) -> None:
    write(tmp_path / "whole.gguf", tiny_model())
    for n in range(2):
        write(tmp_path / f"m-0000{n + 1}-of-00002.gguf", tiny_model(part=(n, 2)))
    models = found(tmp_path)
    assert models["m"].facts is not None
    assert models["m"].facts == models["whole"].facts


def test_broken_files_are_problems_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "good.gguf", tiny_model())
    write(tmp_path / "cut.gguf", tiny_model()[:-100])
    write(tmp_path / "page.gguf", b"<!doctype html><html>")
    write(tmp_path / "empty.gguf", b"")
    write(tmp_path / "deep.gguf", b"GGUF" + b"\x03\0\0\0" + b"\xff" * 64)
    for n in range(2):
        write(tmp_path / f"mixed-0000{n + 1}-of-00002.gguf", tiny_model(part=(0, 2)))
    with (tmp_path / "sparse.gguf").open("wb") as out:
        data = filled([kv("general.architecture", "string", "llama")], [("w", (1024, 1024), F32)])
        out.write(data[:4096])
        out.truncate(len(data))
    models = found(tmp_path)
    assert [name for name, model in models.items() if model.problem is None] == ["good"]
    for name, words in {
        "cut": "incomplete", "page": "web page", "empty": "is empty", "sparse": "none of its data", "mixed": "part",
    }.items():  # fmt: skip
        assert words in str(models[name].problem)
        assert models[name].facts is None
    assert all(str(model.problem).endswith(".") for model in models.values() if model.problem)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", tiny_model())
    path.chmod(0)
    with as_nobody():
        read, problem, lasting = facts.read_facts([str(path)])
    assert (read, lasting) == (None, False)
    assert "not readable for you" in str(problem)


# ---------------------------------------------------------------- companions


def test_what_lies_beside_one_model_is_its(tmp_path: Path) -> None:
    write(tmp_path / "m-Q8_0.gguf", tiny_model())
    write(tmp_path / "m-F16.gguf", tiny_model("other quantization", kind=Q8_0))
    write(tmp_path / "mmproj-F16.gguf", projector())
    write(tmp_path / "lora.gguf", adapter())
    write(tmp_path / "other-lora.gguf", adapter("gemma3"))
    write(tmp_path / "imatrix.gguf", imatrix())
    models = found(tmp_path)
    assert set(models) == {"m-Q8_0", "m-F16", "other-lora"}
    for name in ("m-Q8_0", "m-F16"):
        assert sorted(beside(models[name])) == [
            ("adapter", "lora.gguf"), ("imatrix", "imatrix.gguf"), ("mmproj", "mmproj-F16.gguf"),
        ]  # fmt: skip
    assert models["other-lora"].kind == "adapter"


def test_the_header_decides_and_not_the_name(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    write(tmp_path / "vision.gguf", projector())
    write(tmp_path / "sub" / "mmproj-in-name-only.gguf", tiny_model())
    models = found(tmp_path)
    assert beside(models["m"]) == [("mmproj", "vision.gguf")]
    assert models["sub/mmproj-in-name-only"].kind == "model"


def test_names_decide_between_several_models(tmp_path: Path) -> None:
    for name in ("gemma-3-4b-it-Q4_K_M", "gemma-3-4b-it-Q8_0", "gemma-3-12b-it-Q4_K_M", "Qwen2.5-VL-7B-Instruct-Q4_0",
                 "Qwen2.5-VL-7B-Q4_0"):  # fmt: skip
        write(tmp_path / f"{name}.gguf", tiny_model(name))
    for name in ("mmproj-gemma-3-4b-it-f16", "Qwen2.5-VL-7B-Instruct-mmproj-BF16", "mmproj-gemma-3-27b-it-f16",
                 "mmproj-model-f16"):  # fmt: skip
        write(tmp_path / f"{name}.gguf", projector())
    models = found(tmp_path)
    assert beside(models["gemma-3-4b-it-Q4_K_M"]) == [("mmproj", "mmproj-gemma-3-4b-it-f16.gguf")]
    assert beside(models["gemma-3-4b-it-Q8_0"]) == [("mmproj", "mmproj-gemma-3-4b-it-f16.gguf")]
    assert beside(models["gemma-3-12b-it-Q4_K_M"]) == []
    assert beside(models["Qwen2.5-VL-7B-Instruct-Q4_0"]) == [("mmproj", "Qwen2.5-VL-7B-Instruct-mmproj-BF16.gguf")]
    assert beside(models["Qwen2.5-VL-7B-Q4_0"]) == []
    assert {name for name, model in models.items() if model.kind == "mmproj"} == {
        "mmproj-gemma-3-27b-it-f16", "mmproj-model-f16",
    }  # fmt: skip


def test_draft_heads_and_mtp_blocks_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", tiny_model())
    eagle = [kv("general.architecture", "string", "eagle3"), kv("eagle3.block_count", "uint32", 1)]
    write(tmp_path / "eagle.gguf", filled(eagle, [("blk.0.attn_q.weight", (64, 64), Q8_0)]))
    mtp = [
        kv("general.architecture", "string", "llama"),
        kv("llama.block_count", "uint32", 3),
        kv("llama.nextn_predict_layers", "uint32", 1),
    ]
    write(tmp_path / "heads.gguf", filled(mtp, [("blk.2.attn_q.weight", (N_EMBD, N_EMBD), Q8_0)]))
    models = found(tmp_path)
    assert set(models) == {"m"}
    assert sorted(beside(models["m"])) == [("draft", "eagle.gguf"), ("draft", "heads.gguf")]


def test_companions_across_the_folders_of_a_repository(home: Path) -> None:
    hub = home / ".cache/huggingface/hub"
    files = {"Q4/m-Q4_0.gguf": tiny_model("4"), "Q8/m-Q8_0.gguf": tiny_model("8"), "mmproj-F16.gguf": projector()}
    download(hub, "org/Repo", files)
    models = found(defaults=True)
    assert set(models) == {"org/Repo:Q4_0", "org/Repo:Q8_0"}
    assert all(beside(model) == [("mmproj", "mmproj-F16.gguf")] for model in models.values())


def test_what_belongs_to_no_model_is_listed_as_what_it_is(tmp_path: Path) -> None:
    write(tmp_path / "mmproj.gguf", projector())
    write(tmp_path / "flux.gguf", filled([kv("general.architecture", "string", "flux")], [("x", (64,), F32)]))
    assert {name: model.kind for name, model in found(tmp_path).items()} == {"mmproj": "mmproj", "flux": "image model"}


def test_ollama_has_no_companions_but_its_layers(home: Path) -> None:
    pull(home / ".ollama/models", f"{LIBRARY}/a/latest", tiny_model("a"), [("projector", projector())])
    pull(home / ".ollama/models", f"{LIBRARY}/b/latest", tiny_model("b"))
    models = found(defaults=True)
    assert [companion.kind for companion in models["a:latest"].companions] == ["mmproj"]
    assert models["b:latest"].companions == ()


# ---------------------------------------------------------------- once


def test_a_file_in_several_stores_is_listed_in_the_first(home: Path, tmp_path: Path) -> None:
    blob = pull(home / ".ollama/models", f"{LIBRARY}/m/latest")
    os.link(blob, tmp_path / "hard.gguf")
    studio = home / ".lmstudio/models/pub/repo/soft.gguf"
    studio.parent.mkdir(parents=True)
    studio.symlink_to(blob)
    models = found(tmp_path, defaults=True)
    assert set(models) == {"hard"}
    assert models["hard"].also == (
        SeenAs("ollama", "m:latest", str(blob)), SeenAs("lmstudio", "pub/repo/soft", str(studio)),
    )  # fmt: skip
    models = found(defaults=True)
    assert (models["m:latest"].store, [other.store for other in models["m:latest"].also]) == ("ollama", ["lmstudio"])


def test_tags_of_one_blob_are_one_model_unless_adapters_differ(home: Path) -> None:
    store = home / ".ollama/models"
    pull(store, f"{LIBRARY}/m/8b", tiny_model("m"))
    pull(store, f"{LIBRARY}/m/8b-advisor", tiny_model("m"), [("params", b'{"num_ctx": 8}')])
    pull(store, f"{LIBRARY}/tuned/8b", tiny_model("m"), [("adapter", adapter())])
    models = found(defaults=True)
    assert set(models) == {"m:8b", "tuned:8b"}
    assert [other.name for other in models["m:8b"].also] == ["m:8b-advisor"]


def test_equal_copies_are_two_models(tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", tiny_model())
    write(tmp_path / "b.gguf", tiny_model())
    assert set(found(tmp_path)) == {"a", "b"}


def test_one_folder_under_two_names_is_read_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(home / ".ollama/models")
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "link"))
    pull(home / ".ollama/models", f"{LIBRARY}/m/latest")
    reports = scan_stores(os.environ, cache=Cache(None))
    assert [report.status for report in reports if report.store == "ollama"] == ["ok", "absent"]
    assert [model.also for report in reports for model in report.models] == [()]


def test_names_in_the_order_of_people(tmp_path: Path) -> None:
    for name in ("m-70b", "M-8b", "a", "m-8b-x", "²-3"):
        write(tmp_path / f"{name}.gguf", tiny_model(name))
    assert list(found(tmp_path)) == ["a", "M-8b", "m-8b-x", "m-70b", "²-3"]


def test_nothing_anywhere_is_no_error() -> None:
    reports = scan_stores(os.environ)
    assert {report.status for report in reports} == {"absent"}
    assert [report.store for report in reports][:2] == ["ollama", "ollama"]


def test_one_store_that_fails_leaves_the_others(home: Path, tmp_path: Path) -> None:
    write(home / ".ollama/models/manifests", b"not a folder")
    write(home / ".lmstudio/models/m.gguf", tiny_model())
    reports = scan_stores(os.environ)
    assert [report.status for report in reports if report.models] == ["ok"]
    assert all(report.detail for report in reports if report.status != "ok")


def test_tildes_and_relative_folders(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "here/m.gguf", tiny_model())
    monkeypatch.chdir(home)
    for given in ("~/here", "here", str(home / "here") + "/"):
        (report,) = scan_stores(os.environ, [given], False)
        assert report.folder == str(home / "here")
        assert report.models[0].path == str(home / "here/m.gguf")


def test_progress_counts_every_model(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.gguf", tiny_model())
    seen: list[tuple[int, int]] = []
    scan_stores(os.environ, [str(tmp_path)], False, progress=lambda done, n: seen.append((done, n)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_headers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", tiny_model("before"))
    first = scan_stores(os.environ, [str(tmp_path)], False)

    def never(paths: object) -> None:
        raise AssertionError(f"{paths} was read again")

    with monkeypatch.context() as patch:
        patch.setattr("advisor.stores.scan.read_facts", never)
        assert scan_stores(os.environ, [str(tmp_path)], False) == first
    path.write_bytes(tiny_model("after"))
    (report,) = scan_stores(os.environ, [str(tmp_path)], False)
    assert report.models[0].facts is not None
    assert report.models[0].facts.title == "after"


# ---------------------------------------------------------------- watching


def test_watched_folders(home: Path, tmp_path: Path) -> None:
    (tmp_path / "disk/models").mkdir(parents=True)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "link").symlink_to(tmp_path / "disk/models")
    write(home / ".local/share/Jan/data/llamacpp/models/x/model.yml", f"model_path: {tmp_path}/jan/x.gguf\n".encode())
    write(tmp_path / "web/server.py", b"")
    write(tmp_path / "web/user_data/CMD_FLAGS.txt", f"--model-dir {tmp_path}/webmodels\n".encode())
    watched = watched_folders(os.environ, [str(plain), str(tmp_path / "web"), str(tmp_path / "later/on")])
    for folder in (
        plain, tmp_path / "disk/models", tmp_path / "later/on", tmp_path / "webmodels", tmp_path / "jan",
        home / ".ollama/models", tmp_path / "no-system-store", home / ".cache/huggingface/hub",
        home / ".cache/llama.cpp", home / ".lmstudio/models", home / ".local/share/Jan/data/llamacpp/models",
        home / ".local/share/nomic.ai/GPT4All", home / ".cache/gpt4all",
    ):  # fmt: skip
        assert str(folder) in watched
    assert len(set(watched)) == len(watched)
    assert not any(one != other and one.startswith(other + "/") for one in watched for other in watched)
    assert str(home) not in watched


def test_a_companion_of_jan_is_not_attached_twice(home: Path) -> None:
    models = home / ".local/share/Jan/data/llamacpp/models"
    write(models / "m/model.gguf", tiny_model())
    vision = write(models / "m/mmproj.gguf", projector())
    text = "model_path: llamacpp/models/m/model.gguf\nmmproj_path: llamacpp/models/m/mmproj.gguf\n"
    write(models / "m/model.yml", text.encode())
    listed = found(defaults=True)
    assert set(listed) == {"m"}
    assert listed["m"].companions == (Companion("mmproj", str(vision)),)
