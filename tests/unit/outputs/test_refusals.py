"""What a format cannot carry is refused with the model and the reason; hostile names are refused or quoted right."""

from __future__ import annotations

import json
import os
import shlex

import pytest

from advisor.errors import OutputError
from advisor.outputs.help_options import options_of_help
from advisor.outputs.llama_swap import LlamaSwap
from advisor.outputs.ollama import OUTPUT as OLLAMA
from advisor.outputs.ollama import Service
from advisor.outputs.registry import OUTPUTS, load
from tests.unit.outputs.cases import Named, fitting, model
from tests.unit.outputs.test_help_options import HELP

TWO = 2
B10434 = options_of_help(HELP)

SAYS_NO = [
    ("llama-cpp-python", "-c 4096 -ngl 5 -np 2", 1, "one slot"),
    ("llama-cpp-python", "-c 4096 -ngl 5 -np 1 --n-cpu-moe 2", 1, "no setting for --n-cpu-moe"),
    ("llama-cpp-python", "-c 4096 -ngl 5 -np 1 -ot 'ffn=CPU'", 1, "no setting for --override-tensor"),
    ("llama-cpp-python", "-c 4096 -ngl 5 -np 1 --no-repack", 1, "no setting for --no-repack"),
    ("llama-cpp-python", "-c 4096 -ngl 5 -np 1 --mmproj /p.gguf", 1, "no setting for --mmproj"),
    ("koboldcpp", "-c 4096 -ngl 5 -np 2", 1, "one slot"),
    ("koboldcpp", "-c 4096 -ngl 5 -np 1 -ctk q8_0 -ctv q4_0", 1, "share one type"),
    ("koboldcpp", "-c 4096 -ngl 5 -np 1 -ctk q5_0 -ctv q5_0", 1, "share one type"),
    ("koboldcpp", "-c 4096 -ngl 5 -np 1 -b 512 -ub 256", 1, "one batch size"),
    ("koboldcpp", "-c 4096 -ngl 5 -np 1 -b 500 -ub 500", 1, "power of two"),
    ("koboldcpp", "-c 1048576 -ngl 5 -np 1", 1, "256 to 524,288 tokens"),
    ("koboldcpp", "-c 4096 -ngl 5 -np 1", TWO, "which of several GPUs"),
    ("ollama", "-c 4096 -ngl 5 -np 2", 1, "1 slot"),
    ("ollama", "-c 4096 -ngl 5 -np 1 -ctk q8_0 -ctv q8_0", 1, "cache type is f16 for every model"),
    ("ollama", "-c 4096 -ngl 5 -np 1 -b 512 -ub 256", 1, "both batch and micro-batch"),
    ("ollama", "-c 4096 -ngl 5 -np 1 --n-cpu-moe 2", 1, "no setting for --n-cpu-moe"),
    ("ollama", "-c 4096 -ngl 5 -np 1 -fa off", 1, "the whole service"),
    ("ollama", "-c 4096 -ngl 5 -np 1 -sm row", TWO, "splits over GPUs by layers"),
    ("ollama", "-c 4096 -ngl 5 -np 1", TWO, "no setting for --tensor-split"),
    ("ramalama", "-c 4096 -ngl 5 -np 1", 1, "n_parallel is always 4"),
    ("ramalama", "-c 4096 -ngl 5 -ctk q8_0 -ctv q8_0", 1, "cache_type_k is always f16"),
    ("ramalama", "-c 4096 -ngl 5 -ub 256", 1, "n_ubatch is always 512"),
    ("ramalama", "-c 4096 -ngl 5 -fa off", 1, "flash attention"),
    ("ramalama", "-c 4096 -ngl 5 --no-mmap", 1, "no setting for"),
    ("text-generation-webui", "-c 4096 -ngl 5 -np 1 -fa off", 1, "always on"),
    ("text-generation-webui", "-c 4096 -ngl 5 -np 1 -ctk q8_0 -ctv q4_0", 1, "share one type"),
    ("lm-studio", "-c 4096 -ngl 5 -np 1 -ctk bf16 -ctv bf16", 1, "does not know this cache type"),
    ("lm-studio", "-c 4096 -ngl 5 -np 1", TWO, "which of several GPUs"),
    ("lm-studio", "-c 4096 -ngl 5 -np 1 --swa-full", 1, "no setting for --swa-full"),
    ("lm-studio", "-c 4096 -ngl 5 -np 1 --mmproj /elsewhere/p.gguf", 1, "own folder"),
    ("jan", "-c 4096 -ngl 5 -np 1", 1, "two hidden slots"),
    ("jan", "-c 4096 -ngl 5 -np 4 --kv-unified", 1, "two hidden slots"),
    ("jan", "-c 4096 -ngl 5 -np 3 -t 4", 1, "no setting for --threads"),
    ("env-file", "-c 4096 -ngl 5 -np 1 --no-op-offload", 1, "has no variable"),
    ("env-file", "-c 4096 -ngl 5 -np 1 --lora /l.gguf", 1, "has no variable"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "request_text", "cards", "why"), SAYS_NO)
