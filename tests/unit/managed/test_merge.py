"""Whose value stays: every combination of what we wrote, what stands and what we want."""

from __future__ import annotations

import pytest

from advisor.managed.merge import Ours, Pin, merge
from advisor.slots import GONE, SlotChange, is_plain, same

S = ("model", "ctx-size")


def one(wrote=GONE, now=GONE, wanted=GONE, *, behind=GONE, pin=None, adopt=False, text=None, stands=None):
    """Merge one slot; (its change or None, what is remembered as ours, its pin, whether it was unpinned)."""
    result = merge(
        {} if wrote is GONE else {S: Ours(wrote, behind, text)},
        {} if pin is None else {S: Pin(*pin)},
        {} if now is GONE else {S: now},
        {} if wanted is GONE else {S: wanted},
        {} if stands is None else {S: stands},
        adopt=adopt,
    )
    assert len(result.changes) <= 1
    change = result.changes[0] if result.changes else None
    return change, result.wrote.get(S), result.pinned.get(S), bool(result.unpinned)


@pytest.mark.parametrize(
    ("case", "change", "ours", "pin"),
    [
        # nothing of anybody's there
        ({"wanted": "8"}, (GONE, "8"), Ours("8"), None),
        ({}, None, None, None),
        # ours, untouched
        ({"wrote": "8", "now": "8", "wanted": "8"}, None, Ours("8"), None),
        ({"wrote": "8", "now": "8", "wanted": "9"}, ("8", "9"), Ours("9"), None),
        ({"wrote": "8", "now": "8"}, ("8", GONE), None, None),
        ({"wrote": "8", "now": "8", "behind": "1"}, ("8", "1"), None, None),
        ({"wrote": "8", "now": "8", "wanted": "9", "behind": "1"}, ("8", "9"), Ours("9", "1"), None),
        # ours, changed by the user
        ({"wrote": "8", "now": "4", "wanted": "8"}, None, Ours("8"), Pin("4", "8")),
        ({"wrote": "8", "now": "4", "wanted": "9"}, None, Ours("8"), Pin("4", "9")),
        ({"wrote": "8", "now": "4", "wanted": "4"}, None, Ours("8"), Pin("4", "4")),
        ({"wrote": "8", "now": "4"}, None, None, Pin("4", GONE)),
        # ours, removed by the user
        ({"wrote": "8", "wanted": "8"}, None, Ours("8"), Pin(GONE, "8")),
        ({"wrote": "8"}, None, None, None),
        # the user's before we came
        ({"now": "4", "wanted": "8"}, None, None, Pin("4", "8")),
        ({"now": "8", "wanted": "8"}, None, None, None),
        ({"now": None, "wanted": "8"}, None, None, Pin(None, "8")),
        ({"now": "4"}, None, None, None),
        # adopted
        ({"now": "4", "wanted": "8", "adopt": True}, ("4", "8"), Ours("8", "4"), None),
        ({"now": "8", "wanted": "8", "adopt": True}, None, Ours("8", "8"), None),
        ({"wrote": "8", "now": "4", "wanted": "9", "adopt": True}, ("4", "9"), Ours("9", "4"), None),
        ({"wrote": "8", "wanted": "9", "behind": "1", "adopt": True}, (GONE, "9"), Ours("9", GONE), None),
        ({"now": "4", "adopt": True}, None, None, None),
        ({"wrote": "8", "now": "4", "adopt": True}, None, None, Pin("4", GONE)),
    ],
)
def test_whose_value_stays(case, change, ours, pin):
    assert one(**case) == (None if change is None else SlotChange(S, *change), ours, pin, False)


