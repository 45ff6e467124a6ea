"""The machine of test_machine.py over every format that advisor writes, with texts as people write them.

ADVISOR_LONG=1 tries more than 10,000 orders of edits, applies, undos, adoptions and crashes.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from advisor.errors import OutputError
from advisor.outputs.base import Format, identity_of
from advisor.outputs.registry import OUTPUTS, load
from advisor.outputs.types import Output
from tests.unit.managed.machine import machine
from tests.unit.managed.machine_case import Case
from tests.unit.managed.test_machine import LONG
from tests.unit.outputs.test_edit_laws import FORMATS

SEQUENCES = -(-10_200 // len(OUTPUTS)) if LONG else 12
STEPS = 20
NO_COMMENTS = ("llama-cpp-python", "koboldcpp", "lm-studio")  # JSON


def mark_for(output: Output) -> Callable[[str, int, str], str]:
    """Puts in a line with a comment, where it is one: between two lines of a longer text it would be a part of that.

    Behind a byte order mark, as every editor does: elsewhere than at the beginning it is none.
    """

    def mark(text: str, at: int, word: str) -> str:
        first = "\ufeff" if text.startswith("\ufeff") else ""
        lines = text.removeprefix(first).split("\n")
        lines.insert(at % len(lines), f"# {word}")
        marked = first + "\n".join(lines)
        try:
            same = identity_of(output.parse(marked)) == identity_of(output.parse(text))
        except OutputError:
            return text
        return marked if same else text

    return mark


def case(name: str) -> Case:
    form = FORMATS[name]
    # what a program refuses is tested elsewhere; refused, nothing of this would be
    output: Output = type(name, (type(load(name)),), {"validate": Format.validate})()
    return Case(
        output, form.texts, tuple(form.slots), lambda _: form.values, None if name in NO_COMMENTS else mark_for(output)
    )


@pytest.mark.parametrize("name", OUTPUTS)
def test_no_byte_of_the_users_is_lost(name, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power cuts here, and it is most of the time
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_state_machine_as_test(
        machine(case(name)),
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
