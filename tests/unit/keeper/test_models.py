"""Which models get into a config file, under which names, with which wishes."""

from __future__ import annotations

import pytest

from tests.tools.machines import machine
from tests.tools.projectors import write_projector
from tests.tools.stores import LIBRARY, download, pull
from tests.tools.tiny_models import adapter, projector, tiny_model, write
from tests.unit.keeper.conftest import ROUTER, World


def test_names(world: World) -> None:
    world.add("plain.gguf")
    world.add("sub/plain.gguf", tiny_model("another"))
    for number in (0, 1):
        world.add(f"big-{number + 1:05d}-of-00002.gguf", tiny_model("big", part=(number, 2)))
    pull(world.home / ".ollama/models", f"{LIBRARY}/qwen3/8b")
    pull(world.home / ".ollama/models", "hf.co/org/repo/Q4")
    download(world.home / ".cache/huggingface/hub", "org/repo", {"hub-Q8_0.gguf": tiny_model("hub")})
    world.add("not-a-model.gguf", adapter())
    world.configure(ROUTER)
    world.apply()
    found = world.sections()
    assert set(found) == {"plain", "sub-plain", "big", "qwen3-8b", "hf.co-org-repo-Q4", "hub-Q8_0"}
    assert found["big"]["model"] == str(world.models / "big-00001-of-00002.gguf")
    assert found["sub-plain"]["model"] == str(world.models / "sub/plain.gguf")


def test_a_model_keeps_its_name_whatever_comes_beside_it(world: World) -> None:
    world.add("z/m.gguf")
    world.configure(ROUTER)
    world.apply()
    world.add("a/m.gguf", tiny_model("first by its path"))
    world.apply()
    assert {name: each["model"] for name, each in world.sections().items()} == {
        "m": str(world.models / "z/m.gguf"),
        "a-m": str(world.models / "a/m.gguf"),
    }
    (world.models / "z/m.gguf").unlink()
    world.apply()
    assert set(world.sections()) == {"a-m"}


@pytest.mark.parametrize(
    "name",
    ["a]b.gguf", "a#b.gguf", "a;b.gguf", "a\nb.gguf", "a\x1b[31mb.gguf", "*.gguf", "default.gguf", "\udcff.gguf"],
)
def test_hostile_names_are_refused_with_a_sentence_and_the_others_done(world: World, name: str) -> None:
    world.add("good.gguf")
    world.add(name)
    world.configure(ROUTER)
    said = world.apply()
    assert set(world.sections()) == {"good"}
    assert "\x1b[31m" not in said
    about = [
        line for line in said.splitlines() if line.startswith("advisor: t0: ") and "restart the router" not in line
    ]
    assert len(about) == 1, about
    assert about[0].endswith(".")


def test_patterns_excludes_and_wishes(world: World) -> None:
    for name in ("one-7b", "one-8b", "two-8b", "three"):
        world.add(f"{name}.gguf", tiny_model(name, n_ctx_train=32768))
    more = (
        '[[model]]\nmatch = "*8b"\npins = { ctx-size = 1024, cache-type-k = "q8_0", n-gpu-layers = 1 }\n'
        '[[model]]\nmatch = "one-8b"\nexclude = true\n'
        '[[model]]\nmatch = "three"\nintent = "parallel:4"\nmax_ctx = 2048\n'
    )
    world.configure(
        ROUTER, f'{ROUTER.replace("models.ini", "b.ini")}\nmodels = ["ONE*", "*/three.gguf"]\nmode = "safe"', more=more
    )
    world.apply()
    found = world.sections()
    assert set(found) == {"one-7b", "two-8b", "three"}
    pinned = found["two-8b"]
    assert (pinned["ctx-size"], pinned["cache-type-k"], pinned["n-gpu-layers"]) == ("1024", "q8_0", "1")
    assert found["one-7b"]["ctx-size"] == "32768"
    assert found["one-7b"]["fit"] == "off"
    assert (found["three"]["parallel"], int(found["three"]["ctx-size"])) == ("4", 4 * 2048)
    safe = world.slots(world.preset.with_name("b.ini"))
    assert {slot[0] for slot in safe} == {"default", "one-7b", "three"}
    assert safe["one-7b", "fit"] == "on"
    assert ("one-7b", "n-gpu-layers") not in safe
    assert ("one-7b", "fit-target") in safe


