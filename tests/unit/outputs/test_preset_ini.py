"""The preset writer: what it writes, what it leaves alone, and that no failure costs the old file."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.errors import OutputError
from advisor.outputs.preset_ini import render_section, section_name, write_preset

OPTIONS = [("ctx-size", "8192"), ("kv-unified", ""), ("fit", "off")]
OTHER = [("ctx-size", "4096"), ("fit", "off")]
A = "[a]\nmodel = /models/a.gguf\nctx-size = 8192\nkv-unified = true\nfit = off\n"
A_OTHER = "[a]\nmodel = /models/a.gguf\nctx-size = 4096\nfit = off\n"
B = "[b]\nmodel = /models/b.gguf\nctx-size = 8192\nkv-unified = true\nfit = off\n"


def body(path: Path) -> str:
    """The file without its first line, the seal."""
    seal, _, rest = path.read_text("utf-8").partition("\n")
    assert seal.startswith(";")
    return rest


@pytest.fixture
def preset(tmp_path: Path) -> Path:
    return tmp_path / "preset.ini"


def test_a_new_file(preset):
    report = write_preset(str(preset), "/models/a.gguf", OPTIONS)
    assert body(preset) == "version = 1\n" + A
    assert report.splitlines()[-1] == f"wrote {preset}"
    assert "+ctx-size = 8192" in report.splitlines()
    assert stat.S_IMODE(preset.stat().st_mode) == 0o644
    assert os.listdir(preset.parent) == ["preset.ini"]


def test_a_second_model_is_added_and_the_first_one_updated_where_it_stands(preset):
    write_preset(str(preset), "/models/a.gguf", OPTIONS)
    write_preset(str(preset), "/models/b.gguf", OPTIONS)
    assert body(preset) == "version = 1\n" + A + B
    report = write_preset(str(preset), "/models/a.gguf", OTHER)
    assert body(preset) == "version = 1\n" + A_OTHER + B
    lines = report.splitlines()
    assert {"-ctx-size = 8192", "+ctx-size = 4096", "-kv-unified = true"} <= set(lines)
    assert lines[-1] == f"wrote {preset}; the old one is {preset}.backup"
    assert sorted(os.listdir(preset.parent)) == ["preset.ini", "preset.ini.backup"]


def test_a_name_that_begins_like_another_is_another_model(preset):
    write_preset(str(preset), "/models/a.gguf", OPTIONS)
    write_preset(str(preset), "/models/a-long.gguf", OTHER)
    write_preset(str(preset), "/models/a.gguf", OTHER)
    assert body(preset).count("[a]\n") == body(preset).count("[a-long]\n") == 1
    assert body(preset).startswith("version = 1\n" + A_OTHER)


def test_no_change_is_no_write(preset):
    write_preset(str(preset), "/models/a.gguf", OPTIONS)
    os.utime(preset, ns=(10**18, 10**18))
    before = preset.stat()
    assert write_preset(str(preset), "/models/a.gguf", OPTIONS) == f"{preset} is up to date."
    assert (preset.stat().st_mtime_ns, preset.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert os.listdir(preset.parent) == ["preset.ini"]


def test_the_backup_is_the_file_before(preset):
    write_preset(str(preset), "/models/a.gguf", OPTIONS)
    first = preset.read_bytes()
    write_preset(str(preset), "/models/a.gguf", OTHER)
    second = preset.read_bytes()
    backup = preset.with_name("preset.ini.backup")
    assert backup.read_bytes() == first
    write_preset(str(preset), "/models/b.gguf", OTHER)
    assert backup.read_bytes() == second
    # it is a whole file of ours: renamed back it is taken up again
    os.replace(backup, preset)
    write_preset(str(preset), "/models/b.gguf", OPTIONS)
    assert body(preset) == "version = 1\n" + A_OTHER + B


@pytest.mark.parametrize(
    "content",
    [b"", b"[mine]\nmodel = /x.gguf\n", b"; written by someone else\n", b"\xff\xfe\x00", b"; written by advisor"],
)
def test_a_file_of_someone_else_is_left_alone(preset, content):
    preset.write_bytes(content)
    with pytest.raises(OutputError, match="was not written by advisor"):
        write_preset(str(preset), "/models/a.gguf", OPTIONS)
    assert preset.read_bytes() == content
    assert os.listdir(preset.parent) == ["preset.ini"]


@pytest.mark.parametrize("edit", [lambda text: text + "\n", lambda text: text.replace("8192", "8193")])
def test_an_edited_file_is_left_alone(preset, edit):
    write_preset(str(preset), "/models/a.gguf", OPTIONS)
    edited = edit(preset.read_text())
    preset.write_text(edited)
    with pytest.raises(OutputError, match="was edited since"):
        write_preset(str(preset), "/models/a.gguf", OTHER)
    assert preset.read_text() == edited
    assert os.listdir(preset.parent) == ["preset.ini"]


@pytest.mark.parametrize(
    "path",
    [
        "/models/a#b.gguf", "/models/a;b.gguf", "/mo#dels/a.gguf", "/mo;dels/a.gguf", "/models/a\nb.gguf",
        "/mo\ndels/a.gguf", "/models/a\rb.gguf", "/mo\tdels/a.gguf", "/models/ a.gguf", "/models/a .gguf",
        "/models/.gguf", "/models/a[1].gguf", "/models/a:b.gguf", "/models/a\udcff.gguf", "/mo\udcffdels/a.gguf",
        "/mo\u2028dels/a.gguf",
    ],
)  # fmt: skip
def test_a_path_that_the_format_cannot_carry_is_refused_in_one_line(preset, path):
    with pytest.raises(OutputError) as error:
        write_preset(str(preset), path, OPTIONS)
    message = str(error.value)
    assert message.isprintable()
    assert message.endswith("link it under a plain name.")
    assert os.listdir(preset.parent) == []


@pytest.mark.parametrize("value", ["a;b=CPU", "a#b=CPU", "a\nb=CPU", " a=CPU", "a=CPU "])
def test_a_value_that_the_format_cannot_carry_is_refused(preset, value):
    with pytest.raises(OutputError, match=r"^override-tensor "):
        write_preset(str(preset), "/models/a.gguf", [("override-tensor", value)])
    assert os.listdir(preset.parent) == []


def test_what_the_format_can_carry():
    path = "/models/größe (2) 'x' \"y\" $z/modèle, 4_K.gguf"
    assert section_name(path) == "modèle, 4_K"
    assert render_section(path, []) == f"[modèle, 4_K]\nmodel = {path}\n"


def test_a_relative_model_is_written_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"model = {tmp_path}/sub/a.gguf\n" in render_section("sub/a.gguf", [])


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    real = tmp_path / "real" / "preset.ini"
    real.parent.mkdir()
    link = tmp_path / "link.ini"
    link.symlink_to("real/preset.ini")
    for options in (OPTIONS, OTHER):
        write_preset(str(link), "/models/a.gguf", options)
    assert link.is_symlink()
    assert body(real) == "version = 1\n" + A_OTHER
    assert sorted(os.listdir(real.parent)) == ["preset.ini", "preset.ini.backup"]
    assert sorted(os.listdir(tmp_path)) == ["link.ini", "real"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_permissions_are_kept_and_the_backup_is_no_more_open(preset, mode):
    write_preset(str(preset), "/models/a.gguf", OPTIONS)
    preset.chmod(mode)
    write_preset(str(preset), "/models/a.gguf", OTHER)
    assert stat.S_IMODE(preset.stat().st_mode) == mode
    assert stat.S_IMODE(preset.with_name("preset.ini.backup").stat().st_mode) == mode


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """A folder that this process may read and not write, root or not."""
    folder = Path(tempfile.mkdtemp(prefix="read-only-"))
    write_preset(str(folder / "old.ini"), "/models/a.gguf", OPTIONS)
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written(read_only_folder):
    before = (read_only_folder / "old.ini").read_bytes()
    for name in ("new.ini", "old.ini"):
        with pytest.raises(OutputError, match=r"cannot be written: Permission denied; choose another --output\.$"):
            write_preset(str(read_only_folder / name), "/models/a.gguf", OTHER)
    assert os.listdir(read_only_folder) == ["old.ini"]
    assert (read_only_folder / "old.ini").read_bytes() == before


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(OutputError, match="cannot be written: No such file or directory"):
        write_preset(str(tmp_path / "missing" / "preset.ini"), "/models/a.gguf", OPTIONS)
    assert os.listdir(tmp_path) == []


def test_a_folder_or_a_pipe_instead_of_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OutputError, match="is not a regular file"):
            write_preset(str(path), "/models/a.gguf", OPTIONS)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("step", ["replace", "fsync", "fchmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_at_any_step_leaves_the_old_file_and_nothing_else(preset, monkeypatch, step, error):
    write_preset(str(preset), "/models/a.gguf", OPTIONS)
    before = preset.read_bytes()

    def fail(*args: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        expected = OutputError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected):
            write_preset(str(preset), "/models/a.gguf", OTHER)
    assert preset.read_bytes() == before
    assert os.listdir(preset.parent) == ["preset.ini"]


def test_a_failure_after_the_backup_leaves_two_good_files(preset, monkeypatch):
    write_preset(str(preset), "/models/a.gguf", OPTIONS)
    before = preset.read_bytes()
    replace = os.replace

    def fail_for_the_preset(source: str, target: str) -> None:
        if not target.endswith(".backup"):
            raise OSError(5, "Input/output error")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail_for_the_preset)
        with pytest.raises(OutputError, match="Input/output error"):
            write_preset(str(preset), "/models/a.gguf", OTHER)
    assert preset.read_bytes() == before == preset.with_name("preset.ini.backup").read_bytes()
    assert sorted(os.listdir(preset.parent)) == ["preset.ini", "preset.ini.backup"]


def test_second_model_of_the_same_name_is_refused(tmp_path: Path) -> None:
    preset = str(tmp_path / "preset.ini")
    write_preset(preset, "/a/model.gguf", [("ctx-size", "4096")])
    before = Path(preset).read_bytes()
    with pytest.raises(OutputError, match=r"already has \[model\] for /a/model.gguf"):
        write_preset(preset, "/b/model.gguf", [("ctx-size", "4096")])
    assert Path(preset).read_bytes() == before
