"""Files, folders and disks that refuse: one sentence with the cure, the old file whole, and right again afterwards."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from advisor.errors import OutputError
from advisor.managed import atomic
from advisor.managed.atomic import look, remove_stale, replace_file, staged
from advisor.managed.ledger import open_ledger
from tests.unit.managed.conftest import Desk
from tests.unit.managed.dying import fork, wait
from tests.unit.managed.formats import Lines

NOBODY = 65534


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".advisor-")]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def refusal_as_user(action: Callable[[], object]) -> str:
    """The OutputError of `action`, done by somebody without root's rights."""
    reading, writing = os.pipe()

    def work() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        try:
            action()
        except OutputError as error:
            os.write(writing, str(error).encode())

    wait(fork(work))
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        return file.read()


def give(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)


def test_a_folder_that_may_not_be_written(open_folder):
    file = open_folder / "engine.conf"
    file.write_text("a = 1\n")
    give(file)
    os.chmod(open_folder, 0o555)
    assert "permission denied; ask the owner of its folder" in refusal_as_user(lambda: replace_file(str(file), b"new"))
    assert file.read_text() == "a = 1\n"


def test_a_file_that_may_not_be_written_is_not_replaced_either(tmp_path):
    file = tmp_path / "engine.conf"
    file.write_text("a = 1\n")
    file.chmod(0o444)
    with pytest.raises(OutputError, match=r"write-protected; allow writing \(chmod u\+w\)"):
        replace_file(str(file), b"new")
    assert file.read_text() == "a = 1\n"


def test_a_file_that_may_not_be_read(open_folder):
    file = open_folder / "engine.conf"
    file.write_text("a = 1\n")
    give(file)
    file.chmod(0)
    assert "cannot be read: permission denied" in refusal_as_user(lambda: look(str(file)))


def test_permission_lost_and_given_back(open_folder):
    def run(ctx: str) -> str:
        return refusal_as_user(lambda: Desk(open_folder, Lines()).apply(ctx=ctx))

    assert run("1") == ""
    folder, file = open_folder / "config", open_folder / "config" / "engine.conf"
    folder.chmod(0o555)
    assert "permission denied" in run("2")
    assert file.read_text().endswith("ctx = 1\n")
    folder.chmod(0o755)
    assert run("2") == ""
    assert file.read_text().endswith("ctx = 2\n")
    assert leftovers(folder) == []


def test_the_file_of_another_user_is_not_taken_over(tmp_path, monkeypatch):
    file = tmp_path / "engine.conf"
    file.write_text("a = 1\n")
    file.chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(OutputError, match="belongs to another user"):
        replace_file(str(file), b"new")
    assert file.read_text() == "a = 1\n"


def test_mode_and_attributes_stay(tmp_path):
    file = tmp_path / "engine.conf"
    file.write_text("a = 1\n")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 12, 34)
    before = file.stat()
    attributes = {}
    try:
        os.setxattr(file, "user.note", b"mine")
        attributes = {"user.note": b"mine"}
    except OSError:  # a file system without them
        pass
    replace_file(str(file), b"new")
    after = file.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert {name: os.getxattr(file, name) for name in os.listxattr(file) if name == "user.note"} == attributes


def test_a_new_file_obeys_the_umask_and_a_secret_one_is_never_open(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        replace_file(str(tmp_path / "new"), b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o600)
    modes = []
    real = os.write

    def write(descriptor, data):
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    replace_file(str(tmp_path / "new"), b"secret")
    assert modes == [0o600]


def test_a_link_stays_a_link(own, tmp_path):
    kept = tmp_path / "dotfiles"
    kept.mkdir()
    (kept / "real.conf").write_text("# mine\n")
    own.file.symlink_to("../dotfiles/real.conf")
    own.apply(ctx="1", adopt=True)
    assert os.readlink(own.file) == "../dotfiles/real.conf"
    assert (kept / "real.conf").read_text() == "# mine\nctx = 1\n"
    own.uninstall()
    assert own.file.is_symlink()
    assert own.text == "# mine\n"


def test_a_link_that_leads_nowhere_yet(own, tmp_path):
    own.file.symlink_to(tmp_path / "later.conf")
    own.apply(ctx="1")
    assert own.file.is_symlink()
    assert (tmp_path / "later.conf").exists()
    own.undo()
    assert own.file.is_symlink()
    assert not own.file.exists()


def test_a_link_that_leads_back_to_itself(own):
    own.file.symlink_to(own.file.name)
    with pytest.raises(OutputError, match="a link that leads back to itself; remove the link"):
        own.apply(ctx="1")
    assert own.file.is_symlink()
    own.file.unlink()
    own.apply(ctx="1")
    assert own.text.endswith("ctx = 1\n")


def test_a_link_that_was_turned_meanwhile(own, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("# mine\n")
    own.file.symlink_to(tmp_path / "a")
    with staged(look(str(own.file)), b"new") as new:
        own.file.unlink()
        own.file.symlink_to(tmp_path / "b")
        with pytest.raises(OutputError, match="changed by somebody else"):
            new.commit()
    assert [(tmp_path / name).read_text() for name in "ab"] == ["# mine\n", "# mine\n"]


def test_the_folder_is_deleted_and_made_again(own):
    own.apply(ctx="1")
    shutil.rmtree(own.file.parent)
    with pytest.raises(OutputError, match="its folder does not exist; make the folder"):
        own.apply(ctx="2")
    own.file.parent.mkdir()
    own.apply(ctx="2")
    assert own.text.endswith("ctx = 2\n")
    own.uninstall()
    assert not own.file.exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "device link", "below a file"])
