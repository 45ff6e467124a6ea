"""The type llama-quantize stores a tensor as, for the mixes of the table (llama.cpp b11434, src/llama-quant.cpp)."""

from __future__ import annotations

import re

from advisor.ggml_types import BY_NAME, GGML_TYPES

# what stays as the converter wrote it: F32, or F16/BF16 for small matrices
_F32 = re.compile(
    r"(norm(\.weight|\.bias)?|\.bias|\.scale|ffn_gate_inp(_shexp)?\.weight|ssm_conv1d.*|ssm_a|ssm_d|shortconv\.conv\.weight|"
    r"exp_probs_b|position_embd\.weight|token_types\.weight|lerp_.*|time_mix_(first|w0|w1|w2|a0|v0|k_k|k_a|r_k|decay|"
    r"decay_w1|decay_w2|ln)\.weight|altup_.*coef\.weight|altup_router.*|layer_output_scale\.weight|attn_sinks\.weight)$"
)
_AS_CONVERTED = re.compile(r"attn_rel_b|altup|laurel|per_layer_model_proj|time_mix_[avg][12]\.")
_BASE = {"Q4_K_M": "q4_k", "Q4_K_S": "q4_k", "Q5_K_M": "q5_k", "Q6_K": "q6_k", "Q8_0": "q8_0", "Q3_K_M": "q3_k",
         "Q3_K_S": "q3_k", "Q5_K_S": "q5_k",
         "Q2_K": "q2_k", "IQ4_XS": "iq4_xs", "IQ4_NL": "iq4_nl", "IQ3_XXS": "iq3_xxs", "IQ2_XXS": "iq2_xxs",
         "Q4_0": "q4_0", "Q5_0": "q5_0", "F16": "f16", "BF16": "bf16", "MXFP4": "q8_0", "F32": "f32"}  # fmt: skip
# where a row does not divide into blocks of 256
_FALLBACK = {"q2_k": "iq4_nl", "q3_k": "iq4_nl", "iq4_xs": "iq4_nl", "iq3_xxs": "iq4_nl", "iq2_xxs": "iq4_nl",
             "iq3_s": "iq4_nl", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}  # fmt: skip


def stored_as(stored: str, name: str, shape: list[int], n_layer: int, n_expert: int, n_gqa: int, tied: bool) -> int:
    """The ggml type number of a tensor in a file of a mix."""
    kind = _wished(stored, name, shape, n_layer, n_expert, n_gqa, tied)
    if shape[0] % GGML_TYPES[BY_NAME[kind].id].block_elements:
        kind = _FALLBACK.get(kind, "f16")
        if shape[0] % GGML_TYPES[BY_NAME[kind].id].block_elements:
            kind = "f16"
    return BY_NAME[kind].id


def _wished(stored: str, name: str, shape: list[int], n_layer: int, n_expert: int, n_gqa: int, tied: bool) -> str:
    base = _BASE[stored]
    if len(shape) == 1 or _F32.search(name) or base == "f32":
        return "f32"
    if base in ("f16", "bf16") or _AS_CONVERTED.search(name):
        return base if base == "bf16" else "f16"
    if stored == "MXFP4" and name.endswith("_exps.weight"):
        return "mxfp4"
    if base in ("q8_0", "q6_k"):
        return base
    if name == "output.weight" or (name == "token_embd.weight" and tied):
        return "q5_k" if base in ("iq2_xxs",) else "q6_k"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return {"iq2_xxs": "q2_k", "iq3_xxs": "iq3_s"}.get(base, base)
    found = re.match(r"blk\.(\d+)\.", name)
    il = int(found[1]) if found else 0
    more = il < n_layer // 8 or il >= 7 * n_layer // 8 or (il - n_layer // 8) % 3 == 2
    if "attn_v.weight" in name:
        if n_expert == 8:
            return "q8_0"
        return {"Q4_K_M": "q6_k" if more else "q4_k", "Q5_K_M": "q6_k" if more else "q5_k", "Q3_K_M": "q5_k",
                "Q2_K": "q4_k" if n_gqa >= 4 else "q3_k", "IQ4_XS": "q5_k" if n_gqa >= 4 else "iq4_xs",
                "IQ2_XXS": "q4_k" if n_gqa >= 4 else "q2_k"}.get(stored, base)  # fmt: skip
    if "ffn_down" in name:
        early = il < n_layer // 8
        return {"Q4_K_M": "q6_k" if more else "q4_k", "Q5_K_M": "q6_k" if more else "q5_k",
                "Q3_K_M": "q5_k" if il < n_layer // 16 else "q4_k" if more else "q3_k", "Q2_K": "q3_k",
                "IQ4_XS": "q5_k" if early else "iq4_xs", "Q4_K_S": "q5_k" if early else "q4_k",
                "IQ2_XXS": "q2_k" if early else "iq2_xxs"}.get(stored, base)  # fmt: skip
    if "attn_k.weight" in name and n_expert == 8:
        return "q8_0"
    if "attn_output.weight" in name:
        return {"Q3_K_M": "q4_k", "Q2_K": "q3_k"}.get(stored, base)
    if "attn_qkv.weight" in name:
        return {"Q4_K_M": "q5_k", "Q5_K_M": "q6_k", "Q3_K_M": "q4_k"}.get(stored, base)
    return base
