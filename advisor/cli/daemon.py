"""`advisor daemon`: the watcher in the foreground, as the systemd unit starts it."""

from __future__ import annotations

import click


@click.command("daemon")
@click.option("--once", is_flag=True, help="make one pass over everything and end")
def command(once: bool) -> int:
    """Watch the model folders and keep the settings of the enabled targets right, until stopped.

    SIGHUP reads the configuration and the rules again; SIGTERM and Ctrl-C stop. Lines go to stderr, with the journal's
    priorities when systemd started it. Exit status: 0 stopped (with --once: all went well), 1 an error.
    """
    from importlib import import_module

    from advisor.daemon.start import run

    return run(import_module("advisor.keeper").make_worker, once=once)
