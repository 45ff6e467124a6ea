"""Tokens per second and seconds per turn, as a value with a range and what bounds it.

Decode: t = sum over devices (weights read / rate + cache read at depth / its rate + steps) + hops + disk.
The constants stand in rules/speed.toml with their sources.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from advisor.ggml_types import BY_NAME
from advisor.host import HostSnapshot
from advisor.memory.placement import HOST
from advisor.memory.types import MemoryPlan
from advisor.model.spec import ModelSpec
from advisor.records import NamedTuple
from advisor.speed.constants import Constants, constants_of
from advisor.speed.prefill import prefill_of
from advisor.speed.reads import ModelFacts, Placed, attention_flops, cache_read_bytes, facts_of, hops_of
from advisor.speed.types import Range, Speed, Turn

_SECONDS = itemgetter(0)


class Decode(NamedTuple):
    """Seconds for one token, and what they consist of most."""

    seconds: float
    spread: float
    bound_by: str
    confidence: str


class SpeedModel:
    """Speed of one model on one machine for any plan; what does not depend on the plan is worked out once."""

    def __init__(
        self, spec: ModelSpec, host: HostSnapshot, rules: Mapping[str, Any], constants: Constants | None = None
    ) -> None:
        """`constants`: those of the machine in place of what `rules`, a checked speed.toml, has for `host`."""
        self._spec = spec
        self._known_facts: ModelFacts | None = None
        self.machine = constants if constants is not None else constants_of(host, rules, spec.path)
        self.constants = self.machine
        if self.machine.measured is not None:
            from advisor.speed.measured import for_model  # only where something was measured

            self.constants = for_model(self.machine, spec, host.devices)
        self._placed: dict[tuple[int, ...], Placed] = {}
        self._decoded: dict[tuple[Placed, tuple[object, ...]], Decode] = {}
        self._known_for = self.constants

    def share(self, other: "SpeedModel") -> None:
        """Share what was summed up of the same model's tensors."""
        self._known_facts = other._facts

    @property
    def _facts(self) -> ModelFacts:
        if self._known_facts is None:
            self._known_facts = facts_of(self._spec)
        return self._known_facts

    @property
    def read_rates(self) -> tuple[float, ...]:
        """Bytes per second that decoding gets out of each GPU's memory."""
        return tuple([device.read_bytes_per_s for device in self.constants.devices])

    def predict(self, plan: MemoryPlan, turn: Turn, available_ram_bytes: int) -> Speed:
        """Speed of `plan` for `turn`; `available_ram_bytes` decides whether host weights stay in RAM."""
        depth = max(min(turn.depth_tokens, plan.settings.n_ctx_seq - turn.answer_tokens), 0)
        placed = self._placed_of(plan)
        decode = self._decode(plan, placed, depth, available_ram_bytes)
        cached = self._reads(plan, placed, depth + turn.prompt_tokens // 2)[HOST][0]
        prefill = prefill_of(
            self._facts, self.constants, plan, placed, turn.prompt_tokens, depth, cached, available_ram_bytes
        )
        read_s, answer_s = turn.prompt_tokens * prefill.seconds, turn.answer_tokens * decode.seconds
        turn_spread = (read_s * prefill.spread + answer_s * decode.spread) / ((read_s + answer_s) or 1.0)
        return Speed(
            turn_seconds=_range(read_s + answer_s, turn_spread),
            decode_tokens_per_s=_range(1 / decode.seconds, decode.spread),
            prefill_tokens_per_s=_range(1 / prefill.seconds, prefill.spread),
            at_depth=depth,
            confidence=decode.confidence,
            bound_by="disk" if prefill.bound_by == "disk" else decode.bound_by,
        )

    def when_full(self, plan: MemoryPlan, speed: Speed, available_ram_bytes: int) -> Speed:
        """`speed` of `plan` with the figure for a full context added."""
        depth = plan.settings.n_ctx_seq
        decode = self.decode(plan, depth, available_ram_bytes)
        return speed._replace(when_full=_range(1 / decode.seconds, decode.spread), full_depth=depth)

    def decode(self, plan: MemoryPlan, depth: int, available_ram_bytes: int) -> Decode:
        """One token with `depth` tokens in the cache."""
        return self._decode(plan, self._placed_of(plan), depth, available_ram_bytes)

    def _decode(self, plan: MemoryPlan, placed: Placed, depth: int, available_ram_bytes: int) -> Decode:
        settings, on_host = plan.settings, plan.host
        missing = on_host.weights_bytes + on_host.cache_bytes - available_ram_bytes
        if self.constants.measured is not None:  # attention on the host then goes by the cells of the whole cache
            return self._decode_anew(plan, placed, depth, missing)
        key = (depth, settings.cache_type_k, settings.cache_type_v, settings.kv_offload, settings.n_cpu_moe,
               plan.flash_attn, plan.host_expert_blocks, plan.read_device_bytes, plan.read_host_bytes,
               missing > 0 and (missing, on_host.weights_bytes))  # fmt: skip
        known = self._decoded.get((placed, key))
        if known is None:
            known = self._decoded[placed, key] = self._decode_anew(plan, placed, depth, missing)
        return known

    def _decode_anew(self, plan: MemoryPlan, placed: Placed, depth: int, missing: int) -> Decode:
        """`missing`: bytes of the host's part that do not stay in RAM."""
        constants, settings = self.constants, plan.settings
        reads = self._reads(plan, placed, depth)
        cache_factor = 1.0 if plan.flash_attn else constants.no_flash_factor
        if BY_NAME[settings.cache_type_k.lower()].is_quantized:
            cache_factor *= constants.quantized_cache_factor
        parts: list[tuple[float, float, str]] = []  # seconds, spread, bound
        confidences = []
        for index, device in enumerate(constants.devices):
            n_bytes, (cache, latent) = plan.read_device_bytes[index], reads[index]
            if not n_bytes and not cache:
                continue
            reading = n_bytes / device.read_bytes_per_s
            attending = cache / (cache_factor * device.cache_bytes_per_s)
            attending = max(attending, latent / (constants.latent_flops_factor * device.flops))
            steps = device.step_seconds * self._steps(placed, index, device.extra_steps)
            if device.slow_expert_types:
                steps += device.slow_expert_seconds * self._slow_stacks(plan, index, device.slow_expert_types)
            bound = "compute" if steps > reading + attending else "gpu bandwidth"
            parts.append(((reading + attending + steps) * device.decode_factor, device.spread, bound))
            confidences.append(device.confidence)
        on_host = plan.read_host_bytes + reads[HOST][0]
        if on_host:
            host = constants.host
            seconds = plan.read_host_bytes / host.read_bytes_per_s + host.vocabulary_seconds
            seconds += self._attending_on_host(plan, depth, reads[HOST][0], cache_factor)
            seconds += host.step_seconds * self._steps(placed, HOST, host.extra_steps)
            parts.append((seconds * host.decode_factor, host.spread, "ram bandwidth"))
            confidences.append(host.confidence)
            if missing > 0:
                parts.append((self._disk_seconds(plan, missing), host.disk_spread, "disk"))
                confidences.append("low")
        if not parts:
            return Decode(1e-9, 0.5, "compute", "low")
        parts.append((hops_of(placed, plan) * constants.hop_seconds, 0.5, parts[-1][2]))
        total = sum([part[0] for part in parts])
        confidence = "low" if "low" in confidences else "formula" if "formula" in confidences else "calibrated"
        spread = sum([part[0] * part[1] for part in parts]) / total
        return Decode(total, spread, max(parts, key=_SECONDS)[2], confidence)

    def _attending_on_host(self, plan: MemoryPlan, depth: int, cache_bytes: int, cache_factor: float) -> float:
        """Seconds of attention over `cache_bytes` of cache in system memory."""
        host, measured = self.constants.host, self.constants.measured
        if measured is None or host.times is None or not host.times.heads or not cache_bytes:
            return cache_bytes / (cache_factor * host.cache_bytes_per_s)
        from advisor.speed.measured import host_attention_seconds

        computing = host_attention_seconds(self._spec, host.times.heads, plan, depth, measured)
        return max(cache_bytes / host.cache_bytes_per_s, computing)

    def _placed_of(self, plan: MemoryPlan) -> Placed:
        if self._known_for is not self.constants:
            self._placed, self._decoded, self._known_for = {}, {}, self.constants
        known = self._placed.get(plan.placement)
        if known is None:
            known = Placed(plan.placement, self._facts.blocks, len(self.constants.devices))
            self._placed[plan.placement] = known
        return known

    def _steps(self, placed: Placed, index: int, extra: float) -> float:
        """Steps of the blocks on a device: one a block, `extra` more for experts and for a recurrent state."""
        known = placed.steps.get((index, extra))
        if known is None:
            known, kinds = 0.0, self._facts.blocks.kinds
            for place, kind, count in placed.counts:
                if place == index:
                    layer = kinds[kind]
                    known += count * (1 + extra * (layer.n_ff_expert > 0) + extra * (layer.recurrent_state > 0))
            placed.steps[index, extra] = known
        return known

    def _slow_stacks(self, plan: MemoryPlan, index: int, types: tuple[str, ...]) -> int:
        return sum(
            count
            for (block, name), count in self._facts.expert_stacks.items()
            if name in types and plan.placement[block] == index and block >= plan.settings.n_cpu_moe
        )

    def cache_reads(self, plan: MemoryPlan, depth: int) -> tuple[tuple[int, float], ...]:
        """Cache bytes read per token at `depth` and arithmetic over latent ones: per device, the host last."""
        return self._reads(plan, self._placed_of(plan), depth)

    def _reads(self, plan: MemoryPlan, placed: Placed, depth: int) -> tuple[tuple[int, float], ...]:
        settings = plan.settings
        key = (depth, settings.cache_type_k, settings.cache_type_v, settings.kv_offload)
        known = placed.reads.get(key)
        if known is None:
            n_bytes = [0] * len(placed.shares)
            flops = [0.0] * len(n_bytes)
            for place, kind, count in placed.counts:
                layer = self._facts.blocks.kinds[kind]
                at = place if settings.kv_offload else HOST
                n_bytes[at] += count * cache_read_bytes(layer, settings, depth)
                if layer.attention == "latent":
                    flops[at] += count * attention_flops(layer, depth)
            known = placed.reads[key] = tuple(zip(n_bytes, flops, strict=True))
        return known

    def _disk_seconds(self, plan: MemoryPlan, missing: int) -> float:
        """Seconds a token waits for the disk when `missing` bytes of host weights do not stay in RAM.

        Of a dense model everything on the host is read again for every token: what is read last pushes out the first.
        """
        rate = self.constants.host.disk_bytes_per_s
        weights = max(plan.host.weights_bytes, 1)
        if self._spec.n_expert:
            cold = min(missing / weights, 1.0) * self.constants.cold_read_ahead
            return float(min(plan.read_host_bytes * cold, weights) / rate)
        return float(plan.read_host_bytes / rate)


def _range(value: float, spread: float) -> Range:
    return Range(value, value * (1 - spread), value * (1 + spread))
