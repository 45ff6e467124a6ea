"""The command `advisor`: verbs are loaded when they are called, errors become one sentence."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from advisor import __version__
from advisor.cli.streams import prepare, silence
from advisor.errors import AdvisorError, unexpected

CLOSED_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
# errors without a file's name: every file that advisor opens or writes has its own sentence
_NOT_WRITTEN = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.ENXIO, errno.EAGAIN, errno.ECONNRESET,
)  # fmt: skip

# verb -> (module, short help); the module holds a click command called `command`
VERBS = {
    "recommend": ("advisor.cli.recommend", "settings for a model on this machine, and why"),
    "estimate": ("advisor.cli.estimate", "memory and speed of exactly these settings, or of a pasted command line"),
    "check": ("advisor.cli.check", "whether these settings fit what is free now, for ExecStartPre="),
    "compare": ("advisor.cli.compare", "models, quantizations or cards side by side"),
    "plot": ("advisor.cli.plot", "memory against context and speed against layers as a picture or a page"),
    "inspect": ("advisor.cli.inspect", "what a model file is"),
    "quants": ("advisor.cli.quants", "every quantization of a model: bytes, fit, longest context, speed, quality"),
    "verify": ("advisor.cli.verify", "ask the installed engine, without loading weights, and compare"),
    "calibrate": ("advisor.cli.calibrate", "measure this machine, so that speeds rest on it"),
    "observe": ("advisor.cli.observe", "read the memory in the log of a real load, and compare"),
    "scan": ("advisor.cli.scan", "every model in every store with its verdict"),
    "hardware": ("advisor.cli.hardware", "what was found and what is planned with"),
    "diff": ("advisor.cli.diff", "what the engines' config files would become"),
    "apply": ("advisor.cli.apply", "write them, and tell running engines"),
    "undo": ("advisor.cli.undo", "take it back"),
    "init": ("advisor.cli.init", "begin a configuration, with every key explained"),
    "config": ("advisor.cli.config", "the configuration in force; set, unset and check its keys"),
    "rules": ("advisor.cli.rules", "the rules in force and where each value comes from"),
    "daemon": ("advisor.cli.daemon", "watch model folders and keep the settings of engines right"),
    "status": ("advisor.cli.status", "what the daemon watches, did last, and where it fails"),
    "service": ("advisor.cli.service", "install the daemon as a service of yours, remove it, look at it"),
    "doctor": ("advisor.cli.doctor", "one report for a bug report"),
}


class ClosedPipeError(Exception):
    """A closed pipe under a name that click does not catch: it would end with status 1, as for an error."""


class Verbs(click.Group):
    """A group that imports a verb's module only when it is used."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:  # noqa: D102
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            raise ClosedPipeError from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: D102
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ClosedPipeError from None

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002, D102
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002, D102
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(VERBS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002, D102
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


# \b alone on a line: click keeps the lines of that paragraph
_HELP = """What fits, how to set it, and how fast it will be, for GGUF models on your own machine.

\b
advisor recommend model.gguf
advisor recommend model.gguf --gpu "RTX 3060" --for context
advisor estimate -- llama-server -m model.gguf -c 32768 -ngl 20
"""


@click.group(cls=Verbs, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="advisor", message="%(prog)s %(version)s")
def advisor() -> None:
    """The command itself: its options come before the verb."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status (0 fits, 3 partly, 4 does not fit, 2 usage, 1 other errors)."""
    prepare()
    try:
        result: Any = advisor.main(args=arguments, prog_name="advisor", standalone_mode=False)
        sys.stdout.flush()
    except AdvisorError as error:
        return _say(str(error), error.exit_status)
    except click.exceptions.NoArgsIsHelpError as error:
        return _write(error.format_message(), 2)
    except click.ClickException as error:
        return _say(_usage_sentence(error), 2)
    except (click.Abort, KeyboardInterrupt):
        return _say("stopped.", 130)
    except (BrokenPipeError, ClosedPipeError):  # the reader has enough: end quietly, as other programs do
        silence(1, 2)
        return CLOSED_PIPE
    except RecursionError:
        return _say("the input is nested too deeply to be a real file.", 1)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _NOT_WRITTEN:
            silence(1)
            return _say(f"the output cannot be written: {error.strerror}; give it another place.", 1)
        if os.environ.get("ADVISOR_DEBUG"):
            raise
        return _say(unexpected(error), 1)
    return result if isinstance(result, int) else 0


def _usage_sentence(error: click.ClickException) -> str:
    text = error.format_message().strip().replace("\n", " ")
    text = text if text.endswith((".", "?", "!")) else text + "."
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "advisor"
    return f"{text} See '{command} --help'."


def _say(text: str, status: int) -> int:
    from advisor.cli.terminal import clean

    return _write(f"advisor: {clean(text, 1000)}", status)


def _write(text: str, status: int) -> int:
    """A line on stderr after what stands on stdout; where it cannot be written the status alone must tell."""
    try:
        sys.stdout.flush()
    except OSError:
        silence(1)
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        silence(2)
    return status
