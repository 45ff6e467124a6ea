"""Click's callback for options that take whole numbers."""

from __future__ import annotations

from collections.abc import Callable

import click

from advisor.whole_numbers import read_whole


def whole(smallest: int) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """The callback of an option that takes a whole number from `smallest` on."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:  # noqa: ARG001
        return None if value is None else read_whole(value, param.opts[-1], smallest)

    return read
