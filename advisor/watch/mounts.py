"""Which file systems deliver no events of what others do there, read from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from advisor.records import NamedTuple

MOUNTINFO = "/proc/self/mountinfo"
MAX_BYTES = 4 << 20

# inotify(7): no events for what happens on the other side of a network or FUSE file system; 9p is also what WSL 2 shows
# Windows drives as. overlay: changes made through the overlay are seen, those made in its lower layers are not.
_SILENT = frozenset(
    (
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "drvfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
        "nfs4", "ocfs2", "orangefs", "overlay", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
    )
)  # fmt: skip


class Mount(NamedTuple):
    """One mounted file system."""

    mount_id: int
    device: str  # "259:1"
    point: str
    fs_type: str  # "fuse.sshfs"


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Mounts in the order of the file, the later over the earlier (proc_pid_mountinfo(5)); odd lines are passed over.

    36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw
    """
    mounts = []
    for line in text.split("\n"):
        fields = line.split(" ")
        if len(fields) < 9 or not fields[0].isdecimal() or "-" not in fields[6:]:
            continue
        separator = fields.index("-", 6)
        if separator + 1 < len(fields):
            mounts.append(Mount(int(fields[0]), fields[2], _unescape(fields[4]), fields[separator + 1]))
    return tuple(mounts)


def read_mounts(path: str = MOUNTINFO) -> tuple[Mount, ...]:
    """The mounts of this process; none where the system does not tell."""
    try:
        with open(path, "rb") as file:
            return parse_mountinfo(os.fsdecode(file.read(MAX_BYTES)))
    except OSError:
        return ()


def around(folder: str, mounts: Iterable[Mount]) -> frozenset[Mount]:
    """The mount that holds `folder` (an absolute path without links), and those below it."""
    holder: Mount | None = None
    below = set()
    for mount in mounts:
        if _holds(mount.point, folder):
            if holder is None or len(mount.point) >= len(holder.point):
                holder = mount
        elif _holds(folder, mount.point):
            below.add(mount)
    return frozenset(below | {holder} if holder else below)


def is_silent(fs_type: str) -> bool:
    """Whether changes can happen on a file system of this type without an event."""
    return fs_type in _SILENT or fs_type == "fuse" or fs_type.startswith("fuse.")


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _unescape(field: str) -> str:
    """Blanks, tabs, line ends and backslashes stand as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)
