"""The kind of disk under a model folder: a weight file that does not fit in RAM is read from it at every token."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from advisor.hardware._read import list_folder, read_int, read_text, under
from advisor.host import ProbeReport, Storage
from advisor.records import NamedTuple

NAME = "storage"
_NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "beegfs", "9p", "afs", "davfs",
    "fuse.sshfs", "fuse.rclone", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs",
})  # fmt: skip
_NO_DISK = frozenset({  # what they show is made by the kernel when it is read
    "proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "debugfs", "tracefs", "securityfs", "configfs", "bpf",
    "pstore", "efivarfs", "mqueue", "hugetlbfs", "fusectl", "binfmt_misc", "nsfs", "rpc_pipefs", "selinuxfs", "resctrl",
})  # fmt: skip
_SPEED_ORDER = ("network", "hdd", "ssd", "nvme")  # slowest first


class _Mount(NamedTuple):
    point: str
    numbers: str  # "259:2"; "0:41" for file systems without a block device of their own
    file_system: str
    source: str


def probe_storage(folders: Sequence[str], *, root: str = "/") -> tuple[tuple[Storage, ...], ProbeReport]:
    """One `Storage` per folder, in order; `kind` None where it cannot be told. Never raises."""
    started = time.perf_counter()
    found: list[Storage] = []
    try:
        mounts = _mounts(root) if folders else []
        if folders and not mounts:
            found = [Storage(folder) for folder in folders]
            status, detail = "absent", "no list of mounts on this system"
        else:
            found = [_storage(root, folder, mounts) for folder in folders]
            status = "ok"
            detail = ", ".join(f"{item.folder}: {item.kind or 'unknown'}" for item in found) or "no folder asked for"
    except Exception as error:  # a probe reports, it never stops the answer
        found = [Storage(folder) for folder in folders]
        status, detail = "failed", f"{type(error).__name__}: {error}"
    return tuple(found), ProbeReport(NAME, status, detail, time.perf_counter() - started)


def no_disk_under(folder: str, *, root: str = "/") -> str | None:
    """The kind of the file system of `folder` where that keeps no files, such as "proc"; None elsewhere."""
    mount = _mount_of(root, folder, _mounts(root))
    return mount.file_system if mount is not None and mount.file_system in _NO_DISK else None


def _mounts(root: str) -> list[_Mount]:
    mounts = []
    for line in (read_text(under(root, "/proc/self/mountinfo")) or "").splitlines():
        left, found, right = line.partition(" - ")
        head, tail = left.split(" "), right.split(" ")
        if found and len(head) >= 5 and len(tail) >= 2:
            mounts.append(_Mount(_unescape(head[4]), head[2], tail[0], _unescape(tail[1])))
    return mounts


def _unescape(text: str) -> str:
    """Undo the octal codes that mountinfo writes for space, tab, newline and backslash."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _mount_of(root: str, folder: str, mounts: Sequence[_Mount]) -> _Mount | None:
    path = os.path.realpath(folder) if root == "/" else folder
    best: _Mount | None = None
    for mount in mounts:
        prefix = mount.point.rstrip("/") + "/"
        # The last of equal mount points lies on top.
        if (path + "/").startswith(prefix) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _storage(root: str, folder: str, mounts: Sequence[_Mount]) -> Storage:
    best = _mount_of(root, folder, mounts)
    if best is None:
        return Storage(folder)
    if best.file_system in _NETWORK:
        return Storage(folder, best.source, "network", source=f"{best.file_system} mount")
    if best.file_system in ("tmpfs", "ramfs"):
        return Storage(folder, best.source, None, source=f"{best.file_system}: in memory")
    name = _block_name(root, best)
    if name is None:
        return Storage(folder, best.source, None, source=f"{best.file_system} mount")
    kind = _kind(root, name, 0)
    return Storage(folder, "/dev/" + name, kind, source=f"/sys/class/block/{name}" if kind else None)


def _block_name(root: str, mount: _Mount) -> str | None:
    if not mount.numbers.startswith("0:"):
        link = under(root, f"/sys/dev/block/{mount.numbers}")
        if os.path.exists(link):
            return os.path.basename(os.path.realpath(link))
    # btrfs, zfs and overlays have no numbers of their own, but may name the device they lie on.
    if mount.source.startswith("/dev/"):
        source = mount.source
        if root == "/":
            source = os.path.realpath(source)
        name = os.path.basename(source)
        if os.path.exists(under(root, f"/sys/class/block/{name}")):
            return name
    return None


def _kind(root: str, name: str, depth: int) -> str | None:
    """Kind of a block device; of several below it (RAID, LVM, encryption) the slowest."""
    if depth > 8:
        return None
    folder = under(root, f"/sys/class/block/{name}")
    below = list_folder(folder + "/slaves")
    if below:
        kinds = [_kind(root, slave, depth + 1) for slave in below]
        known = [kind for kind in kinds if kind is not None]
        return min(known, key=_SPEED_ORDER.index) if known else None
    if os.path.exists(folder + "/partition"):
        return _kind(root, os.path.basename(os.path.dirname(os.path.realpath(folder))), depth + 1)
    if name.startswith("nvme"):
        return "nvme"
    rotational = read_int(folder + "/queue/rotational")
    if name.startswith(("vd", "xvd", "loop", "zram", "nbd", "mmcblk")) and rotational != 0:
        return None  # virtual disks call themselves rotational whatever lies below
    if name.startswith("nbd"):
        return "network"
    return None if rotational is None else ("hdd" if rotational else "ssd")
