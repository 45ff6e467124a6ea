"""Adapters, projectors and draft models through the real command: figures, commands and wrong files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.overheads import FILE, load_overheads, remember_overheads
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.gguf_files import F32, assemble, kv, table
from tests.tools.projectors import write_lora, write_projector
from tests.unit.cli.test_bad_input import SHIPPED, advisor, assert_one_sentence

MIB = 1 << 20
CARD = ("--gpu", "cuda:24GiB", "--ram", "64GiB")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("files")
    write_empty_gguf(SHIPPED, made / "llama.gguf")
    write_lora(made / "style.gguf", "llama", [(f"blk.{i}.attn_q.weight", 4096, 4096) for i in range(32)], 8)
    write_projector(made / "eye.gguf", "gemma3", n_layer=2, out=4096)
    return made


def document(*words: object) -> dict[str, Any]:
    answer = advisor(words[0], *CARD, "--json", *words[1:])  # type: ignore[arg-type]
    assert answer.status in (0, 3), answer
    return json.loads(answer.out)


def test_estimate_counts_what_is_loaded_beside(folder):
    model = folder / "llama.gguf"
    plain = document("estimate", model, "-c", "8192")
    full = document(
        "estimate", "--", "llama-server", "-m", model, "-c", "8192", "--lora", folder / "style.gguf", "-mm",
        folder / "eye.gguf", "-md", model, "-ngld", "0", "--cache-ram", "256",
    )  # fmt: skip
    assert full["ignored"] == []
    before, after = plain["devices"][0], full["devices"][0]
    assert (before["extras"], before["extras_bytes"]) == ([], 0)
    assert after["extras_bytes"] == sum(extra["high_bytes"] for extra in after["extras"])
    assert after["extras_bytes"] > 0
    assert after["planned_bytes"] - after["compute_high_bytes"] == (
        after["weights_bytes"] + after["cache_bytes"] + after["overhead_bytes"] + after["extras_bytes"]
    )
    by_name = {extra["name"]: extra["bytes"] for extra in after["extras"]}
    assert by_name["LoRA style.gguf"] == 32 * 2 * 4096 * 8 * 4
    assert all(extra["source"] for extra in after["extras"])
    extras = full["host"]["extras"]
    assert extras["prompt_cache_bytes"] == 256 * MIB
    assert extras["beside_bytes"] == sum(extra["high_bytes"] for extra in extras["beside"])
    assert {"draft weights", "draft cache"} <= {extra["name"] for extra in extras["beside"]}
    assert full["settings"]["lora"] == [str(folder / "style.gguf")]


def test_the_text_has_a_line_for_each(folder):
    answer = advisor("estimate", folder / "llama.gguf", "--lora", folder / "style.gguf", *CARD)
    assert "X beside" in answer.out
    assert "LoRA style.gguf 8.0 MiB (its tensors, each with its matrix)" in answer.out


def test_recommend_leaves_room_and_says_it_in_the_command(folder):
    model = folder / "llama.gguf"
    answer = document(
        "recommend", model, "--lora", folder / "style.gguf", "-md", model, "--no-mmproj-offload", "--mmproj",
        folder / "eye.gguf", "--spec-draft-n-max", "5",
    )  # fmt: skip
    device = answer["devices"][0]
    assert device["extras_bytes"] > 4000 * MIB  # the draft is as large as the model
    assert device["fits"]
    assert (
        f"--lora {folder}/style.gguf --mmproj {folder}/eye.gguf --no-mmproj-offload --spec-type draft-simple "
        f"--spec-draft-model {model} --spec-draft-n-max 5" in answer["command"]
    )


def test_a_preset_names_files_with_their_folders(folder, tmp_path):
    preset = tmp_path / "models.ini"
    answer = advisor(
        "recommend", "llama.gguf", *CARD, "--lora", "style.gguf,style.gguf", "-mm", "eye.gguf", "-md", "llama.gguf",
        "--output", preset, cwd=folder,
    )  # fmt: skip
    assert answer.status == 0, answer
    lines = preset.read_text().splitlines()
    assert f"lora = {folder}/style.gguf,{folder}/style.gguf" in lines
    assert f"mmproj = {folder}/eye.gguf" in lines
    assert f"spec-draft-model = {folder}/llama.gguf" in lines


@pytest.mark.parametrize(
    ("option", "file", "words", "status"),
    [
        ("--mmproj", "style.gguf", "--mmproj takes a multimodal projector", 2),
        ("--mmproj", "llama.gguf", "--mmproj takes a multimodal projector", 2),
        ("--lora", "eye.gguf", "--lora takes a LoRA adapter", 2),
        ("--lora", "llama.gguf", "--lora takes a LoRA adapter", 2),
        ("-md", "eye.gguf", "is a multimodal projector", 2),
        ("-md", "style.gguf", "is an adapter", 2),
        ("--lora", "nowhere.gguf", "does not exist", 1),
        ("--mmproj", ".", "", 1),
    ],
)
def test_a_wrong_file_is_one_sentence(folder, option, file, words, status):
    """A sound file that the option cannot take is wrong usage, as a setting is that the engine refuses."""
    answer = advisor("estimate", folder / "llama.gguf", option, folder / file, *CARD)
    assert words in assert_one_sentence(answer, status)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--spec-type", "draft-magic"], "--spec-type 'draft-magic' names an unknown kind"),
        (["--cache-ram", "-2"], "--cache-ram '-2' is below the smallest possible, -1"),
        (["--image-max-tokens", "0"], "--image-max-tokens '0' is below the smallest possible, 1"),
        (["--spec-draft-n-max", "x"], "--spec-draft-n-max 'x' is no whole number"),
        (["--lora", ","], "names nothing"),
    ],
)
def test_a_wrong_value_is_one_sentence(folder, arguments, words):
    assert words in assert_one_sentence(advisor("estimate", folder / "llama.gguf", *arguments, *CARD), 2)


@pytest.mark.parametrize("key", ["image_size", "patch_size", "embedding_length", "attention.head_count"])
@pytest.mark.parametrize(("kind", "value"), [("uint32", 0), ("uint32", (1 << 32) - 1), ("int32", -1), ("string", "x")])
def test_a_lying_projector_never_crashes(folder, tmp_path, key, kind, value):
    shape = {"image_size": 336, "patch_size": 14, "embedding_length": 64, "attention.head_count": 2}
    entries = [kv("general.architecture", "string", "clip"), kv("clip.has_vision_encoder", "bool", True)]
    entries += [
        kv(f"clip.vision.{name}", *((kind, value) if name == key else ("uint32", number)))
        for name, number in shape.items()
    ]
    rows, n_bytes = table([("v.blk.0.attn_q.weight", (64, 64), F32)])
    (tmp_path / "p.gguf").write_bytes(assemble(entries, rows, n_bytes))
    answer = advisor("estimate", folder / "llama.gguf", "--mmproj", tmp_path / "p.gguf", *CARD)
    assert answer.status in (0, 3, 4), answer
    assert "mmproj p.gguf" in answer.out


def test_mtp_without_a_next_n_block_is_said(folder):
    answer = advisor("estimate", folder / "llama.gguf", "--spec-type", "draft-mtp", *CARD)
    assert "leave --spec-type draft-mtp away" in assert_one_sentence(answer, 2)


# ---------------------------------------------------------------- overheads that were seen

TABLE = """\
build: 11434 (7e4c0a9) with GNU
  - CUDA0   : NVIDIA GeForce RTX 3060 (12288 MiB, 11000 MiB free)
