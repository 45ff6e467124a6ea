"""What an engine's trials say of a CPU: times that are made up of known costs must give these back."""

from __future__ import annotations

import pytest

from advisor.ggml_types import BY_NAME
from advisor.speed.measured import WIDE, shortness
from advisor.speed.trials import DEPTH_TOKENS, PROMPT_TOKENS, Timed, Trial, fit, middles, trials
from advisor.units import round_up

MIB = 1 << 20
BLOCK_S, ROW_S, VOCABULARY_S = 40e-6, 12e-9, 9e-9
RATES = {"q8_0": 30e9, "q4_K": 22e9, "f16": 35e9, "iq3_s": 5e9}
FLOPS = 2e11
PAIR_S = {64: 14e-9, 128: 20e-9, 256: 30e-9}
FETCH_S = {64: 60e-9, 128: 25e-9, 256: 50e-9}
PROMPT_S = {64: 2e-9, 128: 3e-9, 256: 5e-9}


def rate(kind: str) -> float:
    return RATES.get(kind, 20e9)


def made_up(trial: Trial) -> Timed:
    """The time of a trial on a machine with the costs above, summed up tensor by tensor."""
    seconds = trial.n_layer * BLOCK_S + trial.n_vocab * VOCABULARY_S
    for name, shape, kind in trial.tensors:
        if len(shape) == 1 or (name == "token_embd.weight" and trial.output):
            continue
        storage = BY_NAME[kind.lower()]
        seconds += shape[0] // storage.block_elements * storage.block_bytes * shape[1] / rate(kind)
        if name.startswith("blk."):
            seconds += shape[1] * ROW_S * (1 - min(shape[0] / 2150, 1.5))
    size = trial.head_size
    per_pair = PAIR_S[size] + (FETCH_S[size] if trial.n_head_kv == trial.n_head else 0.0)
    deep = seconds + trial.n_layer * trial.n_head * 1024 * per_pair
    matrices = 2 * trial.block_parameters / FLOPS
    reading = matrices + trial.n_layer * trial.n_head * 500 * PROMPT_S[size]
    return Timed(trial, seconds, matrices, deep if trial.deep else None, reading if trial.deep else None)


def test_known_costs_come_out():
    cpu = fit([made_up(trial) for trial in trials(32 * MIB)], "an engine", 11434)
    assert cpu is not None
    assert (cpu.engine, cpu.build) == ("an engine", 11434)
    assert cpu.block_seconds == pytest.approx(BLOCK_S, rel=0.01)
    assert cpu.row_seconds == pytest.approx(ROW_S, rel=0.01)
    assert cpu.vocabulary_seconds == pytest.approx(VOCABULARY_S, rel=0.01)
    assert {entry.name: entry.bytes_per_s for entry in cpu.types} == pytest.approx(
        {trial.kind: rate(trial.kind) for trial in trials(32 * MIB) if trial.what == "type"}, rel=0.01
    )
    assert all(entry.flops == pytest.approx(FLOPS) for entry in cpu.types)
    assert [head.head_size for head in cpu.heads] == [64, 128, 256]
    for head in cpu.heads:
        assert head.pair_seconds == pytest.approx(PAIR_S[head.head_size], rel=0.01)
        assert head.row_seconds == pytest.approx(FETCH_S[head.head_size], rel=0.01)
        assert head.prompt_seconds == pytest.approx(PROMPT_S[head.head_size], rel=0.01)


def test_the_first_trials_are_enough():
    """Where time runs out early, what was timed still counts."""
    wanted = trials(32 * MIB)
    base = fit([made_up(trial) for trial in wanted[:5]], "x", None)
    assert base is not None
    assert {entry.name for entry in base.types} == {"q8_0", "f16"}
    assert base.vocabulary_seconds > 0
    assert base.heads == ()
    assert [trial.what for trial in wanted[:5]] == ["type", "type", "rows", "blocks", "vocabulary"]


