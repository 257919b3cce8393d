"""The directories of HOME that MOUNT shows through: ordinary files under inode numbers of this mount.

Theory. A file is known by what it is (device and inode number), not by its name: names are hints, tried newest first
and believed only if they lead to that same file. So nothing is held open for a file that no client has open, a name
that somebody changed in HOME is ESTALE, upon which the kernel looks anew, and no name leads out of its tree
(`disk/beneath`). Only the directories used last are held open.

Rules. Whatever may wait for a disk runs in a worker thread, of which these trees have their own few: `status` and
the agents' flushes never queue behind them. Names and content that memory has are looked at without a thread, and
only where HOME's disk is a local one. The table of nodes is changed in the trio thread alone. HOME's device and inode
number make the number that stat(2) shows, so two links to a file are one file, also after the kernel forgot it.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar

import attrs
import trio

from zoefs.contract.home import Home
from zoefs.disk.beneath import RENAME_EXCHANGE, Finder, Held, find, find_cached, is_local, rename
from zoefs.disk.files import pwrite_all, write_all
from zoefs.mount.handles import Handle
from zoefs.mount.inodes import LOG_BASE, OTHER_BASE, PASS_BASE, PASS_SPAN, ROOT_INODE
from zoefs.mount.tree import LONG, ROOT, Through

P = ParamSpec("P")
R = TypeVar("R")

WORKERS = 16
"""Threads that these trees may occupy at once."""
DIRECTORIES = 512
"""Directories kept open."""
HINTS = 16
"""Names remembered of one file."""
BATCH = 64
"""Names of a listing whose attributes are looked up together."""
DEEPEST = 4096
PAGE = 4096
_KEPT = os.O_ACCMODE | os.O_APPEND | os.O_SYNC | os.O_DSYNC
_MADE = frozenset({stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK})
_ELSEWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})

Key = tuple[int, int, int]


def key_of(found: os.stat_result) -> Key:
    """What a file is: device, inode number, type."""
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode)


@attrs.define(eq=False)
class Node:
    """A file that the kernel knows. `root` is the name of its tree's directory where it is that directory itself."""

    number: int
    rule: Through
    key: Key = (0, 0, 0)
    root: bytes = b""
    hints: dict[tuple[Node, bytes], None] = attrs.Factory(dict)
    lookups: int = 0
    handles: list[PassHandle] = attrs.Factory(list)

    @property
    def is_directory(self) -> bool:
        return bool(self.root) or self.key[2] == stat.S_IFDIR

    def hint(self, parent: Node, name: bytes) -> None:
        """It has this name now. A directory has one name."""
        if self.is_directory:
            self.hints.clear()
        self.hints.pop((parent, name), None)
        self.hints[parent, name] = None
        if len(self.hints) > HINTS:
            del self.hints[next(iter(self.hints))]

    def newest(self) -> list[tuple[Node, bytes]]:
        """Its names, the newest first."""
        return list(reversed(list(self.hints)))

    def opened(self) -> Held | None:
        """A descriptor of it, where a client has it open."""
        return self.handles[-1].held if self.handles else None


@attrs.frozen
class Found:
    """What stat(2) says of a file of HOME, and the number it has here."""

    number: int
    stat: os.stat_result
    entry_seconds: float = 0.0


@attrs.frozen
class Change:
    """What setattr is to change; times in nanoseconds since 1970, None is as it was."""

    size: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime: int | None = None
    mtime: int | None = None


class PassHandle(Handle):
    """A file of HOME, open."""

    def __init__(self, through: Passthrough, node: Node, held: Held, flags: int) -> None:
        super().__init__()
        self.held = held
        self.node = node
        self.appends = bool(flags & os.O_APPEND)
        self.writes = flags & os.O_ACCMODE != os.O_RDONLY
        self._through = through
        self._near = through.is_near(node)
        node.handles.append(self)

    async def read(self, offset: int, size: int) -> bytes:
        held, found = self.held, b""
        if self._near:
            buffer = bytearray(size)
            with contextlib.suppress(OSError):  # EAGAIN: not in memory; EOPNOTSUPP: this disk cannot tell
                found = memoryview(buffer)[: os.preadv(held.fd, [buffer], offset, os.RWF_NOWAIT)].tobytes()
            if len(found) == size or (found and offset + len(found) == held.stat().st_size):
                return found
        return await self._through.slow(_read, held, size, offset)

    async def put(self, offset: int, data: bytes) -> int:
        """Write all of `data`."""
        place = None
        if self.appends:
            place = next((h.held for h in self.node.handles if h.writes and not h.appends), None)
        await self._through.slow(_write, self.held, place, self.appends, data, offset)
        return len(data)

    async def flush(self, final: bool = False) -> None:
        if final:
            await self._through.slow(_sync, self.held)
        elif self.writes and not self._near:
            await self._through.slow(_flush, self.held)

    async def close(self) -> None:
        """The last descriptor was closed. The end of a file without a name may take its time."""
        held = self.held
        self.node.handles.remove(self)
        del self.held
        if not self._near or not held.stat().st_nlink:
            last = [held]
            del held
            await self._through.slow(last.clear)


