"""Machines that tests imagine, and the recommendation for a zoo model on one."""

from __future__ import annotations

import functools
from typing import Any

import tomli

from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.quants.rules import QuantRules, parse_quants
from advisor.recommend.budget import Budget, make_budget
from advisor.recommend.cards import recommend_on
from advisor.recommend.evaluate import Evaluator
from advisor.recommend.policy import Policy, parse_policy
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel
from tests.tools.cells import RULES, engine, spec

GIB = 1 << 30


@functools.cache
def policy() -> Policy:
    """The shipped policy."""
    return parse_policy(tomli.loads((RULES / "policy.toml").read_text()))


@functools.cache
def speed_rules() -> dict[str, Any]:
    """The shipped speed constants."""
    return tomli.loads((RULES / "speed.toml").read_text())


def machine(*vram_gib: float, ram_gib: float = 64, bandwidth: int = 360 * 10**9, backend: str = "cuda") -> HostSnapshot:
    """A desktop with cards of these sizes, everything free."""
    devices = tuple(
        Device(
            f"{backend.upper()}{i}", backend, f"card {i}", int(size * GIB), int(size * GIB),
            bandwidth_bytes_per_s=bandwidth, f16_tflops=50.0, link_bytes_per_s=16 * 10**9, compute_capability="8.6",
        )
        for i, size in enumerate(vram_gib)
    )  # fmt: skip
    ram = Ram(int(ram_gib * GIB), int(ram_gib * GIB))
    return HostSnapshot(devices, ram, Cpu("test", 8, 16, ("avx2",)), origin="given")


def evaluator(
    model: str, host: HostSnapshot, *, now: bool = False, keep_free: int | None = None, build: int | None = 11434
) -> Evaluator:
    """An evaluator for a zoo model on `host`."""
    budget: Budget = make_budget(host, policy(), now=now, keep_free_bytes=keep_free)
    return Evaluator(spec(model), host, engine(build), budget, SpeedModel(spec(model), host, speed_rules()), "server")


@functools.cache
def quant_rules() -> QuantRules:
    """The shipped rules of quantizations."""
    return parse_quants(tomli.loads((RULES / "quants.toml").read_text()))


def advise(model: str, host: HostSnapshot, intent: str = "balanced", **wishes: Any) -> Recommendation:
    """recommend_on() for a zoo model; keywords are settings to pin, or min_n_ctx, max_n_ctx, min_tokens_per_s."""
    limits = {k: wishes.pop(k) for k in ("min_n_ctx", "max_n_ctx", "min_tokens_per_s") if k in wishes}
    answer, _ = recommend_on(
        host,
        lambda machine: evaluator(model, machine),
        policy(),
        policy().intent(intent),
        Wishes(RequestedSettings(**wishes), **limits),
        quant_rules,
    )
    return answer