def test_what_everything_rests_on_is_timed_at_the_start_in_the_middle_and_at_the_end():
    wanted = trials(32 * MIB, ("q4_K",), (128,))
    for what, kind in (
        ("type", "q8_0"),
        ("type", "q4_K"),
        ("rows", "q8_0"),
        ("blocks", "q8_0"),
        ("vocabulary", "q8_0"),
    ):
        at = [number for number, trial in enumerate(wanted) if (trial.what, trial.kind) == (what, kind)]
        assert len(at) == 3
        assert at[0] < len(wanted) / 3 < at[1] < 2 * len(wanted) / 3 < at[2]
    assert [trial.head_size for trial in wanted if trial.what == "shared"].count(128) == 3


def test_the_middle_of_several_times_counts():
    """One disturbed round of three changes nothing."""
    wanted = trials(32 * MIB)
    quiet = fit([made_up(trial) for trial in dict.fromkeys(wanted)], "x", None)
    seen: dict[Trial, int] = {}
    timed = []
    for trial in wanted:
        seen[trial] = seen.get(trial, 0) + 1
        entry = made_up(trial)
        if seen[trial] == 2:
            entry = Timed(trial, *(None if time is None else 3 * time for time in entry[1:]))  # type: ignore[arg-type]
        timed.append(entry)
    assert fit(middles(timed), "x", None) == quiet


@pytest.mark.parametrize("missing", ["rows", "blocks", "q8_0"])
def test_nothing_without_what_the_others_rest_on(missing):
    timed = [
        made_up(trial)
        for trial in trials(32 * MIB)
        if trial.what != missing and (trial.what, trial.kind) != ("type", missing)
    ]
    assert fit(timed, "x", None) is None


def test_noise_gives_no_negative_costs():
    """Times that contradict each other: every cost stays one."""
    for factor in (0.0, 0.2, 5.0):
        timed = [
            entry._replace(decode_s=entry.decode_s * (factor if entry.trial.what != "type" else 1) + 1e-6)
            for entry in map(made_up, trials(32 * MIB))
        ]
        cpu = fit(timed, "x", None)
        assert cpu is not None
        assert min(cpu.block_seconds, cpu.row_seconds, cpu.vocabulary_seconds) >= 0
        assert all(entry.bytes_per_s > 0 for entry in cpu.types)
        assert all(head.pair_seconds > 0 and head.row_seconds >= 0 for head in cpu.heads)


@pytest.mark.parametrize("cache", [MIB, 32 * MIB, 96 * MIB, 1024 * MIB])
def test_trials_come_from_memory_and_stay_small(cache):
    for trial in trials(cache):
        read = sum(trial.weights_read().values())
        whole = sum(
            shape[0] // BY_NAME[kind.lower()].block_elements * BY_NAME[kind.lower()].block_bytes * shape[-1]
            for _, shape, kind in trial.tensors
            if len(shape) > 1
        )
        assert whole < 1024 * MIB
        if trial.what == "type" and cache <= 96 * MIB:
            assert read > 2 * cache
        assert all(shape[0] % BY_NAME[kind.lower()].block_elements == 0 for _, shape, kind in trial.tensors)


def test_what_the_models_at_hand_use_comes_first():
    wanted = trials(32 * MIB, ("iq3_s", "nothing known", "q2_K"), (80, 128, 7, 4096))
    types = list(dict.fromkeys(trial.kind for trial in wanted if trial.what == "type"))
    assert set(types[:2]) == {"q8_0", "f16"}
    assert types[2:4] == ["iq3_s", "q2_K"]
    heads = list(dict.fromkeys(trial.head_size for trial in wanted if trial.deep))
    assert heads == [80, 128, 64, 256]


def test_numbers_that_the_engine_gives():
    """Cells are padded to 256, and 1,000 tokens with an answer of 13 stay below 1,024."""
    assert round_up(DEPTH_TOKENS, 256) == round_up(DEPTH_TOKENS + 13, 256) == 1024
    assert PROMPT_TOKENS % 64 == 0
    assert [shortness(width) for width in (0, WIDE, 2 * WIDE, 100 * WIDE)] == [1.0, 0.0, -0.5, -0.5]
    of_types = next(trial for trial in trials(32 * MIB) if trial.what == "type" and trial.n_layer > 2)
    assert of_types.short_rows / of_types.n_layer == pytest.approx(0, abs=30)  # of 23,552: WIDE is their average
