"""Changes in words: old and new values, all of them, and of long texts what differs."""

from __future__ import annotations

from advisor.keeper.sentences import MAX_SHOWN_MODELS, describe_fully
from advisor.slots import GONE, SlotChange


def test_every_value_is_named_a_line_for_each_model() -> None:
    changes = (
        SlotChange(("a", "model"), GONE, "/a.gguf"),
        SlotChange(("a", "ctx-size"), GONE, "4096"),
        SlotChange(("b", "ctx-size"), "4096", "8192"),
        SlotChange(("b", "threads"), GONE, "4"),
        SlotChange(("b", "fit"), "off", GONE),
        SlotChange(("c", "model"), "/c.gguf", GONE),
        SlotChange(("c", "fit"), "off", GONE),
    )
    assert describe_fully(changes) == [
        "added a: model = /a.gguf, ctx-size = 4096",
        "b.ctx-size 4096 -> 8192, b.threads = 4, b.fit = off taken out",
        "removed c: model = /c.gguf, fit = off",
    ]
    assert describe_fully(()) == ["made anew"]


def test_of_long_texts_what_differs_is_shown() -> None:
    start, end = "llama-server --port ${PORT} --model /srv/models/" + "x" * 80, "--parallel 1 --fit off"
    old, new = f"{start} --ctx-size 4096 {end}", f"{start} --ctx-size 8192 {end}"
    assert describe_fully((SlotChange(("m", "cmd"), old, new),)) == ["m.cmd … --ctx-size 4096 … -> … --ctx-size 8192 …"]
    more = describe_fully((SlotChange(("m", "cmd"), old, f"{old} --jinja"),))
    assert more == ["m.cmd … off -> … off --jinja"]


def test_a_thousand_models_are_no_flood() -> None:
    changes = tuple(SlotChange((f"m{n}", key), GONE, "1") for n in range(1000) for key in ("a", "b"))
    lines = describe_fully(changes)
    assert len(lines) == MAX_SHOWN_MODELS + 1
    assert lines[-1].startswith("and added m50 (2 values)")
    assert len(lines[-1]) < 1000