def test_what_is_no_file(kind, own):
    if kind == "folder":
        own.file.mkdir()
    elif kind == "pipe":
        os.mkfifo(own.file)
    elif kind == "device link":
        own.file.symlink_to("/dev/zero")
    else:
        own.file.write_text("x")
        own.file = own.file / "below"
    planned = own.plan(ctx="1", adopt=True)
    assert planned.refused is not None
    assert str(own.file) in planned.refused
    with pytest.raises(OutputError):
        replace_file("/nowhere\0here", b"")


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on a disk with no room for 200 KiB; where mounting is not allowed, the system's answer is imitated."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode == 0
        if os.geteuid() == 0 and shutil.which("mount")
        else False
    )
    if not mounted:
        real = os.write

        def write(descriptor: int, data: bytes) -> int:
            if len(data) > 100_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data)

        monkeypatch.setattr(os, "write", write)
    yield folder
    if mounted:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_under_the_file(own, full_disk):
    own.file = full_disk / "engine.conf"
    own.apply(ctx="1")
    with pytest.raises(OutputError, match="the disk is full, the old file stands; free some space"):
        own.apply(ctx="2" * 200_000)
    assert own.text == "# made by advisor\nctx = 1\n"
    assert leftovers(full_disk) == []
    with open_ledger(own.state) as ledger:
        assert (ledger.intent, ledger.notes) == (None, [])
    own.apply(ctx="3")
    assert own.text.endswith("ctx = 3\n")


def test_a_full_disk_under_the_state(own, full_disk):
    own.state = str(full_disk / "state")
    own.apply(ctx="1")
    own.write(own.text + "# long " + "x" * 200_000 + "\n")
    before = own.text
    with pytest.raises(OutputError, match="the disk is full"):  # no room for the backup: no change
        own.apply(ctx="2")
    assert own.text == before
    own.write("# short\nctx = 1\n")
    own.apply(ctx="2")
    assert own.text == "# short\nctx = 2\n"


@pytest.mark.parametrize("number", [errno.EIO, errno.EDQUOT, errno.EROFS, errno.EPERM])
@pytest.mark.parametrize("call", ["write", "fsync", "replace", "fchmod"])
def test_every_refusal_of_the_system(call, number, own, monkeypatch):
    own.apply(ctx="1")
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        patch.setattr(os, call, refuse)
        with pytest.raises(OutputError) as caught:
            own.apply(ctx="2")
    assert " cannot be written: " in str(caught.value)
    assert str(caught.value).endswith(".")
    assert own.text == "# made by advisor\nctx = 1\n"
    assert leftovers(own.file.parent) == leftovers(Path(own.state)) == []
    own.apply(ctx="2")
    assert own.text == "# made by advisor\nctx = 2\n"


def test_an_immutable_file(own, monkeypatch):
    own.apply(ctx="1")
    real = os.replace

    def replace(source: str, target: str) -> None:
        if target == str(own.file):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OutputError, match=r"immutable \(lsattr shows an i\)"):
        own.apply(ctx="2")
    with open_ledger(own.state) as ledger:
        assert ledger.intent is None
    assert leftovers(own.file.parent) == []


def test_a_file_system_without_hard_links(own, monkeypatch):
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    own.apply(ctx="1")
    assert own.text.endswith("ctx = 1\n")
    assert leftovers(own.file.parent) == []


def test_only_stale_files_of_ours_are_removed(tmp_path):
    (tmp_path / ".advisor-1-dead.part").write_bytes(b"left by a crash")
    (tmp_path / ".advisor-notes").write_bytes(b"the user's")
    (tmp_path / ".advisor-x.part").symlink_to(tmp_path / ".advisor-notes")
    with staged(look(str(tmp_path / "new")), b"x") as new:
        remove_stale(str(tmp_path))
        assert os.path.exists(new.temporary)
        new.commit()
    assert sorted(os.listdir(tmp_path)) == [".advisor-notes", ".advisor-x.part", "new"]
    remove_stale(str(tmp_path / "nowhere"))


def test_the_file_is_looked_at_again_at_the_last_moment(tmp_path, monkeypatch):
    file = tmp_path / "engine.conf"
    file.write_text("a = 1\n")
    real = atomic._unchanged

    def late(standing):
        status = real(standing)
        (tmp_path / "other").write_text("a = 1\n")  # another file with the very same content
        os.replace(tmp_path / "other", file)
        return status

    monkeypatch.setattr(atomic, "_unchanged", late)
    with pytest.raises(OutputError, match="changed by somebody else"):
        replace_file(str(file), b"new", look(str(file)))
    assert file.read_text() == "a = 1\n"
