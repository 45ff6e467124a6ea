"""Where not all fit: which do with which, the largest and nothing else, and by how much the whole is over."""

from __future__ import annotations

from itertools import combinations

import pytest

from advisor.together.arrange import Arrangement
from advisor.together.plan import largest
from tests.tools.machines import machine
from tests.tools.together import named, over_budget, together

SETS = (
    (machine(4, ram_gib=32), ("llama33-70b-q4_k_m", "llama3-8b")),  # the large one has no place in system memory alone
    (machine(24, ram_gib=64), ("llama33-70b-q4_k_m", "gpt-oss-120b", "llama3-8b")),
    (machine(ram_gib=16), ("llama3-8b", "qwen3-8b", "gemma3-12b")),
    (machine(8, ram_gib=16), ("mistral-small-24b", "gpt-oss-20b", "qwen3-8b")),
)


@pytest.mark.parametrize(("host", "names"), SETS)
def test_the_subsets_are_all_of_the_largest(host, names):
    answer = together(host, *names)
    assert answer.verdict == "does_not_fit"
    fits = {
        who
        for size in range(1, len(names))
        for who in combinations(names, size)
        if together(host, *who).verdict != "does_not_fit"
    }
    expected = {who for who in fits if not any(set(who) < set(other) for other in fits)}
    assert {named(answer, who) for who in answer.subsets} == expected
    assert over_budget(answer, host) == []
    seated = tuple(one.name for one, seat in zip(answer.members, answer.seats, strict=True) if seat is not None)
    assert seated == (named(answer, answer.subsets[0]) if answer.subsets else ())


def with_ram(host, more_bytes):
    """The machine with so much more system memory."""
    ram = host.ram
    return host._replace(
        ram=ram._replace(total_bytes=ram.total_bytes + more_bytes, available_bytes=ram.available_bytes + more_bytes)
    )


@pytest.mark.parametrize(("host", "names"), SETS)
def test_with_as_much_memory_more_as_it_is_over_the_set_fits_and_with_a_little_less_not(host, names):
    answer = together(host, *names)
    over = answer.over
    assert over is not None
    assert over.device == "host"
    assert together(with_ram(host, over.over_bytes), *names).verdict != "does_not_fit"
    assert together(with_ram(host, over.over_bytes - (32 << 20)), *names).verdict == "does_not_fit"


def test_largest_skips_what_is_part_of_what_fits():
    asked = []

    def arrange(who):
        asked.append(tuple(who))
        return Arrangement({}, ()) if set(who) in ({0, 1}, {2}, {0}, {1}) else None

    assert [who for who, _ in largest((0, 1, 2), arrange)] == [(0, 1), (2,)]
    assert (0,) not in asked


def test_what_is_left_out_is_told_what_it_lacks():
    answer = together(machine(ram_gib=16), "llama3-8b", "qwen3-8b", "gemma3-12b")
    for lack in answer.lacks:
        assert lack.member not in lack.beside
        assert lack.short.over_bytes > 0
        assert any("more system memory" in fix.change for fix in lack.fixes)
