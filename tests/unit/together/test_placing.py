"""Projector and draft model on the GPU or in system memory: the better place for a turn, told with its price."""

from __future__ import annotations

import pytest

from advisor.memory.extras import Beside
from advisor.model.beside import read_projector
from advisor.planner import Planner
from advisor.recommend.evaluate import cost
from advisor.recommend.search import Wishes
from advisor.recommend.words import seconds_text
from advisor.settings import BesideSettings, RequestedSettings
from advisor.speed.constants import constants_of
from advisor.stores.resolve import load_header
from advisor.together.placing import Placing, placed_as, placings
from tests.tools.cells import engine, spec
from tests.tools.machines import machine, policy, speed_rules
from tests.tools.projectors import write_projector
from tests.tools.together import member, over_budget, together

GIB = 1 << 30


@pytest.fixture(scope="module")
def eye(tmp_path_factory):
    """gemma 3's projector: 27 blocks, 1,152 wide, pictures of 896 x 896 in patches of 14."""
    return read_projector(load_header(str(write_projector(tmp_path_factory.mktemp("eye") / "eye.gguf", "gemma3"))))


class Advice:
    """What the planner says of a model with something beside it on a machine."""

    def __init__(self, app, host, model, beside, **pins):
        self.planner = Planner(app, host, engine())
        self.intent, self.wishes = policy().intent("balanced"), Wishes(RequestedSettings(**pins))
        self.answer, self.host = self.planner.recommend(spec(model), self.intent, self.wishes, beside)
        self.asked = self.answer.chosen.plan.settings.beside
        constants = constants_of(self.host, speed_rules())
        self.placing = Placing(spec(model), beside, constants, engine(), policy(), self.intent)

    @property
    def cost(self):
        if self.answer.verdict == "does_not_fit":
            return float("inf")
        own = cost(self.answer.chosen, self.answer.speed, self.intent, policy(), self.placing.spec.n_ctx_train)
        return own * self.placing.factor(self.asked, self.answer.speed)

    def note(self, code):
        return next(note.text for note in self.answer.reasons if note.code == code)


@pytest.fixture
def app(home):
    from advisor.app import App

    return App()


PINS = {
    "mmproj": [{"mmproj_offload": True}, {"mmproj_offload": False}],
    "draft": [{"draft_n_gpu_layers": 99}, {"draft_n_gpu_layers": 0}],
}


@pytest.mark.parametrize("card_gib", [1.5, 3, 5, 6, 8, 12, 24])
def test_a_projector_is_where_a_turn_is_shorter(app, eye, card_gib):
    host, beside = machine(card_gib, ram_gib=32), Beside(projector=eye)
    chosen = Advice(app, host, "gemma3-4b", beside, mmproj="eye.gguf")
    pinned = [Advice(app, host, "gemma3-4b", beside, mmproj="eye.gguf", **pins) for pins in PINS["mmproj"]]
    assert chosen.cost <= min(one.cost for one in pinned) * (1 + 1e-12)
    there = sum(extra.n_bytes.high for plan in chosen.answer.chosen.plan.devices for extra in plan.extras)
    assert (there > 900 << 20) == chosen.asked.mmproj_offload


@pytest.mark.parametrize("card_gib", [6, 24, 44, 48])
def test_a_draft_model_is_where_a_turn_is_shorter(app, card_gib):
    host, beside = machine(card_gib, ram_gib=96), Beside(draft=spec("llama3-1b"))
    chosen = Advice(app, host, "llama33-70b-q4_k_m", beside, draft_model="d.gguf")
    pinned = [Advice(app, host, "llama33-70b-q4_k_m", beside, draft_model="d.gguf", **p) for p in PINS["draft"]]
    assert chosen.cost <= min(one.cost for one in pinned) * (1 + 1e-12)


def test_a_card_that_is_too_small_for_the_projector_leaves_it_in_system_memory(app, eye):
    chosen = Advice(app, machine(1.5, ram_gib=32), "gemma3-4b", Beside(projector=eye), mmproj="eye.gguf")
    assert not chosen.asked.mmproj_offload
    assert chosen.note("mmproj_placed").startswith("The projector is in system memory, ")
    options = dict(chosen.planner.options(chosen.answer, chosen.placing.spec, chosen.host, chosen.wishes))
    assert "no-mmproj-offload" in options


