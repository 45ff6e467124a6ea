"""`advisor daemon`: the watcher in the foreground, as the systemd unit starts it."""

from __future__ import annotations

import click


@click.command("daemon")
@click.option("--once", is_flag=True, help="make one pass over everything and end")
@click.option("--json", "as_json", is_flag=True, help="with --once: what the pass came to, machine-readable")
def command(once: bool, as_json: bool) -> int:
    """Watch the model folders and keep the settings of the enabled targets right, until stopped.

    SIGHUP reads the configuration and the rules again; SIGTERM and Ctrl-C stop. Lines go to stderr, with the journal's
    priorities when systemd started it. Exit status: 0 stopped; with --once as that of `advisor apply`: 0 the files
    stand as wanted, 1 a file could not be written or an engine told; 1 any other error, 2 wrong usage.
    """
    import json
    from importlib import import_module

    from advisor.daemon.start import run
    from advisor.daemon.status import once_document
    from advisor.errors import UsageError

    if as_json and not once:
        raise UsageError("--json goes with --once; of a daemon that runs, 'advisor status --json' tells.")
    make_worker = import_module("advisor.keeper").make_worker
    if not as_json:
        return run(make_worker, once=once)
    return run(make_worker, once=True, show=lambda status: print(json.dumps(once_document(status), indent=2)))
