from __future__ import annotations

import pytest

from advisor.watch.mounts import Mount, around, is_silent, parse_mountinfo, read_mounts

# the example of proc_pid_mountinfo(5), then lines as they stand on common machines
TEXT = r"""36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
64 22 0:52 / /home/me/my\040models rw,relatime shared:30 - nfs4 nas:/models rw,vers=4.2
65 22 0:53 / /home/me/remote rw,nosuid,nodev,relatime - fuse.sshfs me@nas:/m rw,user_id=1000
66 22 0:54 / /mnt/c rw,noatime - 9p drvfs rw,dirsync,aname=drvfs;path=C:\
67 22 0:55 / /back\134slash rw shared:1 master:2 propagate_from:3 unbindable - tmpfs tmpfs rw
"""


def test_lines_are_read():
    mounts = {mount.point: mount for mount in parse_mountinfo(TEXT)}
    assert mounts["/mnt2"] == Mount(36, "98:0", "/mnt2", "ext3")
    assert mounts["/home/me/my models"].fs_type == "nfs4"
    assert mounts["/home/me/remote"].fs_type == "fuse.sshfs"
    assert mounts["/mnt/c"].fs_type == "9p"
    assert mounts["/back\\slash"].fs_type == "tmpfs"  # after four optional fields
    assert len(mounts) == 6


@pytest.mark.parametrize("line", ["", "36", "36 35 98:0 /mnt1 /mnt2 rw -", "x 35 98:0 / / rw - ext4 a b", " " * 40])
def test_odd_lines_are_passed_over(line):
    assert [mount.fs_type for mount in parse_mountinfo(line + "\n" + TEXT.splitlines()[1])] == ["ext4"]


def test_a_folder_lies_on_the_deepest_mount_and_has_those_below():
    mounts = parse_mountinfo(TEXT)
    assert {m.point for m in around("/home/me/remote/7b", mounts)} == {"/home/me/remote"}
    assert {m.point for m in around("/home/me/remote", mounts)} == {"/home/me/remote"}
    assert {m.point for m in around("/home/me/remote2", mounts)} == {"/"}  # a name that only begins alike
    assert {m.point for m in around("/home/me", mounts)} == {"/", "/home/me/my models", "/home/me/remote"}


def test_the_last_mount_on_a_point_covers_the_others():
    mounts = parse_mountinfo("1 0 8:1 / /m rw - ext4 a rw\n2 1 0:9 / /m rw - nfs4 b rw\n")
    assert {m.fs_type for m in around("/m/x", mounts)} == {"nfs4"}


@pytest.mark.parametrize("fs_type", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuse.sshfs", "virtiofs", "overlay"])
def test_silent(fs_type):
    assert is_silent(fs_type)


@pytest.mark.parametrize("fs_type", ["ext4", "btrfs", "xfs", "zfs", "tmpfs", "fuseblk", "f2fs", "bcachefs", "vfat"])
def test_not_silent(fs_type):
    assert not is_silent(fs_type)


def test_no_mountinfo_is_no_mounts(tmp_path):
    assert read_mounts(str(tmp_path / "none")) == ()
    assert any(mount.point == "/proc" for mount in read_mounts())
