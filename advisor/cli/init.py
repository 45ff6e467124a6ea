"""`advisor init`: a configuration to begin with."""

from __future__ import annotations

import click


@click.command("init", context_settings={"max_content_width": 100})
@click.option("--print", "print_it", is_flag=True, help="show the file instead of writing it")
@click.option("--json", "as_json", is_flag=True, help="machine-readable output")
def command(print_it: bool, as_json: bool) -> int:
    """Write a configuration in which every key is explained and none is set, so it changes nothing by itself.

    A configuration that is there is never overwritten. Exit status: 0, 2 wrong usage, 1 any other error.
    """
    import os

    from advisor.configuration.init_text import init_text

    if print_it:
        _show(None, init_text()) if as_json else print(init_text(), end="")
        return 0

    from advisor.cli.config import write_config
    from advisor.configuration.read import FILE, config_folder
    from advisor.errors import ConfigError
    from advisor.managed.atomic import look

    path = os.path.join(config_folder(os.environ), FILE)
    standing = look(path)
    if standing.data is not None:
        raise ConfigError(f"{path} is there already and is left as it is; 'advisor init --print' shows a fresh one.")
    write_config(standing, init_text())
    if as_json:
        _show(path, init_text())
        return 0
    print(f"wrote {path}; every key is explained in it, and none is set yet.")
    print("Next: write a [target.NAME] into it, then see with 'advisor diff' what that would change.")
    return 0


def _show(path: str | None, text: str) -> None:
    """`path`: where it was written, None where it was only shown."""
    import json

    print(json.dumps({"schema": "advisor.init/1", "path": path, "text": text}, indent=2))
