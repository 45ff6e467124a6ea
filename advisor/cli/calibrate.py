"""`advisor calibrate`: measure this machine, so that speeds rest on it and not on its class."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from advisor.cli.numbers import whole
from advisor.errors import EngineError, OutputError, UsageError
from advisor.records import NamedTuple

if TYPE_CHECKING:
    from advisor.app import App
    from advisor.calibration import Calibration
    from advisor.cli.calibrating import DiskFound, Tried
    from advisor.cli.checking import Check
    from advisor.host import HostSnapshot

_DEFAULT_SECONDS = 120


class Outcome(NamedTuple):
    """Everything that one run of the command found out."""

    host: HostSnapshot  # as it was planned with before
    calibration: Calibration
    disks: tuple[DiskFound, ...]
    tried: Tried | None
    check: Check | None
    path: str | None  # the file that it is kept in; None where that was not possible
    notes: tuple[str, ...]
    seconds: float


@click.command("calibrate", context_settings={"max_content_width": 100})
@click.argument("model", metavar="[MODEL]", required=False)
@click.option(
    "--engine-binary",
    metavar="PATH",
    help="the llama-server to time, or the word xllamacpp for that Python package (default: on PATH)",
)
@click.option("--no-engine", is_flag=True, help="measure memory and disks alone")
@click.option(
    "--folder", "folders", multiple=True, metavar="DIR", help="a model folder whose disk to read, besides yours"
)
@click.option(
    "--seconds",
    callback=whole(5),
    metavar="N",
    help=f"for the engine's trials; the first few are always made (default: {_DEFAULT_SECONDS})",
)
@click.option("--url", metavar="URL", help="learn from a llama-server that runs on this machine instead")
@click.option("--forget", is_flag=True, help="remove what was measured and learned")
@click.option("--rules", "rules_folder", metavar="DIR", help="a folder of rules that wins over the shipped ones")
@click.option("--json", "as_json", is_flag=True, help="machine-readable output")
def command(model: str | None, **values: Any) -> int:
    """Measure this machine once: memory, the disks under model folders, and an engine on the CPU, in two minutes.

    The engine runs models of random weights that are made for it and removed again. MODEL, or the smallest model at
    hand, then shows how far off speeds were before and are now. A server given with --url answers a few short requests.
    What is measured is kept in the state folder and used by every command until the hardware changes.
    Exit status: 0, 1 when nothing could be measured or kept, 2 wrong usage.
    """
    from advisor.app import App
    from advisor.calibration_file import refuse_newer
    from advisor.hardware.storage import no_disk_under
    from advisor.state import state_folder

    folder = state_folder(os.environ)
    if values["forget"]:
        others = ("url", "engine_binary", "no_engine", "folders", "seconds")
        if model is not None or any(values[name] not in (None, False, ()) for name in others):
            raise UsageError("--forget stands alone; leave MODEL and the other options away.")
        return _forget(folder, values["as_json"])
    for place in values["folders"]:
        if not os.path.isdir(place):
            raise UsageError(f"--folder {place or repr(place)} is no folder; give one that holds models.")
        if (kind := no_disk_under(place)) is not None:
            raise UsageError(
                f"--folder {place} is on no disk but shows what the kernel tells ({kind}); give one of models."
            )
    refuse_newer(folder)
    app = App(values["rules_folder"])
    if values["url"] is not None:
        if values["no_engine"] or values["engine_binary"] or values["folders"] or values["seconds"]:
            raise UsageError("--url times a server that runs already; leave the options for starting one away.")
        from advisor.cli.serving import learn_from_server

        return learn_from_server(app, values["url"], model, folder, as_json=values["as_json"])
    if values["no_engine"] and (model or values["engine_binary"]):
        raise UsageError("--no-engine leaves the engine alone; leave MODEL and --engine-binary away.")
    with ended_cleanly():
        outcome = _measure(app, model, folder, values)
    if values["as_json"]:
        import json

        from advisor.cli.calibrate_json import document

        print(json.dumps(document(outcome), indent=2))
    else:
        from advisor.cli.render_calibrate import render_calibrate
        from advisor.cli.terminal import Screen

        print("\n".join(render_calibrate(outcome, Screen())))
    measured = outcome.calibration
    return 0 if outcome.path and (measured.ram_bytes_per_s or measured.disks or measured.cpu) else 1


def _measure(app: App, model: str | None, folder: str, values: dict[str, Any]) -> Outcome:
    from advisor.calibrated import current_calibration, machine_of
    from advisor.calibration import CPU, Calibration
    from advisor.calibration_file import FILE, save_calibration
    from advisor.cli import calibrating as steps
    from advisor.cli.progress import Progress
    from advisor.hardware.ram_speed import measure_ram

    started = time.monotonic()
    host = app.host()
    before, problem = current_calibration(folder, host)
    notes = [problem] if problem else []
    busy = steps.is_busy(host.cpu.logical_cores)
    notes += [busy] if busy else []
    spec = app.model(app.header(model)) if model is not None else None  # wrong input is told before the work
    engines = () if values["no_engine"] else _engines(values["engine_binary"], notes)
    reports = _stores(values["folders"])
    with Progress() as progress:
        progress.show("reading memory and disks", 0, 2)
        ram = measure_ram(host.cpu.physical_cores, host.ram.available_bytes)
        if ram is None:
            notes.append("The memory's speed cannot be measured here.")
        disks = steps.measure_disks(steps.model_folders(reports, values["folders"]))
        tried = None
        seconds = values["seconds"] or _DEFAULT_SECONDS
        if engines:
            tried, problems = _trials(app, reports, engines, seconds, progress)
            notes += problems
        anew = tried is not None or before is None or before.cpu is None  # what runs on the CPU are relative to
        calibration = Calibration(
            machine_of(host), time.strftime("%Y-%m-%d"), ram or (before.ram_bytes_per_s if before else None),
            _merged(steps.disk_rates(disks), before), tried.cpu if tried else before.cpu if before else None,
            tuple(run for run in before.runs if run.device != CPU or not anew) if before else (),
        )  # fmt: skip
        check = None
        if tried is not None or (engines and host.devices):  # on a GPU it may run all the same
            from advisor.cli.checking import check_with

            progress.show("checking with a model", 1, 2)
            used = (tried.binary,) if tried is not None else engines
            to_run = spec if spec is not None else steps.small_model(app, reports)
            check, calibration, said = check_with(app, host, calibration, used, to_run, seconds)
            notes += [note for note in said if note not in notes]
    unkept = save_calibration(folder, calibration)
    notes += [unkept] if unkept else []
    if before is not None and anew and any(run.device == CPU for run in before.runs):
        notes.append("What earlier runs on the CPU told is forgotten: it was relative to the earlier measurement.")
    path = os.path.join(folder, FILE) if unkept is None else None
    return Outcome(host, calibration, tuple(disks), tried, check, path, tuple(notes), time.monotonic() - started)


@contextlib.contextmanager
def ended_cleanly() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that no engine stays and no trial's file in memory."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signals = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, stop) for number in signals if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _engines(given: str | None, notes: list[str]) -> tuple[Any, ...]:
    """Engines to time; a sentence in `notes` where there is none. Raises EngineError when the given one is none."""
    from advisor.engines.serve import find_servers

    try:
        return find_servers(given, os.environ)
    except EngineError as error:
        if given is not None:
            raise
        notes.append(str(error)[:1].upper() + str(error)[1:])
        return ()


def _stores(folders: tuple[str, ...]) -> Any:
    from advisor.keeper import read_settings
    from advisor.stores.scan import scan_stores

    settings = read_settings(os.environ)
    return scan_stores(os.environ, (*settings.folders, *folders), include_defaults=settings.stores)


def _trials(app: App, reports: Any, engines: Any, seconds: int, progress: Any) -> tuple[Tried | None, list[str]]:
    from advisor.cli.calibrating import try_engines, types_and_heads
    from advisor.hardware.ram_speed import last_cache_bytes
    from advisor.speed.trials import trials

    types, heads = types_and_heads(app, reports)
    return try_engines(engines, trials(last_cache_bytes(), types, heads), seconds, progress)


def _merged(found: Any, before: Calibration | None) -> Any:
    """The disks of now, and those of earlier that were not looked at."""
    new = {disk.folder for disk in found}
    return (*found, *(disk for disk in (before.disks if before else ()) if disk.folder not in new))


def _forget(folder: str, as_json: bool) -> int:
    from advisor.calibration_file import FILE, forget_calibration

    path = os.path.join(folder, FILE)
    try:
        there = forget_calibration(folder)
    except OSError as error:
        raise OutputError(f"{path} cannot be removed ({error.strerror}); remove it yourself.") from None
    if as_json:
        import json

        print(json.dumps({"schema": "advisor.calibrate/1", "forgotten": there, "kept_in": path}, indent=2))
    else:
        print("What was measured and learned is forgotten." if there else "Nothing was measured or learned yet.")
    return 0
