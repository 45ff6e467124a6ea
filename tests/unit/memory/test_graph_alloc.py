"""The allocator's and the scheduler's rules, from first principles."""

from __future__ import annotations

import random

import pytest

from advisor.memory.graph.alloc import UNBOUNDED, BufferRule, FreeList
from advisor.memory.graph.reduce import Block, shortened
from advisor.memory.graph.sched import PIPELINE_COPIES, Graph, Scheduler
from advisor.memory.graph.tensor import (
    F16,
    F32,
    Tensor,
    cont,
    mul_mat,
    n_bytes,
    node,
    permute,
    reshape,
    same,
    view_2d,
    view_4d,
)

Q8_0 = 8
KIB = 1024


def leaf(kind: int, *ne: int, place: int = -1, weight: bool = False, is_input: bool = False) -> Tensor:
    shape = (*ne, 1, 1, 1, 1)
    t = Tensor("NONE", kind, (shape[0], shape[1], shape[2], shape[3]), [])
    t.place = t.backend = place
    t.is_weight, t.is_input = weight, is_input
    return t


def sizes(graph: Graph, n_gpu: int = 1, pipeline: bool = False) -> list[int]:
    rules = [BufferRule(128, 512, True)] * n_gpu + [BufferRule(32)]
    scheduler = Scheduler(rules, lambda b, t: True, True, pipeline)
    result = scheduler.sizes(scheduler.traced(graph, marked=False))
    assert result is not None
    return result


def test_takes_the_tightest_hole_and_merges_neighbours():
    free = FreeList()
    a, b, c, d, e = (free.take(s) for s in (64, 256, 64, 128, 64))
    free.give(b, 256)
    free.give(d, 128)
    assert free.take(96) == d  # the 128-byte hole is tighter than the 256-byte one
    assert free.take(256) == b
    free.give(a, 64)
    free.give(b, 256)
    free.give(c, 64)
    assert free.take(384) == 0  # three neighbours became one hole
    assert free.high == e + 64


def test_grows_at_the_open_end_even_when_holes_add_up():
    free = FreeList()
    first, _, third, _ = (free.take(64) for _ in range(4))
    free.give(first, 64)
    free.give(third, 64)
    assert free.take(96) == 256
    assert free.high == 352


def test_node_takes_over_its_only_readers_memory():
    graph = Graph()
    x = node("MUL_MAT", [leaf(F32, 8, 8, place=0)], (256, 1, 1, 1))
    graph.expand(same("ADD", same("SCALE", x), leaf(F32, 256, place=0)))
    assert sizes(graph)[0] == KIB


def test_no_take_over_while_somebody_else_reads():
    graph = Graph()
    x = node("MUL_MAT", [leaf(F32, 8, 8, place=0)], (256, 1, 1, 1))
    graph.expand(same("ADD", same("SCALE", x), x))
    assert sizes(graph)[0] == 2 * KIB


def test_no_take_over_of_a_view_or_an_output():
    for through_view in (True, False):
        graph = Graph()
        x = node("MUL_MAT", [leaf(F32, 8, 8, place=0)], (256, 1, 1, 1))
        x.is_output = not through_view
        graph.expand(same("SCALE", reshape(x, 16, 16) if through_view else x))
        assert sizes(graph)[0] == 2 * KIB


def test_memory_returns_with_the_last_view():
    graph = Graph()
    x = node("MUL_MAT", [leaf(F32, 8, 8, place=0)], (256, 1, 1, 1))
    y = cont(view_2d(x, 16, 16, 64))
    z = cont(y)  # x is gone by now: z fits in its place
    graph.expand(z)
    assert sizes(graph)[0] == 2 * KIB


