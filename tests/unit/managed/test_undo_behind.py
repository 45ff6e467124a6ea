"""What the user wrote between two changes is what comes back, also where it was adopted without a change of the file.

Each with an older change of another value first: the oldest one of all takes another way back. Found by the machine.
"""

from __future__ import annotations

import json

import pytest

from tests.unit.managed.conftest import Desk


@pytest.fixture
def desk(shared: Desk) -> Desk:
    shared.write('{"theme": "dark", "ctx": 4096}\n')
    shared.apply(port=1)
    return shared


def put(desk: Desk, old: str, new: str) -> None:
    """The user edits."""
    assert old in desk.text
    desk.write(desk.text.replace(old, new))


def test_a_value_adopted_as_it_is_stays_when_older_changes_are_undone(desk):
    desk.apply(port=1, ctx=1, adopt=True)
    desk.apply(port=1)
    put(desk, '"ctx": 4096', '"ctx": 7')
    desk.undo()
    assert '"ctx": 7' in desk.text
    desk.apply(port=1, ctx=7, adopt=True)
    desk.undo()
    assert '"ctx": 7' in desk.text


def test_a_value_put_in_the_place_of_ours_and_adopted_stays(desk):
    desk.apply(port=1, new=1)
    put(desk, '"new": 1', '"new": 7')
    desk.apply(port=1, new=7, adopt=True)
    desk.undo()
    assert '"new": 7' in desk.text
    desk.apply(port=2)
    assert '"new": 7' in desk.text
    desk.uninstall()
    assert json.loads(desk.text) == {"theme": "dark", "ctx": 4096, "new": 7}


def test_undo_stops_at_a_value_adopted_since(desk):
    desk.apply(port=1, new=1)
    desk.apply(port=1, new=2)
    put(desk, '"new": 2', '"new": 7')
    desk.apply(port=1, new=7, adopt=True)
    desk.undo()  # would else write its own 1 again
    assert '"new": 7' in desk.text


def test_ours_written_by_the_user_and_adopted_is_the_users_after_undo(desk):
    desk.apply(port=1, new=1)
    desk.apply(port=1)
    put(desk, '"port": 1', '"port": 1, "new": 1')
    desk.apply(port=1, new=1, adopt=True)
    desk.undo()
    desk.uninstall()
    assert json.loads(desk.text) == {"theme": "dark", "ctx": 4096, "new": 1}


def test_a_value_written_anew_comes_back_as_it_was_written_last(desk):
    desk.apply(port=1, ctx=1, adopt=True)
    desk.apply(port=1, ctx=2)
    desk.apply(port=1)
    put(desk, '"ctx": 4096', '"ctx": 4.096e3')
    for there in ('"ctx": 2', '"ctx": 1', '"ctx": 4.096e3'):
        desk.undo()
        assert there in desk.text


def test_and_when_it_is_no_longer_wanted(desk):
    desk.apply(port=1, ctx=1, adopt=True)
    desk.apply(port=1, ctx=2)
    desk.apply(port=1)
    put(desk, '"ctx": 4096', '"ctx": 4.096e3')
    desk.undo()
    desk.undo()
    desk.uninstall()
    assert '"ctx": 4.096e3' in desk.text


def test_what_the_user_took_out_before_it_was_written_again_stays_out(desk):
    before_s = desk.now_s
    desk.apply(port=1, ctx=1, adopt=True)
    put(desk, ', "ctx": 1', "")
    desk.apply(port=1)
    desk.apply(port=1, ctx=2, adopt=True)
    desk.undo(to_s=before_s)
    assert json.loads(desk.text) == {"theme": "dark", "port": 1}