def test_a_plan_that_the_format_cannot_say(name, request_text, cards, why):
    output = load(name)
    asked = model(request_text, engine=output.engine, cards=cards, store_name="qwen3:8b")
    with pytest.raises(OutputError, match=why) as error:
        output.slots([asked], None)
    assert str(error.value).startswith("qwen3: ")
    with pytest.raises(OutputError) as alone:
        output.one(asked)
    assert str(alone.value) == str(error.value)


@pytest.mark.parametrize("name", ["llama-cpp-python", "ramalama"])
def test_safe_mode_where_the_layers_cannot_be_left_open(name):
    output, asked = fitting(name, mode="safe")
    with pytest.raises(OutputError, match="exact mode"):
        output.slots([asked], None)


def test_every_option_is_said_or_refused():
    """An option that nobody has heard of may not be lost on the way."""
    for name in OUTPUTS:
        output, asked = fitting(name)
        asked = asked._replace(options=(*asked.options, ("no-such-thing", "5")))
        if name == "llama-config-ini":  # machine-wide values only
            continue
        try:
            said = json.dumps([[*slot, value] for slot, value in output.slots([asked], None).items()])
        except OutputError as error:
            said = str(error)
        assert "no-such-thing" in said


def test_one_bad_model_does_not_stop_the_others():
    output = load("llama-server-preset")
    good, bad = model(model_id="good"), model(model_id="bad", path="/srv/a#b.gguf")
    assert output.one(good)
    with pytest.raises(OutputError, match=r"^bad: .*read as a comment"):
        output.slots([good, bad], None)
    assert {slot[0] for slot in output.slots([good], None)} == {"good"}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_plan_that_the_engine_refuses_is_not_written(name):
    output, asked = fitting(name)
    asked = asked._replace(plan=asked.plan._replace(refused="too many slots\x1b"))
    with pytest.raises(OutputError, match=r"refuses its settings \(too many slots\?\)"):
        output.slots([asked], None)


@pytest.mark.parametrize("name", ["env-file", "ollama", "koboldcpp", "localai", "lm-studio", "jan"])
def test_one_file_for_each_model(name):
    output, asked = fitting(name)
    with pytest.raises(OutputError, match="one file for each model; 2 were given"):
        output.slots([asked, asked._replace(id="other")], None)


@pytest.mark.parametrize("name", ["llama-server-preset", "llama-swap", "llama-cpp-python"])
def test_two_models_of_one_name(name):
    output, asked = fitting(name)
    with pytest.raises(OutputError, match="names two models"):
        output.slots([asked, asked._replace(model_path="/srv/other.gguf")], None)


def test_ramalama_holds_for_all_models():
    output, asked = fitting("ramalama")
    assert output.slots([asked, asked._replace(id="b")], None) == output.slots([asked], None)
    with pytest.raises(OutputError, match=r"^b: RamaLama's settings hold for every model"):
        output.slots([asked, model("-c 8192 -ngl 5", model_id="b")], None)


def test_llama_cpps_config_holds_what_all_models_share():
    output = load("llama-config-ini")
    first, second = model("-c 4096 -np 1 -t 8 -ctk q8_0 -ctv q8_0"), model("-c 4096 -np 1 -t 8", model_id="b")
    assert output.slots([first, second], None) == {("*", "threads"): "8"}
    assert output.slots([], None) == {}


@pytest.mark.parametrize("architecture", ["qwen3vl", "qwen3vlmoe", "qwen35", "lfm2moe", "nemotron_h", "mllama"])
def test_ollama_gives_some_families_one_slot(architecture):
    output = OLLAMA.with_service(Service(num_parallel=2))
    asked = model("-c 8192 -ngl 5 -np 2", engine="ollama", store_name="a:b", architecture=architecture)
    with pytest.raises(OutputError, match="with 1 slot"):
        output.slots([asked], None)
    assert output.slots([asked._replace(architecture="llama")], None)["PARAMETER", "num_ctx"] == "4096"