def test_what_a_place_costs_and_saves_is_said(app, eye):
    beside = Beside(projector=eye, draft=spec("llama3-1b"))
    chosen = Advice(app, machine(12, ram_gib=32), "llama3-8b", beside, mmproj="eye.gguf", draft_model="d.gguf")
    assert chosen.asked.mmproj_offload
    text = chosen.note("mmproj_placed")
    assert "a picture of 4,096 patches takes about" in text
    assert "--no-mmproj-offload" in text
    other = Advice(
        app, machine(12, ram_gib=32), "llama3-8b", beside, mmproj="eye.gguf", draft_model="d.gguf",
        mmproj_offload=False, draft_n_gpu_layers=chosen.asked.draft_n_gpu_layers,
    )  # fmt: skip
    assert f"{other.answer.chosen.plan.settings.n_ctx:,} tokens instead of" in text or other.asked == chosen.asked
    assert "tokens drafted at a time it answers" in chosen.note("draft_gain")
    assert any(note.code == "draft_placed" for note in chosen.answer.reasons)


def test_a_place_that_is_pinned_stays_and_needs_no_reason(app, eye):
    beside = Beside(projector=eye)
    chosen = Advice(app, machine(24), "gemma3-4b", beside, mmproj="eye.gguf", mmproj_offload=False)
    assert not chosen.asked.mmproj_offload
    assert not any(note.code.endswith("_placed") for note in chosen.answer.reasons)
    assert len(placings(chosen.wishes, beside)) == 1
    assert len(placings(Wishes(RequestedSettings()), Beside(projector=eye, draft=spec("llama3-1b")))) == 4
    assert placings(chosen.wishes, None) == [chosen.wishes]
    assert placed_as(chosen.wishes, RequestedSettings()).pinned.mmproj_offload is None


def placing(host, beside) -> Placing:
    return Placing(
        spec("llama3-8b"), beside, constants_of(host, speed_rules()), engine(), policy(), policy().intent("balanced")
    )


def test_a_picture_takes_two_operations_for_each_weight_and_patch(eye):
    """By hand: blocks of 4 d^2 + 2 d ff weights (and biases, norms), patches and positions, the projection."""
    d, ff, n = 1152, 4304, 27
    blocks = n * (4 * d * d + 4 * d + 2 * d * ff + ff + d + 4 * d)
    around = 14 * 14 * 3 * d + d + d * 64 * 64 + 2 * d + 2560 * d + d
    host = machine(12)
    constants = constants_of(host, speed_rules())
    one = placing(host, Beside(projector=eye))
    seconds = one.picture_seconds(BesideSettings(mmproj_offload=True))
    assert seconds == pytest.approx(2 * (blocks + around) * 4096 / constants.devices[0].flops, rel=1e-9)
    slow = one.picture_seconds(BesideSettings(mmproj_offload=False))
    assert slow == pytest.approx(seconds * constants.devices[0].flops / constants.host.flops)


def test_drafting_is_worth_the_tokens_that_are_accepted():
    """Of n drafted tokens the first k are kept with a^k: 1 + a + a^2 + ... + a^n tokens for one pass of the model."""
    from tests.tools.machines import advise

    host = machine(24)
    one, speed = placing(host, Beside(draft=spec("llama3-1b"))), advise("llama3-8b", host).speed
    accepted, alone = policy().beside["draft_acceptance"], 1 / speed.decode_tokens_per_s.value
    for count in (1, 3, 8):
        asked = BesideSettings(draft_n_max=count)
        tokens = sum(accepted**kept for kept in range(count + 1))
        seconds = alone + count * one.draft_seconds(asked)
        assert one.answer_factor(asked, speed) == pytest.approx(seconds / tokens / alone)
    on_cpu = BesideSettings(draft_n_gpu_layers=0)
    assert one.draft_seconds(on_cpu) > 3 * one.draft_seconds(BesideSettings())
    assert placing(host, Beside()).answer_factor(on_cpu, speed) == 1.0


def test_what_is_beside_the_main_model_has_its_place_in_a_set_too(eye):
    host = machine(8, ram_gib=32)
    main = member("gemma3-4b", mmproj="eye.gguf")._replace(beside=Beside(projector=eye))
    answer = together(host, main, "llama32-3b")
    assert over_budget(answer, host) == []
    seat = answer.seats[0]
    assert seat is not None
    assert any("mmproj" in extra.name for plan in seat.answer.chosen.plan.devices for extra in plan.extras) == (
        seat.answer.chosen.plan.settings.beside.mmproj_offload
    )