def test_a_projector_goes_where_it_can_be_said(world: World) -> None:
    world.add("see/m.gguf")
    beside = world.add("see/mmproj-m.gguf", projector())
    world.configure(
        ROUTER,
        'format = "koboldcpp"\npath = "~/kobold"',
        'format = "llama-cpp-python"\npath = "~/presets/server.json"',
    )
    world.apply()
    assert world.sections()["m"]["mmproj"] == str(beside)
    assert world.slots(world.home / "kobold/m.kcpps", "koboldcpp")["mmproj",] == str(beside)
    other = world.slots(world.preset.with_name("server.json"), "llama-cpp-python")
    assert ("models", "m", "model") in other
    assert not [slot for slot in other if "mmproj" in slot[-1] or "clip" in slot[-1]]


def test_a_projector_of_another_model_is_left_out(world: World) -> None:
    """The engine would refuse the pair; what lies beside a model by chance does not keep it from being served."""
    world.add("see/m.gguf")
    write_projector(world.models / "see/mmproj-m.gguf", "gemma3", n_layer=1, out=100)
    world.configure(ROUTER)
    world.apply()
    assert "mmproj" not in world.sections()["m"]


def test_a_pattern_may_be_any_name_of_a_model(world: World) -> None:
    blob = pull(world.home / ".ollama/models", f"{LIBRARY}/q/8b")
    (world.models / "mine.gguf").hardlink_to(blob)
    world.configure(ROUTER + '\nmodels = ["q:8b"]')
    world.apply()
    assert set(world.sections()) == {"mine"}


def test_stores_that_are_switched_off(world: World) -> None:
    store = world.home / ".ollama/models"
    blob = pull(store, f"{LIBRARY}/q/8b")
    (world.home / ".lmstudio/models/p/r").mkdir(parents=True)
    (world.home / ".lmstudio/models/p/r/linked.gguf").symlink_to(blob)
    world.configure(ROUTER, more="[stores]\nollama = false")
    world.apply()
    assert set(world.sections()) == {"linked"}  # the file counts for the store that is looked into


def test_a_folder_that_is_named_counts_however_it_is_laid_out(world: World) -> None:
    pull(world.models, f"{LIBRARY}/q/8b")
    world.configure(ROUTER, more="[stores]\nollama = false")
    world.apply()
    assert set(world.sections()) == {"q-8b"}


def test_what_is_not_complete_stays_out_until_it_is(world: World) -> None:
    whole = tiny_model("m")
    world.add("truncated.gguf", whole[:-64])
    world.add("m.gguf.part", whole)
    with world.add("sparse.gguf", b"").open("wb") as file:
        file.write(whole[:2048])
        file.truncate(len(whole))
    world.add("split-00001-of-00002.gguf", tiny_model("split", part=(0, 2)))
    world.add("good.gguf")
    world.configure(ROUTER)
    world.apply()
    assert set(world.sections()) == {"good"}
    world.add("truncated.gguf", whole)
    world.apply()
    assert set(world.sections()) == {"good", "truncated"}


def test_a_model_too_large_is_left_out_and_said_once(world: World) -> None:
    world.add("m.gguf")
    world.host = machine(ram_gib=0.5)
    world.configure(ROUTER, 'format = "koboldcpp"\npath = "~/kobold"')
    said = world.apply()
    assert not world.preset.exists()
    assert said.startswith("advisor: t0, t1: m: does not fit"), said
    assert said.count("\n") == 1


def test_programs_with_a_store_of_their_own_get_only_its_models(world: World) -> None:
    world.add("m.gguf")
    lms = world.home / ".lmstudio"
    write(lms / "models/pub/repo/l.gguf", tiny_model("l"))
    jan = world.home / ".local/share/Jan/data/llamacpp/models"
    model = write(jan / "org/j/model.gguf", tiny_model("j"))
    mine = f"# mine\nname: j\nmodel_path: {model}\nsize_bytes: 1\n"
    write(jan / "org/j/model.yml", mine.encode())
    write(lms / "defaults/pub/repo/l.gguf.json", b'{"preset": "", "mine": 1, "load": {"fields": []}}')
    world.configure(
        f'format = "lm-studio"\npath = "{lms}/defaults"',
        f'format = "jan"\npath = "{jan}"',
        'format = "ollama"\npath = "~/o"',
    )
    said = world.apply()
    written = world.slots(lms / "defaults/pub/repo/l.gguf.json", "lm-studio")
    assert written["load", "fields", "llm.load.contextLength"] == 4096
    assert '"mine": 1' in (lms / "defaults/pub/repo/l.gguf.json").read_text()
    assert not (world.home / "o").exists()
    assert "m.gguf" not in said
    (found,) = jan.rglob("model.yml")
    assert "ctx_size:" in found.read_text()
    assert found.read_text().startswith(mine.rstrip("\n"))
    model.unlink()
    world.apply()
    assert found.read_text() == mine
