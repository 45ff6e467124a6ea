"""The configuration as values. Every default stands here; `schema` says what people may write."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from advisor.records import NamedTuple
from advisor.settings import RequestedSettings

STORES = ("ollama", "huggingface", "lmstudio", "jan", "gpt4all", "llama-cache")
ENGINES = ("llama.cpp", "ollama", "llama-cpp-python", "koboldcpp", "llama-swap", "localai")


class Engine(NamedTuple):
    """One engine of the user's; `url` is where it is asked to reload and what it serves is read back."""

    name: str
    binary: str | None = None
    build: int | None = None
    url: str | None = None
    allow_remote: bool = False


class Target(NamedTuple):
    """One config file, or with formats of one file for each model one folder, to be kept right."""

    name: str
    format: str
    path: str  # absolute
    engine: str | None = None  # whose url and build count; None: the format's own
    enabled: bool = False
    mode: str = "exact"
    models: tuple[str, ...] = ("*",)
    reload: bool = True


class Defaults(NamedTuple):
    """What is wished for a model of which nothing else is said."""

    intent: str = "balanced"
    min_ctx: int | None = None
    max_ctx: int | None = None
    min_tps: float | None = None


class ModelRule(NamedTuple):
    """What is wished for the models that `match` names; None: said elsewhere. Later rules win key by key."""

    match: str
    exclude: bool | None = None
    intent: str | None = None
    min_ctx: int | None = None
    max_ctx: int | None = None
    min_tps: float | None = None
    pins: RequestedSettings = RequestedSettings()


class ModelSet(NamedTuple):
    """Models that are to be resident together, the main one first; `targets` None: in every target."""

    name: str
    models: tuple[str, ...]
    targets: tuple[str, ...] | None = None


class ModelChoice(NamedTuple):
    """What the configuration says about one model."""

    exclude: bool
    intent: str
    min_ctx: int | None
    max_ctx: int | None
    min_tps: float | None
    pinned: RequestedSettings


class Budget(NamedTuple):
    """Memory to leave free; None: as the rules have it."""

    keep_free_bytes: int | None = None  # on each GPU
    keep_free_ram_bytes: int | None = None


class QuietHours(NamedTuple):
    """A time of the day in which no file is written, in minutes since midnight; it may go past midnight."""

    from_minute: int
    to_minute: int

    def at(self, minute: int) -> bool:
        """Whether `minute` (0 to 1439, local time) is in it."""
        if self.from_minute <= self.to_minute:
            return self.from_minute <= minute < self.to_minute
        return minute >= self.from_minute or minute < self.to_minute


class Daemon(NamedTuple):
    """How the service works."""

    quiet_hours: QuietHours | None = None
    rescan_s: float = 900.0
    debounce_s: float = 1.0


class Configuration(NamedTuple):
    """Everything. `stores` has every name of STORES."""

    folders: tuple[str, ...] = ()
    stores: Mapping[str, bool] = dict.fromkeys(STORES, True)
    engines: tuple[Engine, ...] = ()
    targets: tuple[Target, ...] = ()
    defaults: Defaults = Defaults()
    models: tuple[ModelRule, ...] = ()
    sets: tuple[ModelSet, ...] = ()
    budget: Budget = Budget()
    daemon: Daemon = Daemon()

    def engine(self, name: str) -> Engine:
        """The engine of that name, as far as the user told about it."""
        return next((engine for engine in self.engines if engine.name == name), Engine(name))

    def choice(self, names: Sequence[str]) -> ModelChoice:
        """What is wished for a model; `names` are its name, its path, and whatever else it is called."""
        choice = ModelChoice(False, *self.defaults, RequestedSettings())
        for rule in self.models:
            if matches((rule.match,), names):
                said = {key: value for key, value in rule._asdict().items() if value is not None}
                pins = {key: value for key, value in rule.pins._asdict().items() if value not in (None, ())}
                del said["match"], said["pins"]
                choice = choice._replace(**said, pinned=choice.pinned._replace(**pins))
        return choice


def matches(patterns: Iterable[str], names: Sequence[str]) -> bool:
    """Whether a pattern (`*`, `?`, `[abc]`; case does not matter) is for a model called `names`, paths among them."""
    called = {each.lower() for name in names for each in (name, os.path.basename(name))}
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns for name in called)
