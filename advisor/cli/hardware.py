"""`advisor hardware`."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import click

from advisor.cli.options import hardware_options, take_hardware
from advisor.errors import HardwareError
from advisor.regular import read_regular


@click.command("hardware", context_settings={"max_content_width": 100})
@click.option("--save", metavar="FILE", help="write the snapshot that --hardware replays")
@click.option("--ask-engine", is_flag=True, help="also run 'llama-server --list-devices'")
@click.option("--folder", "folders", multiple=True, metavar="DIR", help="a model folder whose disk to look at")
@hardware_options
@click.option("--rules", "rules_folder", metavar="DIR", help="a folder of rules that wins over the shipped ones")
@click.option("--json", "as_json", is_flag=True, help="machine-readable output")
def command(save: str | None, ask_engine: bool, folders: tuple[str, ...], **values: Any) -> int:
    """What was found, by which probe, and what is planned with."""
    import json

    from advisor.app import App
    from advisor.cli.render_hardware import render_hardware
    from advisor.hardware.snapshot_file import to_json

    choice = take_hardware(values)
    host = App(values["rules_folder"]).host(
        gpus=choice.gpus,
        no_gpu=choice.no_gpu,
        ram=choice.ram_bytes,
        hardware_file=choice.hardware_file,
        ask_engine=ask_engine,
        folders=[os.path.abspath(folder) for folder in folders],
    )
    document = to_json(host)
    if save is not None:
        _save(save, json.dumps(document, indent=2) + "\n")
    if values["as_json"]:
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(render_hardware(host)))
        if save is not None:
            print(f"saved    {save}: replay it with --hardware {save}")
    return 0


def _save(path: str, text: str) -> None:
    """Write a snapshot; only a file that is a snapshot already is replaced."""
    try:
        if os.path.exists(path) and b'"advisor.hardware/' not in read_regular(path, 4096)[0]:
            raise HardwareError(f"{path} is not a hardware snapshot and is left alone; choose another name.")
        folder = os.path.dirname(os.path.realpath(path))
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".advisor-")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, os.path.realpath(path))
    except OSError as error:
        raise HardwareError(f"{path} cannot be written: {error.strerror}; choose another file.") from None
