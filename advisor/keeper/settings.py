"""What the keeper works by, out of the user's configuration."""

from __future__ import annotations

from collections.abc import Callable

from advisor.configuration.types import ModelSet
from advisor.keeper.passes import ModelWish
from advisor.keeper.targets import Target
from advisor.records import NamedTuple
from advisor.stores.types import StoredModel


class KeeperSettings(NamedTuple):
    """Folders and targets, and what is wished for each model."""

    folders: tuple[str, ...]  # besides the stores
    stores: frozenset[str]  # which stores are looked into too
    targets: tuple[Target, ...]
    sets: tuple[ModelSet, ...]  # models that are to be resident together
    wish_of: Callable[[StoredModel], ModelWish]
    keep_free_bytes: int | None
    keep_free_ram_bytes: int | None
    rescan_s: float  # how often everything is looked at without an event
    quiet_s: float  # how long a file must have been quiet before it is read
    is_quiet: Callable[[float], bool]  # at this time of the clock nothing is written
    sources: tuple[str, ...]  # configuration files that were read or may appear
