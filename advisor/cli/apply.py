"""`advisor apply`: write the config files of the targets."""

from __future__ import annotations

import time

import click

from advisor.cli.keeping import (
    adopt_option,
    json_option,
    keeper_for,
    look_with,
    print_changes,
    print_json,
    print_told,
    say,
    targets_argument,
)


@click.command("apply")
@targets_argument
@click.option("--all", "every", is_flag=True, help="every target of the configuration, enabled or not")
@adopt_option
@json_option
def command(targets: tuple[str, ...], every: bool, adopt: bool, as_json: bool) -> int:
    """Write what `advisor diff` shows, and tell running engines; each file can be taken back with `advisor undo`.

    Without TARGET: all that are enabled. Exit status: 0 the files stand as wanted (models that do not fit, or that a
    format cannot carry, are named and left out), 1 a file could not be written or an engine told, 2 wrong usage.
    """
    from advisor.keeper.left_behind import left_behind, left_behind_notes
    from advisor.managed.ledger import open_ledger

    keeper, chosen = keeper_for(targets, every=every)
    look = look_with(keeper, chosen)
    with open_ledger(keeper.ledger_folder) as ledger:
        for note in ledger.notes:
            say(note)
        changes = keeper.changes(look, ledger, adopt=adopt)
        told = keeper.apply(look, changes, ledger, time.time())
    failed = any(made.failure or made.unsure for made in look.passes)
    for one in told:
        failed = failed or one.error is not None or any(each.error for each in one.applied)
    if as_json:
        print_json("advisor.apply/1", look, changes, told, left_behind(ledger, keeper.settings.targets))
    else:
        print_changes(look, changes, diffs=False)
        print_told(told)
        for text in left_behind_notes(ledger, keeper.settings.targets):
            say(text)
    return 1 if failed else 0