def _captured(work: Callable[[], R]) -> tuple[R] | int:
    """The result, alone in a tuple, or the errno."""
    try:
        return (work(),)
    except OSError as error:
        return error.errno or errno.EIO


def _read(held: Held, size: int, offset: int) -> bytes:
    return os.pread(held.fd, size, offset)


def _write(held: Held, place: Held | None, appends: bool, data: bytes, offset: int) -> None:
    """Write. Linux appends with O_APPEND whatever the offset is, so appenders here and in HOME never overwrite.

    A page that a client changed through a shared mapping may come by any handle of its file, this one too. It begins
    at the beginning of a page, below the end; then it goes to its place, by the handle that made the mapping possible.
    """
    if not appends:
        pwrite_all(held.fd, data, offset)
    elif place is not None and offset % PAGE == 0 and offset < held.stat().st_size:
        pwrite_all(place.fd, data, offset)
    else:
        write_all(held.fd, data)


def _sync(held: Held) -> None:
    os.fsync(held.fd)


def _flush(held: Held) -> None:
    """close(2) of a copy: a network file system tells its errors then."""
    os.close(os.dup(held.fd))


class Listing:
    """An open directory: its names as of the last rewind, and attributes of the next few of them."""

    def __init__(self, through: Passthrough, node: Node, held: Held) -> None:
        self.node = node
        self.held = held
        self._through = through
        self._names: list[bytes] = []
        self._ahead: list[tuple[int, bytes, os.stat_result]] = []

    async def entries(self, start: int) -> list[tuple[int, bytes, os.stat_result]]:
        """Some entries from position `start` on: the position behind each, its name, what it is. Empty at the end."""
        if start == 0:
            self._names, self._ahead = await self._through.slow(self._list), []
        ahead = [entry for entry in self._ahead if entry[0] > start]
        if not ahead or ahead[0][0] != start + 1:
            ahead = await self._through.slow(self._look, start)
        self._ahead = ahead
        return ahead

    def _list(self) -> list[bytes]:
        return [os.fsencode(name) for name in os.listdir(self.held.fd)]

    def _look(self, start: int) -> list[tuple[int, bytes, os.stat_result]]:
        found: list[tuple[int, bytes, os.stat_result]] = []
        for n in range(start, len(self._names)):
            with contextlib.suppress(OSError):  # it went while we looked
                found.append(
                    (n + 1, self._names[n], os.stat(self._names[n], dir_fd=self.held.fd, follow_symlinks=False))
                )
            if len(found) == BATCH:
                break
        return found

    async def sync(self) -> None:
        """Make its names last."""
        await self._through.slow(_sync, self.held)