@pytest.mark.parametrize(
    ("model", "card_gib", "ram_gib"), [("llama33-70b-q4_k_m", 24, 64), ("llama3-8b", 8, 32), ("llama3-8b", 6, 32)]
)
def test_a_drafts_cache_is_small_where_memory_is_short(app, model, card_gib, ram_gib):
    """With f16 keys and values the model would have fewer layers or a shorter context."""
    host, beside = machine(card_gib, ram_gib=ram_gib), Beside(draft=spec("llama3-1b"))
    chosen = Advice(app, host, model, beside, draft_model="d.gguf")
    assert (chosen.asked.draft_cache_type_k, chosen.asked.draft_cache_type_v) == ("q8_0", "q8_0")
    f16 = Advice(app, host, model, beside, draft_model="d.gguf", draft_cache_type_k="f16", draft_cache_type_v="f16")
    assert f16.asked.draft_cache_type_k == "f16"
    assert chosen.cost < f16.cost
    n_ctx, layers = (
        [getattr(one.answer.chosen.plan.settings, name) for one in (chosen, f16)] for name in ("n_ctx", "n_gpu_layers")
    )
    assert n_ctx[0] > n_ctx[1] or layers[0] > layers[1]
    assert f"{n_ctx[1]:,} tokens instead of" in chosen.note("draft_cache")
    options = dict(chosen.planner.options(chosen.answer, chosen.placing.spec, chosen.host, chosen.wishes))
    assert (options["spec-draft-type-k"], options["spec-draft-type-v"]) == ("q8_0", "q8_0")


@pytest.mark.parametrize(
    ("card_gib", "draft", "pins"),
    [
        (24, "llama3-1b", {}),  # nothing is short
        (8, "phi2", {}),  # heads of 80: no block of 32 ends with them, and the engine refuses
        (8, "llama3-1b", {"flash_attn": "off"}),
    ],
)
def test_a_drafts_cache_stays_where_nothing_is_gained_or_it_cannot_be(app, card_gib, draft, pins):
    beside = Beside(draft=spec(draft))
    chosen = Advice(app, machine(card_gib, ram_gib=32), "llama3-8b", beside, draft_model="d.gguf", **pins)
    assert chosen.asked.draft_cache_type_k == "f16"


@pytest.mark.parametrize(
    ("model", "draft", "slower"),
    [
        ("qwen3moe-30b", "llama32-3b", True),  # 3B beside 3B active
        ("qwen3moe-30b", "qwen3-8b", True),  # as fast where it is, but the experts are then on the CPU
        ("llama3-8b", "llama3-1b", False),
    ],
)
def test_drafting_that_does_not_pay_is_warned_of(app, model, draft, slower):
    """Three drafted tokens, each accepted with 0.7, are worth 1 + 0.7 + 0.49 + 0.343 = 2.533 of the model's own."""
    host, beside = machine(24, ram_gib=64), Beside(draft=spec(draft))
    chosen = Advice(app, host, model, beside, draft_model="d.gguf", spec_type=("draft-simple",))
    alone, _ = chosen.planner.recommend(spec(model), chosen.intent, Wishes(RequestedSettings()))
    without = cost(alone.chosen, alone.speed, chosen.intent, policy(), spec(model).n_ctx_train)
    speed = chosen.answer.speed
    token = 1 / speed.decode_tokens_per_s.value
    factor = (token + 3 * chosen.placing.draft_seconds(chosen.asked)) / (2.533 * token)
    turn = speed.turn_seconds.value + chosen.intent.turn.answer_tokens * token * (factor - 1)
    own = cost(chosen.answer.chosen, speed, chosen.intent, policy(), spec(model).n_ctx_train)
    assert (without < own * turn / speed.turn_seconds.value) == slower
    said = [note.text for note in chosen.answer.warnings if note.code == "draft_slows"]
    assert bool(said) == slower
    assert any(note.code == "draft_gain" for note in chosen.answer.reasons) != slower
    if slower:
        settings = alone.chosen.plan.settings
        assert f"a turn takes {seconds_text(turn)} and there are" in said[0]
        assert (
            f"without --spec-draft-model {seconds_text(alone.speed.turn_seconds.value)} and {settings.n_ctx:,}"
            in said[0]
        )
