"""A. Estimates that are wrong or blind: image encoders, drafts, several GPUs. Figures of the public reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.situations.faces import DATA, GIB, MIB, ask, document, extra_bytes, machine, warned, zoo
from tests.tools.machines import machine as imagined
from tests.tools.projectors import write_projector

MODEL = zoo("qwen3vl-8b")
SETTINGS = ("-c", 8192, "-np", 1, "--ram", "64GiB")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The projector of Qwen3-VL 8B: 27 blocks, 16 heads, patches of 16, 2 x 2 of them a token."""
    path = tmp_path_factory.mktemp("projector") / "mmproj.gguf"
    return write_projector(path, "qwen3vl_merger", image=768, patch=16, out=4096, merge=2)


def test_03_encoder_without_flash_attention(encoder: Path) -> None:
    """The log of a Tesla P100: a request of 4657.81 MiB, where a card with flash attention takes 248 MiB."""
    old = document("estimate", MODEL, "--mmproj", encoder, *SETTINGS, "--gpu", "P100")
    new = document("estimate", MODEL, "--mmproj", encoder, *SETTINGS, "--gpu", "RTX 3090")
    without = extra_bytes(old["devices"][0]["extras"], "mmproj", "compute")
    fused = extra_bytes(new["devices"][0]["extras"], "mmproj", "compute")
    assert 4657.81 * MIB <= without["bytes"] <= 4657.81 * MIB * 1.03
    assert fused["low_bytes"] >= 248 * MIB
    assert without["bytes"] > 10 * fused["bytes"]
    # the scores alone: every pair of the 92 x 92 patches, 16 heads, 4 bytes
    assert without["low_bytes"] >= 16 * 8464**2 * 4
    said = warned(old, "encoder_without_flash_attention")
    for word in ("compute capability 6.0", "4.66 GiB", "--no-mmproj-offload", "--image-max-tokens 1024"):
        assert word in said
    assert "encoder_without_flash_attention" not in str(new["warnings"])
    capped = document("estimate", MODEL, "--mmproj", encoder, "--image-max-tokens", 1024, *SETTINGS, "--gpu", "P100")
    most = extra_bytes(capped["devices"][0]["extras"], "mmproj", "compute")["high_bytes"]
    assert 16 * 4096**2 * 4 <= most < 1.5 * GIB


@pytest.mark.parametrize("capability", ["5.0", "6.1"])
def test_03_a_maxwell_or_pascal_card_keeps_its_layers(encoder: Path, tmp_path: Path, capability: str) -> None:
    """A Tesla M10 with 8 GB ended with 0 of 34 layers on the GPU at any context: here the encoder goes to the CPU."""
    host = imagined(8, ram_gib=32)
    host = host._replace(devices=(host.devices[0]._replace(compute_capability=capability),))
    file = machine(tmp_path, host)
    found = document("recommend", MODEL, "--mmproj", encoder, "--hardware", file)
    assert found["verdict"] == "full"
    assert found["settings"]["n_gpu_layers"] == 37
    assert "--no-mmproj-offload" in found["command"]
    (said,) = [note["text"] for note in found["reasons"] if note["code"] == "mmproj_placed"]
    assert f"without flash attention (compute capability {capability})" in said
    assert "up to 16.77 GiB" in said  # 16 heads x 16,384 patches squared x 4 bytes, and the rows beside them
    host_side = extra_bytes(found["host"]["extras"]["beside"], "mmproj", "compute")
    assert host_side["high_bytes"] > 0


def test_04_the_draft_head_has_a_context_and_the_state_is_kept_four_times() -> None:
    """The public log: 598.5 MiB of recurrent state of 4 slots become 2394 MiB with 3 drafted tokens."""
    model, card = DATA / "mtp" / "qwen35.json.gz", ("--gpu", "cuda:80GiB", "--ram", "64GiB")
    words = (model, "-c", 8192, "-np", 4, "-kvu", "-ctk", "q8_0", "-ctv", "q8_0", *card)
    plain, drafting = document("estimate", *words), document("estimate", *words, "--spec-type", "draft-mtp")
    grown = drafting["devices"][0]["cache_bytes"] - plain["devices"][0]["cache_bytes"]
    assert grown == (2394 - 598.5) * MIB
    assert drafting["settings"]["n_rollback"] == 3
    extras = drafting["devices"][0]["extras"]
    # its one block: 4 key heads of 256, keys and values, f16 although -ctk says q8_0
    assert extra_bytes(extras, "MTP cache")["bytes"] == 4 * 256 * 2 * 2 * 8192
    assert extra_bytes(extras, "MTP compute")["bytes"] > 0
    said = warned(drafting, "draft_context")
    for word in ("8,192 tokens", "32 MiB of cache (f16", "kept 4 times", "3 drafted tokens"):
        assert word in said


@pytest.mark.parametrize("name", ["qwen35moe-35b-mtp", "mtp/glm4moe", "mtp/deepseek3"])
def test_04_what_is_recommended_leaves_room_for_the_draft(name: str) -> None:
    model = DATA / f"{name}.json.gz" if "/" in name else zoo(name)
    cards = ("--gpu", "cuda:24GiB", "--ram", "512GiB", "--spec-type", "draft-mtp")
    found = document("recommend", model, *cards)
    (device,) = found["devices"]
    assert device["extras_bytes"] > 0
    parts = sum(device[part] for part in ("weights_bytes", "cache_bytes", "compute_high_bytes", "overhead_bytes"))
    assert parts + device["extras_bytes"] == device["planned_bytes"]
    assert device["planned_bytes"] + device["margin_bytes"] <= 24 * GIB
    assert "--spec-type draft-mtp" in found["command"]


