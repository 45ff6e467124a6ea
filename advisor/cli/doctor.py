"""`advisor doctor`: one report to paste into a bug report. Whatever breaks says so in its place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from advisor.records import NamedTuple

ENGINE_TIME_LIMIT_S = 3.0
_ENGINES = (
    "llama-server", "llama-cli", "llama-bench", "llama-fit-params", "llama-server-vulkan", "ollama", "koboldcpp",
)  # fmt: skip
_MAX_ANSWER_BYTES = 64 * 1024
_MAX_LINE = 1000
# What decides which devices an engine sees. Only these variables are shown: others may hold secrets.
_DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
    "HSA_OVERRIDE_GFX_VERSION", "GGML_VK_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK",
)  # fmt: skip


class Section(NamedTuple):
    """One part of the report. `error` is "" when it worked; `lines` are for people, `facts` for programs."""

    name: str
    lines: list[str]
    facts: Any
    error: str


class Doctor:
    """What the sections share: the command's arguments, and App, host and model once they are there."""

    def __init__(self, model: str | None, hardware_file: str | None, rules_folder: str | None) -> None:
        self.model, self.hardware_file, self.rules_folder = model, hardware_file, rules_folder
        self._app: Any = None
        self._host: Any = None

    def app(self) -> Any:
        """The composition root, made once."""
        if self._app is None:
            from advisor.app import App

            self._app = App(self.rules_folder)
        return self._app

    def host(self) -> Any:
        """The machine, probed or replayed once."""
        if self._host is None:
            probing = self.hardware_file is None
            self._host = self.app().host(hardware_file=self.hardware_file, ask_engine=probing)
        return self._host


@click.command("doctor", context_settings={"max_content_width": 100})
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--hardware", "hardware_file", metavar="FILE", help="a snapshot from 'advisor hardware --save'")
@click.option("--rules", "rules_folder", metavar="DIR", help="a folder of rules that wins over the shipped ones")
@click.option("--json", "as_json", is_flag=True, help="machine-readable output")
def command(model: str | None, hardware_file: str | None, rules_folder: str | None, as_json: bool) -> int:
    """One report to paste into a bug report: versions, devices, engines, rules, and MODEL if given.

    Your home folder is written as ~, and of the environment only the variables that choose GPUs are shown.
    Always ends with status 0, except 2 for wrong usage: what cannot be found out says so in its place.
    """
    doctor = Doctor(model, hardware_file, rules_folder)
    parts: list[tuple[str, Callable[[Doctor], tuple[list[str], Any]]]] = [
        ("advisor", _versions),
        ("dependencies", _dependencies),
        ("hardware", _hardware),
        ("engines", _engines),
        ("rules", _rules),
    ]
    if model is not None:
        parts += [("model", _model), ("recommend", _recommend)]
    parts.append(("replay", _replay))
    sections = [_run(name, part, doctor) for name, part in parts]
    if as_json:
        import json

        shape = {
            "schema": "advisor.doctor/1",
            "sections": {section.name: {"facts": section.facts, "error": section.error} for section in sections},
        }
        print(json.dumps(shape, indent=2))
        return 0
    for section in sections:
        print(f"[{section.name}]")
        for line in section.lines:
            print(line)
        if section.error:
            print(f"failed: {section.error}")
        print()
    return 0


def _run(name: str, part: Callable[[Doctor], tuple[list[str], Any]], doctor: Doctor) -> Section:
    """One section, cleaned; an exception becomes its error."""
    from advisor.cli.terminal import clean
    from advisor.errors import AdvisorError

    home = os.path.expanduser("~")
    try:
        lines, facts = part(doctor)
        return Section(name, [_safe(shorten(line, home)) for line in lines], _shorten_all(facts, home), "")
    except AdvisorError as error:
        reason = str(error)
    except Exception as error:  # the report is for bugs: it must come out in spite of them
        reason = f"{type(error).__name__}: {error}"
    return Section(name, [], None, clean(shorten(reason, home), _MAX_LINE))


def shorten(text: str, home: str) -> str:
    """`text` without secrets, and with the home folder written as ~ wherever it stands as a whole path."""
    from advisor.cli.secrets import without_secrets

    text = without_secrets(text)
    if len(home) < 2:  # "/" or unknown: nothing personal in it
        return text
    return re.sub(re.escape(home.rstrip("/\\")) + r"(?=$|[/\\\s\"',;:)\]])", "~", text)


def _shorten_all(value: Any, home: str) -> Any:
    if isinstance(value, str):
        return shorten(value, home)
    if isinstance(value, Mapping):
        return {_shorten_all(key, home): _shorten_all(item, home) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shorten_all(item, home) for item in value]
    return value


def _safe(line: str) -> str:
    """`line` without control characters; runs of spaces stay, since they align columns."""
    from advisor.cli.terminal import clean

    parts = re.split("( +)", line[: 4 * _MAX_LINE])
    return "".join(part if not part.strip(" ") else clean(part, _MAX_LINE) for part in parts)[:_MAX_LINE].rstrip()


def _versions(doctor: Doctor) -> tuple[list[str], Any]:  # noqa: ARG001
    import platform
    import sys

    from advisor import __version__

    facts = {
        "advisor": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "machine": platform.machine(),
        "executable": sys.executable,
        "encoding": str(sys.stdout.encoding),
    }
    return [f"{name:<11}{value}" for name, value in facts.items()], facts


