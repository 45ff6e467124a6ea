"""The cache arithmetic and the log reader on what logs of real machines said, builds of 2024 to 2026.

A case takes part when its hyper-parameters and settings say all that a cache depends on. Where an engine keeps its
cache in another way than llama.cpp, a rule says so from what its log tells, never from the name of the case.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from advisor.engines.load_log import parse_load_log
from advisor.engines.log_lines import MIB, read_cache
from advisor.gguf_header.types import GgufHeader, TensorInfo
from advisor.memory.plan import plan_memory
from advisor.memory.resolve import resolve_settings
from advisor.settings import RequestedSettings
from tests.tools.cells import DATA, describe_header, engine

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "cases" / "memory-logs.jsonl").read_text("utf-8").splitlines()
]
KEYS = {
    "n_ctx_train": "context_length", "n_embd": "embedding_length", "n_layer": "block_count",
    "n_ff": "feed_forward_length",
    "n_head": "attention.head_count", "n_head_kv": "attention.head_count_kv", "n_embd_head_k": "attention.key_length",
    "n_embd_head_v": "attention.value_length", "n_swa": "attention.sliding_window", "n_rot": "rope.dimension_count",
    "n_expert": "expert_count", "n_expert_used": "expert_used_count", "n_lora_kv": "attention.kv_lora_rank",
    "n_lora_q": "attention.q_lora_rank", "n_ff_exp": "expert_feed_forward_length", "ssm_d_conv": "ssm.conv_kernel",
    "ssm_d_inner": "ssm.inner_size", "ssm_d_state": "ssm.state_size", "ssm_dt_rank": "ssm.time_step_rank",
    "ssm_n_group": "ssm.group_count", "n_layer_dense_lead": "leading_dense_block_count",
}  # fmt: skip
NEEDED = {"n_layer", "n_head_kv", "n_embd_head_k", "n_embd_head_v"}


def observed_mib(case: dict[str, Any]) -> float:
    """KV and recurrent state of all devices."""
    places = [place for place in case["observed"].values() if isinstance(place, dict)]
    return sum(float(place.get(name, 0)) for place in places for name in ("kv_mib", "rs_mib"))


def suffices(case: dict[str, Any]) -> bool:
    settings = case["settings"]
    return set(case["hparams"]) >= NEEDED and {"n_ctx", "type_k"} <= set(settings) and observed_mib(case) > 0


def rules_for(case: dict[str, Any]) -> dict[str, Any]:
    """Metadata that the log implies beyond its hyper-parameters, each by one rule."""
    arch, hparams, settings = case["arch"], case["hparams"], case["settings"]
    implied: dict[str, Any] = {}
    if settings.get("mla_attn"):  # a fork that makes latent keys of files which keep full ones
        implied[f"{arch}.attention.head_count_kv"] = 1
        implied[f"{arch}.attention.key_length"] = hparams["n_lora_kv"] + hparams["n_rot"]
        implied[f"{arch}.attention.key_length_mla"] = hparams["n_embd_head_k"]
        implied[f"{arch}.attention.value_length_mla"] = hparams["n_embd_head_v"]
    if "MTP" in str(settings.get("speculative")):  # the last block is the draft's, not one of the target's layers
        implied[f"{arch}.nextn_predict_layers"] = 1
    return implied


def predicted_mib(case: dict[str, Any]) -> float:
    hparams, settings, arch = case["hparams"], case["settings"], case["arch"]
    metadata: dict[str, Any] = {"general.architecture": arch}
    metadata |= {f"{arch}.{key}": hparams[name] for name, key in KEYS.items() if hparams.get(name)}
    metadata |= rules_for(case)
    names = ["token_embd.weight", *(f"blk.{block}.attn_norm.weight" for block in range(hparams["n_layer"]))]
    tensors = [TensorInfo(name, (hparams["n_embd"], 1), 0, 0, 0) for name in names]
    if hparams.get("n_expert"):  # a model that says it has experts holds some
        last = f"blk.{hparams['n_layer'] - 1}.ffn_up_exps.weight"
        tensors.append(TensorInfo(last, (hparams["n_embd"], 1, hparams["n_expert"]), 0, 0, 0))
    spec = describe_header(
        GgufHeader("case", 3, 32, metadata, {}, tuple(tensors), hparams["n_vocab"], 0, (), "snapshot")
    )
    types = [settings["type_k"], settings["type_v"]]
    asked = RequestedSettings(
        n_ctx=settings["n_ctx"], n_batch=settings.get("n_batch"), n_ubatch=settings.get("n_ubatch"),
        n_parallel=settings.get("n_seq_max", 1), kv_unified=str(settings.get("kv_unified")).lower() == "true",
        cache_type_k=types[0], cache_type_v=types[1], flash_attn="on",
    )  # fmt: skip
    run = resolve_settings(asked, spec, engine(), tool="server", n_devices=0)
    return plan_memory(spec, run, engine(), ()).host.cache_bytes / MIB


SUFFICIENT = [case for case in CASES if suffices(case)]


def test_how_many_cases_take_part():
    assert len(CASES) == 72
    assert len(SUFFICIENT) == 44
    assert sum(bool(rules_for(case)) for case in SUFFICIENT) == 6
    assert {case["arch"] for case in SUFFICIENT} == {
        "qwen35moe", "qwen3next", "qwen3moe", "llama", "deepseek2", "glm4", "gemma2", "qwen35",
    }  # fmt: skip
    left_out = [case for case in CASES if case not in SUFFICIENT]
    assert all(NEEDED - set(case["hparams"]) or not observed_mib(case) for case in left_out)


@pytest.mark.parametrize("case", SUFFICIENT, ids=lambda case: case["id"])
def test_cache_and_state_are_what_the_machine_said(case):
    assert predicted_mib(case) == pytest.approx(observed_mib(case), rel=0.01)
    # far closer, in truth: each printed line is rounded, and there are at most four of them
    assert predicted_mib(case) == pytest.approx(observed_mib(case), abs=0.05)


@pytest.mark.parametrize("case", [case for case in SUFFICIENT if rules_for(case)], ids=lambda case: case["id"])
def test_the_rules_are_needed(case):
    without = {**case, "settings": {k: v for k, v in case["settings"].items() if k not in ("mla_attn", "speculative")}}
    assert predicted_mib(without) != pytest.approx(observed_mib(case), abs=0.05)


LINES = [(case, line) for case in CASES for line in case.get("kv_lines", ())]


@pytest.mark.parametrize(("case", "line"), LINES, ids=[f"{case['id']}-{i}" for i, (case, _) in enumerate(LINES)])
def test_summary_lines_of_real_logs_are_read(case, line):
    cache = read_cache(line)
    assert cache is not None
    first = re.search(r"(\d+\.\d+) MiB", line)
    assert first is not None
    assert cache.n_bytes == round(float(first[1]) * MIB)
    if cache.kind == "kv":
        assert cache.type_k == case["settings"]["type_k"]
        assert cache.type_v == (case["settings"]["type_v"] if " V (" in line else None)  # latent caches keep no V
    assert cache.kind == ("state" if "recurrent" in line else "kv")


def test_buffers_of_all_cases_survive_the_reader():
    """Every buffer that these machines have, written as the engine writes it, comes out again."""
    kinds = {"model_mib": "model", "kv_mib": "KV", "rs_mib": "RS", "compute_mib": "compute", "output_mib": "output"}
    n_read = 0
    for case in CASES:
        places = {name: place for name, place in case["observed"].items() if isinstance(place, dict)}
        written = [
            (name, kinds[key], value) for name, place in places.items() for key, value in place.items() if key in kinds
        ]
        written.sort(key=lambda item: item[1] != "model")  # weights come first in a log
        load = parse_load_log(
            f"llama: {n:>10} {kind} buffer size = {value:8.2f} MiB" for n, kind, value in written
        ).last
        if load is None:
            assert not [value for *_, value in written if value]
            continue
        buffers = [*load.weights, *(buffer for context in load.contexts for buffer in context.buffers)]
        assert [(buffer.name, buffer.n_bytes) for buffer in buffers] == [
            (name, round(round(value, 2) * MIB)) for name, _, value in written
        ]
        n_read += len(buffers)
    assert n_read > 400
