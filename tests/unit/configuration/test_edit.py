"""Setting and unsetting keys: everything else in the file stays as it is, byte by byte."""

from __future__ import annotations

import difflib

import pytest
import tomli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.configuration.edit import set_key, unset_key
from advisor.configuration.init_text import init_text
from advisor.configuration.schema import TABLES, TOP
from advisor.errors import AdvisorError, ConfigError, UsageError

FILE = "config.toml"
TEXT = """\
# mine
folders = [   # where they are
  "/srv/models",  # the large disk
]

[daemon]   # nights
# quiet_hours = "22:00-07:00"
rescan_s = 60     # often

# the router
[target.router]
format = "llama-swap"
path = '/x'
[[model]]
match = "a*"
[[model]]
match = "b*" # second
pins = { ctx-size = 1, flash-attn = "on" }
"""


def changed_lines(before: str, after: str) -> list[str]:
    return [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]


@pytest.mark.parametrize(
    ("key", "value", "lines"),
    [
        ("daemon.quiet_hours", "21:00-06:00", ['+ quiet_hours = "21:00-06:00"']),
        ("daemon.debounce_s", "2", ["+ debounce_s = 2"]),
        ("daemon.rescan_s", "90", ["- rescan_s = 60     # often", "+ rescan_s = 90     # often"]),
        ("target.router.path", "/y z", ["- path = '/x'", '+ path = "/y z"']),
        ("target.router.enabled", "true", ["+ enabled = true"]),
        ("target.router.models", "qwen*", ['+ models = ["qwen*"]']),
        ("target.router.models", '["a", "b"]', ['+ models = ["a", "b"]']),
        ("target.two.format", "jan", ["+ ", "+ [target.two]", '+ format = "jan"']),
        ("engine.llama.cpp.build", "11434", ["+ ", '+ [engine."llama.cpp"]', "+ build = 11434"]),
        ('engine."llama.cpp".build', "11434", ["+ ", '+ [engine."llama.cpp"]', "+ build = 11434"]),
        ("model.b*.intent", "speed", ['+ intent = "speed"']),
        ("model.c.d*.min_ctx", "512", ["+ ", "+ [[model]]", '+ match = "c.d*"', "+ min_ctx = 512"]),
        (
            "model.a*.pins",
            '{ ctx-size = 5, cache-type-k = "q8_0" }',
            ['+ pins = {ctx-size = 5, cache-type-k = "q8_0"}'],
        ),
        ("budget.keep_free", "2GiB", ["+ ", "+ [budget]", '+ keep_free = "2GiB"']),
        ("daemon.rescan_s", "60", []),
    ],
)
def test_only_the_key_is_changed(key, value, lines):
    after = set_key(TEXT, FILE, key, value)
    assert changed_lines(TEXT, after) == lines
    assert set_key(after, FILE, key, value) == after


def test_a_list_of_many_lines_is_replaced_as_a_whole():
    after = set_key(TEXT, FILE, "folders", "/a")
    assert tomli.loads(after)["folders"] == ["/a"]
    assert after.startswith("# mine\nfolders = [")
    assert after.endswith(TEXT.partition("]\n")[2])


VALUES = [  # the table's lines, key, what it was, VALUE, what is written
    ("[daemon]", "daemon.rescan_s", "60", "90", "90"),
    ("[daemon]", "daemon.rescan_s", "60.5", "90", "90"),
    ("[daemon]", "daemon.quiet_hours", "'1:00-2:00'", "3:00-4:00", '"3:00-4:00"'),
    ("[daemon]", "daemon.quiet_hours", '"""1:00-2:00"""', "3:00-4:00", '"3:00-4:00"'),
    ("[stores]", "stores.jan", "true", "false", "false"),
    ("# mine", "folders", '["/a"]', "/b", '["/b"]'),
    ("# mine", "folders", '[\n"/a",\n]', "/b", '["/b"]'),
    ("[[model]]\nmatch = 'a'", "model.a.pins", "{ ctx-size = 512 }", "{ ctx-size = 1024 }", "{ctx-size = 1024}"),
    ("[[model]]\nmatch = 'a'", "model.a.pins", "{ ctx-size = 512 }", "{}", "{}"),
]