class Passthrough:
    """See module. Every method raises OSError as the system call of its name does."""

    def __init__(self, home: Home) -> None:
        self._home = Held(os.open(home.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        self._device = self._home.stat().st_dev
        self._is_local = is_local(self._home)
        self._nodes: dict[int, Node] = {}
        for row in ROOT.values():
            if row.through is not None:
                number = ROOT_INODE + row.index
                self._nodes[number] = Node(number, row.through, root=row.name.encode())
        self._roots = frozenset(self._nodes)
        self._others: dict[tuple[Through, int, int], int] = {}
        self._last_other = OTHER_BASE
        self._open: collections.OrderedDict[Node, Held] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._limiter = trio.CapacityLimiter(WORKERS)

    def owns(self, number: int) -> bool:
        """Whether this inode is one of these trees'."""
        return number >= PASS_BASE or number in self._roots

    # -- how the work is done -----------------------------------------------------------------------------------

    async def slow(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it in a worker thread. What it raises comes without its frames, which hold descriptors open."""
        done = await trio.to_thread.run_sync(_captured, lambda: work(*args, **kwargs), limiter=self._limiter)
        if isinstance(done, int):
            raise OSError(done, os.strerror(done))
        return done[0]

    def is_near(self, node: Node) -> bool:
        """Whether this file is on HOME's own disk, and that is one of this machine."""
        return self._is_local and (bool(node.root) or node.key[0] == self._device)

    async def _quick(
        self, work: Callable[Concatenate[Finder, Node, P], R], node: Node, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Do it at once where all that it looks up is in memory, else in a worker thread."""
        if self.is_near(node):
            with contextlib.suppress(BlockingIOError):
                return work(find_cached, node, *args, **kwargs)
        return await self.slow(work, find, node, *args, **kwargs)

    def _node(self, number: int) -> Node:
        node = self._nodes.get(number)
        if node is None:
            raise OSError(errno.ESTALE, "forgotten")
        return node

    def _directory(self, finder: Finder, node: Node) -> Held:
        """A descriptor of a directory: of those kept, else down from the first above it that is."""
        chain: list[tuple[Node, bytes]] = []
        at = node
        while (held := self._kept(at)) is None:
            if at.root:
                held = finder(self._home, at.root)
                if not stat.S_ISDIR(held.stat().st_mode):
                    raise OSError(errno.ENOTDIR, "a directory of HOME is none")
                break
            if len(chain) > DEEPEST or not (names := at.newest()):
                raise OSError(errno.ESTALE, "its place is not known")
            chain.append((at, names[0][1]))
            at = names[0][0]
        for below, name in reversed(chain):
            try:
                held = finder(held, name)
            except OSError as error:
                raise OSError(errno.ESTALE if error.errno in _ELSEWHERE else error.errno, "moved") from None
            if key_of(held.stat()) != below.key:
                raise OSError(errno.ESTALE, "another one is in its place")
            self._keep(below, held)
        return held

    def _kept(self, node: Node) -> Held | None:
        with self._lock:
            held = self._open.get(node)
            if held is not None:
                self._open.move_to_end(node)
            return held

    def _keep(self, node: Node, held: Held) -> None:
        """Keep a directory open; not one of a disk that somebody mounted in HOME and may want to unmount."""
        if node.key[0] == self._device:
            with self._lock:
                self._open[node] = held
                if len(self._open) > DIRECTORIES:
                    self._open.popitem(last=False)

    def _held(self, finder: Finder, node: Node, opened: Held | None) -> Held:
        """A descriptor of exactly this file. `opened` is one that a client has open."""
        if opened is not None:
            return opened
        if node.is_directory:
            return self._directory(finder, node)
        for parent, name in node.newest():
            try:
                held = finder(self._directory(finder, parent), name)
            except OSError as error:
                if error.errno not in _ELSEWHERE:
                    raise
                continue
            if key_of(held.stat()) == node.key:
                return held
        raise OSError(errno.ESTALE, "another one is in its place")

    # -- the table ----------------------------------------------------------------------------------------------

    def number(self, rule: Through, found: os.stat_result) -> int:
        """The number that a file of HOME has here. What is shown read only is not the file that may be written."""
        if found.st_dev == self._device and found.st_ino < PASS_SPAN:
            return (LOG_BASE if rule is Through.LOOKING else PASS_BASE) + found.st_ino
        key = (rule, found.st_dev, found.st_ino)
        if key not in self._others:
            self._last_other += 1
            self._others[key] = self._last_other
        return self._others[key]

    def told(self, parent: Node, name: bytes, found: os.stat_result) -> Found:
        """The kernel is told that `name` is this file: it will forget it once more."""
        number = self.number(parent.rule, found)
        node = self._nodes.get(number)
        if node is None:
            node = self._nodes[number] = Node(number, parent.rule, key_of(found))
        elif node.key != key_of(found):  # the disk used the number again
            node.key, node.hints = key_of(found), {}
        node.hint(parent, name)
        node.lookups += 1
        return Found(number, found)

    def forget(self, number: int, count: int) -> None:
        """The kernel forgets this inode `count` times."""
        node = self._nodes.get(number)
        if node is None or node.root:
            return
        node.lookups -= count
        if node.lookups <= 0:
            del self._nodes[number]
            if number > OTHER_BASE:
                self._others.pop((node.rule, *node.key[:2]), None)
            with self._lock:
                self._open.pop(node, None)

    def _moved(self, parent: Node, name: bytes, found: os.stat_result) -> None:
        node = self._nodes.get(self.number(parent.rule, found))
        if node is not None and node.key == key_of(found):
            node.hint(parent, name)

    # -- looking ------------------------------------------------------------------------------------------------

    def root(self, number: int) -> Found:
        """The attributes of a tree's directory, whose name in MOUNT never changes."""
        node = self._nodes[number]
        return Found(number, self._stat(find, node, None), LONG)

    async def lookup(self, parent: int, name: bytes) -> Found:
        """What has this name."""
        node = self._node(parent)
        return self.told(node, name, await self._quick(self._look, node, name))

    def _look(self, finder: Finder, parent: Node, name: bytes) -> os.stat_result:
        return finder(self._directory(finder, parent), name).stat()

    async def attributes(self, number: int) -> Found:
        """stat(2)."""
        node = self._node(number)
        found = await self._quick(self._stat, node, node.opened())
        return Found(number, found, LONG if node.root else 0.0)

    def _stat(self, finder: Finder, node: Node, opened: Held | None) -> os.stat_result:
        return self._held(finder, node, opened).stat()

    async def readlink(self, number: int) -> bytes:
        """Where a symlink leads; who follows it is the client's kernel."""
        return await self._quick(self._readlink, self._node(number))

    def _readlink(self, finder: Finder, node: Node) -> bytes:
        held = self._held(finder, node, None)
        return os.readlink(b"", dir_fd=held.fd)

    async def opendir(self, number: int) -> Listing:
        """Open a directory."""
        node = self._node(number)
        return Listing(self, node, await self.slow(self._opendir, node))

    def _opendir(self, node: Node) -> Held:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        held = self._directory(find, node)
        return Held(os.open(b".", flags, dir_fd=held.fd))

    # -- files --------------------------------------------------------------------------------------------------

    async def open(self, number: int, flags: int) -> PassHandle:
        """Open a file; O_CREAT means nothing here."""
        node = self._node(number)
        if flags & (os.O_ACCMODE | os.O_TRUNC):
            _check(node)
        if flags & os.O_TRUNC:
            held = await self.slow(self._open_file, find, node, node.opened(), flags)
        else:
            held = await self._quick(self._open_file, node, node.opened(), flags)
        return PassHandle(self, node, held, flags)

    def _open_file(self, finder: Finder, node: Node, opened: Held | None, flags: int) -> Held:
        found = self._held(finder, node, opened)
        if not stat.S_ISREG(found.stat().st_mode):
            raise OSError(errno.ENXIO, "no file of bytes")
        at_once = os.O_NONBLOCK if finder is find_cached else 0  # who holds a lease on it may take its time
        held = Held(os.open(found.path, (flags & _KEPT) | os.O_CLOEXEC | at_once))
        if flags & os.O_TRUNC:
            _truncate(held, flags, 0)
        return held

    async def create(self, parent: int, name: bytes, mode: int, flags: int) -> tuple[PassHandle, Found]:
        """Make a file, or open the one that is there, and open it."""
        directory = self._writable(parent)
        if directory.rule is Through.LINKS:
            raise OSError(errno.EPERM, "only symlinks can be made here")
        held, found = await self.slow(self._create, directory, name, mode, flags)
        told = self.told(directory, name, found)
        return PassHandle(self, self._nodes[told.number], held, flags), told

    def _create(self, parent: Node, name: bytes, mode: int, flags: int) -> tuple[Held, os.stat_result]:
        directory = self._directory(find, parent)
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

    async def setattr(self, number: int, change: Change, handle: PassHandle | None) -> Found:
        """Change mode, owner, size or times."""
        node = self._node(number)
        _check(node)
        opened = handle.held if handle is not None else node.opened()
        flags = os.O_RDWR if handle is not None and handle.writes else os.O_RDONLY
        found = await self.slow(self._setattr, node, opened, flags, change)
        return Found(number, found, LONG if node.root else 0.0)

    def _setattr(self, node: Node, opened: Held | None, flags: int, change: Change) -> os.stat_result:
        held = self._held(find, node, opened)
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

    # -- names --------------------------------------------------------------------------------------------------

    def _writable(self, number: int) -> Node:
        node = self._node(number)
        _check(node)
        return node

    async def _make(self, parent: int, name: bytes, work: Callable[[Held], None]) -> Found:
        """Do `work` with the directory's descriptor; what it made."""
        directory = self._writable(parent)

        def make() -> os.stat_result:
            held = self._directory(find, directory)
            work(held)
            return os.stat(name, dir_fd=held.fd, follow_symlinks=False)

        return self.told(directory, name, await self.slow(make))

    async def mknod(self, parent: int, name: bytes, mode: int) -> Found:
        """Make a file, a FIFO or a socket's name; no device."""

        def work(held: Held) -> None:
            os.mknod(name, mode, dir_fd=held.fd)
            _unmask(find(held, name), mode)

        if stat.S_IFMT(mode) not in _MADE or self._node(parent).rule is Through.LINKS:
            _check(self._node(parent))
            raise OSError(errno.EPERM, "no such thing can be made here")
        return await self._make(parent, name, work)

    async def mkdir(self, parent: int, name: bytes, mode: int) -> Found:
        """Make a directory."""

        def work(held: Held) -> None:
            os.mkdir(name, mode & 0o7777, dir_fd=held.fd)
            _unmask(find(held, name), mode)

        if self._writable(parent).rule is Through.LINKS:
            raise OSError(errno.EPERM, "only symlinks can be made here")
        return await self._make(parent, name, work)

    async def symlink(self, parent: int, name: bytes, target: bytes) -> Found:
        """Make a symlink, wherever it leads: nobody here follows it."""
        return await self._make(parent, name, lambda held: os.symlink(target, name, dir_fd=held.fd))

    async def link(self, number: int, parent: int, name: bytes) -> Found:
        """Give a file another name."""
        node, directory = self._node(number), self._writable(parent)
        if node.rule is not directory.rule:
            raise OSError(errno.EXDEV, "no link between these trees")
        opened = node.opened()
        return await self._make(parent, name, lambda held: self._link(node, opened, held, name))

    def _link(self, node: Node, opened: Held | None, new: Held, name: bytes) -> None:
        if node.key[2] == stat.S_IFLNK:  # a symlink can be linked to by name only
            parent, old = node.newest()[0]
            source = self._directory(find, parent)
            os.link(old, name, src_dir_fd=source.fd, dst_dir_fd=new.fd, follow_symlinks=False)
        else:
            held = self._held(find, node, opened)
            os.link(held.path, name, dst_dir_fd=new.fd, follow_symlinks=True)

    async def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name."""
        directory = self._writable(parent)
        await self.slow(self._remove, os.unlink, directory, name)

    async def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory."""
        directory = self._writable(parent)
        await self.slow(self._remove, os.rmdir, directory, name)

    def _remove(self, call: Callable[..., None], parent: Node, name: bytes) -> None:
        held = self._directory(find, parent)
        call(name, dir_fd=held.fd)

    async def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> None:
        """renameat2(2), within a tree and between those that may be written."""
        old, new = self._writable(parent), self._writable(new_parent)
        for where, what, found in await self.slow(self._rename, old, name, new, new_name, flags):
            self._moved(where, what, found)

    def _rename(
        self, old: Node, name: bytes, new: Node, new_name: bytes, flags: int
    ) -> list[tuple[Node, bytes, os.stat_result]]:
        ends = [(old, name, self._directory(find, old)), (new, new_name, self._directory(find, new))]
        enters = [(new, name, ends[0][2])] + ([(old, new_name, ends[1][2])] if flags & RENAME_EXCHANGE else [])
        for where, what, held in enters:
            mode = os.stat(what, dir_fd=held.fd, follow_symlinks=False).st_mode
            if where.rule is Through.LINKS and not stat.S_ISLNK(mode):
                raise OSError(errno.EPERM, "only symlinks can be here")
        rename(ends[0][2], name, ends[1][2], new_name, flags)
        return list(_what_is(ends))


def _what_is(ends: list[tuple[Node, bytes, Held]]) -> Iterator[tuple[Node, bytes, os.stat_result]]:
    for where, name, held in ends:
        with contextlib.suppress(OSError):  # the name that went
            yield where, name, os.stat(name, dir_fd=held.fd, follow_symlinks=False)


def _truncate(held: Held, flags: int, size: int) -> None:
    """Cut a file: by the descriptor where that was opened with flags to write, since its mode may not permit more."""
    if flags & os.O_ACCMODE != os.O_RDONLY:
        os.ftruncate(held.fd, size)
    else:
        os.truncate(held.path, size)


def _check(node: Node) -> None:
    """Refuse a change of what is to be looked at only."""
    if node.rule is Through.LOOKING:
        raise OSError(errno.EROFS, "this tree is read only")


def _unmask(held: Held, mode: int) -> None:
    """Give what was made the mode that the client asked for: our own umask is not the client's."""
    was = held.stat().st_mode
    wanted = stat.S_IMODE(mode) | (was & stat.S_ISGID)
    if stat.S_IMODE(was) != wanted:
        os.chmod(held.path, wanted)
