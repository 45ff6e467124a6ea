"""`advisor diff`: what the config files of the targets would become."""

from __future__ import annotations

import click

from advisor.cli.keeping import (
    adopt_option,
    json_option,
    keeper_for,
    look_with,
    print_changes,
    print_json,
    say,
    targets_argument,
)


@click.command("diff")
@targets_argument
@adopt_option
@json_option
def command(targets: tuple[str, ...], adopt: bool, as_json: bool) -> int:
    """What `advisor apply` would change, as a diff; nothing is written.

    Without TARGET: all of the configuration, also those that are not enabled. Exit status: 0, whether or not there are
    changes; 1 a file that cannot be changed or another error; 2 wrong usage.
    """
    from advisor.keeper.left_behind import left_behind, left_behind_notes
    from advisor.managed.ledger import read_ledger

    keeper, chosen = keeper_for(targets, every=True)
    look = look_with(keeper, chosen)
    ledger = read_ledger(keeper.ledger_folder)
    changes = keeper.changes(look, ledger, adopt=adopt)
    if as_json:
        print_json("advisor.diff/1", look, changes, None, left_behind(ledger, keeper.settings.targets))
    else:
        print_changes(look, changes, diffs=True)
        for text in left_behind_notes(ledger, keeper.settings.targets):
            say(text)
    refused = any(each.planned.refused and not each.held for those in changes.values() for each in those)
    return 1 if refused or any(made.failure or made.unsure for made in look.passes) else 0
