"""What rules/speed.toml must look like."""

_RATE = "number 1e6.."  # bytes per second
_SHARE = "number 0.001..10"
_SPREAD = "number 0..0.95"
_CLASS_SCHEMA: dict[str, object] = {
    "efficiency": _SHARE,
    "block_seconds": "number 0..1",
    "extra_steps": "number 0..10",
    "flash_efficiency_factor": _SHARE,
    "slow_expert_types": ["str 1.."],
    "slow_expert_seconds": "number 0..1",
    "prefill_efficiency": _SHARE,
    "prefill_attention_factor": _SHARE,
    "prefill_expert_rows": "number 0..",
    "range": _SPREAD,
    "prefill_range": _SPREAD,
    "assumed_bandwidth_bytes_per_s": _RATE,
    "assumed_tflops": "number 0.001..",
    "assumed_link_bytes_per_s": _RATE,
    "confidence": ("formula", "low"),
    "source": "str",
}
SCHEMA: dict[str, object] = {
    "source": "str",
    "classes": {"*": _CLASS_SCHEMA},
    "stacked_memory": {"chips": ["str 1.."], "efficiency_factor": _SHARE, "source": "str"},
    "copies": {"hop_seconds": "number 0..1", "link_efficiency": _SHARE, "spill_efficiency": _SHARE, "source": "str"},
    "cpu": {
        "efficiency": _SHARE,
        "block_seconds": "number 0..1",
        "extra_steps": "number 0..10",
        "flash_efficiency_factor": _SHARE,
        "range": _SPREAD,
        "assumed_bandwidth_bytes_per_s": _RATE,
        "gflops_per_core": "number 0.001..",
        "gflops_per_core_avx2": "number 0.001..",
        "gflops_per_core_avx512": "number 0.001..",
        "source": "str",
    },
    "measured": {
        "ram_efficiency": _SHARE,
        "range": _SPREAD,
        "prefill_range": _SPREAD,
        "nearest_size_ratio": "number 1..100",
        "cpu_no_flash_pair_factor": _SHARE,
        "cpu_no_flash_row_factor": "number 0..10",
        "cpu_quantized_cache_pair_factor": _SHARE,
        "cpu_quantized_cache_row_factor": "number 0..10",
        "source": "str",
    },
    "attention": {
        "no_flash_efficiency_factor": _SHARE,
        "quantized_cache_efficiency_factor": _SHARE,
        "latent_flops_factor": _SHARE,
        "source": "str",
    },
    "disk": {
        "assumed_read_bytes_per_s": _RATE,
        "kinds": {"nvme": _RATE, "ssd": _RATE, "hdd": _RATE, "network": _RATE},
        "range": _SPREAD,
        "cold_expert_read_ahead": "number 1..",
        "source": "str",
    },
}
