"""A scanner for ruamel.yaml that ends at a depth: open brackets cost it the square of their number."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def scanner(most: int, error: type[Exception]) -> type:
    """The class; it raises `error` where more than `most` maps and lists are open. Imports ruamel.yaml."""
    from ruamel.yaml.scanner import Scanner

    class Bounded(Scanner):  # type: ignore[misc, unused-ignore]
        def fetch_flow_collection_start(self, *args: Any, **named: Any) -> None:
            super().fetch_flow_collection_start(*args, **named)
            self._check()

        def add_indent(self, column: int) -> bool:
            added: bool = super().add_indent(column)
            self._check()
            return added

        def _check(self) -> None:
            if len(self.flow_context) + len(self.indents) > most:
                raise error

    return Bounded
