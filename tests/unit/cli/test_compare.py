"""`advisor compare`: every column is what the other commands say of it, at any width."""

from __future__ import annotations

import json

import pytest

from advisor.cli.render_compare import _wrap, render_compare
from advisor.cli.terminal import Screen
from tests.unit.cli.test_bad_input import advisor, assert_one_sentence
from tests.unit.outputs.test_command import ZOO

LLAMA, GEMMA, LARGE = (str(ZOO / f"{name}.json.gz") for name in ("llama3-8b", "gemma3-12b", "llama33-70b-q4_k_m"))
CARD = ("--gpu", "RTX 3060", "--ram", "32GiB")


def columns(*words: str) -> list[dict]:
    done = advisor("compare", *words, "--json")
    assert (done.status, done.err) == (0, "")
    document = json.loads(done.out)
    assert document["schema"] == "advisor.compare/1"
    return document["columns"]


def test_a_column_is_what_recommend_says():
    both = columns(LLAMA, GEMMA, *CARD)
    for column, model in zip(both, (LLAMA, GEMMA), strict=True):
        answer = json.loads(advisor("recommend", model, *CARD, "--json").out)
        for part in ("settings", "devices", "host", "speed", "verdict", "contexts", "summary", "model"):
            assert column[part] == answer[part], part
        listed = json.loads(advisor("quants", model, *CARD, "--json").out)
        assert column["weights_bytes"] in [row["weights_bytes"] for row in listed["rows"]]
    # 32 blocks of 8 heads of 128, keys and values, f16; a balanced chat begins at 8,192 tokens
    assert both[0]["f16_cache"] == {"n_ctx": 8192, "bytes": 8192 * 131072}


def test_machines_side_by_side():
    words = ["--gpu", "RTX 4090", "--gpu", "RTX 3090 + RTX 3060", "--ram", "64GiB", "--each"]
    one, two = columns(LARGE, *words)
    assert (one["machine"], two["machine"]) == ("RTX 4090", "RTX 3090 + RTX 3060")
    assert [len(one["devices"]), len(two["devices"])] == [1, 2]
    alone = json.loads(advisor("recommend", LARGE, "--gpu", "RTX 4090", "--ram", "64GiB", "--json").out)
    assert one["settings"] == alone["settings"]


def test_quantizations_side_by_side():
    """Q4_K_M of the 70B is made of the same tensors as the file that llama-quantize wrote."""
    (file,) = {column["weights_bytes"] for column in columns(LARGE, LARGE, "--gpu", "RTX 4090", "--ram", "64GiB")}
    words = ["--gpu", "RTX 4090", "--ram", "64GiB", "--quant", "q4_k_m", "--quant", "Q2_K", "--quant", "Q8_0"]
    made = {column["model"]["quantization"]: column for column in columns(LARGE, *words)}
    assert list(made) == ["Q4_K_M", "Q2_K", "Q8_0"]
    assert made["Q4_K_M"]["weights_bytes"] == file
    assert made["Q2_K"]["weights_bytes"] < file < made["Q8_0"]["weights_bytes"]
    rates = [made[name]["speed"]["decode_tokens_per_s"]["value"] for name in ("Q2_K", "Q4_K_M", "Q8_0")]
    assert rates == sorted(rates, reverse=True)


def test_everything_times_everything():
    words = ["--quant", "Q4_K_M", "--quant", "Q8_0", "--gpu", "RTX 3060", "--gpu", "RTX 4090", "--each"]
    found = columns(LLAMA, GEMMA, *words, "--ram", "32GiB")
    assert [(c["machine"], c["model"]["name"], c["model"]["quantization"]) for c in found] == [
        (machine, model, quantization)
        for machine in ("RTX 3060", "RTX 4090")
        for model in ("llama3-8b", "gemma3-12b")
        for quantization in ("Q4_K_M", "Q8_0")
    ]


def test_pinned_settings_hold_in_every_column():
    for column in columns(LLAMA, GEMMA, *CARD, "-c", "16384", "-ctk", "q8_0", "-ctv", "q8_0"):
        assert column["settings"]["n_ctx"] == 16384
        assert column["settings"]["cache_type_k"] == "q8_0"
        assert column["f16_cache"]["n_ctx"] == 16384


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("width", [40, 80, 120])
def test_it_is_never_wider_than_the_screen(count, width, made):
    lines = render_compare(made[:count], _engine(), Screen(width=width, color=False, unicode=True))
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert sum(line.startswith("verdict") for line in lines) == -(-count // min(count, (width - 13) // 11))
    for column in made[:count]:
        assert f"{column.answer.chosen.plan.settings.n_ctx:,}" in text


@pytest.fixture(scope="module")
def made():
    from advisor.app import App
    from advisor.cli.compare_columns import make_column
    from advisor.planner import Planner
    from advisor.recommend.search import Wishes
    from advisor.settings import RequestedSettings

    app = App()
    host = app.host(gpus=["RTX 3060"], ram=64 << 30)
    planner = Planner(app, host, app.engine(None))
    names = (
        "llama3-8b",
        "gemma3-12b",
        "llama33-70b-q4_k_m",
        "qwen3moe-30b",
        "bert-large",
        "mamba-2.8b",
        "phi2",
        "gpt2-xl",
    )
    specs = [app.model(app.header(str(ZOO / f"{name}.json.gz"))) for name in names]
    specs[1] = specs[1]._replace(name="A-Very-Long-Model-Name_With.Many-Parts-Q4_K_M")
    intent, wishes = planner.intent("balanced"), Wishes(RequestedSettings())
    return [make_column(app, planner, spec, intent, wishes, requantized=False) for spec in specs]


def _engine():
    from advisor.app import App

    return App().engine(None)


def test_cells_wrap_where_words_end():
    assert _wrap("Llama 3.3 70B Instruct", 9) == ["Llama 3.3", "70B", "Instruct"]
    assert _wrap("gemma-3-12b-it", 9) == ["gemma-3-", "12b-it"]
    assert _wrap("x" * 20, 9) == ["x" * 9, "x" * 9, "xx"]
    assert _wrap("", 9) == [""]


def test_what_all_share_stands_once():
    done = advisor("compare", LLAMA, "--quant", "Q4_K_M", "--quant", "Q8_0", *CARD)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("llama3-8b: llama\non RTX 3060, 32.00 GiB of system memory free\n")
    assert "machine" not in done.out
    assert "\nmodel" not in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([LLAMA], "--quant"),
        ([LLAMA, "--gpu", "RTX 3060", "--gpu", "RTX 4090"], "--each"),
        ([LLAMA, "--quant", "Q9_Z"], "Q4_K_M"),
        ([LLAMA, GEMMA, "--each"], "--gpu"),
        ([LLAMA] * 30, "at most"),
    ],
)
def test_what_cannot_be_compared_is_told_with_the_cure(words, said):
    assert said in assert_one_sentence(advisor("compare", *words), 2)


def test_a_model_that_is_not_there_is_named():
    assert "nowhere.gguf" in assert_one_sentence(advisor("compare", LLAMA, "nowhere.gguf"), 1)
