"""What the user wrote between two changes is what comes back, also where it was adopted without a change of the file.

Each with an older change of another value first: the oldest one of all takes another way back. Found by the machine.
"""

from __future__ import annotations

import json

import pytest

from advisor.managed.change import apply_change, plan_change
from advisor.managed.ledger import open_ledger
from advisor.managed.undo import plan_undo, uninstall
from advisor.outputs.registry import load
from advisor.slots import Slot
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


@pytest.mark.parametrize("back", ["no longer wanted", "undo", "uninstall"])
def test_a_value_adopted_as_it_is_and_written_anew_is_not_written_back(desk, back):
    desk.apply(port=1, ctx=4096, adopt=True)
    put(desk, '"ctx": 4096', '"ctx": 4.096e3')
    if back == "no longer wanted":
        desk.apply(port=2)
    elif back == "undo":
        desk.undo()
    else:
        desk.uninstall()
    assert '"ctx": 4.096e3' in desk.text


def test_what_the_user_had_is_written_as_it_was_also_when_it_comes_to_be_wanted(desk):
    put(desk, '"ctx": 4096', '"ctx": 4.096e3')
    desk.apply(port=1, ctx=1, adopt=True)
    desk.apply(port=1, ctx=4096)
    assert '"ctx": 4.096e3' in desk.text
    desk.apply(port=1)
    assert '"ctx": 4.096e3' in desk.text


HEAD = "name: x\nparameters: {model: y}\n"
OPTIONS = HEAD + "options:   # of mine\n  - a:1\n"


@pytest.mark.parametrize("back", ["no longer wanted", "undo", "uninstall"])
def test_a_list_stays_in_which_a_value_was_adopted_as_it_is(tmp_path, back):
    """The user takes that value out while one of advisor's stands beside it; then that goes, too."""
    output, desk = load("localai"), Desk(tmp_path, load("localai"), "m.yaml")
    desk.write(OPTIONS)

    def change(wanted: dict[Slot, str]) -> None:
        with open_ledger(desk.state) as ledger:
            apply_change(plan_change(str(desk.file), output, wanted, ledger, adopt=True), ledger, now_s=1)

    change({("options", "a"): "1"})
    assert desk.text == OPTIONS
    change({("options", "b"): "2"})
    put(desk, "  - a:1\n", "")
    assert '"b:2"' in desk.text
    if back == "no longer wanted":
        change({})
    else:
        with open_ledger(desk.state) as ledger:
            if back == "undo":
                apply_change(plan_undo(str(desk.file), ledger, {output.name: output}), ledger, now_s=2)
            else:
                assert [each.error for each in uninstall(ledger, {output.name: output}, now_s=2)] == [None]
    assert desk.text == HEAD + "options:   # of mine\n"


def test_a_list_of_the_users_stays_into_which_undo_wrote(tmp_path):
    """Advisor's own list went with advisor's value; the user made one; undo writes into that, and takes it out."""
    output, desk = load("localai"), Desk(tmp_path, load("localai"), "m.yaml")
    desk.write(HEAD)
    with open_ledger(desk.state) as ledger:
        for wanted in ({("threads",): 1}, {("options", "b"): "2"}, {}):
            apply_change(plan_change(str(desk.file), output, wanted, ledger, adopt=True), ledger, now_s=1)
    assert desk.text == HEAD
    desk.write(HEAD + "options:\n  - a:1\n")
    with open_ledger(desk.state) as ledger:
        apply_change(plan_undo(str(desk.file), ledger, {output.name: output}), ledger, now_s=2)
    assert "b:2" in desk.text
    put(desk, "  - a:1\n", "")
    with open_ledger(desk.state) as ledger:
        assert [each.error for each in uninstall(ledger, {output.name: output}, now_s=2)] == [None]
    assert desk.text == HEAD + "options:\n"


@pytest.mark.parametrize("mark", ["|", "|+"])
def test_a_text_that_ended_with_the_file_keeps_its_lines_when_something_follows(mark):
    output, text = load("jan"), f"a: {mark}\n    one # no comment\n\n    two: x"
    taken = output.edit(text, {("a",): 1}) + "\n# a thought\n"
    back = output.edit(taken, output.parse(text), output.spelled(text))
    assert back == text.replace(mark, "|-") + "\n# a thought\n"
    assert output.parse(back) == output.parse(text)


def test_a_map_that_went_with_the_file_is_not_the_users_when_undo_brings_the_file_back(tmp_path):
    """The user writes into advisor's map, which makes it theirs, and deletes the file: the old one has no such map."""
    output, desk = load("text-generation-webui"), Desk(tmp_path, load("text-generation-webui"), "config-user.yaml")
    before = "# mine\n"
    desk.write(before)
    wanted: dict[Slot, int] = {("q\\.gguf$", "ctx_size"): 1, ("q\\.gguf$", "threads"): 1}

    def change(wanted: dict[Slot, int]) -> None:
        with open_ledger(desk.state) as ledger:
            apply_change(plan_change(str(desk.file), output, wanted, ledger), ledger, now_s=1)

    change(wanted)
    put(desk, "ctx_size: 1", "ctx_size: 7")
    change({})
    with open_ledger(desk.state) as ledger:
        apply_change(plan_undo(str(desk.file), ledger, {output.name: output}), ledger, now_s=2)
        assert ledger.files[str(desk.file)].tables
    desk.file.unlink()
    with open_ledger(desk.state) as ledger:
        apply_change(plan_undo(str(desk.file), ledger, {output.name: output}), ledger, now_s=2)
        tables = dict(ledger.files[str(desk.file)].tables)
    assert desk.text == before
    assert set(tables) <= output.spelled(before).keys()
    change(wanted)
    with open_ledger(desk.state) as ledger:
        assert [each.error for each in uninstall(ledger, {output.name: output}, now_s=3)] == [None]
    assert desk.text == before
