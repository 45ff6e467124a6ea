"""What `llama-server -fit on` chose in measured cases, and our choice on the same devices with the same margin."""

from __future__ import annotations

from typing import Any, NamedTuple

from advisor.host import Cpu, Device, HostSnapshot, Ram
from advisor.recommend.beside_fit import Side
from advisor.recommend.budget import make_budget
from advisor.recommend.cards import recommend_on
from advisor.recommend.engine_fit import MARGIN_BYTES, Fitted, engine_fit
from advisor.recommend.evaluate import Evaluator, Judged, cost
from advisor.recommend.policy import Intent
from advisor.recommend.recommendation import Recommendation
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from advisor.speed import SpeedModel
from tests.tools.cells import cells, engine, spec
from tests.tools.machines import policy, speed_rules

GB = 10**9
RAM_BYTES = 1 << 40  # fit takes system memory as unlimited


class Compared(NamedTuple):
    """A case: the engine's choice and ours, and each of them at the context of the other."""

    model: str
    free_mib: tuple[int, ...]
    fitted: Fitted
    fit: Side
    ours: Side
    alike: Side  # ours where fit's context was asked for
    asked: Side  # fit's where ours was
    answer: Recommendation


def fit_cases() -> tuple[dict[str, Any], ...]:
    """`model`, `free_mib`, `n_ctx`, `shares`: [layers, of these in part, MiB used] per device, empty = all fits."""
    return cells("fit")


def fit_machine(free_mib: tuple[int, ...]) -> HostSnapshot:
    """Cards like the RTX 3060 with so much free, on DDR5; what a choice is compared by is the same for both sides."""
    devices = tuple(
        Device(
            f"CUDA{index}", "cuda", f"card {index}", mib << 20, mib << 20, bandwidth_bytes_per_s=360 * GB,
            f16_tflops=51.0, link_bytes_per_s=16 * GB, compute_capability="8.6",
        )
        for index, mib in enumerate(free_mib)
    )  # fmt: skip
    return HostSnapshot(
        devices, Ram(RAM_BYTES, RAM_BYTES, bandwidth_bytes_per_s=80 * GB), Cpu("test", 8, 16, ("avx2",))
    )


def fit_evaluator(model: str, host: HostSnapshot) -> Evaluator:
    """Judges as fit does: its margin on every device, and no overhead of the backend, which its free memory lacks."""
    budget = make_budget(host, policy(), keep_free_bytes=MARGIN_BYTES, keep_free_ram_bytes=0)
    nothing = {(device.backend, device.name): 0 for device in host.devices}
    speed = SpeedModel(spec(model), host, speed_rules())
    return Evaluator(spec(model), host, engine(), budget, speed, "server", None, nothing)


def choice_of_fit(evaluator: Evaluator, n_ctx: int | None = None) -> Fitted:
    """What the engine's rules choose with one slot and everything else open, or with `-c n_ctx`."""
    devices = evaluator.host.devices
    return engine_fit(
        lambda request: evaluator.judge(request).plan,
        evaluator.spec,
        RequestedSettings(n_parallel=1, kv_unified=False, n_ctx=n_ctx),
        [device.free_bytes for device in devices],
        [device.id for device in devices],
    )


def compare(model: str, free_mib: tuple[int, ...], intent: Intent) -> Compared:
    """Both choices on the same devices, ours with the context that fit left, and fit's with ours."""
    host = fit_machine(free_mib)
    whole = fit_evaluator(model, host)
    fitted = choice_of_fit(whole)

    def ours(wishes: Wishes) -> tuple[Side, Recommendation]:
        answer, used = recommend_on(host, lambda some: fit_evaluator(model, some), policy(), intent, wishes)
        judge = whole if used.devices == host.devices else fit_evaluator(model, used)
        return _side(judge, answer.chosen, intent), answer

    chosen, answer = ours(Wishes(RequestedSettings()))
    alike, _ = ours(Wishes(RequestedSettings(n_ctx=fitted.request.n_ctx)))
    asked = choice_of_fit(whole, chosen.n_ctx)
    return Compared(
        model, free_mib, fitted, _side(whole, whole.judge(fitted.request), intent), chosen, alike,
        _side(whole, whole.judge(asked.request), intent), answer,
    )  # fmt: skip


def _side(evaluator: Evaluator, judged: Judged, intent: Intent) -> Side:
    speed = evaluator.speed(judged, intent)
    return Side(judged, speed, cost(judged, speed, intent, policy(), evaluator.spec.n_ctx_train))
