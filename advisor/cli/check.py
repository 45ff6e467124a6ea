"""`advisor check`: does a model with these settings fit what is free right now; made for ExecStartPre=."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.options import engine_options, hardware_options, settings_options
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.cli.judge_settings import JudgedSettings

DOES_NOT_FIT = 4

# \b alone on a line: click keeps the lines of that paragraph
_HELP = """Whether a model with exactly these settings fits what is free at this moment.

For a service that should not start into an out-of-memory:

\b
ExecStartPre=advisor check -- llama-server -m model.gguf -c 32768 -ngl 33
ExecStart=llama-server -m model.gguf -c 32768 -ngl 33

Says one line. Exit status: 0 it fits, 4 it does not, 2 wrong usage, 1 any other error.
"""


@click.command("check", help=_HELP, context_settings={"max_content_width": 100})
@click.argument("words", nargs=-1, metavar="MODEL | -- COMMAND...", type=click.UNPROCESSED)
@settings_options
@hardware_options
@engine_options
def command(words: tuple[str, ...], **values: Any) -> int:
    """Whether a model with exactly these settings fits what is free at this moment."""
    from advisor.cli.judge_settings import judge_settings, not_used
    from advisor.cli.terminal import clean
    from advisor.recommend.words import on
    from advisor.units import format_bytes

    found = judge_settings(words, values, now=True)
    judged, name = found.judged, clean(found.spec.name, 80)
    if values["as_json"]:
        import json

        shorts = [{"device": short.device, "over_bytes": short.over_bytes} for short in judged.shorts]
        document = {
            "schema": "advisor.check/1",
            "model": found.spec.path,
            "fits": judged.fits,
            "short": shorts,
            "devices": [place._asdict() for place in _places(found)],
            "ignored": list(found.pasted.ignored) if found.pasted else [],
        }
        print(json.dumps(document))
        return 0 if judged.fits else DOES_NOT_FIT
    for what, options in not_used(found.pasted.ignored if found.pasted else ()).items():
        click.echo(f"advisor: {what}: {clean(', '.join(options), 600)}", err=True)
    if judged.fits:
        needs = (f"{place.id} {format_bytes(place.planned_bytes)}" for place in _places(found))
        print(f"{name} fits: {', '.join(needs)}.")
    else:
        places = " and ".join(f"{format_bytes(short.over_bytes)} {on(short.device)}" for short in judged.shorts)
        print(f"{name} does not fit now: {places} too much.")
    return 0 if judged.fits else DOES_NOT_FIT


class _Place(NamedTuple):
    id: str  # of a device, or "host"
    planned_bytes: int
    free_bytes: int
    margin_bytes: int  # of the free ones, to be left
    over_bytes: int  # too much, 0 where it fits


def _places(found: JudgedSettings) -> list[_Place]:
    plan, budget = found.judged.plan, found.budget
    over = {short.device: short.over_bytes for short in found.judged.shorts}
    places = [
        _Place(device.id, device.planned_bytes, limit.free_bytes, limit.margin_bytes, over.get(device.id, 0))
        for device, limit in zip(plan.devices, budget.devices, strict=True)
        if device.planned_bytes
    ]
    host = plan.host.planned_bytes
    return [*places, _Place("host", host, budget.ram_available_bytes, budget.ram_margin_bytes, over.get("host", 0))]
