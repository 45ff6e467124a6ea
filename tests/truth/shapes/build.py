"""From a row of the table to a header snapshot: the tensors of a known header of the same architecture, resized.

A block of the new model takes the tensors of the template's first block of the same kind; a shape comes from the row's
own hyper-parameters by the tensor's name (the formulas below), and each formula must give the template's own shape for
the template's own hyper-parameters, or the row is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.truth.shapes.facts import Facts, Meta, plain
from tests.truth.shapes.quants import stored_as

_FORMULAS: dict[str, str] = {
    "token_embd.weight": "d V",
    "output.weight": "d V",
    "output.bias": "V",
    "position_embd.weight": "d ctx",
    "token_types.weight": "d 2|d 1",
    "rope_freqs.weight": "nrot/2|hk/2",
    "per_layer_token_embd.weight": "dp*L V",
    "per_layer_model_proj.weight": "d dp*L",
    "per_layer_proj_norm.weight": "dp",
    "altup_proj.weight": "d d 3",
    "altup_unembd_proj.weight": "d d 3",
    "attn_q.weight": "d H*hkm|d H*hk|d KH*kda|d 2*H*hk",
    "attn_k.weight": "d KV*hk|d KH*kda|d H*hk",
    "attn_v.weight": "d KV*hv|d KH*kda|d H*hv",
    "attn_qkv.weight": "d (H+2*KV)*hk|d 2*inner+ns*groups|d 3*H*hk|d ns*groups*2+inner",
    "attn_q.bias": "H*hk|KH*kda",
    "attn_k.bias": "KV*hk|KH*kda|H*hk",
    "attn_v.bias": "KV*hv|KH*kda|H*hv",
    "attn_qkv.bias": "(H+2*KV)*hk",
    "attn_output.weight": "H*hvm d|H*hv d|KH*kda d|H*hk d",
    "attn_output.bias": "d",
    "attn_q_norm.weight": "hk|hk H|H*hk|d",
    "attn_k_norm.weight": "hk|hk KV|KV*hk|d",
    "attn_q_norm.bias": "hk|d",
    "attn_k_norm.bias": "hk|d",
    "attn_gate.weight": "d H*hv|d inner|d H",
    "attn_norm_2.weight": "d|H*hk",
    "attn_sinks.weight": "H",
    "attn_sub_norm.weight": "d",
    "ffn_sub_norm.weight": "ff",
    "attn_q_a.weight": "d ql",
    "attn_q_a_norm.weight": "ql",
    "attn_q_b.weight": "ql H*hkm|ql H*hk",
    "attn_kv_a_mqa.weight": "d kvl+rot",
    "attn_kv_a_norm.weight": "kvl",
    "attn_kv_b.weight": "kvl H*(hkm-rot+hvm)|kvl H*(hk-rot+hv)",
    "attn_k_b.weight": "hkm-rot kvl H",
    "attn_v_b.weight": "kvl hvm H",
    "indexer.k_norm.weight": "ik",
    "indexer.k_norm.bias": "ik",
    "indexer.proj.weight": "d ih",
    "indexer.attn_k.weight": "d ik",
    "indexer.attn_q_b.weight": "ql ih*ik",
    "ffn_up.weight": "d ff|d d|d 2*ff",
    "ffn_gate.weight": "d ff|d d",
    "ffn_down.weight": "ff d|d d",
    "ffn_up.bias": "ff",
    "ffn_gate.bias": "ff",
    "ffn_down.bias": "d",
    "ffn_gate_inp.weight": "d E",
    "ffn_gate_inp.bias": "E",
    "ffn_gate_inp.scale": "d",
    "exp_probs_b.bias": "E",
    "exp_probs_b": "E",
    "ffn_up_exps.weight": "d ffe E|dl ffe E|d 2*ffe E|d ff E",
    "ffn_gate_exps.weight": "d ffe E|d ff E",
    "ffn_down_exps.weight": "ffe d E|ffe dl E|ff d E",
    "ffn_up_exps.bias": "ffe E",
    "ffn_gate_exps.bias": "ffe E",
    "ffn_down_exps.bias": "d E",
    "ffn_down_exps.scale": "E",
    "ffn_gate_up_exps.weight": "d 2*ffe E",
    "ffn_gate_chexps.weight": "d ffc E/epg",
    "ffn_up_chexps.weight": "d ffc E/epg",
    "ffn_down_chexps.weight": "ffc d E/epg",
    "ffn_latent_down.weight": "d dl",
    "ffn_latent_up.weight": "dl d",
    "ffn_gate_inp_shexp.weight": "d",
    "ffn_up_shexp.weight": "d ffs",
    "ffn_gate_shexp.weight": "d ffs",
    "ffn_down_shexp.weight": "ffs d",
    "ssm_in.weight": "d 2*inner|d 2*inner+2*groups*ns+dt|d inner*2+2*ns+dt",
    "ssm_conv1d.weight": "conv inner|conv inner+2*groups*ns",
    "ssm_conv1d.bias": "inner|inner+2*groups*ns",
    "ssm_x.weight": "inner dt+2*ns|inner d/16+2*ns",
    "ssm_dt.weight": "dt inner|d/16 dt",
    "ssm_dt.bias": "inner|dt|KH*kda",
    "ssm_a": "ns inner|1 dt|dt|1 H",
    "ssm_d": "inner|1 dt|dt",
    "ssm_norm.weight": "inner/groups groups|ns|inner/groups|kda",
    "ssm_dt_norm.weight": "dt|d/16",
    "ssm_dt_norm": "dt|d/16",
    "ssm_b_norm": "ns",
    "ssm_c_norm": "ns",
    "ssm_conv1d_q.weight": "conv 1 KH*kda",
    "ssm_conv1d_k.weight": "conv 1 KH*kda",
    "ssm_conv1d_v.weight": "conv 1 KH*kda",
    "ssm_f_a.weight": "d kda",
    "ssm_f_b.weight": "kda KH*kda",
    "ssm_g_a.weight": "d kda",
    "ssm_g_b.weight": "kda KH*kda",
    "ssm_b_norm.weight": "ns",
    "ssm_c_norm.weight": "ns",
    "ssm_out.weight": "inner d",
    "ssm_ba.weight": "d 2*dt",
    "ssm_alpha.weight": "d dt",
    "ssm_beta.weight": "d dt|d H",
    "shortconv.conv.weight": "lc d",
    "shortconv.in_proj.weight": "d 3*d",
    "shortconv.out_proj.weight": "d d",
    "inp_gate.weight": "d dp",
    "proj.weight": "dp d",
    "layer_output_scale.weight": "1",
    "altup_correct_coef.weight": "4 4",
    "altup_predict_coef.weight": "4 16",
    "altup_router.weight": "d 4",
    "laurel_l.weight": "d 64",
    "laurel_r.weight": "64 d",
    "nextn.eh_proj.weight": "2*d d",
    "time_mix_w0.weight": "d",
    "time_mix_a0.weight": "d",
    "time_mix_v0.weight": "d",
    "time_mix_w1.weight": "d lw|d 5*tme",
    "time_mix_w2.weight": "lw d|tme d 5",
    "time_mix_a1.weight": "d la",
    "time_mix_a2.weight": "la d",
    "time_mix_v1.weight": "d lv|d la",
    "time_mix_v2.weight": "lv d|la d",
    "time_mix_g1.weight": "d lg",
    "time_mix_g2.weight": "lg d",
    "time_mix_r_k.weight": "d|wkv d/wkv",
    "time_mix_lerp_fused.weight": "d 1 1 6|d 1 1 5",
    "time_mix_decay_w1.weight": "d tde",
    "time_mix_decay_w2.weight": "tde d",
    "time_mix_first.weight": "wkv d/wkv",
    "channel_mix_key.weight": "d ff",
    "channel_mix_value.weight": "ff d",
}  # fmt: skip
_MATRIX = re.compile(r"(time_mix|channel_mix)_(key|value|receptance|output|gate)\.weight$")


class Row(NamedTuple):
    """One published shape. `template`: a header of the same architecture; `meta`: what differs from it.

    `drop`: tensors that this model has not, by their names in it; `add`: (name, shape) that it has besides, with {i}
    for every block, {even} for every other, {later} for all but the first; `without`: metadata that it has not;
    `stored`: the quantisation.
    """

    name: str
    template: str
    n_vocab: int
    stored: str
    meta: Meta
    drop: str = ""  # a regular expression
    add: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()
    tied: bool | None = None  # None = like the template


_SHORT = {"L": "block_count", "d": "embedding_length", "ff": "feed_forward_length", "H": "attention.head_count",
          "KV": "attention.head_count_kv", "ctx": "context_length", "E": "expert_count", "used": "expert_used_count",
          "ffe": "expert_feed_forward_length", "ffs": "expert_shared_feed_forward_length",
          "swa": "attention.sliding_window",
          "rot": "rope.dimension_count", "dense": "leading_dense_block_count", "shared": "expert_shared_count",
          "ql": "attention.q_lora_rank", "kvl": "attention.kv_lora_rank", "gate": "expert_gating_func",
          "inner": "ssm.inner_size", "ns": "ssm.state_size", "dt": "ssm.time_step_rank",
          "groups": "ssm.group_count"}  # fmt: skip


def row(name: str, template: str, n_vocab: int, stored: str, *, drop: str = "", add: tuple[tuple[str, str], ...] = (),
        without: tuple[str, ...] = (), tied: bool | None = None, hd: int = 0, more: Meta | None = None,
        **short: Any) -> Row:  # fmt: skip
    """A row; `short`: hyper-parameters by the letters papers use, `hd`: head size, `more`: any others."""
    meta = {_SHORT[key]: value for key, value in short.items()}
    if hd:
        meta.update(
            {"attention.key_length": hd, "attention.value_length": hd, "rope.dimension_count": short.get("rot", hd)}
        )
    return Row(name, template, n_vocab, stored, {**meta, **(more or {})}, drop, add, without, tied)


def build(row: Row, template: dict[str, Any]) -> dict[str, Any]:
    """The header snapshot of a row; ValueError where a template's shape is not understood."""
    arch = template["metadata"]["general.architecture"]["value"]
    prefix = f"{arch}."
    items = {key: item for key, item in template["metadata"].items() if not key.startswith(prefix)}
    old = {k.removeprefix(prefix): v for k, v in template["metadata"].items() if k.startswith(prefix)}
    new = {key: item for key, item in old.items() if key not in row.without}
    for key, value in row.meta.items():
        (items if key.startswith(("tokenizer.", "xielu.")) else new)[key] = typed(value)
    if "vocab_size" in new:
        new["vocab_size"] = typed(row.n_vocab)
    before, after = Facts(arch, plain(old), template.get("n_vocab") or 0), Facts(arch, plain(new), row.n_vocab)
    shapes = [*_shapes(row, template["tensors"], before, after), *_added(row, after)]
    tied = not any(name == "output.weight" for name, _, _ in template["tensors"]) if row.tied is None else row.tied
    if tied:
        shapes = [(name, shape) for name, shape in shapes if name != "output.weight"]
    elif all(name != "output.weight" for name, _ in shapes):
        shapes.append(("output.weight", [after.at(0)["d"], row.n_vocab]))
    items.update((prefix + key, item) for key, item in new.items())
    n_layer = after.meta["block_count"]
    experts, heads = after.meta.get("expert_count", 0), after.at(0)
    tensors = [
        [name, shape, stored_as(row.stored, name, shape, n_layer, experts, heads["H"] // max(heads["KV"], 1), tied)]
        for name, shape in shapes
    ]
    return {"name": row.name, "n_vocab": row.n_vocab, "metadata": items, "tensors": tensors}


def _shapes(row: Row, tensors: list[Any], before: Facts, after: Facts) -> Iterator[tuple[str, list[int]]]:
    dropped = re.compile(row.drop) if row.drop else None
    for name, shape in _all_shapes(row, tensors, before, after):
        if dropped is None or not dropped.search(name):
            yield name, shape


def _all_shapes(row: Row, tensors: list[Any], before: Facts, after: Facts) -> Iterator[tuple[str, list[int]]]:
    blocks: dict[int, list[tuple[str, list[int]]]] = {}
    for name, shape, _ in tensors:
        found = re.match(r"blk\.(\d+)\.(.*)", name)
        if found:
            blocks.setdefault(int(found[1]), []).append((found[2], shape))
        else:
            yield name, _resized(name, shape, before.at(0), after.at(0))
    kinds: dict[object, int] = {}
    for il in sorted(blocks):
        kinds.setdefault(before.kind(il), il)
    for il in range(after.meta["block_count"]):
        source = kinds.get(after.kind(il))
        if source is None:
            raise ValueError(f"{row.name}: {row.template} has no block like {il}: {after.kind(il)}")
        for name, shape in blocks[source]:
            yield f"blk.{il}.{name}", _resized(name, shape, before.at(source), after.at(il))


def _added(row: Row, after: Facts) -> Iterator[tuple[str, list[int]]]:
    for name, formula in row.add:
        if "{" not in name:
            yield name, _evaluated(formula, after.at(0))
            continue
        for il in range(after.meta["block_count"]):
            if not (name.startswith("blk.{even}") and il % 2) and not (name.startswith("blk.{later}") and il == 0):
                yield re.sub(r"\{\w+\}", str(il), name), _evaluated(formula, after.at(il))


def _resized(name: str, shape: list[int], before: dict[str, int], after: dict[str, int]) -> list[int]:
    formula = _FORMULAS.get(name)
    if formula is None:
        formula = "d d" if _MATRIX.search(name) else "d|d 1 1" if len(shape) in (1, 3) else "?"
    for choice in formula.split("|"):
        if choice != "?" and _evaluated(choice, before) == shape:
            return _evaluated(choice, after)
    raise ValueError(f"{name} {shape}: no formula fits {before}")


def _evaluated(formula: str, facts: dict[str, int]) -> list[int]:
    return [int(eval(part.replace("/", "//"), {"__builtins__": {}}, facts)) for part in formula.split()]


def typed(value: object) -> dict[str, Any]:
    """A value as a snapshot item, of the type the converter writes."""
    kinds: dict[type, str] = {bool: "bool", int: "uint32", float: "float32", str: "string"}
    if isinstance(value, (list, tuple)):
        kind = {bool: "bool", int: "int32", float: "float32"}[type(value[0])]
        return {"type": "array", "value": {"array": kind, "values": list(value)}}
    return {"type": kinds[type(value)], "value": value}
