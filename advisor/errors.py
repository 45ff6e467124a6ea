"""Every error that advisor raises on purpose.

    AdvisorError                one sentence: what is wrong, with which file, and the cure
    ├── UsageError              the command line is wrong (exit status 2)
    ├── ModelError              a MODEL cannot be found, opened or understood
    │   ├── WrongFileError      an option names a file of another kind, or another model's (exit status 2)
    │   └── HeaderError         a GGUF header lies or is broken (subclasses in advisor.gguf_header.errors)
    ├── RuleError               a file in rules/ breaks the rule law
    ├── ConfigError             the user's configuration has a wrong key or value
    ├── HardwareError           a hardware snapshot or a --gpu SPEC cannot be used
    ├── EngineError             an engine binary cannot be asked
    └── OutputError             a config file cannot be written

`does not fit` is a result, never an exception.
"""

from __future__ import annotations


class AdvisorError(Exception):
    """Base of all errors meant for people. `str(error)` is one plain sentence with the file and the cure."""

    exit_status = 1


class UsageError(AdvisorError):
    """The command line asks for something impossible."""

    exit_status = 2


class ModelError(AdvisorError):
    """A MODEL argument cannot be found, opened or understood."""


class WrongFileError(ModelError):
    """An option names a sound file that it cannot take: of another kind, or made for another model."""

    exit_status = 2


class HeaderError(ModelError):
    """A GGUF header is broken; one subclass per way a header can lie lives in `advisor.gguf_header.errors`."""


class RuleError(AdvisorError):
    """A rule file breaks the rule law: unknown key, missing source, wrong type."""


class ConfigError(AdvisorError):
    """The configuration has a wrong key or value, or cannot be read: file, line and what is allowed."""


class HardwareError(AdvisorError):
    """A hardware snapshot or a card's SPEC cannot be used."""


class EngineError(AdvisorError):
    """An engine binary is missing or gives no usable answer."""


class OutputError(AdvisorError):
    """A config file cannot be written, or cannot express a value."""


def unexpected(error: BaseException) -> str:
    """The sentence about any error: its own, or that it is a bug, where, and what to do."""
    if isinstance(error, AdvisorError):
        return str(error)
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    file = frame.tb_frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2] if frame else ""
    what = type(error).__name__ + (f" at {file}:{frame.tb_lineno}" if frame else "")
    return f"this is a bug in advisor ({what}: {error!s:.200}); please report it with the output of 'advisor doctor'."