@pytest.mark.parametrize(("table", "key", "old", "value", "written"), VALUES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n# next\n\n[budget]\n"])
def test_the_comment_after_a_value_stays_and_so_do_the_line_ends(table, key, old, value, written, newline, end):
    name = key.rpartition(".")[2]
    before, after, unset = (
        f"{table}\n{line}   # why{end}".replace("\n", newline)
        for line in (f"{name} = {old}", f"{name} = {written}", f"# {name} = {written}")
    )
    assert set_key(before, FILE, key, value) == after
    assert unset_key(after, FILE, key) == unset


def test_pins_in_a_table_of_their_own_keep_it_and_its_comments():
    text = "[[model]]\nmatch = 'a'\n[model.pins] # h\nctx-size = 1 # c\nthreads = 4 # t\n# z\n[daemon] # d\n"
    after = set_key(text, FILE, "model.a.pins", "{ ctx-size = 2, threads = 4 }")
    assert after == text.replace("ctx-size = 1", "ctx-size = 2")
    after = set_key(text, FILE, "model.a.pins", "{ threads = 4, batch-size = 512 }")
    assert changed_lines(text, after) == ["- ctx-size = 1 # c", "+ batch-size = 512"]
    unset = unset_key(text, FILE, "model.a.pins")
    assert unset is not None
    assert [line for line in unset.splitlines() if line not in text.splitlines()] == [
        "# [model.pins] # h", "# ctx-size = 1 # c", "# threads = 4 # t",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "# mine\n", "[daemon]", "[daemon]\nrescan_s = 60 # often", "[daemon]\n\n[budget]\nkeep_free = '1G'\n",
             "[[model]]\nmatch = 'x'\n\n", "daemon = { rescan_s = 60 }\ntarget.n.mode = 'safe'\n# end\n"]
)  # fmt: skip
def test_line_ends_do_not_matter_and_stay(text):
    """With CRLF everything comes out as with LF, but for the line ends; the last line gets its own."""
    pairs = {"daemon.debounce_s": "2", "target.n.format": "jan", "target.n.path": "~/a", "model.a.min_ctx": "9999"}

    def edited(after):
        for key, value in pairs.items():
            after = set_key(after, FILE, key, value)
        return after

    unix, dos = edited(text), edited(text.replace("\n", "\r\n"))
    assert unix.endswith("\n")
    assert "\n\n\n" not in unix
    if "\n" in text:
        assert dos == unix.replace("\n", "\r\n")
    back, again = (unset_key(each, FILE, "target.n.path") for each in (unix, dos))
    assert back is not None
    assert again is not None
    assert again.replace("\r\n", "\n") == back != unix


def test_the_new_line_stands_below_its_comment_and_in_its_table():
    lines = set_key(TEXT, FILE, "daemon.quiet_hours", "21:00-06:00").splitlines()
    at = lines.index('# quiet_hours = "22:00-07:00"')
    assert lines[at + 1 : at + 3] == ['quiet_hours = "21:00-06:00"', "rescan_s = 60     # often"]
    lines = set_key(TEXT, FILE, "model.a*.exclude", "true").splitlines()
    assert lines[lines.index('match = "a*"') + 1] == "exclude = true"


def test_the_last_of_several_rules_for_the_same_models_is_meant():
    text = '[[model]]\nmatch = "a"\nmin_ctx = 300\n[[model]]\nmatch = "a"\n'
    after = set_key(text, FILE, "model.a.min_ctx", "400")
    assert [rule.get("min_ctx") for rule in tomli.loads(after)["model"]] == [300, 400]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("", "daemon.rescan_s", "30"),
        ("# nothing", "folders", "/a"),
        ("[daemon]", "daemon.rescan_s", "30"),
        ("[daemon]\r\n# mine\r\n", "daemon.rescan_s", "30"),
        ("daemon = { rescan_s = 60 }\n", "daemon.rescan_s", "30"),
        ("daemon = { rescan_s = 60 } # one line\n", "daemon.debounce_s", "3"),
        ("daemon.rescan_s = 60\n# end\n", "daemon.debounce_s", "3"),
        ("model = [{ match = 'x' }]\n", "model.x.min_ctx", "300"),
        ("[target]\n[target.a]\nformat = 'f'\n", "target.a.path", "/x"),
        ("[[model]]\nmatch = 'x'\n\n[daemon]\n", "model.x.min_ctx", "300"),
        ("[target.a]\nformat = '''\n[daemon]\n'''\n", "target.a.path", "/x"),
    ],
)
def test_any_way_of_writing(text, key, value):
    after = set_key(text, FILE, key, value)
    document = tomli.loads(after)
    *places, last = key.split(".")
    for place in places:
        document = document[place] if not isinstance(document, list) else document[0]
    if isinstance(document, list):
        (document,) = document
    assert str(document[last]).strip("[]'") == value
    comments = [line for line in text.splitlines() if line.strip().startswith("#")]
    assert [line for line in after.splitlines() if line.strip().startswith("#")] == comments
    assert after.count("\r\n") == after.count("\n") or "\r" not in text
    if "\r" in text:
        assert after.count("\r\n") == 3