LONG = ("-c", 1 << 20, "-np", 1, "--ram", "512GiB")


@pytest.mark.parametrize("name", ["ds3", "llama3-8b", "qwen35moe-35b"])
def test_05_inputs_are_kept_four_times_on_each_of_several_gpus(name: str) -> None:
    """1M tokens on 4 GPUs took 4.0 GiB per device: 1,048,576 x 512 x 2 bytes of mask, four times."""
    mask = (1 << 20) * 512 * 2
    one = document("estimate", zoo(name), *LONG, "--gpu", "cuda:1TiB")
    four = document("estimate", zoo(name), *LONG, *("--gpu", "cuda:300GiB") * 4)
    for device in four["devices"]:
        assert device["compute_bytes"] >= 4 * mask == 4.0 * GIB
        assert device["compute_bytes"] - one["devices"][0]["compute_bytes"] > 2.9 * mask
    said = warned(four, "pipeline_copies")
    assert "4 copies" in said
    assert "4.00 GiB" in said
    assert "-ub 256 halves it" in said
    assert "pipeline_copies" not in str(one["warnings"])
    assert "so that 4 can work in turns" in said
    half = document("estimate", zoo(name), *LONG, "-ub", 256, *("--gpu", "cuda:300GiB") * 4)
    assert four["devices"][1]["compute_bytes"] - half["devices"][1]["compute_bytes"] >= 2 * mask


@pytest.mark.parametrize(
    ("split", "said"), [("0,1,1", "so that 2 can work in turns"), ("0,1,0", "although one does all the work")]
)
def test_05_only_gpus_with_something_on_them_work_in_turns(split: str, said: str) -> None:
    """The engine keeps the copies for every GPU that it sees."""
    found = document("estimate", zoo("llama3-8b"), *LONG, "-ts", split, *("--gpu", "cuda:1TiB") * 3)
    assert said in warned(found, "pipeline_copies")


@pytest.mark.parametrize("words", [("-ot", r"blk\.0\.ffn_up=CPU"), ("-ngl", 20)])
def test_05_what_stops_the_pipeline_stops_the_copies(words: tuple[object, ...]) -> None:
    """The engine works in turns only with everything on the GPUs and no tensor placed by hand."""
    cards = ("--gpu", "cuda:300GiB") * 4
    found = document("estimate", zoo("llama3-8b"), *LONG, *words, *cards)
    assert "pipeline_copies" not in str(found["warnings"])
    assert all(device["compute_bytes"] < 4 * GIB for device in found["devices"][1:])


def test_05_few_tokens_are_not_worth_a_word() -> None:
    found = document("estimate", zoo("llama3-8b"), "-c", 8192, *("--gpu", "cuda:24GiB") * 2, "--ram", "64GiB")
    assert "pipeline_copies" not in str(found["warnings"])


@pytest.mark.parametrize(("name", "layers"), [("llama3-8b", (2, 5)), ("gemma3-12b", (2, 5)), ("qwen3-8b", (2, 5))])
def test_06_a_gpu_costs_the_same_whatever_it_holds(name: str, layers: tuple[int, int]) -> None:
    """An 8 GB card with 2 layers needs the whole compute buffer and the backend's context."""
    few, more = (
        document("estimate", zoo(name), "-ngl", n, "-c", 32768, "-np", 1, "--gpu", "cuda:8GiB", "--ram", "64GiB")
        for n in layers
    )
    small, large = few["devices"][0], more["devices"][0]
    assert small["compute_bytes"] >= 0.99 * large["compute_bytes"] > 128 * MIB
    assert small["overhead_bytes"] == large["overhead_bytes"] >= 200 * MIB
    assert small["weights_bytes"] < large["weights_bytes"]


@pytest.mark.parametrize(
    ("name", "cards", "wish"),
    [
        ("llama33-70b-q4_k_m", ("RTX 4090", "RTX 3060@1.5GiB"), ()),
        ("qwen3-8b", ("RTX 4090", "cuda:2GiB"), ("-c", 32768)),
        ("qwen3-8b", ("RTX 4090", "cuda:2GiB"), ()),
        ("mistral-small-24b", ("RTX 3090", "RTX 3090", "cuda:1GiB"), ("-c", 65536)),
    ],
)
def test_06_a_tiny_card_is_left_out_rather_than_given_a_sliver(
    name: str, cards: tuple[str, ...], wish: tuple[object, ...]
) -> None:
    gpus = [word for card in cards for word in ("--gpu", card)]
    found = document("recommend", zoo(name), *gpus, *wish, "--ram", "64GiB")
    tiny = f"CUDA{len(cards) - 1}"
    assert tiny not in [device["id"] for device in found["devices"]]
    (said,) = [note["text"] for note in found["reasons"] if note["code"] == "cards_left_out"]
    assert said.startswith(f"{tiny} (")
    assert "MiB of it would go to buffers and the backend" in said or "nothing on it" in said or "alone holds" in said
    assert "--device " in found["command"]


def test_06_the_sentence_stands_in_the_text_too() -> None:
    words = ("recommend", zoo("qwen3-8b"), "--gpu", "RTX 4090", "--gpu", "cuda:2GiB", "--ram", "32GiB")
    (said,) = [note["text"] for note in document(*words)["reasons"] if note["code"] == "cards_left_out"]
    assert said.startswith("CUDA1 (cuda 2.00 GiB) is left out")
    assert said in ask(*words).flat
