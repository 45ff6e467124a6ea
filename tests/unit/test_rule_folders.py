from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from advisor import rule_folders
from advisor.errors import RuleError, UsageError
from advisor.rule_folders import MAX_FILE_BYTES, RuleFolders, shipped_folder, systemd_folder, user_folder

ROOT = Path(__file__).resolve().parents[2]


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def places(tmp_path):
    """Folders for the four layers: shipped, system, user, given."""
    names = ("shipped", "system", "user", "given")
    for name in names:
        (tmp_path / name).mkdir()
    return {name: tmp_path / name for name in names}


def rules(places, *, given: bool = True) -> RuleFolders:
    return RuleFolders(
        str(places["given"]) if given else None,
        shipped=str(places["shipped"]), system=str(places["system"]), user=str(places["user"]),
    )  # fmt: skip


# ---------------------------------------------------------------- layers


def test_every_folder_overrides_the_one_before(places):
    write(places["shipped"], "policy.toml", "a = 1\nb = 1\nc = 1\nd = 1\n")
    write(places["system"], "policy.toml", "b = 2\nc = 2\nd = 2\n")
    write(places["user"], "policy.toml", "c = 3\nd = 3\n")
    write(places["given"], "policy.toml", "d = 4\n")
    document = rules(places).document("policy.toml")
    assert document is not None
    assert document.data == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert document.files == tuple(str(folder / "policy.toml") for folder in places.values())
    assert document.origins == {
        key: str(places[name] / "policy.toml")
        for key, name in zip("abcd", ("shipped", "system", "user", "given"), strict=True)
    }


def test_a_document_may_live_in_any_layer_or_nowhere(places):
    write(places["user"], "arch/mine.toml", "a = 1\n")
    folders = rules(places)
    assert folders.document("arch/mine.toml").files == (str(places["user"] / "arch/mine.toml"),)
    assert folders.document("arch/none.toml") is None
    assert folders.document("none/at/all.toml") is None


def test_a_document_is_read_once(places):
    path = write(places["shipped"], "policy.toml", "a = 1\n")
    folders = rules(places)
    first = folders.document("policy.toml")
    path.write_text("a = 2\n")
    assert folders.document("policy.toml") is first


def test_names_are_the_union_of_all_layers(places):
    write(places["shipped"], "arch/llama.toml", "")
    write(places["user"], "arch/llama.toml", "")
    write(places["given"], "arch/zeta.toml", "")
    write(places["given"], "arch/notes.txt", "")
    write(places["given"], "arch/.llama.toml.swp", "")
    write(places["given"], "arch/.hidden.toml", "")
    write(places["given"], "gpus.toml", "")
    assert rules(places).names("arch") == ["arch/llama.toml", "arch/zeta.toml"]
    assert rules(places).names("") == ["gpus.toml"]
    assert rules(places).names("engines") == []


def test_the_real_places_in_order(home, tmp_path):
    expected = (shipped_folder(), "/etc/advisor/rules", str(home / ".config/advisor/rules"), str(tmp_path))
    assert RuleFolders(str(tmp_path)).folders == expected
    assert RuleFolders().folders == expected[:3]


def test_this_checkout_ships_rules_and_units():
    assert shipped_folder() == str(ROOT / "rules")
    assert systemd_folder() == str(ROOT / "systemd")
    assert Path(systemd_folder(), "README.md").is_file()


def test_an_installation_without_rules_says_so(tmp_path):
    (tmp_path / "rules").mkdir()  # of another package: no pyproject.toml of ours beside it
    with pytest.raises(RuleError, match="rules folder of this installation is missing; install gguf-advisor again"):
        rule_folders._shipped("rules", str(tmp_path / "advisor"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="platformdirs decides elsewhere")
@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/c/advisor/rules"),
        ({"HOME": "/h"}, "/h/.config/advisor/rules"),
        ({"XDG_CONFIG_HOME": "", "HOME": "/h"}, "/h/.config/advisor/rules"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, "/h/.config/advisor/rules"),
    ],
)
def test_user_folder_follows_the_xdg_rules(environ, folder):
    assert user_folder(environ) == folder


def test_given_must_be_a_folder(tmp_path):
    missing = tmp_path / "nowhere"
    with pytest.raises(UsageError) as error:
        RuleFolders(str(missing))
    assert str(error.value) == f"{missing}: not a folder; --rules takes a folder laid out as advisor's rules/."


# ---------------------------------------------------------------- digest


