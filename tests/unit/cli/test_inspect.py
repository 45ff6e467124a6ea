"""`advisor inspect`: what a file is, checked from first principles and against the gguf package, and --export."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader

from advisor.cli.main import main
from tests.tools.empty_gguf import write_empty_gguf
from tests.tools.gguf_files import F16, F32, Q4_0, Q4_K, Q6_K, Q8_0, array, honest, kv

SHIPPED = Path(__file__).resolve().parents[3] / "advisor/data/llama-3-8b-q4_k_m.json.gz"
Tensor = tuple[str, tuple[int, ...], int]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; its exit status, stdout and stderr."""

    def call(*arguments: str | os.PathLike[str]) -> tuple[int, str, str]:
        status = main([os.fspath(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def inspected(run: Run, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The document of `inspect --json` on a file made of these entries and tensors."""

    def call(entries: Sequence[bytes], tensors: Sequence[Tensor] = (), name: str = "m.gguf") -> dict[str, Any]:
        path = tmp_path / name
        path.write_bytes(honest(entries, tensors))
        status, out, err = run("inspect", path, "--json")
        assert (status, err) == (0, "")
        document: dict[str, Any] = json.loads(out)
        assert document["schema"] == "advisor.inspect/1"
        return document

    return call


def model(architecture: str, n_layer: int, n_embd: int = 256, **values: int | list[int] | str) -> list[bytes]:
    """Metadata of a language model; keyword `attention__head_count` is `{architecture}.attention.head_count`."""
    keys = {"block_count": n_layer, "embedding_length": n_embd, "context_length": 4096, **values}
    entries = [kv("general.architecture", "string", architecture), kv("general.name", "string", "Tiny")]
    for key, value in keys.items():
        full = f"{architecture}.{key.replace('__', '.')}"
        if isinstance(value, list):
            entries.append(array(full, "int32", value))
        else:
            entries.append(kv(full, "string" if isinstance(value, str) else "uint32", value))
    return entries


HEADS = {"attention__head_count": 4, "attention__head_count_kv": 2}
LLAMA = model("llama", 2, **HEADS, feed_forward_length=512)
LLAMA_TENSORS: list[Tensor] = [
    ("token_embd.weight", (256, 100), Q4_K),
    *[
        (f"blk.{i}.{part}.weight", shape, kind)
        for i in range(2)
        for part, shape, kind in (
            ("attn_q", (256, 256), Q4_K),
            ("attn_v", (256, 128), Q6_K),
            ("ffn_up", (256, 512), Q4_K),
            ("ffn_down", (512, 256), Q4_K),
            ("attn_norm", (256,), F32),
        )
    ],
    ("output_norm.weight", (256,), F32),
]


def hollow(n_blocks: int, n_embd: int = 256) -> list[Tensor]:
    """Token embeddings, and one norm per block."""
    norms: list[Tensor] = [(f"blk.{i}.attn_norm.weight", (n_embd,), F32) for i in range(n_blocks)]
    return [("token_embd.weight", (n_embd, 8), F16), *norms]


VOCABULARY = [
    kv("tokenizer.ggml.model", "string", "gpt2"),
    kv("tokenizer.ggml.pre", "string", "llama-bpe"),
    array("tokenizer.ggml.tokens", "string", [f"t{i}" for i in range(100)]),
    array("tokenizer.ggml.scores", "float32", [0.0] * 100),
    array("tokenizer.ggml.token_type", "int32", [1] * 100),
    array("tokenizer.ggml.merges", "string", ["a b"] * 70),
    kv("tokenizer.chat_template", "string", "{% for m in messages %}{{ m.content }}{% endfor %}"),
]

# ---------------------------------------------------------------- a language model


def test_llama_3_8b_from_first_principles(run):
    status, out, _ = run("inspect", SHIPPED, "--json")
    document = json.loads(out)
    assert status == 0
    assert (document["kind"], document["architecture"], document["quantization"]) == ("model", "llama", "Q4_K_M")
    assert document["parameters"] == 8_030_261_248 + 64  # as published, and the rope factors of Llama 3.1
    assert document["blocks"]["kinds"] == [{"kind": "full", "n_window": None, "count": 32, "blocks": [[0, 31]]}]
    assert document["heads"] == [
        {"n_head": 32, "n_head_kv": 8, "head_size_k": 128, "head_size_v": 128, "blocks": [[0, 31]]}
    ]
    f16, q8_0 = document["cache"]["per_token"]
    # keys and values of 8 heads of 128 in 32 blocks: two bytes each, or blocks of 32 in 34 bytes
    assert (f16["cache_type"], f16["bytes_per_token"]) == ("f16", 32 * 2 * 8 * 128 * 2)
    assert (q8_0["cache_type"], q8_0["bytes_per_token"]) == ("q8_0", 32 * 2 * 8 * 128 // 32 * 34)
    assert f16["bytes_per_token_past_window"] == f16["bytes_per_token"]
    assert document["cache"]["state_bytes_per_slot"] == 0
    assert document["n_vocab"] == 128_256
    assert document["experts"] is None
    assert document["active_parameters"] is None


def test_the_mix_of_types_is_the_gguf_packages(run):
    """Sizes per type, bits per weight and parameters, counted a second time with the gguf package's block sizes."""
    rows = json.loads(gzip.decompress(SHIPPED.read_bytes()))["tensors"]
    bytes_of: dict[str, int] = {}
    count_of: dict[str, int] = {}
    elements = 0
    for _, shape, type_id in rows:
        kind = GGMLQuantizationType(type_id)
        block, size = GGML_QUANT_SIZES[kind]
        n = 1
        for extent in shape:
            n *= extent
        elements += n
        name = kind.name.lower()
        bytes_of[name] = bytes_of.get(name, 0) + n // block * size
        count_of[name] = count_of.get(name, 0) + 1
    document = json.loads(run("inspect", SHIPPED, "--json")[1])
    mix = document["tensor_types"]
    assert {entry["type"].lower(): entry["bytes"] for entry in mix} == bytes_of
    assert {entry["type"].lower(): entry["tensors"] for entry in mix} == count_of
    assert [entry["bytes"] for entry in mix] == sorted(bytes_of.values(), reverse=True)
    total = sum(bytes_of.values())
    assert document["weights_bytes"] == total
    assert document["bits_per_weight"] == pytest.approx(8 * total / elements, abs=0.001)
    assert [entry["share"] for entry in mix] == [pytest.approx(entry["bytes"] / total, abs=1e-4) for entry in mix]
    assert document["parameters"] == elements
    assert document["n_tensors"] == len(rows)


def test_a_gguf_read_by_the_gguf_package(inspected, tmp_path):
    document = inspected([*LLAMA, *VOCABULARY], LLAMA_TENSORS)
    reader = GGUFReader(tmp_path / "m.gguf")
    assert document["parameters"] == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert document["weights_bytes"] == sum(int(tensor.n_bytes) for tensor in reader.tensors)
    assert document["n_vocab"] == len(reader.fields["tokenizer.ggml.tokens"].data)
    template = reader.fields["tokenizer.chat_template"].contents()
    assert document["chat_template"] == {"present": True, "characters": len(template), "named": []}
    assert (document["tokenizer"], document["pre_tokenizer"]) == ("gpt2", "llama-bpe")
    assert document["tied_embeddings"] is True
    assert document["file"]["bytes"] == (tmp_path / "m.gguf").stat().st_size
    assert document["file"]["source"] == "gguf"


def test_an_output_matrix_unties(inspected):
    document = inspected(LLAMA, [*LLAMA_TENSORS, ("output.weight", (256, 100), Q6_K)])
    assert document["tied_embeddings"] is False
    assert document["chat_template"]["present"] is False


def test_a_sliding_window(inspected):
    entries = model("gemma3", 12, **HEADS, attention__key_length=64, attention__value_length=64,
                    attention__sliding_window=512)  # fmt: skip
    document = inspected(entries, hollow(12))
    # every sixth block attends to everything
    assert document["blocks"]["kinds"] == [
        {"kind": "window", "n_window": 512, "count": 10, "blocks": [[0, 4], [6, 10]]},
        {"kind": "full", "n_window": None, "count": 2, "blocks": [[5, 5], [11, 11]]},
    ]
    f16 = document["cache"]["per_token"][0]
    assert f16["bytes_per_token"] == 12 * 2 * 2 * 64 * 2
    assert f16["bytes_per_token_past_window"] == 2 * 2 * 2 * 64 * 2


def test_a_latent_cache_keeps_keys_only(inspected):
    entries = model(
        "deepseek2", 3, attention__head_count=16, attention__head_count_kv=1, attention__key_length=576,
        attention__value_length=512, attention__key_length_mla=192, attention__value_length_mla=128,
    )  # fmt: skip
    document = inspected(entries, hollow(3))
    assert [kind["kind"] for kind in document["blocks"]["kinds"]] == ["latent"]
    f16, q8_0 = document["cache"]["per_token"]
    assert f16["bytes_per_token"] == 3 * 576 * 2
    assert q8_0["bytes_per_token"] == 3 * 576 // 32 * 34


def test_recurrent_blocks_keep_a_state_per_slot(inspected):
    entries = model("mamba", 3, ssm__conv_kernel=4, ssm__inner_size=512, ssm__state_size=16, ssm__time_step_rank=16,
                    attention__head_count=0)  # fmt: skip
    document = inspected(entries, hollow(3))
    assert [(kind["kind"], kind["count"]) for kind in document["blocks"]["kinds"]] == [("recurrent", 3)]
    assert document["heads"] == []
    # f32: the last 3 inputs of the convolution and 16 values for each of the 512 channels
    assert document["cache"]["state_bytes_per_slot"] == 3 * 4 * (3 * 512 + 16 * 512)
    assert document["cache"]["per_token"][0]["bytes_per_token"] == 0


def test_a_hybrid_has_both(inspected):
    entries = model("granitehybrid", 4, attention__head_count=4, attention__head_count_kv=[0, 2, 0, 2],
                    ssm__conv_kernel=4, ssm__inner_size=512, ssm__state_size=16, ssm__group_count=1,
                    ssm__time_step_rank=8)  # fmt: skip
    document = inspected(entries, hollow(4))
    assert [(kind["kind"], kind["blocks"]) for kind in document["blocks"]["kinds"]] == [
        ("recurrent", [[0, 0], [2, 2]]),
        ("full", [[1, 1], [3, 3]]),
    ]
    assert document["cache"]["per_token"][0]["bytes_per_token"] == 2 * 2 * 2 * 64 * 2
    assert document["cache"]["state_bytes_per_slot"] == 2 * 4 * (3 * (512 + 2 * 16) + 16 * 512)


def test_experts_and_active_parameters(inspected):
    entries = model("qwen3moe", 2, **HEADS, expert_count=8, expert_used_count=2, expert_feed_forward_length=64)
    dense: list[Tensor] = [("token_embd.weight", (256, 8), F16), ("blk.0.ffn_gate_inp.weight", (256, 8), F32)]
    experts: list[Tensor] = [
        (f"blk.{i}.ffn_{part}_exps.weight", (64, 256, 8) if part == "down" else (256, 64, 8), Q8_0)
        for i in range(2)
        for part in ("gate", "up", "down")
    ]
    document = inspected(entries, dense + experts)
    assert document["experts"] == {
        "n_expert": 8,
        "n_expert_used": 2,
        "shared_expert": False,
        "blocks": [[0, 1]],
    }
    outside = 256 * 8 + 256 * 8
    assert document["parameters"] == outside + 6 * 64 * 256 * 8
    assert document["active_parameters"] == outside + 6 * 64 * 256 * 2


def test_mtp_blocks_are_skipped(inspected):
    entries = model("glm4moe", 3, **HEADS, nextn_predict_layers=1)
    document = inspected(entries, [*hollow(2), ("blk.2.attn_q.weight", (256, 256), F16)])
    blocks = document["blocks"]
    assert (blocks["total"], blocks["running"], blocks["mtp_skipped"]) == (3, 2, 1)
    assert blocks["kinds"][0]["blocks"] == [[0, 1]]


def test_a_head_size_that_q8_0_cannot_hold(inspected):
    entries = model("llama", 2, 320, attention__head_count=4, attention__head_count_kv=4)  # heads of 80
    f16, q8_0 = inspected(entries, hollow(2, 320))["cache"]["per_token"]
    assert f16["bytes_per_token"] == 2 * 2 * 320 * 2
    assert q8_0["bytes_per_token"] is None
    assert "80" in q8_0["refused"]


def test_an_unknown_architecture_is_shown_and_said_to_be_assumed(inspected):
    document = inspected(model("newarch", 2, **HEADS), [("token_embd.weight", (256, 8), F16)])
    assert (document["confidence"], document["rule"]) == ("assumed", None)
    assert any("without a rule file" in oddity for oddity in document["oddities"])


# ---------------------------------------------------------------- oddities


def test_nothing_is_odd_about_a_plain_file(inspected):
    assert inspected([*LLAMA, kv("general.file_type", "uint32", 15), *VOCABULARY], LLAMA_TENSORS)["oddities"] == []


def test_file_type_and_mix_that_disagree(inspected):
    tensors = [*hollow(2), ("blk.0.ffn_up.weight", (256, 512), Q8_0)]
    document = inspected([*LLAMA, kv("general.file_type", "uint32", 15)], tensors)
    assert document["quantization"] == "Q4_K_M"
    [oddity] = document["oddities"]
    assert "Q4_K_M" in oddity
    assert "q8_0 (100 %)" in oddity
    agreeing = inspected([*LLAMA, kv("general.file_type", "uint32", 7)], tensors)
    assert agreeing["oddities"] == []


def test_rows_that_k_quants_do_not_divide(inspected):
    entries = [*model("llama", 1, 96, **HEADS), kv("general.file_type", "uint32", 15)]
    tensors = [
        ("token_embd.weight", (96, 8), Q8_0),
        ("blk.0.ffn_up.weight", (96, 256), Q4_0),
        ("blk.0.ffn_down.weight", (256, 96), Q4_K),
    ]
    [oddity] = inspected(entries, tensors)["oddities"]
    assert oddity.startswith("2 matrices have rows of 96,")
    assert "q4_0, q8_0" in oddity


def test_a_vocabulary_of_another_length(inspected):
    tensors = [("token_embd.weight", (256, 101), F16), *LLAMA_TENSORS[1:]]
    [oddity] = inspected([*LLAMA, *VOCABULARY], tensors)["oddities"]
    assert "101 rows for a vocabulary of 100" in oddity


def test_a_model_that_cannot_be_planned_for_is_still_shown(inspected):
    entries = [kv("general.architecture", "string", "llama"), kv("general.name", "string", "Half")]
    document = inspected(entries, [("token_embd.weight", (256, 8), F16)])
    assert (document["kind"], document["name"], document["blocks"]) == ("model", "Half", None)
    assert document["parameters"] == 256 * 8
    assert "block_count" in document["oddities"][0]


# ---------------------------------------------------------------- what is no language model


@pytest.mark.parametrize(
    ("entries", "tensors", "kind", "shown"),
    [
        (
            [
                kv("general.architecture", "string", "clip"),
                kv("general.type", "string", "mmproj"),
                kv("clip.projector_type", "string", "gemma3"),
                kv("clip.vision.image_size", "uint32", 896),
            ],
            [("mm.input_projection.weight", (64, 32), F16)],
            "mmproj",
            {"clip.projector_type": "gemma3", "clip.vision.image_size": 896},
        ),
        (
            [
                kv("general.architecture", "string", "llama"),
                kv("general.type", "string", "adapter"),
                kv("adapter.type", "string", "lora"),
            ],
            [("blk.0.attn_q.weight.lora_a", (256, 16), F32), ("blk.0.attn_q.weight.lora_b", (16, 256), F32)],
            "adapter",
            {"adapter.type": "lora", "lora ranks": "16"},
        ),
        (
            [kv("general.type", "string", "imatrix"), kv("imatrix.chunk_count", "uint32", 125)],
            [("blk.0.attn_q.weight.in_sum2", (256, 1), F32)],
            "imatrix",
            {"imatrix.chunk_count": 125},
        ),
        ([kv("general.architecture", "string", "llama"), *VOCABULARY], [], "vocabulary", {}),
        (
            [kv("general.architecture", "string", "flux")],
            [("double_blocks.0.img_attn.qkv.weight", (64, 32), F16)],
            "image model",
            {"general.architecture": "flux"},
        ),
        ([], [("double_blocks.0.img_attn.qkv.weight", (64, 32), F16)], "image model", {}),
        ([], [("anything", (64, 32), F16)], "model", {}),
        ([], [], "vocabulary", {}),
    ],
)  # fmt: skip
def test_other_files_are_named_and_shown(inspected, run, tmp_path, entries, tensors, kind, shown):
    document = inspected(entries, tensors)
    assert document["kind"] == kind
    assert shown.items() <= document["details"].items()
    assert document["parameters"] == sum(a * b for _, (a, b), _ in tensors)
    status, out, err = run("inspect", tmp_path / "m.gguf")
    assert (status, err) == (0, "")
    assert document["kind_text"] in " ".join(out.split())
    for key, value in shown.items():
        assert f"{key} {value}" in " ".join(out.split())


def test_the_vocabulary_of_a_vocabulary_file(inspected):
    document = inspected([kv("general.architecture", "string", "llama"), *VOCABULARY])
    assert (document["n_vocab"], document["tokenizer"], document["chat_template"]["present"]) == (100, "gpt2", True)


# ---------------------------------------------------------------- the view


def test_the_view_says_it_in_words(run):
    status, out, err = run("inspect", SHIPPED)
    text = " ".join(out.split())
    assert (status, err) == (0, "")
    for words in (
        "a language model",
        "8.03 B",
        "32 x full attention: 0-31",
        "32, 8 of them for keys and values, size 128",
        "f16: 131,072 bytes per token",
        "q8_0: 69,632 bytes per token",
        "128,256 tokens",
    ):
        assert words in text
    assert max(len(line) for line in out.splitlines()) <= 400  # a path may be long, nothing else is
    assert "\x1b" not in out  # not a terminal


def test_nothing_from_the_file_reaches_the_terminal_raw(run, tmp_path):
    evil = "\x1b]0;owned\x07\x9b31m\u202egpj.exe\r\n"
    entries = [
        kv("general.architecture", "string", "llama" + evil),
        kv("general.name", "string", evil + "Tiny"),
        kv("tokenizer.ggml.model", "string", evil),
        kv("tokenizer.ggml.pre", "string", evil),
        kv("tokenizer.chat_template", "string", "x"),
        kv("tokenizer.chat_template." + evil, "string", "x"),
        kv("evil." + evil, "string", evil),
        array("tokenizer.ggml.tokens", "string", ["a"]),
    ]
    for number, tensors in enumerate(([("token_embd.weight", (256, 1), F16)], [])):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(honest(entries, tensors))
        status, out, _ = run("inspect", path)
        assert status == 0
        assert "owned" in out
        bad = {char for char in out if char != "\n" and (not char.isprintable() or char == "\u202e")}
        assert bad == set()


# ---------------------------------------------------------------- --export

WISHES = ("--gpu", "cuda:12GiB", "--ram", "32GiB", "--json")


def without_place(text: str) -> dict[str, Any]:
    """A report without what belongs to the file on the disk and not to the model."""
    document: dict[str, Any] = json.loads(text)
    document.pop("file", None)
    document.pop("command", None)  # it names the path
    if "model" in document:
        document["model"].pop("path")
    return document


def write_split(folder: Path) -> Path:
    half = len(LLAMA_TENSORS) // 2
    for number, tensors in enumerate((LLAMA_TENSORS[:half], LLAMA_TENSORS[half:])):
        entries = [
            kv("split.no", "uint16", number),
            kv("split.count", "uint16", 2),
            kv("split.tensors.count", "int32", len(LLAMA_TENSORS)),
        ]
        head = [*LLAMA, *VOCABULARY] if number == 0 else []
        (folder / f"s-0000{number + 1}-of-00002.gguf").write_bytes(honest([*head, *entries], tensors))
    return folder / "s-00002-of-00002.gguf"


def write_v2(folder: Path) -> Path:
    (folder / "v2.gguf").write_bytes(honest([*LLAMA, *VOCABULARY], LLAMA_TENSORS, version=2))
    return folder / "v2.gguf"


def write_full_size(folder: Path) -> Path:
    write_empty_gguf(SHIPPED, folder / "8b.gguf")
    return folder / "8b.gguf"


@pytest.mark.parametrize("make", [write_split, write_v2, write_full_size])
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_an_exported_header_gives_the_same_answers(run, tmp_path, make, ending):
    original = make(tmp_path)
    exported = tmp_path / f"header{ending}"
    status, out, err = run("inspect", original, "--export", exported, "--json")
    assert status == 0
    assert err.startswith(f"wrote {exported} (")
    assert exported.stat().st_size < 100_000
    again = run("inspect", exported, "--json")
    assert again[0] == 0
    assert without_place(again[1]) == without_place(out)
    before, after = run("recommend", original, *WISHES), run("recommend", exported, *WISHES)
    assert before[0] == after[0] == 0
    assert without_place(after[1]) == without_place(before[1])
    assert json.loads(before[1])["settings"]["n_ctx"] > 0


def test_the_export_keeps_the_size_of_the_file(run, tmp_path):
    plain = tmp_path / "plain.gguf"
    plain.write_bytes(honest(LLAMA, LLAMA_TENSORS))
    run("inspect", plain, "--export", tmp_path / "h.json")
    document = json.loads(run("inspect", tmp_path / "h.json", "--json")[1])
    assert document["file"]["bytes"] == plain.stat().st_size
    assert document["file"]["source"] == "snapshot"


def test_no_token_text_and_no_weight_is_exported(run, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(honest([*LLAMA, *VOCABULARY], LLAMA_TENSORS))
    run("inspect", path, "--export", tmp_path / "h.json")
    snapshot = json.loads((tmp_path / "h.json").read_text())
    assert snapshot["n_vocab"] == 100
    assert not {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.scores"} & set(snapshot["metadata"])
    assert snapshot["tensors"] == [[name, list(shape), kind] for name, shape, kind in LLAMA_TENSORS]


def test_the_same_header_gives_the_same_bytes(run, tmp_path):
    for name in ("a.json.gz", "b.json.gz"):
        assert run("inspect", SHIPPED, "--export", tmp_path / name)[0] == 0
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert (tmp_path / "a.json.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_an_earlier_snapshot_is_replaced_and_nothing_left_behind(run, tmp_path):
    model_file = tmp_path / "m.gguf"
    model_file.write_bytes(honest(LLAMA, LLAMA_TENSORS))
    target = tmp_path / "out" / "h.json"
    target.parent.mkdir()
    run("inspect", SHIPPED, "--export", target)
    target.chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to(target)
    assert run("inspect", model_file, "--export", link)[0] == 0
    assert json.loads(target.read_text())["name"] == "Tiny"
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in target.parent.iterdir()] == ["h.json"]


@pytest.mark.parametrize(
    "content", [b'{"name": "my-package", "version": "1.0"}', b"", b"not json", b"GGUF", b"\x1f\x8bbroken"]
)
def test_a_file_that_is_no_snapshot_is_left_alone(run, tmp_path, content):
    target = tmp_path / "package.json"
    target.write_bytes(content)
    status, out, err = run("inspect", SHIPPED, "--export", target)
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert str(target) in err
    assert target.read_bytes() == content


@pytest.mark.parametrize("name", ["h.gguf", "h.txt", "h.gz", "h"])
def test_another_ending_is_wrong_usage(run, tmp_path, name):
    status, out, err = run("inspect", SHIPPED, "--export", tmp_path / name)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert ".json" in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(run, tmp_path):
    status, out, err = run("inspect", SHIPPED, "--export", tmp_path / "no" / "h.json")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "h.json" in err


def test_a_pipe_is_not_written_to(run, tmp_path):
    os.mkfifo(tmp_path / "h.json")
    status, _, err = run("inspect", SHIPPED, "--export", tmp_path / "h.json")
    assert (status, err.count("\n")) == (1, 1)


def test_a_full_disk_leaves_the_old_file(run, tmp_path, monkeypatch):
    target = tmp_path / "h.json"
    run("inspect", SHIPPED, "--export", target)
    before = target.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, _, err = run("inspect", SHIPPED, "--export", target)
    assert status == 1
    assert "No space left on device" in err
    assert target.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["h.json"]


# ---------------------------------------------------------------- wrong usage


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["a", "--nosuch"]])
def test_wrong_usage(run, arguments):
    status, out, err = run("inspect", *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("advisor: ")


def test_a_broken_rule_of_the_users_is_not_hidden(run, tmp_path):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch/llama.toml").write_text("family = \n")
    status, out, err = run("inspect", SHIPPED, "--rules", tmp_path)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "arch/llama.toml, line 1" in err
