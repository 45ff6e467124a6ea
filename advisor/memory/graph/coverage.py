"""Which architectures the graph model knows, and how well (llama.cpp b11434)."""

from __future__ import annotations

# compared with the engine's own graph, byte for byte
VERIFIED = frozenset(
    (
        *("afmoe", "apertus", "arcee", "arctic", "baichuan", "bailingmoe", "bailingmoe2", "bert", "bitnet"),
        *("bloom", "chatglm", "codeshell", "cogvlm", "cohere2", "cohere2moe", "command-r", "dbrx", "deci"),
        *("deepseek", "deepseek2", "deepseek2-ocr", "deepseek32", "dots1", "dream", "ernie4_5", "ernie4_5-moe"),
        *("eurobert", "exaone", "exaone-moe", "exaone4", "falcon", "falcon-h1", "gemma", "gemma-embedding"),
        *("gemma2", "gemma3", "gemma3n", "gemma4", "glm-dsa", "glm4", "glm4moe", "gpt-oss", "gpt2", "gptneox"),
        *("granite", "granite_swa", "granitehybrid", "granitemoe", "grok", "grovemoe", "hunyuan-dense"),
        *(
            "hunyuan-moe",
            "hunyuan_vl",
            "jina-bert-v3",
            "paddleocr",
            "hy_v3",
            "internlm2",
            "jais",
            "jais2",
            "jamba",
            "jina-bert-v2",
            "kimi-linear",
        ),
        *("laguna", "lfm2", "lfm2moe", "llada", "llada-moe", "llama", "llama-embed", "llama4", "maincoder"),
        *("mamba", "mamba2", "maple", "mellum", "mimo2", "minicpm", "minicpm3", "minimax-01", "minimax-m2"),
        *("mistral3", "mistral4", "modern-bert", "mpt", "nanbeige", "nemotron", "nemotron_h", "nemotron_h_moe"),
        *("neo-bert", "nomic-bert", "nomic-bert-moe", "olmo", "olmo2", "olmoe", "openelm", "orion"),
        *("pangu-embedded", "phi2", "phi3", "phimoe", "plamo", "plamo2", "plamo3", "plm", "qwen", "qwen2"),
        *("qwen2moe", "qwen2vl", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen3vl"),
        *("qwen3vlmoe", "refact", "rnd1", "rwkv6", "rwkv7", "seed_oss", "smallthinker", "smollm3", "spark2_5"),
        *("stablelm", "starcoder", "starcoder2", "step35", "xverse"),
    )
)

# builders with parts that are not modelled
UNMODELLED = frozenset(
    (
        *("arwkv7", "bailingmoe3", "chameleon", "clef", "clip", "deepseek4", "dflash", "dots3note", "eagle3"),
        *("gemma4-assistant", "glm5-next", "graniteswitch", "hrm_text", "hy_v4", "kimi-k3", "minimax-m3"),
        *("muse-glimmer", "pockettts", "qwen3tts", "qwen4exp", "rwkv6qwen2", "t5", "t5encoder", "talkie"),
        *("wavtokenizer-dec"),
    )
)