def test_digest_depends_on_names_and_bytes_but_not_on_places(places, tmp_path):
    write(places["shipped"], "a.toml", "x = 1\n")
    write(places["shipped"], "b.toml", "y = 1\n")
    folders = rules(places)
    nothing = folders.digest()
    folders.document("b.toml")
    one = folders.digest()
    folders.document("a.toml")
    folders.document("missing.toml")
    both = folders.digest()
    assert len({nothing, one, both}) == 3
    assert both.startswith("sha256:")
    assert len(both) == len("sha256:") + 64

    elsewhere = tmp_path / "elsewhere"
    places["shipped"].rename(elsewhere)
    same = rules({**places, "shipped": elsewhere})
    same.document("a.toml")
    same.document("b.toml")
    assert same.digest() == both

    write(places["user"], "a.toml", "# nothing is changed, but another file is read\n")
    other = rules({**places, "shipped": elsewhere})
    other.document("a.toml")
    other.document("b.toml")
    assert other.digest() != both


# ---------------------------------------------------------------- files that are refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = 1\nb = = 2\n", ", line 2: not valid TOML ("),
        ("a = 1\na = 2\n", ", line 2: not valid TOML ("),
        ("a = [1,\n2,\n", ", line 2: not valid TOML ("),
        ("a = ", ", line 1: not valid TOML ("),
        (b"a = 1\nb = '\xff'\n", ", line 2: not UTF-8 text; save the file as UTF-8."),
        ("a = " + "[" * 5000, ": no rule file looks like this"),
        ("a = " + "9" * 5000, ": no rule file looks like this"),
        ("#" * (MAX_FILE_BYTES + 1), ": larger than 512 KiB"),
    ],
)
def test_broken_files_are_named_with_line_and_cure(places, content, message):
    path = write(places["user"], "policy.toml", content)
    with pytest.raises(RuleError) as error:
        rules(places).document("policy.toml")
    assert str(error.value).startswith(f"{path}{message}")
    assert "\n" not in str(error.value)


def test_a_file_of_exactly_the_limit_is_read(places):
    write(places["user"], "policy.toml", "a = 1\n".ljust(MAX_FILE_BYTES, "#"))
    assert rules(places).document("policy.toml").data == {"a": 1}


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_only_regular_files_are_read_and_a_fifo_does_not_hang(places, kind):
    path = places["user"] / "policy.toml"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(RuleError, match="not a regular file"):
        rules(places).document("policy.toml")


def test_an_unreadable_file_is_an_error_not_a_missing_one(places):
    path = places["user"] / "policy.toml"
    path.symlink_to(path)
    with pytest.raises(RuleError, match="cannot be read"):
        rules(places).document("policy.toml")


@pytest.mark.parametrize(
    "name",
    [
        "../x.toml",
        "arch/../../x.toml",
        "/etc/passwd",
        "arch//x.toml",
        "",
        ".",
        "arch/.x.toml",
        "a\0b",
        "a\nb",
        "ä.toml",
    ],
)
def test_names_cannot_lead_out_of_the_folder(places, name):
    with pytest.raises(RuleError, match="not a rule name"):
        rules(places).document(name)


def test_names_of_a_folder_cannot_lead_out_either(places):
    with pytest.raises(RuleError, match="not a rule name"):
        rules(places).names("../user")


@pytest.mark.parametrize(("layer", "refused"), [("system", True), ("user", True), ("shipped", False), ("given", False)])
def test_a_file_of_another_user_that_everyone_may_write_is_not_trusted(places, monkeypatch, layer, refused):
    path = write(places[layer], "policy.toml", "a = 1\n")
    path.chmod(0o666)
    assert rules(places).document("policy.toml").data == {"a": 1}  # our own file is ours to judge
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    if refused:
        with pytest.raises(RuleError) as error:
            rules(places).document("policy.toml")
        assert str(error.value).endswith(f"so it is not trusted; take it over or run: chmod o-w {path}")
    else:
        assert rules(places).document("policy.toml") is not None
    path.chmod(0o644)
    assert rules(places).document("policy.toml").data == {"a": 1}


# ---------------------------------------------------------------- cost


def test_constructing_and_reading_three_small_files_costs_under_two_milliseconds(places):
    for name in ("arch/llama.toml", "policy.toml", "engines/llama_cpp.toml"):
        write(places["shipped"], name, 'schema_version = 1\nsource = "spec"\n[table]\nkey = 1\nother = "text"\n')

    def seconds() -> float:
        start = time.process_time()
        folders = rules(places)
        for name in ("arch/llama.toml", "policy.toml", "engines/llama_cpp.toml"):
            assert folders.document(name).data["table"]["key"] == 1
        return time.process_time() - start

    assert min(seconds() for _ in range(5)) < 0.002