def test_span_of_a_permuted_window_and_row_padding():
    cache = leaf(Q8_0, 128, 256, place=1)
    window = permute(view_4d(cache, (64, 2, 256, 1), 68, 136, 136 * 256), 0, 2, 1, 3)
    assert window.ne == (64, 256, 2, 1)
    assert n_bytes(window) == 136 * 256
    copy = Tensor("NONE", Q8_0, window.ne, [])
    copy.nb = window.nb
    assert BufferRule(32).size(copy) == 136 * 256
    padding = (512 - 64) // 32 * 34
    assert BufferRule(128, 512, True).size(copy) == -(-(136 * 256 + padding) // 128) * 128


def test_attention_carries_f16_copies_of_quantised_keys_and_values():
    q, k, v = (leaf(kind, 128, n, 4) for kind, n in ((F32, 512), (Q8_0, 1024), (F16, 1024)))
    t = node("FLASH_ATTN_EXT", [q, k, v], (128, 4, 512, 1))
    plain = 128 * 4 * 512 * 4
    assert BufferRule(128, 512, True).size(t) == plain + 128 * 1024 * 4 * 2
    assert BufferRule(32).size(t) == plain


def test_host_weight_is_copied_to_the_gpu_for_a_large_batch_only():
    for tokens, on_gpu in ((64, True), (8, False)):
        graph = Graph()
        weight = leaf(F16, 1024, 1024, place=1, weight=True)
        graph.expand(mul_mat(weight, leaf(F32, 1024, tokens, is_input=True)))
        gpu, host = sizes(graph)
        assert (gpu >= n_bytes(weight)) is on_gpu
        assert host >= 1024 * tokens * 4


def test_offloaded_weights_share_memory_across_splits():
    graph = Graph()
    x: Tensor = leaf(F32, 1024, 64, is_input=True)
    for _ in range(4):
        x = mul_mat(leaf(F16, 1024, 1024, place=1, weight=True), x)
    graph.expand(x)
    weight = 1024 * 1024 * 2
    assert weight < sizes(graph)[0] < 2 * weight


def test_pipeline_keeps_copies_of_every_input():
    def build() -> Graph:
        graph = Graph()
        x: Tensor = leaf(F32, 1024, 64, is_input=True)
        for device in (0, 1):
            x = mul_mat(leaf(F16, 1024, 1024, place=device, weight=True), x)
        graph.expand(x)
        return graph

    one = 1024 * 64 * 4
    assert sizes(build(), 2)[2] == one
    piped = sizes(build(), 2, pipeline=True)
    assert piped[2] == PIPELINE_COPIES * one
    assert piped[0] >= PIPELINE_COPIES * one
    assert piped[1] >= PIPELINE_COPIES * one


def chain(blocks: int, wide: int = 2048) -> Graph:
    """Blocks that hand one result on; the last one reads an input that lives all the way."""
    graph = Graph()
    kept = leaf(F32, 64, is_input=True)
    x = graph.expand(node("MUL_MAT", [leaf(F32, 8, 8, place=0), kept], (512, 1, 1, 1)))
    for i in range(blocks):
        graph.mark(x)
        inner = node("MUL_MAT", [x, kept] if i == blocks - 1 else [x], (wide if i == 1 else 2048, 1, 1, 1))
        x = graph.expand(node("MUL_MAT", [same("SCALE", inner), x], (512, 1, 1, 1)))
    return graph


def run(graph: Graph, stands: list[int], pipeline: bool = False) -> list[int] | None:
    rules = [BufferRule(128, 512, True), BufferRule(32)]
    scheduler = Scheduler(rules, lambda b, t: True, True, pipeline)
    return scheduler.sizes(scheduler.traced(graph, marked=bool(stands)), stands)


def test_a_block_stands_for_all_that_are_like_it():
    assert run(chain(4), [0, *[1] * 97, 2, 3]) == run(chain(100), [])


def test_a_block_that_hands_over_something_else_stands_for_nothing():
    """In the short chain block 1 hands its result to block 2; standing for the last one it would end the input."""
    assert run(chain(4), [0, 1, 3, 3, 1, 2]) is None


def blocks(kinds: list[int], places: list[object] | None = None) -> list[Block]:
    return [Block(kind, place, place, None) for kind, place in zip(kinds, places or [0] * len(kinds), strict=True)]


def test_the_fewest_blocks_that_show_every_kind_of_neighbours():
    assert shortened(blocks([0] * 100), False, False).ids == [0, 1, 99]
    assert shortened(blocks([0] * 4), True, True).ids == [0, 1, 2, 3]
    pattern = [0, 0, 0, 1] * 12  # three windowed blocks and a full one
    found = shortened(blocks(pattern), True, True)
    assert len(found.ids) < 16
    assert len(found.stands) == 48
    built = [pattern[i] for i in found.ids]
    for i, stand in enumerate(found.stands):
        assert built[stand] == pattern[i]
        assert i == 47 or built[stand + 1] == pattern[i + 1]  # a like one comes next
    assert [found.ids[found.stands[i]] for i in (0, 3, 46, 47)] == [0, 3, 46, 47]  # the first and the last of a kind


def test_a_feed_forward_part_of_its_own_makes_no_first_and_last():
    routed = [Block(0, 0, 0, i >= 3) for i in range(61)]  # dense blocks first, as deepseek has them
    assert len(shortened(routed, False, False).ids) <= 6


def test_every_place_is_seen_where_blocks_lie_on_several():
    homes: list[object] = [*["cpu"] * 10, *["gpu0"] * 10, *["gpu1"] * 10]
    found = shortened(blocks([0] * 30, homes), True, True)
    for i, stand in enumerate(found.stands):
        assert homes[found.ids[stand]] == homes[i]
        assert i == 0 or homes[found.ids[stand] - 1] == homes[i - 1]


class EngineOrder:
    """ggml-alloc.c's own walk through the free blocks, word for word as the engine goes."""

    def __init__(self):
        self.blocks = [[0, UNBOUNDED]]

    def take(self, size):
        last = len(self.blocks) - 1
        best, best_size = last, UNBOUNDED
        for i in range(last):
            if size <= self.blocks[i][1] <= best_size:
                best, best_size = i, self.blocks[i][1]
        offset = self.blocks[best][0]
        self.blocks[best] = [offset + size, self.blocks[best][1] - size]
        if self.blocks[best][1] == 0:
            del self.blocks[best]
        return offset

    def give(self, offset, size):
        for i, (begin, length) in enumerate(self.blocks):
            if begin + length == offset:
                self.blocks[i][1] += size
                if i + 1 < len(self.blocks) and begin + length + size == self.blocks[i + 1][0]:
                    self.blocks[i][1] += self.blocks.pop(i + 1)[1]
                return
            if offset + size == begin:
                self.blocks[i] = [offset, length + size]
                if i > 0 and sum(self.blocks[i - 1]) == offset:
                    self.blocks[i - 1][1] += self.blocks.pop(i)[1]
                return
        at = 0
        while at < len(self.blocks) and self.blocks[at][0] < offset:
            at += 1
        self.blocks.insert(at, [offset, size])


@pytest.mark.parametrize("sizes", [(1, 1, 2, 3, 5, 8), (0, 1, 1, 2, 3, 5)], ids=["plain", "with nothing"])
def test_free_blocks_are_found_as_the_engine_finds_them(sizes):
    for seed in range(200):
        chance, ours, theirs, live = random.Random(seed), FreeList(), EngineOrder(), []
        for _ in range(60):
            if live and chance.random() < 0.5:
                block = live.pop(chance.randrange(len(live)))
                ours.give(*block)
                theirs.give(*block)
            else:
                size = chance.choice(sizes)
                offset = ours.take(size)
                assert offset == theirs.take(size)
                live.append((offset, size))
            assert [list(block) for block in zip(ours.offsets, ours.sizes, strict=True)] == theirs.blocks
