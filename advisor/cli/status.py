"""`advisor status`: what the daemon watches, what it did last, what is pending, pinned and failing."""

from __future__ import annotations

from typing import Any

import click

NOT_RUNNING = 3  # as systemctl has it
_SHOWN_CHANGES = 10
_SHOWN = 50


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="machine-readable output")
def command(as_json: bool) -> int:
    """Show what the daemon watches, its last changes, and what is pending, pinned or failing.

    Exit status: 0 it runs, 3 it does not.
    """
    import json
    import os

    from advisor.daemon.lock import runtime_folder
    from advisor.daemon.status import read_status

    status = read_status(runtime_folder(os.environ))
    if not status["running"]:
        status["notes"] = _left_behind()
    print(json.dumps(status, indent=2) if as_json else "\n".join(_lines(status)))
    return 0 if status["running"] else NOT_RUNNING


def _lines(status: dict[str, Any]) -> list[str]:
    from advisor.cli.terminal import Screen, clean, columns

    screen = Screen()
    if not status["running"]:
        return [
            "advisor's daemon does not run.",
            "Start it with: advisor service install (at every login), or: advisor daemon",
            *_section("Mind", [clean(text, 500) for text in status["notes"]], screen),
        ]
    if status["pid"] is None:
        return ["advisor's daemon runs but has told nothing yet; ask again in a moment."]
    head = f"advisor's daemon {clean(str(status['version']))} runs as process {status['pid']} since {status['since']}"
    lines = [screen.paint(head, "bold"), f"{clean(str(status['state']))}: {clean(str(status['status_text']), 500)}"]
    places = [[clean(str(place["path"]), 500), clean(str(place["how"]))] for place in status["watching"]]
    lines += _section("Watching", columns(places), screen)
    titles = {"pending": "Pending", "pinned": "Pinned by you", "failures": "Failing", "notes": "Mind"}
    for name, title in titles.items():
        lines += _section(title, [clean(str(text), 500) for text in status[name] or ()], screen)
    changes = status["last_changes"][-_SHOWN_CHANGES:]
    lines += _section(
        "Last", [f"{clean(str(said['time']))}  {clean(str(said['text']), 500)}" for said in changes], screen
    )
    if status["unexpected_errors"]:
        lines += ["", f"{status['unexpected_errors']} unexpected errors; please report with: advisor doctor"]
    return lines


def _left_behind() -> list[str]:
    """What nobody else tells while no daemon runs."""
    import os

    from advisor.errors import AdvisorError
    from advisor.keeper import read_settings
    from advisor.keeper.keeper import ledger_folder
    from advisor.keeper.left_behind import left_behind_notes
    from advisor.managed.ledger import read_ledger

    try:
        return left_behind_notes(read_ledger(ledger_folder(os.environ)), read_settings(os.environ).targets)
    except AdvisorError as error:
        return [str(error)]


def _section(title: str, items: list[str], screen: Any) -> list[str]:
    if not items:
        return []
    lines = ["", screen.paint(title, "bold")]
    for item in items[:_SHOWN]:
        lines += screen.wrap(item, "    ", "  ")
    return [*lines, f"  and {len(items) - _SHOWN} more"] if len(items) > _SHOWN else lines