@pytest.mark.parametrize("store_name", [None, "", "/srv/x.gguf", "../x", "a b", "a:b:c", "x\nPARAMETER y 1", "-x"])
def test_ollama_takes_models_of_its_own_store_only(store_name):
    with pytest.raises(OutputError, match="would copy a model"):
        OLLAMA.slots([model(engine="ollama", store_name=store_name)], None)


def test_ids_of_the_users_own_llama_swap_files_are_left_alone():
    output = load("llama-swap")
    assert isinstance(output, LlamaSwap)
    asked = model(aliases=("mine", "free", "qwen3"))
    careful = output.without({"mine"})
    assert careful.slots([asked], None)["models", "qwen3", "aliases"] == ["free"]
    with pytest.raises(OutputError, match="stands in another file of the config folder"):
        output.without({"qwen3"}).slots([asked], None)
    other = model(model_id="free", aliases=("qwen3",))
    both = careful.slots([asked, other], None)  # no alias that is a model's id
    assert ("models", "qwen3", "aliases") not in both
    with pytest.raises(OutputError, match="in another file too"):
        careful.validate("models:\n  mine: {cmd: x}\n")


@pytest.mark.parametrize("name", ["llama-server-preset", "env-file", "llama-swap"])
def test_keys_that_the_users_binary_does_not_have(name):
    output, _ = fitting(name)
    asked = model("-c 4096 -np 2 --kv-unified -ngl 5 --n-cpu-moe 2 --no-mmap")
    for missing in (("kv-unified", "kvu"), ("n-cpu-moe", "ncmoe")):
        with pytest.raises(OutputError, match=f"no --{missing[0]}, which"):
            output.slots([asked], B10434 - set(missing))
    mapped = output.slots([asked], B10434 - {"load-mode", "lm"})
    assert "mmap" in json.dumps([*map(list, mapped), *mapped.values()]).lower()
    newest = json.dumps([*map(list, output.slots([asked], B10434 - {"mmap", "no-mmap"}).items())])
    assert "load" in newest.lower()


HOSTILE = [
    "a\nb", "a\r[b]", "a\x00b", "a\x1b[31m", "a\x85b", "a\u2028b", "\udcffa", "a]b", "[a", "a#b", "a;b", "a: b",
    "a${PORT}", "${env.HOME}", "$(id)", "`id`", "a'b", 'a"b', "a\\b", "a\\", "a b", " a", "a ", "-a", "--cpu-moe",
    "a\u202eb", "größe", "模型", "😀", "x" * 300, "*", "on", "null", "1", "1e5", "~", "&a", "*a", "!a", "{a}", "a,b",
    "a=b", "%s", "..", ".", "a/b", "@a", "|", "> a", "? a", "- a", "", "\ufeffa", "a\tb", "default", "'", '"',
]  # fmt: skip


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("where", ["id", "path", "description", "alias", "lora"])
def test_a_hostile_name_is_refused_or_stands_there_as_it_is(name, where):
    n_written, messages = 0, list[str]()
    for text in HOSTILE:
        output, asked = fitting(name)
        change = {
            "id": {"id": text}, "path": {"model_path": f"/srv/{text}.gguf"}, "description": {"description": text},
            "alias": {"aliases": (text,)}, "lora": {"options": (*asked.options, ("lora", f"/srv/{text}"))},
        }[where]  # fmt: skip
        asked = asked._replace(**change)
        try:
            slots = output.slots([asked], None)
            written = output.edit(output.new_text, slots)
        except OutputError as error:
            messages.append(str(error))
            continue
        n_written += 1
        assert output.parse(written) == {**output.parse(output.new_text), **slots}
        written.encode()
        assert not any(char in written for char in "\x00\x1b\x85\u2028\u202e\r")
        if name != "jan":
            output.validate(written)
        lora = [os.path.abspath(part) for part in f"/srv/{text}".split(",")] if where == "lora" else []
        if name == "llama-swap":
            words = shlex.split(slots["models", asked.id, "cmd"])
            assert words[words.index("--model") + 1] == asked.model_path
            assert words[-2:] == (["--lora", ",".join(lora)] if lora else ["--fit", "off"])
            assert written.count("${") == 1  # our own ${PORT}
        elif name == "text-generation-webui" and lora:
            flags = next(value for slot, value in slots.items() if slot[1] == "extra_flags")
            assert shlex.split(flags) == ["--lora", ",".join(lora)]
        elif name == "llama-server-preset":
            assert {slot[0] for slot in slots} == {asked.id} != {"*"}
    assert all(message.isprintable() and len(message) < 700 for message in messages)
    refuses_all = where == "lora" and name in ("env-file", "koboldcpp", "lm-studio", "jan", "ramalama", "ollama")
    assert (n_written == 0) == refuses_all
    plain = n_written == len(HOSTILE)  # nothing is refused only where the text does not stand in the file
    assert not plain or where in ("description", "alias")