llama_model_loader: loaded meta data with 30 key-value pairs and 291 tensors from /m/x.gguf (version GGUF V3 (latest))
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
llama_memory_breakdown_print: | memory breakdown [MiB]  | total   free     self   model   context   compute    unaccounted |
llama_memory_breakdown_print: |   - CUDA0 (RTX 3060)    | 12288 = 6951 + (5000 =  4403 +     400 +     197) +   UNSEEN |
"""  # noqa: E501


def test_observe_remembers_what_is_unaccounted_and_estimate_uses_it(folder, tmp_path):
    log = tmp_path / "log"
    card = ("--gpu", "RTX 3060", "--ram", "32GiB", "--json")
    for unseen in ("441", "337", "9000", "0"):  # other programs' memory, and no context at all, are left out
        log.write_text(TABLE.replace("UNSEEN", unseen))
        answer = advisor("observe", log, "--json")
        assert answer.status == 0, answer
        (figure,) = json.loads(answer.out)["overheads"]
        assert figure == {
            "device": "CUDA0", "backend": "cuda", "name": "NVIDIA GeForce RTX 3060", "bytes": int(unseen) * MIB,
        }  # fmt: skip
    device = json.loads(advisor("estimate", folder / "llama.gguf", *card).out)["devices"][0]
    assert (device["overhead_bytes"], device["overhead_source"]) == (337 * MIB, "observed")
    assert device["overhead_low_bytes"] == device["overhead_high_bytes"] == 337 * MIB
    other = document("estimate", folder / "llama.gguf")["devices"][0]
    assert other["overhead_source"] == "rules"
    assert other["overhead_low_bytes"] < other["overhead_bytes"] < other["overhead_high_bytes"]


@pytest.mark.parametrize(
    "text", ["", "[", "{}", '{"schema": "advisor.overheads/1", "cards": [{"backend": 1}]}', "[" * 100_000]
)
def test_a_broken_overhead_file_counts_as_none(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert load_overheads(str(tmp_path)) == {}
    assert remember_overheads(str(tmp_path), {("cuda", "NVIDIA A"): 300 * MIB}) is None
    assert load_overheads(str(tmp_path)) == {("cuda", "a"): 300 * MIB}


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    said = remember_overheads(str(tmp_path / "file"), {("cuda", "a"): 300 * MIB})
    assert said is not None
    assert "not remembered" in said
