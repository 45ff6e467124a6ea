"""Reading the configuration: what is in force, who set it, and what is said about mistakes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor.configuration.check import Known
from advisor.configuration.read import Origin, config_folder, load_configuration
from advisor.configuration.types import STORES, Budget, Configuration, Daemon, Defaults, Engine, QuietHours, Target
from advisor.errors import ConfigError
from advisor.settings import ALL_LAYERS, RequestedSettings

KNOWN = Known(formats=("llama-server-preset", "llama-swap"), intents=("balanced", "context", "parallel"))
FULL = """
folders = ["/srv/models", "~/gguf"]
[stores]
jan = false
[engine."llama.cpp"]
binary = "/opt/llama/llama-server"
build = 11434
url = "http://127.0.0.1:8080/"
[engine.ollama]
url = "https://gpu.example.org:11434"
allow_remote = true
[target.router]
format = "llama-server-preset"
path = "~/models.ini"
enabled = true
mode = "safe"
models = ["qwen*", "/srv/*"]
reload = false
[defaults]
intent = "context"
min_ctx = 8192
[[model]]
match = "qwen3*"
intent = "parallel:4"
pins = { ctx-size = 32768, cache-type-k = "q8_0", n-gpu-layers = "all" }
[[model]]
match = "*-old*"
exclude = true
[budget]
keep_free = "1GiB"
keep_free_ram = "500MB"
[daemon]
quiet_hours = "22:30-7:00"
rescan_s = 60
"""


def load(folder: Path, text: str | None = None, **drop_ins: str):
    if text is not None:
        (folder / "config.toml").write_text(text)
    for name, content in drop_ins.items():
        (folder / "conf.d").mkdir(exist_ok=True)
        (folder / "conf.d" / f"{name}.toml").write_text(content)
    return load_configuration(str(folder), KNOWN)


def complaint(folder: Path, text: str, **drop_ins: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **drop_ins)
    return str(caught.value)


def test_where_it_is():
    assert config_folder({"XDG_CONFIG_HOME": "/c"}) == "/c/advisor"
    assert config_folder({"HOME": "/home/x"}) == "/home/x/.config/advisor"
    assert config_folder({"HOME": "/home/x", "XDG_CONFIG_HOME": "relative"}) == "/home/x/.config/advisor"


def test_without_a_file_everything_has_its_default(tmp_path):
    loaded = load_configuration(str(tmp_path / "nowhere"))
    assert loaded.files == ()
    assert loaded.configuration == Configuration()
    assert loaded.configuration.stores == dict.fromkeys(STORES, True)
    assert loaded.configuration.targets == ()
    assert loaded.configuration.engine("ollama") == Engine("ollama")


def test_everything_is_read(tmp_path, home):
    configuration = load(tmp_path, FULL).configuration
    assert configuration.folders == ("/srv/models", f"{home}/gguf")
    assert configuration.stores == {**dict.fromkeys(STORES, True), "jan": False}
    assert configuration.engine("llama.cpp") == Engine(
        "llama.cpp", "/opt/llama/llama-server", 11434, "http://127.0.0.1:8080", False
    )
    assert configuration.engine("ollama").url == "https://gpu.example.org:11434"
    assert configuration.targets == (
        Target("router", "llama-server-preset", f"{home}/models.ini", None, True, "safe", ("qwen*", "/srv/*"), False),
    )
    assert configuration.defaults == Defaults("context", 8192, None, None)
    assert configuration.budget == Budget(1 << 30, 500_000_000)
    assert configuration.daemon == Daemon(QuietHours(22 * 60 + 30, 7 * 60), 60.0, Daemon().debounce_s)
    pinned = RequestedSettings(n_ctx=32768, cache_type_k="q8_0", n_gpu_layers=ALL_LAYERS)
    assert configuration.models[0].pins == pinned


def test_a_target_is_off_until_it_is_enabled(tmp_path):
    text = '[target.a]\nformat = "llama-swap"\npath = "/x"\n'
    assert load(tmp_path, text).configuration.targets[0].enabled is False


def test_later_files_win_key_by_key_and_rules_for_models_add_up(tmp_path):
    loaded = load(
        tmp_path,
        '[defaults]\nintent = "context"\nmin_ctx = 8192\n[[model]]\nmatch = "a"\nmin_ctx = 512\n',
        b='[defaults]\nmin_ctx = 1024\n[[model]]\nmatch = "*"\nexclude = true\n',
        a="[defaults]\nmin_ctx = 2048\nmax_ctx = 4096\n",
    )
    assert [os.path.basename(file) for file in loaded.files] == ["config.toml", "a.toml", "b.toml"]
    assert loaded.configuration.defaults == Defaults("context", 1024, 4096, None)
    assert [rule.match for rule in loaded.configuration.models] == ["a", "*"]
    drop_in = str(tmp_path / "conf.d" / "b.toml")
    assert loaded.origins["defaults", "min_ctx"] == Origin(drop_in, 2)
    assert loaded.origins["model", 1, "exclude"] == Origin(drop_in, 5)
    assert loaded.origins["model", 0, "min_ctx"] == Origin(str(tmp_path / "config.toml"), 6)


def test_only_toml_files_that_are_not_hidden_count(tmp_path):
    (tmp_path / "conf.d").mkdir()
    for name in (".hidden.toml", "notes.txt", "old.toml.bak"):
        (tmp_path / "conf.d" / name).write_text("this is no TOML")
    assert load(tmp_path).files == ()


@pytest.mark.parametrize(
    ("names", "min_ctx", "pinned_ctx", "exclude"),
    [
        (["llama3", "/srv/llama3.gguf"], 8192, None, False),
        (["Qwen3-8B", "/srv/x.gguf"], 4096, 1, False),
        (["hf", "/hub/QWEN3-8b.gguf"], 4096, 1, False),
        (["qwen3-8b", "/srv/old/qwen3-8b.gguf"], 4096, 2, True),
        (["qwen3-8b-keep", "/srv/old/x.gguf"], 4096, 2, False),
    ],
)
def test_what_is_wished_for_a_model(names, min_ctx, pinned_ctx, exclude, tmp_path):
    configuration = load(
        tmp_path,
        """
        [defaults]
        min_ctx = 8192
        [[model]]
        match = "qwen3*"
        min_ctx = 4096
        pins = { ctx-size = 1, flash-attn = true }
        [[model]]
        match = "/srv/old/*"
        exclude = true
        pins = { ctx-size = 2 }
        [[model]]
        match = "*-keep"
        exclude = false
        """,
    ).configuration
    choice = configuration.choice(names)
    assert (choice.min_ctx, choice.pinned.n_ctx, choice.exclude) == (min_ctx, pinned_ctx, exclude)
    assert choice.pinned.flash_attn == ("on" if pinned_ctx else None)
    assert choice.intent == "balanced"


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [("22:00-07:00", (22 * 60, 1439, 0, 419), (420, 1319)), ("01:00-02:30", (60, 149), (0, 59, 150, 1439))],
)
def test_quiet_hours(hours, inside, outside, tmp_path):
    quiet = load(tmp_path, f'[daemon]\nquiet_hours = "{hours}"\n').configuration.daemon.quiet_hours
    assert quiet is not None
    assert all(quiet.at(minute) for minute in inside)
    assert not any(quiet.at(minute) for minute in outside)


T = '[target.x]\nformat = "llama-swap"\npath = "/x"\n'


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("folder = []", 1, "unknown key folder; did you mean folders?"),
        ("zzz = 1", 1, "unknown key zzz; known here: folders, stores, engine"),
        ("folders = '/srv'", 1, 'folders is "/srv", allowed is a list of absolute paths, such as ["/srv/models"].'),
        ("\nfolders = [\n  'models',\n]", 2, 'folders is ["models"], allowed is a list of absolute paths'),
        ("folders = [3, 4, 5, 6]", 1, "folders is [3, 4, 5, ...]"),
        ("stores = 3", 1, "stores is a table; write [stores] and its keys below."),
        ("[stores]\nolama = true", 2, "unknown key stores.olama; did you mean ollama?"),
        ("[stores]\nollama = 'yes'", 2, 'stores.ollama is "yes", allowed is true or false.'),
        ("[stores]\nollama = 1", 2, "stores.ollama is 1, allowed is true or false."),
        ("[engine.olama]\n", 1, "unknown engine 'olama'; did you mean ollama?"),
        ("[engine.llama.cpp]\nbuild = 3", 1, 'a name with a dot needs quotes; write [engine."llama.cpp"].'),
        ('[engine."llama.cpp"]\nbuild = 0', 2, 'engine."llama.cpp".build is 0, allowed is a whole number from 1'),
        ("[engine.ollama]\nurl = 'localhost:80'", 2, 'allowed is an address in quotes'),
        ("[engine.ollama]\nurl = 'http://a:b@localhost'", 2,
         "engine.ollama.url is wrong: it holds a user's name or a password; leave away"),
        ("[engine.ollama]\nurl = 'http://[::1'", 2, 'allowed is an address in quotes'),
        ("[engine.ollama]\nurl = 'http://localhost:99999'", 2, 'allowed is an address in quotes'),
        ("[engine.ollama]\nurl = 'ftp://localhost'", 2, 'allowed is an address in quotes'),
        ("[engine.ollama]\nbuild = 3\nurl = 'http://10.0.0.1'", 3, "[engine.ollama] has an url to another machine; "
         "if that is meant, add allow_remote = true."),
        ("[engine.ollama]\nurl = 'http://localhost.evil.org'", 2, "an url to another machine"),
        ("[target]\nformat = 'x'", 2,
         "target.format stands in [target] itself, which needs a name of your choice; write [target.NAME]"),
        ("[target.x]\nformat = 'llama-swap'", 2,
         '[target.x] lacks path; add path = "~/.config/llama-server/models.ini"'),
        ("[target.x]\n", 1, "[target.x] lacks format"),
        (T + "mode = 'fast'", 4, 'target.x.mode is "fast", allowed is "exact" or "safe".'),
        (T + "mode = ['exact']", 4, 'target.x.mode is ["exact"], allowed is "exact" or "safe".'),
        (T + "enabled = 1", 4, "target.x.enabled is 1, allowed is true or false."),
        ("[target.x]\nformat = 'llama-swop'", 2,
         'target.x.format is "llama-swop", which is unknown; did you mean llama-swap?'),
        ("[target.x]\npath = 'models.ini'", 2, 'allowed is an absolute path in quotes'),
        ("[target.x]\npath = '/a\\u0000'\n[target.y]\npath = \"/a\\u0000b\"", 4,
         'allowed is an absolute path in quotes'),
        ("[defaults]\nintent = 'ballanced'", 2, 'is "ballanced", which is unknown; did you mean balanced?'),
        ("[defaults]\nintent = 'parallel:0'", 2, 'allowed is an intent in quotes'),
        ("[defaults]\nmin_ctx = 1.5", 2, "defaults.min_ctx is 1.5, allowed is a whole number of tokens from 256"),
        ("[defaults]\nmin_ctx = 512\nmax_ctx = 256", 2, "min_ctx 512 is above max_ctx 256; make it smaller."),
        ("[defaults]\nmin_tps = nan", 2, "defaults.min_tps is nan, allowed is a number from 0"),
        ("model = 3", 1, "model is a list of tables; write [[model]] with two brackets."),
        ("[model]\nmatch = 'x'", 1, "write [[model]] with two brackets."),
        ("[[model]]\nmatch = 'a'\n[[model]]\nmatch = ''", 4, 'model[2].match is ""'),
        ("[[model]]\nmatch = 'a'\n[[model]]\nexclude = true", 4, "[[model]] lacks match"),
        ("[[model]]\nmatch = 'a'\npins = { ctx_size = 1 }", 3,
         "model[1].pins is wrong: llama.cpp's option 'ctx_size' is not known here; did you mean ctx-size."),
        ("[[model]]\nmatch = 'a'\n[model.pins]\ncache-type-k = 'q9'", 3,
         "cache-type-k 'q9' is no cache type; choose one of"),
        ("[[model]]\nmatch = 'a'\npins = { ctx-size = 1, c = 2 }", 3, "c contradicts another pin."),
        ("[[model]]\nmatch = 'a'\npins = { swa-full = false }", 3, "write swa-full = true or leave it away."),
        ("[[model]]\nmatch = 'a'\npins = { ctx-size = [1] }", 3, "ctx-size is one value"),
        ("[[model]]\nmatch = 'a'\npins = { model = '/x.gguf' }", 3, "model is no setting: a pin holds for the models"),
        ("[engine]\nurl = 'http://h'", 2, "one of the names llama.cpp, ollama, "),
        ("[engine]\nurl = 'http://h'", 2, 'write [engine.NAME], such as [engine."llama.cpp"].'),
        ("[[model]]\nmatch = 'a'\npins = 3", 3, "it is a table, such as { ctx-size = 32768 }."),
        ("[budget]\nkeep_free = 1", 2, 'budget.keep_free is 1, allowed is a size in quotes, such as "1GiB".'),
        ("[budget]\nkeep_free = '3'", 2, 'budget.keep_free is "3", allowed is a size in quotes'),
        ("[daemon]\nquiet_hours = '22-7'", 2, 'allowed is FROM-TO in quotes, such as "22:00-07:00".'),
        ("[daemon]\nquiet_hours = '24:00-07:00'", 2, "allowed is FROM-TO"),
        ("[daemon]\nquiet_hours = '07:00-07:00'", 2, "allowed is FROM-TO"),
        ("[daemon]\nrescan_s = inf", 2, "daemon.rescan_s is inf, allowed is a number of seconds from 10 to 86400."),
        ("[daemon]\nrescan_s = 2026-01-01", 2, "daemon.rescan_s is 2026-01-01, allowed is"),
        ("[daemon]\n'esc\\u001b' = 1\n\"a\\u001bb\" = 1", 2, "unknown key"),
        ("daemon.quiet = 1", 1, "unknown key daemon.quiet; did you mean quiet_hours?"),
        ("\n\na = = 3", 3, "not valid TOML"),
        ("a = [", 1, "not valid TOML"),
        ("a = 1\na = 2", 2, "not valid TOML"),
        ("a = " + "[" * 10_000, None, "no configuration looks like this"),
        ("a = 1" + "0" * 10_000, None, "no configuration looks like this"),
    ],
)  # fmt: skip
def test_a_mistake_is_said_with_its_line_and_the_cure(text, line, sentence, tmp_path):
    said = complaint(tmp_path, text)
    place = f"{tmp_path}/config.toml" + (f", line {line}" if line else "")
    assert said.startswith(f"{place}: ")
    assert sentence in said
    assert said.endswith((".", "?"))
    assert said.isprintable()


def test_a_mistake_in_a_drop_in_names_that_file(tmp_path):
    said = complaint(tmp_path, "", a="[daemon]\nquiet_hours = 3\n")
    assert said.startswith(f"{tmp_path}/conf.d/a.toml, line 2: daemon.quiet_hours is 3")
    (tmp_path / "conf.d" / "a.toml").write_text('[engine.ollama]\nurl = "http://10.0.0.1"\n')
    assert complaint(tmp_path, "[engine.ollama]\nbuild = 3\n").startswith(f"{tmp_path}/conf.d/a.toml, line 2: [engine")


def test_files_that_are_none(tmp_path):
    file = tmp_path / "config.toml"
    file.write_bytes(b"folders = []\n# \xff\n")
    with pytest.raises(ConfigError, match=r"config\.toml, line 2: not UTF-8 text"):
        load(tmp_path)
    file.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="larger than 256 KiB"):
        load(tmp_path)
    file.unlink()
    file.symlink_to("config.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="not a regular file"):
        load(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml: "):
        load(tmp_path)


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    (tmp_path / "config.toml").write_bytes(b"\xef\xbb\xbffolders = ['/a']\r\n")
    assert load(tmp_path).configuration.folders == ("/a",)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9:1", "[::1]:8080"])
def test_loopback(host, tmp_path):
    assert load(tmp_path, f'[engine.ollama]\nurl = "http://{host}/"\n').configuration.engine("ollama").url