def test_how_a_value_was_written_is_remembered_with_it():
    change, ours, _, _ = one(now=1000.0, wanted=8, adopt=True, stands="1.0e3")
    assert (change, ours) == (SlotChange(S, 1000.0, 8, "1.0e3"), Ours(8, 1000.0, "1.0e3"))
    assert one(wrote=8, now=8, wanted=9, behind=1000.0, text="1.0e3", stands="8")[1] == Ours(9, 1000.0, "1.0e3")
    gone = one(wrote=8, now=8, behind=1000.0, text="1.0e3", stands="8")
    assert gone == (SlotChange(S, 8, 1000.0, "8", "1.0e3"), None, None, False)
    same_again = one(wrote=8, now=8, wanted=1000, behind=1000.0, text="1.0e3", stands="8")
    assert same_again == (SlotChange(S, 8, 1000.0, "8", "1.0e3"), Ours(1000, 1000.0, "1.0e3"), None, False)
    # so it is the user who wrote it in another way
    assert one(wrote=1000, now=1000, behind=1000.0, text="1.0e3", stands="1000") == (None, None, None, False)
    respelled = one(wrote=1000, now=1000, wanted=8, behind=1000.0, text="1.0e3", stands="1000")
    assert respelled == (SlotChange(S, 1000, 8, "1000"), Ours(8, 1000, "1000"), None, False)
    assert one(wrote=1000, now=1000, behind=1000.0, text="1.0e3", stands="1.0e3")[0] is None
    assert one(wrote=8, now=8, wanted=8, behind=5, text="5", pin=(8, 8), adopt=True, stands="8")[1] == Ours(8, 5, "5")


def test_the_user_puts_our_value_back():
    pinned = {"wrote": "8", "pin": ("4", "9")}
    assert one(now="4", wanted="9", **pinned) == (None, Ours("8"), Pin("4", "9"), False)
    assert one(now="8", wanted="9", **pinned) == (SlotChange(S, "8", "9"), Ours("9"), None, True), "as last written"
    assert one(now="9", wanted="9", **pinned) == (None, Ours("9"), None, True), "as last offered"
    assert one(now="5", wanted="9", **pinned) == (None, Ours("8"), Pin("5", "9"), False)


def test_a_wish_that_comes_to_agree_does_not_make_it_ours():
    agreed = one(wrote="8", now="4", wanted="4", pin=("4", "9"))
    assert agreed == (None, Ours("8"), Pin("4", "4"), False)
    assert one(wrote="8", now="4", wanted="9", pin=("4", "4")) == (None, Ours("8"), Pin("4", "9"), False)


def test_what_was_undone_stays_undone():
    assert one(now="8", wrote="8", wanted="9", pin=("8", "9")) == (None, Ours("8"), Pin("8", "9"), False)
    assert one(wanted="9", pin=(GONE, "9")) == (None, None, Pin(GONE, "9"), False)
    assert one(now="8", wrote="8", pin=("8", GONE)) == (None, Ours("8"), Pin("8", GONE), False)
    assert one(now="8", wrote="8", wanted="9", pin=("8", "9"), adopt=True)[1] == Ours("9")
    assert one(wanted="9", pin=(GONE, "9"), adopt=True) == (SlotChange(S, GONE, "9"), Ours("9"), None, True)


def test_a_removed_line_does_not_come_back_as_what_was_behind_it():
    assert one(wrote="8", behind="1", pin=("8", GONE)) == (None, None, None, True)
    change, ours, _, _ = one(wrote="8", behind="1", pin=("8", GONE), wanted="9")
    assert (change, ours) == (SlotChange(S, GONE, "9"), Ours("9", GONE))


def test_a_line_that_was_removed_where_nothing_was_offered_is_ours_again_with_nothing_behind_it():
    change, ours, pin, _ = one(wrote=1, behind=-5, pin=(1, GONE), wanted=1)
    assert (change, ours, pin) == (SlotChange(S, GONE, 1), Ours(1), None)


def test_the_order_is_that_of_the_wishes():
    slots = [(name,) for name in "cab"]
    changes = merge({}, {}, {}, dict.fromkeys(slots, 1), {}).changes
    assert [change.slot for change in changes] == slots


@pytest.mark.parametrize(
    ("one_", "other", "equal"),
    [
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (1, 1.0, True),
        ("1", 1, False),
        (None, GONE, False),
        (GONE, GONE, True),
        (float("nan"), float("nan"), True),
        ([1, True], [1, 1], False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"b": 1}, False),
    ],
)
def test_same(one_, other, equal):
    assert same(one_, other) is equal
    assert same(other, one_) is equal


def test_plain_values():
    from datetime import date

    assert is_plain({"a": [1, None, "x", 1.5, True]})
    assert is_plain(GONE)
    assert not is_plain({"a": [date(2026, 1, 1)]})
    assert not is_plain({1: "a"})
    assert not is_plain([float("inf")])
    assert not is_plain(float("nan"))
