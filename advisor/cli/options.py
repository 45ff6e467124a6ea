"""Options that several commands share, made from the one table of llama.cpp's flags."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from advisor.errors import UsageError
from advisor.llama_flags import FLAGS, REPEATED, bare_value, parse_value, takes_value
from advisor.records import NamedTuple
from advisor.settings import RequestedSettings
from advisor.units import parse_size

F = TypeVar("F", bound=Callable[..., Any])
_METAVARS = {
    "int": "N", "layers": "N|all|auto", "floats": "A,B", "overrides": "PATTERN=BUFFER", "cache": "TYPE", "file": "FILE",
    "files": "FILE", "choices": "TYPE",
}  # fmt: skip


def settings_for(*fields: str) -> Callable[[F], F]:
    """llama.cpp's own flags for these fields of RequestedSettings."""

    def decorate(function: F) -> F:
        for index, flag in reversed(list(enumerate(FLAGS))):
            if flag.field not in fields:
                continue
            name = f"flag_{index}"
            if takes_value(flag):
                metavar = "|".join(flag.choices) if flag.kind == "choice" and len(flag.choices) < 5 else None
                option = click.option(
                    *flag.names, name, metavar=metavar or _METAVARS.get(flag.kind, "MODE"), help=flag.help,
                    multiple=flag.kind in REPEATED,
                )  # fmt: skip
            else:
                option = click.option(*flag.names, name, is_flag=True, default=False, help=flag.help)
            function = option(function)
        return function

    return decorate


settings_options = settings_for(*RequestedSettings._fields)


def take_settings(values: dict[str, Any]) -> RequestedSettings:
    """Pop the flag_* values and make settings of them. Raises UsageError naming the option."""
    chosen: dict[str, Any] = {}
    for index, flag in enumerate(FLAGS):
        value = values.pop(f"flag_{index}", None)
        if value is None or value is False or value == ():
            continue
        if not takes_value(flag):
            if chosen.get(flag.field, bare_value(flag)) != bare_value(flag):
                raise UsageError(f"{flag.names[-1]} contradicts another option; give one of them.")
            chosen[flag.field] = bare_value(flag)
        elif flag.kind in REPEATED:
            chosen[flag.field] = tuple(entry for text in value for entry in parse_value(flag, text, flag.names[-1]))  # type: ignore[attr-defined]
        else:
            chosen[flag.field] = parse_value(flag, value, flag.names[-1])
    return RequestedSettings(**chosen)


class HardwareChoice(NamedTuple):
    """Which machine to plan for."""

    gpus: tuple[str, ...]
    no_gpu: bool
    ram_bytes: int | None
    hardware_file: str | None
    now: bool
    keep_free_bytes: int | None


_HARDWARE = (
    click.option("--gpu", "gpus", multiple=True, metavar="SPEC", 
                 help='a card that need not be there: "RTX 3060", cuda:12GiB, either with @FREE'),
    click.option("--no-gpu", is_flag=True, help="plan for the CPU alone"),
    click.option("--ram", metavar="SIZE", help="system memory to plan with"),
    click.option("--hardware", "hardware_file", metavar="FILE", help="a snapshot from 'advisor hardware --save'"),
    click.option("--now", is_flag=True, help="plan for this minute instead of the machine at rest"),
    click.option("--keep-free", metavar="SIZE", help="memory to leave free on each GPU"),
)  # fmt: skip


def hardware_options(function: F) -> F:
    """--gpu, --no-gpu, --ram, --hardware, --now, --keep-free."""
    for option in reversed(_HARDWARE):
        function = option(function)
    return function


def take_hardware(values: dict[str, Any]) -> HardwareChoice:
    """Pop the hardware options."""
    ram, keep = values.pop("ram"), values.pop("keep_free")
    return HardwareChoice(
        gpus=values.pop("gpus"),
        no_gpu=values.pop("no_gpu"),
        ram_bytes=parse_size(ram) if ram is not None else None,
        hardware_file=values.pop("hardware_file"),
        now=values.pop("now"),
        keep_free_bytes=parse_size(keep) if keep is not None else None,
    )


_ENGINE = (
    click.option("--engine", metavar="NAME[@BUILD]", help="llama.cpp (default), ollama, llama-cpp-python, koboldcpp"),
    click.option("--tool", type=click.Choice(["server", "cli", "bench"]), default="server",
                 help="the program that loads the model (default: server)"),
    click.option("--rules", "rules_folder", metavar="DIR", help="a folder of rules that wins over the shipped ones"),
    click.option("--json", "as_json", is_flag=True, help="machine-readable output"),
)  # fmt: skip


def engine_options(function: F) -> F:
    """--engine, --tool, --rules, --json."""
    for option in reversed(_ENGINE):
        function = option(function)
    return function
