"""What is done to the files of HOME's directories, each as one piece of work that may wait for the disk.

Rules. Runs in any thread. A file is found anew each time (`nodes`), and worked on by a descriptor of exactly it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

import attrs

from zoefs.disk.beneath import RENAME_EXCHANGE, Finder, Held, find, find_cached, rename
from zoefs.mount.node import Node
from zoefs.mount.nodes import Nodes
from zoefs.mount.tree import Through

_KEPT = os.O_ACCMODE | os.O_APPEND | os.O_SYNC | os.O_DSYNC

Entered = tuple[Node, bytes, os.stat_result]
"""A directory, a name in it, and what has that name now."""


@attrs.frozen
class Change:
    """What setattr is to change; times in nanoseconds since 1970, None is as it was."""

    size: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime: int | None = None
    mtime: int | None = None


# -- looking ----------------------------------------------------------------------------------------------------------


def look(finder: Finder, nodes: Nodes, parent: Node, name: bytes) -> os.stat_result:
    """What has this name."""
    return finder(nodes.directory(finder, parent), name).stat()


def attributes(finder: Finder, nodes: Nodes, node: Node, opened: Held | None) -> os.stat_result:
    """fstat(2)."""
    return nodes.held(finder, node, opened).stat()


def readlink(finder: Finder, nodes: Nodes, node: Node) -> bytes:
    """readlink(2)."""
    held = nodes.held(finder, node, None)
    return os.readlink(b"", dir_fd=held.fd)


def open_directory(nodes: Nodes, node: Node) -> Held:
    """A descriptor to list a directory by."""
    held = nodes.directory(find, node)
    return Held(os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held.fd))


# -- files ------------------------------------------------------------------------------------------------------------


def open_file(finder: Finder, nodes: Nodes, node: Node, opened: Held | None, flags: int) -> Held:
    """open(2), without O_CREAT."""
    found = nodes.held(finder, node, opened)
    if not stat.S_ISREG(found.stat().st_mode):
        raise OSError(errno.ENXIO, "no file of bytes")
    at_once = os.O_NONBLOCK if finder is find_cached else 0  # who holds a lease on it may take its time
    held = Held(os.open(found.path, (flags & _KEPT) | os.O_CLOEXEC | at_once))
    if flags & os.O_TRUNC:
        _truncate(held, flags, 0)
    return held


def create(nodes: Nodes, parent: Node, name: bytes, mode: int, flags: int) -> tuple[Held, os.stat_result]:
    """open(2) with O_CREAT; and what was made, or was there."""
    directory = nodes.directory(find, parent)
    kept = (flags & (_KEPT | os.O_EXCL)) | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    there = True
    try:
        held = None if flags & os.O_EXCL else Held(os.open(name, kept & ~os.O_CREAT, dir_fd=directory.fd))
    except FileNotFoundError:
        held = None
    if held is None:
        there = False
        try:
            held = Held(os.open(name, kept | os.O_EXCL, mode & 0o7777, dir_fd=directory.fd))
        except FileExistsError:
            raise OSError(errno.EEXIST if flags & os.O_EXCL else errno.ESTALE, "made meanwhile") from None
        _unmask(held, mode)
    found = held.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ESTALE, "no file of bytes")
    if there and flags & os.O_TRUNC:
        _truncate(held, flags, 0)
        found = held.stat()
    return held, found


def alter(nodes: Nodes, node: Node, opened: Held | None, flags: int, change: Change) -> os.stat_result:
    """chown, chmod, truncate and utime; `flags` are those of `opened`."""
    held = nodes.held(find, node, opened)
    if change.uid is not None or change.gid is not None:
        same = -1
        uid, gid = (same if one is None else one for one in (change.uid, change.gid))
        os.chown(held.path, uid, gid)
    if change.mode is not None:
        os.chmod(held.path, stat.S_IMODE(change.mode))
    if change.size is not None:
        _truncate(held, flags, change.size)
    if change.atime is not None or change.mtime is not None:
        was = held.stat()
        atime = was.st_atime_ns if change.atime is None else change.atime
        mtime = was.st_mtime_ns if change.mtime is None else change.mtime
        os.utime(held.path, ns=(atime, mtime))
    return held.stat()


def _truncate(held: Held, flags: int, size: int) -> None:
    """Cut a file: by the descriptor where that was opened with flags to write, since its mode may not permit more."""
    if flags & os.O_ACCMODE != os.O_RDONLY:
        os.ftruncate(held.fd, size)
    else:
        os.truncate(held.path, size)


# -- names ------------------------------------------------------------------------------------------------------------


def make(nodes: Nodes, parent: Node, name: bytes, work: Callable[[Held], None]) -> os.stat_result:
    """Do `work` with the directory's descriptor; what it made under `name`."""
    held = nodes.directory(find, parent)
    work(held)
    return os.stat(name, dir_fd=held.fd, follow_symlinks=False)


def make_file(held: Held, name: bytes, mode: int) -> None:
    """mknod(2)."""
    os.mknod(name, mode, dir_fd=held.fd)
    _unmask(find(held, name), mode)


def make_directory(held: Held, name: bytes, mode: int) -> None:
    """mkdir(2)."""
    os.mkdir(name, mode & 0o7777, dir_fd=held.fd)
    _unmask(find(held, name), mode)


def _unmask(held: Held, mode: int) -> None:
    """Give what was made the mode that the client asked for: our own umask is not the client's."""
    was = held.stat().st_mode
    wanted = stat.S_IMODE(mode) | (was & stat.S_ISGID)
    if stat.S_IMODE(was) != wanted:
        os.chmod(held.path, wanted)


def link(nodes: Nodes, node: Node, opened: Held | None, new: Held, name: bytes) -> None:
    """linkat(2)."""
    if node.key[2] == stat.S_IFLNK:  # a symlink can be linked to by name only
        parent, old = node.newest()[0]
        source = nodes.directory(find, parent)
        os.link(old, name, src_dir_fd=source.fd, dst_dir_fd=new.fd, follow_symlinks=False)
    else:
        held = nodes.held(find, node, opened)
        os.link(held.path, name, dst_dir_fd=new.fd, follow_symlinks=True)


def remove(nodes: Nodes, call: Callable[..., None], parent: Node, name: bytes) -> None:
    """os.unlink or os.rmdir of a name."""
    held = nodes.directory(find, parent)
    call(name, dir_fd=held.fd)


def move(nodes: Nodes, old: Node, name: bytes, new: Node, new_name: bytes, flags: int) -> list[Entered]:
    """renameat2(2); what has the two names now."""
    ends = [(old, name, nodes.directory(find, old)), (new, new_name, nodes.directory(find, new))]
    enters = [(new, name, ends[0][2])] + ([(old, new_name, ends[1][2])] if flags & RENAME_EXCHANGE else [])
    for where, what, held in enters:
        mode = os.stat(what, dir_fd=held.fd, follow_symlinks=False).st_mode
        if where.rule is Through.LINKS and not stat.S_ISLNK(mode):
            raise OSError(errno.EPERM, "only symlinks can be here")
    rename(ends[0][2], name, ends[1][2], new_name, flags)
    return list(_what_is(ends))


def _what_is(ends: list[tuple[Node, bytes, Held]]) -> Iterator[Entered]:
    for where, name, held in ends:
        with contextlib.suppress(OSError):  # the name that went
            yield where, name, os.stat(name, dir_fd=held.fd, follow_symlinks=False)
