"""[[set]]: models that are to be resident together, and what is said about mistakes in it."""

from __future__ import annotations

import pytest

from advisor.configuration.edit import set_key, unset_key
from advisor.configuration.read import load_configuration
from advisor.configuration.types import ModelSet
from advisor.errors import ConfigError, UsageError

TARGET = '[target.swap]\nformat = "llama-swap"\npath = "~/swap/50.yaml"\n'
DAILY = '[[set]]\nname = "daily"\nmodels = ["qwen3*", "*embed*"]\n'


def load(folder, text, **drop_ins):
    (folder / "config.toml").write_text(text)
    for name, more in drop_ins.items():
        (folder / "conf.d").mkdir(exist_ok=True)
        (folder / "conf.d" / f"{name}.toml").write_text(more)
    return load_configuration(str(folder))


def test_sets_of_all_files_in_their_order(tmp_path):
    more = '[[set]]\nname = "two"\nmodels = ["a", "b"]\ntargets = ["swap"]\n[[model]]\nmatch = "a"\n'
    loaded = load(tmp_path, TARGET + DAILY, more=more)
    assert loaded.configuration.sets == (
        ModelSet("daily", ("qwen3*", "*embed*")),
        ModelSet("two", ("a", "b"), ("swap",)),
    )
    assert loaded.origins["set", 1, "targets"].line == 4
    assert loaded.configuration.models[0].match == "a"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[[set]]\nname = "a"\nmodels = ["x"]\nmodel = ["y"]\n', 4, "unknown key set[1].model; did you mean models?"),
        ('[[set]]\nname = "a"\nmodels = []\n', 3, "set[1].models is [], allowed is a list of patterns"),
        ('[[set]]\nname = "a"\nmodels = "x"\n', 3, 'set[1].models is "x", allowed is a list of patterns'),
        ('[[set]]\nname = ""\nmodels = ["x"]\n', 2, 'set[1].name is "", allowed is a name in quotes'),
        ('[[set]]\nmodels = ["x"]\n', 2, '[[set]] lacks name; add name = "daily".'),
        ('[[set]]\nname = "a"\n', 2, '[[set]] lacks models; add models = ["qwen3-14b*", "*embed*"].'),
        ("[[set]]\n", 1, "[[set]] lacks name"),
        ('[set]\nname = "a"\nmodels = ["x"]\n', 1, "set is a list of tables; write [[set]] with two brackets."),
        (DAILY + DAILY, 5, 'two [[set]] are called "daily"; rename one of them.'),
        (TARGET + DAILY + 'targets = ["swop"]\n', 7, "has the unknown target 'swop'; did you mean swap?"),
        (DAILY + 'targets = ["swap"]\n', 4, "there is no target; add one or take targets out."),
        (DAILY + "targets = []\n", 4, "set[1].targets is [], allowed is a list of names of targets"),
    ],
)
def test_a_mistake_has_its_line_and_the_cure(tmp_path, text, line, said):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert f"config.toml, line {line}: " in str(caught.value)
    assert said in str(caught.value)


def test_one_key_is_set_and_taken_out_again():
    text = set_key(TARGET, "c.toml", "set.daily.models", '["qwen3*", "*embed*"]')
    assert text == f"{TARGET}\n{DAILY}"
    longer = set_key(text, "c.toml", "set.daily.targets", "swap")
    assert longer == f'{text}targets = ["swap"]\n'
    assert unset_key(longer, "c.toml", "set.daily.targets") == f'{text}# targets = ["swap"]\n'
    with pytest.raises(UsageError, match=r"write set\.NAME\.KEY"):
        set_key(TARGET, "c.toml", "set.models", "x")
