"""Prints, for measured cases, what `llama-server -fit on` chose and what `balanced` chooses on the same devices.

usage: python -m tests.bench.fit [EVERY]     (every EVERYth case, default all; no assertions)

Both have the same free memory and the same margin: 1,024 MiB a device, fit's own, and system memory without a limit.
Seconds per turn are of our speed model, for cards like the RTX 3060 and DDR5. `fit` is the engine's rules over our
arithmetic, which must come to the recorded choice.

At an equal context ours must never be slower: where fit's is asked of us, and where ours is asked of fit (`-c`). With a
context of its own each, the one with more context may be slower, since context takes memory and memory on the GPU is
speed; ours must never be the worse one in both. Where it is longer and slower, the last lines say by how much, whether
fit's context holds the turn at all, and how much slower fit would be at our context.
"""

from __future__ import annotations

import sys
from collections import Counter
from statistics import median

from advisor.recommend.beside_fit import Side
from tests.tools.fit_cases import Compared, compare, fit_cases
from tests.tools.machines import policy

_SAME = 1 + 1e-9
HEAD = "{:18} {:>12} | {:>8} {:>11} {:>8} {:>7} | {:>8} {:>11} {:5} {:>4} {:>8} {:>7} {:>7} {}"

WORDS = (
    "cases", "slower at a context no longer than fit's", "shorter at no more speed", "over the same free memory",
    "slower with fit's context asked for", "slower than fit with ours asked for", "dearer for the intent", "the same",
    "leaving it to the engine is said to be fine", "longer and no slower", "longer and slower",
    "longer and slower, and fit's context does not hold the turn", "shorter and faster",
    "fit's own choice is over its margin", "fit's rules come out otherwise",
)  # fmt: skip


def main() -> None:
    """The table, and what it comes to."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    counts: Counter[str] = Counter()
    price: dict[str, list[tuple[float, float, float]]] = {}
    intent = policy().intent("balanced")
    print(HEAD.format("model", "free MiB", "fit ctx", "on GPU", "MiB", "s/turn", "our ctx", "on GPU", "cache", "ub",
                      "MiB", "s/turn", "alike", ""))  # fmt: skip
    for case in fit_cases()[::every]:
        both = compare(case["model"], tuple(case["free_mib"]), intent)
        found = verdicts(both, case, intent.turn.n_tokens)
        counts.update(found)
        counts["cases"] += 1
        for words in found:
            if words.startswith("longer and slower"):
                slower = both.ours.turn_s / both.fit.turn_s, both.asked.turn_s / both.ours.turn_s
                price.setdefault(words, []).append((both.ours.n_ctx / both.fit.n_ctx, *slower))
        print(row(both, found))
    print()
    for words in WORDS:
        print(f"{counts[words]:5} {words}")
    for words, rows in price.items():
        longer, slower, asked = (median(one[at] for one in rows) for at in (0, 1, 2))
        print(f"{words}: {longer:.1f} times the context for {slower:.2f} times the seconds (medians);")
        print(f"    fit asked for that context takes {asked:.2f} times our seconds")


def row(both: Compared, found: list[str]) -> str:
    """One case."""
    fit, ours, settings = both.fit, both.ours, both.ours.judged.plan.settings
    return HEAD.format(
        both.model, "+".join(str(mib) for mib in both.free_mib), fit.n_ctx, on_gpu(fit), need_mib(fit),
        f"{fit.turn_s:.2f}", ours.n_ctx, on_gpu(ours), settings.cache_type_k, settings.n_ubatch, need_mib(ours),
        f"{ours.turn_s:.2f}", f"{both.alike.turn_s:.2f}", ", ".join(found),
    )  # fmt: skip


def verdicts(both: Compared, case: dict[str, object], turn_tokens: int) -> list[str]:
    """What is to be said of a case."""
    ours, fit = both.ours, both.fit
    out = []
    if fit.n_ctx >= ours.n_ctx and ours.turn_s > fit.turn_s * _SAME:
        out.append("slower at a context no longer than fit's")
    if ours.n_ctx < fit.n_ctx and ours.turn_s * _SAME >= fit.turn_s:
        out.append("shorter at no more speed")
    if not ours.judged.fits:
        out.append("over the same free memory")
    if ours.cost > fit.cost * _SAME:
        out.append("dearer for the intent")
    if both.alike.turn_s > fit.turn_s * _SAME and fit.judged.fits:
        out.append("slower with fit's context asked for")
    if ours.turn_s > both.asked.turn_s * _SAME and both.asked.judged.fits:
        out.append("slower than fit with ours asked for")
    near = fit.turn_s / _SAME <= ours.turn_s <= fit.turn_s * _SAME
    if ours.n_ctx == fit.n_ctx and near:
        out.append("the same")
    elif ours.n_ctx > fit.n_ctx:
        slower = "longer and slower" + (", and fit's context does not hold the turn" if fit.n_ctx < turn_tokens else "")
        out.append("longer and no slower" if ours.turn_s <= fit.turn_s * _SAME else slower)
    elif ours.n_ctx < fit.n_ctx and ours.turn_s < fit.turn_s:
        out.append("shorter and faster")
    if any(note.code == "engine_fit_as_good" for note in both.answer.reasons):
        out.append("leaving it to the engine is said to be fine")
    if not fit.judged.fits:
        out.append("fit's own choice is over its margin")
    if not as_recorded(both, case):
        out.append("fit's rules come out otherwise")
    return out


def as_recorded(both: Compared, case: dict[str, object]) -> bool:
    """Whether the rules come to the recorded choice. While experts are all on the CPU the log counts none in part."""
    shares = case["shares"]
    assert isinstance(shares, list)
    same = len(shares) == len(both.fitted.shares) and all(
        share.n_layer == layers and in_part in (0, share.n_part)
        for share, (layers, in_part, _) in zip(both.fitted.shares, shares, strict=True)
    )
    return same and both.fit.n_ctx == case.get("n_ctx", both.fit.n_ctx)


def on_gpu(side: Side) -> str:
    """Layers, and experts that stay on the CPU."""
    plan = side.judged.plan
    if not plan.devices:
        return "0"
    text = str(plan.settings.n_gpu_layers)
    return f"{text}-{plan.host_expert_blocks}x" if plan.host_expert_blocks else text


def need_mib(side: Side) -> str:
    """Exact need per device."""
    return "+".join(str(device.planned_bytes >> 20) for device in side.judged.plan.devices)


if __name__ == "__main__":
    main()
