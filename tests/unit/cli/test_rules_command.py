"""`advisor rules show` and `advisor rules check`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.app import App
from advisor.cli.main import main
from advisor.cli.rules import check_rules, flatten
from advisor.rulebook import merge_documents

SHIPPED = Path(__file__).resolve().parents[3] / "rules"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `advisor rules …`; its exit status, stdout and stderr."""

    def call(*arguments: str | os.PathLike[str]) -> tuple[int, str, str]:
        status = main(["rules", *(os.fspath(argument) for argument in arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's rule folder, empty."""
    (tmp_path / "mine/arch").mkdir(parents=True)
    return tmp_path / "mine"


def names_on_disk() -> set[str]:
    return {path.relative_to(SHIPPED).as_posix() for path in SHIPPED.rglob("*.toml")}


# ---------------------------------------------------------------- show


def test_every_document_is_listed(run):
    status, out, err = run("show")
    assert (status, err) == (0, "")
    listed = {line.split()[0] for line in out.splitlines() if ".toml" in line}
    assert listed == names_on_disk()
    assert len(listed) > 100
    assert out.splitlines()[0] == f"shipped: {SHIPPED}"


def test_the_list_says_which_folders_hold_a_document(run, folder, home):
    (folder / "arch/llama.toml").write_text("schema_version = 1\n")
    config = home / ".config/advisor/rules"
    config.mkdir(parents=True)
    (config / "policy.toml").write_text("schema_version = 1\n")
    document = json.loads(run("show", "--json", "--rules", folder)[1])
    assert document["schema"] == "advisor.rules/1"
    assert document["folders"] == [str(SHIPPED), "/etc/advisor/rules", str(config), str(folder)]
    found = {entry["name"]: entry["folders"] for entry in document["documents"]}
    assert found["arch/llama.toml"] == [str(SHIPPED), str(folder)]
    assert found["policy.toml"] == [str(SHIPPED), str(config)]
    assert found["arch/gemma3.toml"] == [str(SHIPPED)]
    lines = [line.split() for line in run("show", "--rules", folder)[1].splitlines()]
    assert ["arch/llama.toml", "shipped,", "folder", "3"] in lines


@pytest.mark.parametrize("name", ["arch/gemma3.toml", "arch/gemma3"])
def test_the_values_of_a_document(run, name):
    status, out, _ = run("show", name)
    assert status == 0
    assert "window.period = 6" in out.splitlines()
    assert 'window.key = "optional"' in out.splitlines()


def test_who_set_each_value(run, folder):
    (folder / "arch/gemma3.toml").write_text("[window]\nperiod = 7\n")
    status, out, _ = run("show", "arch/gemma3", "--origin", "--rules", folder)
    assert status == 0
    mine, shipped = folder / "arch/gemma3.toml", SHIPPED / "arch/gemma3.toml"
    assert f"window.period = 7  ({mine})" in out.splitlines()
    assert f'window.key = "optional"  ({shipped})' in out.splitlines()
    document = json.loads(run("show", "arch/gemma3", "--origin", "--json", "--rules", folder)[1])
    assert document["values"]["window.period"] == 7
    assert document["origins"]["window.period"] == str(mine)
    assert document["origins"]["family"] == str(shipped)
    assert document["files"] == [str(shipped), str(mine)]


def test_dotted_keys_are_those_of_the_rulebook():
    """Every value of every shipped document has an origin under its dotted key, and no origin is without value."""
    rules = App().rules
    for name in names_on_disk():
        document = rules.document(name)
        assert document is not None
        assert {key for key, _ in flatten(document.data)} == set(document.origins), name


def test_dotted_keys_of_odd_names_and_named_tables():
    data = {
        "a b": {"c.d": 1, "": 2},
        "list": [{"name": "x", "size": 1}, {"name": "y", "deep": {"z": [1, 2]}}],
        "plain": [{"size": 1}],
        "none": {},
    }
    assert dict(flatten(data)) == {
        '"a b"."c.d"': 1,
        '"a b".""': 2,
        "list[x].name": "x",
        "list[x].size": 1,
        "list[y].name": "y",
        "list[y].deep.z": [1, 2],
        "plain": [{"size": 1}],
    }
    assert set(dict(flatten(data))) == set(merge_documents([("file", data)])[1])


def test_dates_and_numbers_that_json_does_not_know(run, folder):
    (folder / "arch/odd.toml").write_text("when = 2026-01-02\nsize = nan\nbig = inf\n")
    document = json.loads(run("show", "arch/odd", "--json", "--rules", folder)[1], parse_constant=pytest.fail)
    assert document["values"] == {"when": "2026-01-02", "size": "nan", "big": "inf"}


def test_escape_codes_do_not_reach_the_terminal(run, folder):
    (folder / "arch/odd.toml").write_text('note = "\\u001b[31mred\\u202e"\n"k\\u001b" = 1\n')
    status, out, _ = run("show", "arch/odd", "--rules", folder)
    assert status == 0
    assert "red" in out
    assert "\x1b" not in out
    assert "\u202e" not in out


@pytest.mark.parametrize(("name", "hint"), [("gemma3", "arch/gemma3.toml"), ("arch/lama", "arch/llama.toml")])
def test_an_unknown_document(run, name, hint):
    status, out, err = run("show", name)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert name in err
    assert hint in err


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "arch/../policy", "x" * 5000, "\x1b[31m", ""])
def test_names_that_lead_elsewhere(run, name):
    status, out, err = run("show", name)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "root:" not in err


def test_no_verb_is_wrong_usage(run):
    status, out, err = run()
    assert (status, out) == (2, "")
    assert "show" in err
    assert run("shwo")[0] == 2


# ---------------------------------------------------------------- check


def test_a_folder_that_is_not_there(run, tmp_path):
    for verb in ("show", "check"):
        status, out, err = run(verb, "--rules", tmp_path / "no")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert str(tmp_path / "no") in err


def test_all_shipped_rules_are_well(run):
    status, out, err = run("check")
    assert (out, err) == (f"{len(names_on_disk())} rule files checked, all are well.\n", "")
    assert status == 0


def problems_of(folder: Path) -> list[str]:
    """Problems that name a file of `folder`."""
    return [problem for problem in check_rules(App(str(folder))).problems if str(folder) in problem]


def test_broken_toml_is_a_problem_and_the_others_are_checked_still(run, folder):
    (folder / "arch/llama.toml").write_text("family = \n")
    (folder / "speed.toml").write_text("x = [\n")
    status, out, _ = run("check", "--rules", folder)
    assert status == 1
    lines = [line for line in out.splitlines() if str(folder) in line]
    assert len(lines) == 2
    assert any("arch/llama.toml, line 1" in line for line in lines)
    assert any("speed.toml, line" in line for line in lines)
    document = json.loads(run("check", "--json", "--rules", folder)[1])
    assert document["schema"] == "advisor.rules_check/1"
    assert [problem for problem in document["problems"] if str(folder) in problem] == lines
    assert document["checked"] == len(names_on_disk())


def test_an_unknown_key_is_a_problem(folder):
    (folder / "arch/llama.toml").write_text('familly = "attention"\n')
    [problem] = problems_of(folder)
    assert "unknown key familly" in problem
    assert "did you mean family?" in problem


def test_a_number_without_source_is_a_problem(folder):
    shipped = (SHIPPED / "arch/gemma3.toml").read_text()
    text = "".join(line for line in shipped.splitlines(keepends=True) if not line.startswith("source"))
    assert text != shipped
    (folder / "arch/gemma9.toml").write_text(text.replace('"gemma3"', '"gemma9"'))
    [problem] = problems_of(folder)
    assert "source" in problem


def test_a_good_override_is_none(run, folder):
    (folder / "arch/gemma3.toml").write_text("[window]\nperiod = 7\n")
    shutil.copy(SHIPPED / "arch/llama.toml", folder / "arch/llama.toml")
    assert problems_of(folder) == []
    assert run("check", "--rules", folder)[0] == 0


def test_a_document_nobody_reads_is_a_problem_with_the_nearest_name(run, folder):
    (folder / "polcy.toml").write_text("schema_version = 1\n")
    (folder / "archs").mkdir()
    (folder / "archs/llama.toml").write_text("schema_version = 1\n")
    (folder / "arch/more").mkdir()
    (folder / "arch/more/llama.toml").write_text("schema_version = 1\n")
    (folder / "zzzzzz.toml").write_text("schema_version = 1\n")
    status, out, _ = run("check", "--rules", folder)
    assert status == 1
    hints = {
        line.partition(":")[0].removeprefix(f"{folder}/"): line.partition("; ")[2]
        for line in out.splitlines()
        if line.startswith(f"{folder}/")
    }
    assert hints == {
        "polcy.toml": "did you mean policy.toml?",
        "archs/llama.toml": "did you mean arch/llama.toml?",
        "arch/more/llama.toml": "did you mean arch/llama.toml?",
        "zzzzzz.toml": "rename or remove it.",
    }


def test_other_files_are_noted_and_no_problem(folder):
    (folder / "README.md").write_text("mine")
    (folder / ".policy.toml.swp").write_bytes(b"\0")
    report = check_rules(App(str(folder)))
    assert [note for note in report.notes if "README.md" in note]
    assert not [text for text in (*report.notes, *report.problems) if ".swp" in text]
    assert not [problem for problem in report.problems if str(folder) in problem]


def test_an_architecture_under_another_name(folder):
    text = (SHIPPED / "arch/llama.toml").read_text()
    (folder / "arch/lama.toml").write_text(text)  # says architecture = "llama"
    [problem] = problems_of(folder)
    assert "name it llama.toml" in problem


def test_a_misspelt_override_is_told_what_it_may_mean(folder):
    (folder / "arch/gema3.toml").write_text('schema_version = 1\nsource = "x"\n[window]\nperiod = 7\n')
    [problem] = problems_of(folder)
    assert problem.endswith("did you mean arch/gemma3.toml?")


def test_an_untrusted_file_is_a_problem(folder, home):
    config = home / ".config/advisor/rules"
    config.mkdir(parents=True)
    (config / "policy.toml").mkdir()
    report = check_rules(App())
    assert [problem for problem in report.problems if "policy.toml" in problem and "regular file" in problem]


def test_a_rule_folder_full_of_links_to_itself_ends(run, folder):
    (folder / "loop").symlink_to(folder)
    (folder / "arch/loop.toml").symlink_to(folder / "arch/loop.toml")
    status, out, _ = run("check", "--rules", folder)
    assert status == 1
    assert "loop.toml" in out


@pytest.mark.parametrize("name", ["foo", "arch/foo", "arch/zzz", "engines/foo", "xyzzy"])
def test_nothing_is_suggested_for_a_name_like_none(run, folder, name):
    status, out, err = run("show", name)
    assert (status, out) == (2, "")
    assert "did you mean" not in err
    assert "'advisor rules show' lists them." in err
    if name.startswith("arch/"):
        (folder / f"{name}.toml").write_text("schema_version = 1\nnosuch = 1\n")
        [problem] = problems_of(folder)
        assert "olmo" not in problem