@pytest.mark.parametrize("name", ["env-file", "ollama", "koboldcpp", "localai", "jan"])
def test_the_name_of_a_models_file(name):
    output, asked = fitting(name)
    asked = asked._replace(store_name=None)  # which counts for Jan
    ending = {"env-file": ".env", "ollama": ".Modelfile", "koboldcpp": ".kcpps", "localai": ".yaml"}
    assert output.file_name(asked) == "qwen3" + ending.get(name, "/model.yml")
    for bad in ("", ".", "..", "a/b", "../x", ".hidden", "x" * 300, "a\nb", "\udcff", "a\\b", " a"):
        with pytest.raises(OutputError):
            output.file_name(asked._replace(id=bad))


def test_lm_studios_file_lies_where_the_model_does():
    output, asked = fitting("lm-studio")
    path = "/home/me/.lmstudio/models/pub/Repo-GGUF/Q4.gguf"
    assert output.file_name(asked._replace(model_path=path)) == "pub/Repo-GGUF/Q4.gguf.json"
    for bad in ("/q.gguf", "/models/../../q.gguf"):
        with pytest.raises(OutputError):
            output.file_name(asked._replace(model_path=bad))


@pytest.mark.parametrize("name", ["text-generation-webui", "lm-studio"])
@pytest.mark.parametrize("file", ["sha256-1234567890abcdef", "q.gguf.part", "gguf"])
def test_a_file_that_the_program_would_not_find_by_its_name(name, file):
    output, asked = fitting(name)
    with pytest.raises(OutputError, match=f"^qwen3: .* only files that end in .gguf, not '{file}'; link it"):
        output.slots([asked._replace(model_path=f"/srv/blobs/a/{file}")], None)
    assert output.slots([asked._replace(model_path="/srv/a/b/Q.GGUF")], None)


def test_localais_model_is_named_below_its_folder():
    output = load("localai")
    asked = model(path="/srv/models/sub/q.gguf")
    assert output.below("/srv/models").slots([asked], None)["parameters", "model"] == "sub/q.gguf"
    with pytest.raises(OutputError, match="link the file there"):
        output.below("/srv/mod").slots([asked], None)


def test_files_of_one_for_all_have_no_name_by_model():
    output, asked = fitting("llama-swap")
    with pytest.raises(OutputError, match="keeps all models in one file"):
        output.file_name(asked)


@pytest.mark.parametrize(("name", "text"), [("koboldcpp", '{"contextsize": 5}'),
                                            ("koboldcpp", '{"batchsize": 500}'),
                                            ("koboldcpp", '{"quantkv": "q9"}'), ("localai", "name: x\n"),
                                            ("jan", "ctx_size: 1\n"),
                                            ("env-file", "LLAMA_ARG_MMAP=1\nLLAMA_ARG_NO_MMAP=1\n")])  # fmt: skip
def test_what_the_target_would_not_take_is_not_valid(name, text):
    with pytest.raises(OutputError):
        load(name).validate(text)


def test_a_plan_for_several_cards_where_it_can_be_said():
    cards = (Named("CUDA0", "cuda"), Named("CUDA1", "cuda"))
    request = "-c 4096 -np 1 -ngl 13 -ts 1,3"
    places = {
        "llama-server-preset": ("qwen3", "tensor-split"), "env-file": ("LLAMA_ARG_TENSOR_SPLIT",),
        "localai": ("tensor_split",), "llama-cpp-python": ("models", "qwen3", "tensor_split"),
    }  # fmt: skip
    for name, slot in places.items():
        output = load(name)
        value = output.slots([model(request, engine=output.engine, cards=cards)], None)[slot]
        numbers = value if isinstance(value, list) else [float(part) for part in value.split(",")]
        assert sum(numbers) == 13
        assert numbers[1] > 2 * numbers[0]