def _dependencies(doctor: Doctor) -> tuple[list[str], Any]:  # noqa: ARG001
    from importlib import metadata

    try:
        wanted = [
            re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0] for entry in metadata.requires("gguf-advisor") or []
        ]
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        wanted = [
            "click",
            "gguf",
            "nvidia-ml-py",
            "platformdirs",
            "psutil",
            "ruamel.yaml",
            "tomli",
            "tomlkit",
            "watchdog",
        ]
    facts: dict[str, str | None] = {}
    for name in sorted({*wanted, "llama-cpp-python"}):
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            facts[name] = None
    width = max(len(name) for name in facts) + 2
    return [f"{name:<{width}}{version or 'not installed'}" for name, version in facts.items()], facts


def _hardware(doctor: Doctor) -> tuple[list[str], Any]:
    from advisor.cli.render_hardware import render_hardware
    from advisor.hardware.snapshot_file import to_json

    host = doctor.host()
    shown = {name: os.environ[name] for name in _DEVICE_VARIABLES if name in os.environ}
    lines = [*render_hardware(host), *(f"variable {name}={value}" for name, value in shown.items())]
    return lines, {"snapshot": to_json(host), "variables": shown}


def _engines(doctor: Doctor) -> tuple[list[str], Any]:  # noqa: ARG001
    from advisor.hardware.engine_list import find_engine

    facts = []
    for program in _ENGINES:
        path = find_engine(os.environ, (program,))
        if path is not None:
            facts.append({"program": program, "path": path, "version": version_line(path)})
    lines = [f"{entry['program']:<20} {entry['path']}: {entry['version']}" for entry in facts]
    return [*(lines or ["no engine on PATH"]), *_ollama_lines()], facts


def _ollama_lines() -> list[str]:
    """What Ollama's variables come to, where they do not come to what they say."""
    from advisor.stores.ollama_service import service_variable

    names = ("OLLAMA_KV_CACHE_TYPE", "OLLAMA_FLASH_ATTENTION", "OLLAMA_NUM_PARALLEL")
    kind, flash, slots = (os.environ.get(name) or service_variable(name) or "" for name in names)
    lines = []
    if kind not in ("", "f16") and flash.lower() not in ("1", "true"):
        text = f"OLLAMA_KV_CACHE_TYPE={kind} counts for nothing without OLLAMA_FLASH_ATTENTION=1"
        lines.append(f"mind: {text}: releases with a runner of their own keep f16 without a word; set both.")
    if slots.isdecimal() and int(slots) > 1:
        lines.append(f"mind: OLLAMA_NUM_PARALLEL={slots} makes every model reserve its num_ctx {slots} times.")
    return lines


def version_line(path: str, time_limit_s: float = ENGINE_TIME_LIMIT_S) -> str:
    """What `PROGRAM --version` says, in one line, or why it says nothing. Never takes longer than the limit."""
    import signal
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as answer:  # a pipe could be held open by a grandchild for ever
        try:
            process = subprocess.Popen(
                [path, "--version"], stdin=subprocess.DEVNULL, stdout=answer, stderr=answer, start_new_session=True
            )
        except OSError as error:
            return f"cannot be started ({error.strerror})"
        try:
            status = process.wait(time_limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what it left running
            except (OSError, AttributeError):
                process.kill()
            process.wait()
        answer.seek(0)
        text = answer.read(_MAX_ANSWER_BYTES).decode("utf-8", "replace")
    if status is None:
        return f"gave no answer in {time_limit_s:g} s"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "version" in line.lower()] or lines
    return named[0][:200] if named else f"said nothing and ended with status {status}"


def _rules(doctor: Doctor) -> tuple[list[str], Any]:
    from advisor.cli.rules import check_rules

    app = doctor.app()
    folders = [{"path": folder, "exists": os.path.isdir(folder)} for folder in app.rules.folders]
    report = check_rules(app)
    lines = [f"{entry['path']}{'' if entry['exists'] else ' (not there)'}" for entry in folders]
    lines += [f"{report.n_checked} rule files checked, {len(report.problems)} with problems"]
    lines += [*report.problems, *report.notes]
    return lines, {"folders": folders, "checked": report.n_checked, "problems": report.problems, "notes": report.notes}


def _model(doctor: Doctor) -> tuple[list[str], Any]:
    from advisor.cli.inspect import describe_if_possible
    from advisor.cli.inspect_facts import inspect_document, summary_line

    app = doctor.app()
    header = app.header(doctor.model)
    spec, problem = describe_if_possible(app, header)
    document = inspect_document(header, spec, problem, app.engine(None))
    lines = [f"file: {document['file']['path']}", summary_line(document)]
    return lines + [f"mind: {oddity}" for oddity in document["oddities"]], document


def _recommend(doctor: Doctor) -> tuple[list[str], Any]:
    from advisor.planner import Planner
    from advisor.recommend.search import Wishes
    from advisor.settings import RequestedSettings

    app = doctor.app()
    spec, planner = app.model(app.header(doctor.model)), Planner(app, doctor.host(), app.engine(None))
    wishes = Wishes(RequestedSettings(), None, None, None)
    answer, _ = planner.recommend(spec, planner.intent("balanced"), wishes)
    facts = {"verdict": answer.verdict, "summary": answer.summary, "rulebook": app.rules.digest()}
    return [answer.summary, f"rules {facts['rulebook']}"], facts


def _replay(doctor: Doctor) -> tuple[list[str], Any]:
    from advisor.outputs.command import quote_file

    model = quote_file(doctor.model) if doctor.model else "MODEL"
    commands: Sequence[str] = (
        "advisor hardware --save hardware.json",
        f"advisor inspect {model} --export header.json.gz",
        "advisor recommend header.json.gz --hardware hardware.json",
    )
    lines = ["Attach the two files that the first two commands write; the third replays the answer from them."]
    return [*lines, *(f"  {entry}" for entry in commands)], list(commands)
