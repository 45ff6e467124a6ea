"""Recurrent models, hybrids and encoders: numbers from published config.json, tensors as the converter writes them."""

from __future__ import annotations

from tests.truth.shapes.build import Row, row

_QKV = r"attn_[qkv]\.(weight|bias)"
_FUSED = (("blk.{i}.attn_qkv.weight", "d (H+2*KV)*hk"),)
_NANO12 = "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-"
_NANO4 = "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-"

ROWS: tuple[Row, ...] = (
    row("falcon-h1-0.5b", "falcon-h1-7b", 32784, "Q8_0", L=36, d=1024, ff=2048, H=8, KV=2, hd=64, inner=1536, ns=128,
        dt=24, groups=1),
    row("falcon-h1-1.5b-deep", "falcon-h1-7b", 65536, "Q4_K_M", L=66, d=1280, ff=3840, H=6, KV=2, hd=128, inner=3072,
        ns=256, dt=24, groups=1),
    row("falcon-h1-34b", "falcon-h1-7b", 261120, "Q4_K_M", L=72, d=5120, ff=21504, H=20, KV=4, hd=128, inner=4096,
        ns=256, dt=32, groups=2, drop="ssm_norm", add=(("blk.{i}.ssm_norm.weight", "inner/groups groups"),)),
    row("falcon-mamba-7b", "mamba-2.8b", 65024, "Q4_K_M", d=4096, inner=8192, dt=256, more={"ssm.dt_b_c_rms": True}),
    row("mamba-130m", "mamba-2.8b", 50280, "Q8_0", L=24, d=768, inner=1536, dt=48),
    row("mamba2-2.7b", "mamba2-7b", 50288, "Q8_0", L=64, d=2560, inner=5120, dt=80, groups=1),
    row("granite4-micro", "granite-h", 100352, "Q4_K_M", L=40, d=2048, ff=8192, H=32, inner=4096, dt=64, groups=1,
        KV=[8 if il in (5, 15, 25, 35) else 0 for il in range(40)], drop=r"attn_.*\.bias|exps|ffn_gate_inp|shexp",
        add=(("blk.{i}.ffn_gate.weight", "d ff"), ("blk.{i}.ffn_up.weight", "d ff"),
        ("blk.{i}.ffn_down.weight", "ff d")), without=("expert_count", "expert_used_count",
        "expert_feed_forward_length", "expert_shared_feed_forward_length"), tied=True),
    row("nemotron-nano2-12b", "nemotron-h-9b", 131072, "Q4_K_M", L=62, d=5120, H=40, hd=128, inner=10240, dt=128,
        groups=8, ff=[20480 if kind == "-" else 0 for kind in _NANO12],
        KV=[8 if kind == "*" else 0 for kind in _NANO12]),
    row("nemotron-nano3-4b", "nemotron-h-9b", 131072, "Q8_0", L=42, d=3136, H=40, hd=128, inner=7680, dt=96, groups=8,
        ff=[12544 if kind == "-" else 0 for kind in _NANO4[:42]], KV=[8 if kind == "*" else 0 for kind in _NANO4[:42]]),
    row("lfm2-350m", "lfm2-1.2b", 65536, "Q8_0", d=1024, ff=4608, H=16),
    row("lfm2-2.6b", "lfm2-1.2b", 65536, "Q4_K_M", L=30, d=2048, ff=10752, H=32,
        KV=[8 if il in (2, 6, 9, 13, 17, 21, 25, 28) else 0 for il in range(30)]),
    row("qwen35-0.8b", "qwen35-27b", 248320, "Q8_0", L=24, d=1024, ff=3584, H=8, KV=2, inner=2048, dt=16, tied=True),
    row("qwen35-4b", "qwen35-27b", 248320, "Q4_K_M", L=32, d=2560, ff=9216, H=16, KV=4, inner=4096, dt=32, tied=True),
    row("qwen35-9b", "qwen35-27b", 248320, "Q4_K_M", L=32, d=4096, ff=12288, H=16, KV=4, inner=4096, dt=32),
    row("rwkv7-0.1b", "rwkv7-2.9b", 65536, "Q8_0", L=12, d=768, ff=3072, more={"attention.decay_lora_rank": 64,
        "attention.iclr_lora_rank": 64, "attention.value_residual_mix_lora_rank": 32, "attention.gate_lora_rank": 128}),
    row("rwkv7-13b", "rwkv7-2.9b", 65536, "Q4_K_M", L=61, d=4096, ff=16384, more={"attention.decay_lora_rank": 192,
        "attention.iclr_lora_rank": 192, "attention.value_residual_mix_lora_rank": 128,
        "attention.gate_lora_rank": 384}),
    row("rwkv6-1.6b", "rwkv6-7b", 65536, "Q4_K_M", L=24, d=2048, ff=7168, more={"time_mix_extra_dim": 32,
        "time_decay_extra_dim": 64}),
    row("plamo2-1b", "plamo2-8b", 100000, "Q8_0", L=16, d=2048, ff=8192, H=16, inner=4096, dt=32,
        KV=[0 if il % 2 == 0 else 1 for il in range(16)]),
    row("bge-m3", "bert-large", 250002, "F16", ctx=8192, drop="token_types", add=(("token_types.weight", "d 1"),),
        more={"tokenizer.ggml.token_type_count": 1}),
    row("bge-small", "bert-large", 30522, "Q8_0", L=12, d=384, ff=1536, H=12, KV=12),
    row("all-minilm-l6", "bert-large", 30522, "F16", L=6, d=384, ff=1536, H=12, KV=12, more={"pooling_type": 1}),
    row("nomic-embed-1.5", "nomic-bert", 30522, "F16", L=12, d=768, ff=3072, H=12, ctx=2048,
        drop=_QKV + r"|blk.*output\.bias|ffn.*bias", add=_FUSED),
    row("nomic-embed-2-moe", "nomic-bert-moe", 250048, "Q8_0", L=12, d=768, ff=3072, H=12, ctx=512, drop=_QKV,
        add=(*_FUSED, ("blk.{i}.attn_qkv.bias", "(H+2*KV)*hk"))),
    row("jina-v2-base-code", "jina-bert-v2", 61056, "F16", L=12, d=768, ff=3072, H=12, ctx=8192),
    row("modernbert-large", "modern-bert", 50368, "Q8_0", L=28, d=1024, ff=2624, H=16, ctx=8192),
    row("eurobert-210m", "eurobert", 128256, "F16", L=12, d=768, ff=3072, H=12, KV=12, ctx=8192),
    row("embeddinggemma-q4", "gemma-embedding", 262144, "Q4_0"),
    row("neo-bert-250m", "neo-bert", 30522, "F16", L=28, d=768, ff=2012, H=12, ctx=4096),)  # fmt: skip
