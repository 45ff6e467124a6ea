"""The wiring between stores, planner, outputs and managed files; imported by the daemon and by diff, apply and undo."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.configuration.check import Known
    from advisor.configuration.types import Configuration
    from advisor.configuration.types import Target as ConfiguredTarget
    from advisor.keeper.passes import ModelWish
    from advisor.keeper.settings import KeeperSettings
    from advisor.keeper.targets import Target
    from advisor.stores.types import StoredModel
    from advisor.watch.worker import Worker

# whose table in the configuration says where the program of a format is, unless the target names one
_PROGRAMS = {
    "llama-swap": "llama-swap", "localai": "localai", "ollama": "ollama", "koboldcpp": "koboldcpp",
    "llama-cpp-python": "llama-cpp-python",
}  # fmt: skip
# programs whose rules are those of llama.cpp
_LLAMA_CPP = ("llama.cpp", "llama-swap", "localai")


def read_settings(environ: Mapping[str, str]) -> KeeperSettings:
    """What the user's configuration says. Raises ConfigError, and RuleError where rules are broken."""
    from advisor.configuration.read import config_folder, load_configuration
    from advisor.keeper.settings import KeeperSettings

    folder = config_folder(environ)
    loaded = load_configuration(folder, known_names())
    configuration = loaded.configuration

    def is_quiet(now_s: float) -> bool:
        local = time.localtime(now_s)
        hours = configuration.daemon.quiet_hours
        return hours is not None and hours.at(60 * local.tm_hour + local.tm_min)

    return KeeperSettings(
        folders=configuration.folders,
        stores=frozenset(name for name, wanted in configuration.stores.items() if wanted),
        targets=tuple(_target(each, configuration) for each in configuration.targets),
        sets=configuration.sets,
        wish_of=lambda model: _wish(model, configuration),
        keep_free_bytes=configuration.budget.keep_free_bytes,
        keep_free_ram_bytes=configuration.budget.keep_free_ram_bytes,
        rescan_s=configuration.daemon.rescan_s,
        quiet_s=configuration.daemon.debounce_s,
        is_quiet=is_quiet,
        sources=loaded.files,
    )


def known_names() -> Known:
    """The names that a configuration may use: formats, and the intents of the rules in force. Raises RuleError."""
    from advisor.app import App
    from advisor.configuration.check import Known
    from advisor.outputs.registry import OUTPUTS

    return Known(formats=tuple(OUTPUTS), intents=tuple(App().required("policy.toml")["intents"]))


def make_worker() -> Worker:
    """The daemon's worker for this user; the configuration is read later, by its `reload`."""
    from advisor.configuration.read import config_folder
    from advisor.keeper.worker import KeeperWorker

    folder = config_folder(os.environ)
    return KeeperWorker(lambda: read_settings(os.environ), folder, os.environ)


def _target(each: ConfiguredTarget, configuration: Configuration) -> Target:
    from advisor.keeper.targets import Target

    program = each.engine or _PROGRAMS.get(each.format, "llama.cpp")
    engine = configuration.engine(program)
    server = configuration.engine("llama.cpp") if program in _LLAMA_CPP else engine
    build = engine.build or server.build
    rules = "llama.cpp" if program in _LLAMA_CPP else program
    return Target(
        name=each.name,
        format=each.format,
        path=each.path,
        enabled=each.enabled,
        mode=each.mode,
        models=each.models,
        engine=f"{rules}@b{build}" if build else rules if each.engine else None,
        binary=server.binary if program in _LLAMA_CPP else None,
        url=engine.url,
        allow_remote=engine.allow_remote,
        reload=each.reload,
    )


def _wish(model: StoredModel, configuration: Configuration) -> ModelWish:
    from advisor.keeper.models import names_of
    from advisor.keeper.passes import ModelWish

    choice = configuration.choice(names_of(model))
    return ModelWish(
        choice.intent, choice.pinned, choice.min_ctx, choice.max_ctx, choice.min_tps, excluded=choice.exclude
    )