def test_unset_makes_it_a_comment():
    after = unset_key(TEXT, FILE, "daemon.rescan_s")
    assert after is not None
    assert changed_lines(TEXT, after) == ["- rescan_s = 60     # often", "+ # rescan_s = 60     # often"]
    assert set_key(after, FILE, "daemon.rescan_s", "60").splitlines().count("rescan_s = 60") == 1
    after = unset_key(TEXT, FILE, "folders")
    assert after is not None
    assert after.startswith('# mine\n# folders = [   # where they are\n#   "/srv/models",  # the large disk\n# ]\n\n')
    for key in ("daemon.quiet_hours", "target.other.mode", "model.z.intent", "engine.ollama.url"):
        assert unset_key(TEXT, FILE, key) is None


def test_unset_in_a_line_with_others_is_refused():
    with pytest.raises(ConfigError, match="change it by hand"):
        unset_key("daemon = { rescan_s = 60, debounce_s = 3 }\n", FILE, "daemon.rescan_s")


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("daemon.quiet_hour", "'daemon.quiet_hour' is no key; did you mean quiet_hours?"),
        ("folder", "'folder' is no key; did you mean folders?"),
        ("deamon.rescan_s", "it begins with one of stores, engine, target"),
        ("daemon", "'daemon' is no key"),
        ("daemon.", "'daemon.' is no key; known here: quiet_hours, rescan_s, debounce_s."),
        ("target.path", "write target.NAME.KEY"),
        ("model.intent", "write model.PATTERN.KEY"),
        ("target.x.paht", "did you mean path?"),
        ("", "'' is no key"),
    ],
)
def test_a_key_that_is_none(key, sentence):
    with pytest.raises(UsageError) as caught:
        set_key(TEXT, FILE, key, "1")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("daemon.rescan_s", "often", "rescan_s cannot be 'often': allowed is a number of seconds"),
        ("daemon.rescan_s", "5", "allowed is a number of seconds from 10"),
        ("daemon.quiet_hours", "1\nfolders = []", "allowed is FROM-TO"),
        ("target.a.enabled", "yes", "allowed is true or false"),
        ("target.a.path", "models.ini", "allowed is an absolute path"),
        ("model.a.pins", "{ ctx_size = 3 }", "did you mean ctx-size"),
        ("model.a.pins", "ctx-size=3", "llama.cpp's options without dashes"),
        ("folders", "x", "a list of absolute paths"),
    ],
)
def test_a_value_that_is_not_allowed(key, value, sentence):
    with pytest.raises(UsageError) as caught:
        set_key(TEXT, FILE, key, value)
    assert sentence in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_broken_file_is_not_touched():
    with pytest.raises(ConfigError, match="line 2: not valid TOML"):
        set_key("a = 1\nb = = 2\n", FILE, "folders", "/a")


KEYS = [(TOP.keys[0].name, TOP.keys[0])]
KEYS += [
    (f"{table.name}.{ {'one': '', 'named': 'ollama.', 'list': 'some*.'}[table.kind] }{key.name}", key)
    for table in TABLES
    for key in table.keys
    if key.name != table.by  # what tells the entries of a list apart is part of the KEY
]


def test_every_key_can_be_set_in_the_documented_file_and_taken_back():
    for name, key in KEYS:
        text = init_text()
        after = set_key(text, FILE, name, key.example)
        assert [line for line in changed_lines(text, after) if line[0] == "-"] == []
        back = unset_key(after, FILE, name)
        assert back is not None
        assert key.name not in str(tomli.loads(back).get(name.partition(".")[0], {}))


comment = st.sampled_from(["# x", "#", "", "   # indented", "# [daemon]", "# rescan_s = 1"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(KEYS), max_size=8),
    st.lists(st.tuples(st.integers(0, 60), comment), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
)
def test_no_comment_is_ever_lost(keys, comments, newline):
    text = ""
    for name, key in keys:
        text = set_key(text, FILE, name, key.example)
    lines = text.split("\n")
    for at, line in comments:
        lines.insert(at % (len(lines) + 1), line)
    text = newline.join(lines)
    for name, key in keys[:3]:
        try:
            after = unset_key(text, FILE, name)
        except AdvisorError:
            continue
        assert after is not None or name in [n for n, _ in keys]
        for each in (after or text, set_key(after or text, FILE, name, key.example)):
            rest = iter(each.split(newline))
            assert all(any(line in (found, found[2:]) for found in rest) for line in text.split(newline))
        text = after or text
