"""Names below a directory, one at a time and never through a symlink; and two system calls that `os` lacks.

Theory. A descriptor of a directory and a name that holds no slash cannot lead out of that directory as long as the
name is opened with O_NOFOLLOW: whoever swaps a symlink in gets the symlink, not what it points to. O_PATH opens no
device and waits for no FIFO. `/proc/self/fd/N` then names exactly what was found, whatever becomes of the name
(source: open(2), proc(5)). RESOLVE_CACHED (openat2(2), Linux 5.12) finds a name only if the disk need not be asked.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
_OPENAT2 = 437
_NO_XDEV, _NO_SYMLINKS, _BENEATH, _CACHED = 1, 4, 8, 32
_FOUND = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCAL = frozenset(
    {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x2FC12FC1, 0x794C7630, 0xCA451A4E},
)
"""ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, ZFS, overlay, bcachefs (source: linux/magic.h)."""


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


_libc = ctypes.CDLL(None, use_errno=True)
_how = _How(_FOUND, 0, _NO_XDEV | _NO_SYMLINKS | _BENEATH | _CACHED)
_UNKNOWN = frozenset({errno.EAGAIN, errno.EXDEV, errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG})


class Held:
    """A descriptor that is closed when nobody holds it any more, in whichever thread that is.

    Who takes `fd` or `path` out of it keeps it in a variable for as long.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)

    @property
    def path(self) -> str:
        """A name of exactly this file."""
        return f"/proc/self/fd/{self.fd}"

    def stat(self) -> os.stat_result:
        """fstat(2)."""
        return os.fstat(self.fd)


Finder = Callable[[Held, bytes], Held]
"""From a directory and a name: an O_PATH descriptor of what has that name, of a symlink itself."""


def find(directory: Held, name: bytes) -> Held:
    """A Finder that may have to ask the disk."""
    return Held(os.open(name, _FOUND, dir_fd=directory.fd))


def find_cached(directory: Held, name: bytes) -> Held:
    """A Finder that never waits. Raises BlockingIOError where the answer is not in memory."""
    fd = int(_libc.syscall(_OPENAT2, directory.fd, name, ctypes.byref(_how), ctypes.sizeof(_how)))
    if fd < 0:
        number = ctypes.get_errno()
        if number in _UNKNOWN:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        raise OSError(number, os.strerror(number))
    return Held(fd)


def rename(old_dir: Held, old: bytes, new_dir: Held, new: bytes, flags: int = 0) -> None:
    """renameat2(2)."""
    if not flags:
        os.rename(old, new, src_dir_fd=old_dir.fd, dst_dir_fd=new_dir.fd)
    elif _libc.renameat2(old_dir.fd, old, new_dir.fd, new, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def is_local(held: Held) -> bool:
    """Whether this file is on a disk of this machine, so that what is cached there can be looked at without waiting."""
    found = (ctypes.c_long * 32)()
    return _libc.fstatfs(held.fd, ctypes.byref(found)) == 0 and found[0] & 0xFFFFFFFF in _LOCAL
