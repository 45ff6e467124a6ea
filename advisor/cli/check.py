"""`advisor check`: does a model with these settings fit what is free right now; made for ExecStartPre=."""

from __future__ import annotations

from typing import Any

import click

from advisor.cli.options import engine_options, hardware_options, settings_options

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
    from advisor.cli.judge_settings import judge_settings
    from advisor.cli.terminal import clean
    from advisor.units import format_bytes

    found = judge_settings(words, values, now=True)
    judged, name = found.judged, clean(found.spec.name, 80)
    if values["as_json"]:
        import json

        shorts = [{"device": short.device, "over_bytes": short.over_bytes} for short in judged.shorts]
        print(json.dumps({"schema": "advisor.check/1", "model": found.spec.path, "fits": judged.fits, "short": shorts}))
    elif judged.fits:
        print(f"{name} fits: " + ", ".join(f"{where} {format_bytes(need)}" for where, need in _needs(found)) + ".")
    else:
        places = " and ".join(f"{format_bytes(short.over_bytes)} on {short.device}" for short in judged.shorts)
        print(f"{name} does not fit now: {places} too much.")
    return 0 if judged.fits else DOES_NOT_FIT


def _needs(found: Any) -> list[tuple[str, int]]:
    plan = found.judged.plan
    return [(device.id, device.planned_bytes) for device in plan.devices if device.planned_bytes] + [
        ("host", plan.host.planned_bytes)
    ]
