"""`advisor recommend MODEL --what-gpu`: which classes of GPU hold all of it, and how fast they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from advisor.cli.terminal import Screen, clean
from advisor.recommend.words import use_rate

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.memory.extras import Beside
    from advisor.model.spec import ModelSpec
    from advisor.planner import Planner
    from advisor.recommend.policy import Intent
    from advisor.recommend.search import Wishes
    from advisor.what_gpu import GpuClass, Offer

_HEADS = {
    "desktop": "Desktop cards",
    "workstation": "Workstation cards",
    "data centre": "Data centre cards",
    "shared memory": "GPUs in the machine's own memory, whose size stands here",
}
_ORDER = (
    "Prices are not known here: the fewest cards come first, then the least memory. Of each vendor the slowest card of "
    "its newest generation is named, and the fastest; others of that size hold the same. Laptops' chips are left out."
)
NOTHING_FITS = 4


def answer_what_gpu(
    app: App, planner: Planner, spec: ModelSpec, intent: Intent, wishes: Wishes, beside: Beside | None,
    values: dict[str, Any],
) -> int:  # fmt: skip
    """Print the classes; `planner` is of a machine without GPUs. Returns the exit status, 4 where there is none."""
    from advisor.what_gpu import WhatGpu

    finder = WhatGpu(planner, app.gpu_table(), planner.host, spec, intent, wishes, beside)
    classes = finder.classes()
    if values["as_json"]:
        import json

        from advisor.cli.shapes import engine_shape, model_shape

        document = {
            "schema": "advisor.what-gpu/1",
            "model": model_shape(spec),
            "engine": engine_shape(planner.engine, values["tool"]),
            "n_ctx": finder.n_ctx(),
            "order": _ORDER,
            "classes": [_class_shape(each) for each in classes],
        }
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(_lines(classes, spec, finder.n_ctx(), planner, Screen())))
    return 0 if classes else NOTHING_FITS


def _class_shape(each: GpuClass) -> dict[str, Any]:
    from advisor.cli.shapes import speed_shape

    return {
        "market": each.market,
        "n_cards": each.n_cards,
        "memory_bytes": each.memory_bytes,
        "cards": [
            {
                "name": offer.name,
                "bandwidth_bytes_per_s": offer.bandwidth_bytes_per_s,
                "cache_type_k": offer.judged.plan.settings.cache_type_k,
                "cache_type_v": offer.judged.plan.settings.cache_type_v,
                "planned_bytes": [device.planned_bytes for device in offer.judged.plan.devices],
                "speed": speed_shape(offer.speed),
                "others": list(offer.others),
            }
            for offer in each.offers
        ],
    }


def _lines(classes: tuple[GpuClass, ...], spec: ModelSpec, n_ctx: int, planner: Planner, screen: Screen) -> list[str]:
    from advisor.cli.render_plan import model_line, source_line

    lines = model_line(spec, screen)
    what = f"all {spec.n_layer_all + 1} layers and {n_ctx:,} tokens of context"
    if not classes:
        said = f"No card of the table holds {what}, {_most()}; 'advisor recommend' says what a part on the CPU gives."
        return [*lines, "", *(screen.paint(line, "bold", "red") for line in screen.wrap(said))]
    lines += ["", *(screen.paint(line, "bold") for line in screen.wrap(f"GPUs that hold {what}, with tokens/s"))]
    market = ""
    for each in classes:
        if each.market != market:
            market = each.market
            lines += ["", screen.paint(_HEADS[market], "bold")]
        size = f"{f'{each.n_cards}x ' if each.n_cards > 1 else ''}{each.memory_bytes / (1 << 30):g} GiB"
        others = [name for offer in each.offers for name in offer.others]
        lines += _fitted(f"  {size.rjust(12)}   ", _named(each.offers, spec), others, screen)
    return [*lines, "", *screen.wrap(_ORDER), "", source_line(spec, planner.engine, screen)]


def _most() -> str:
    from advisor.what_gpu import MOST_CARDS

    return f"not even {MOST_CARDS['data centre']} of the largest"


def _named(offers: Sequence[Offer], spec: ModelSpec) -> str:
    """Cards with their tokens/s, two of one vendor as a span, and the cache type where that is not f16."""
    texts: list[str] = []
    for index, offer in enumerate(offers):
        rate = use_rate(spec, offer.speed)
        text = f"{clean(offer.name)} {rate:,.0f}" if rate >= 10 else f"{clean(offer.name)} {rate:.1f}"
        if index and offer.vendor == offers[index - 1].vendor:
            texts[-1] += f" to {text}"
        else:
            texts.append(text)
    kinds = [_kinds(offer) for offer in offers]
    if len(set(kinds)) == 1 and kinds[0]:
        return f"{', '.join(texts)} ({kinds[0]} cache)"
    for index, text in enumerate(texts):
        mine = {_kinds(offer) for offer in offers if text.startswith(clean(offer.name) + " ")}
        texts[index] += f" ({mine.pop()} cache)" if mine and "" not in mine else ""
    return ", ".join(texts)


def _kinds(offer: Offer) -> str:
    """The cache's types where they are not f16."""
    settings = offer.judged.plan.settings
    return "/".join(dict.fromkeys(k for k in (settings.cache_type_k, settings.cache_type_v) if k != "f16"))


def _fitted(start: str, named: str, others: list[str], screen: Screen) -> list[str]:
    """One line for a class, with as many of the other cards as it has room for; more only where the named need them."""
    text = named
    for name in others:
        longer = f"{text}, {clean(name)}" if text != named else f"{text}; also {clean(name)}"
        if len(start) + len(longer) + 1 > screen.width:
            break
        text = longer
    return screen.wrap(text, " " * len(start), start)
