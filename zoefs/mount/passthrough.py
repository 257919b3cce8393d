"""The directories of HOME that MOUNT shows through: ordinary files under inode numbers of this mount.

Rules. Whatever may wait for a disk runs in a worker thread, of which these trees have their own few: `status` and
the agents' flushes never queue behind them. Names and content that memory has are looked at without a thread, and
only where HOME's disk is a local one. What is to be looked at only refuses everybody, and what an agent may not change
(`contract/guard`) refuses it, before anything is done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from zoefs.contract.guard import what_of
from zoefs.contract.home import Home
from zoefs.disk.beneath import Finder, Held, find, find_cached
from zoefs.mount import passwork
from zoefs.mount.guard import Guard
from zoefs.mount.node import Node, Opened
from zoefs.mount.nodes import Found, Nodes
from zoefs.mount.passfiles import Listing, PassHandle
from zoefs.mount.passwork import Change
from zoefs.mount.tree import LONG, Through
from zoefs.mount.workers import Workers

P = ParamSpec("P")
R = TypeVar("R")

WORKERS = 16
"""Threads that these trees may occupy at once."""
_MADE = frozenset({stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK})


class Passthrough:
    """See module. Every method raises OSError as the system call of its name does; `pid` is who calls."""

    def __init__(self, home: Home, guard: Guard) -> None:
        self.nodes = Nodes(home)
        self._guard = guard
        self._workers = Workers(WORKERS)

    async def _quick(
        self, work: Callable[Concatenate[Finder, Nodes, Node, P], R], node: Node, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Do it at once where all that it looks up is in memory, else in a worker thread."""
        if self.nodes.is_near(node):
            with contextlib.suppress(BlockingIOError):
                return work(find_cached, self.nodes, node, *args, **kwargs)
        return await self._workers.do(work, find, self.nodes, node, *args, **kwargs)

    async def _permit(self, pid: int, *places: tuple[Node, bytes]) -> None:
        """Refuse a change of a file, or of the name in a directory. A file with several names is refused by any."""
        for node, _ in places:
            _check(node)
        opener = await self._guard.opener(pid)
        if opener is None:
            return
        for node, name in places:
            if name:
                found = [self.nodes.place(node, name)]
            else:
                found = await self._workers.do(self.nodes.places, node, node.opened())
            for parts in found:
                place = tuple(map(os.fsdecode, parts))
                self._guard.check(opener, what_of(place), place="/".join(place))

    async def _directory(self, parent: int, name: bytes, pid: int, links: bool = True) -> Node:
        """The directory in which this name may be made or removed; not one of symlinks alone, without `links`."""
        directory = self.nodes.get(parent)
        await self._permit(pid, (directory, name))
        if directory.rule is Through.LINKS and not links:
            raise OSError(errno.EPERM, "only symlinks can be made here")
        return directory

    # -- looking ------------------------------------------------------------------------------------------------

    async def lookup(self, parent: int, name: bytes) -> Found:
        """What has this name."""
        node = self.nodes.get(parent)
        return self.nodes.told(node, name, await self._quick(passwork.look, node, name))

    async def attributes(self, number: int) -> Found:
        """stat(2). The name of a tree's directory never changes in MOUNT."""
        node = self.nodes.get(number)
        return _again(node, await self._quick(passwork.attributes, node, node.opened()))

    async def readlink(self, number: int) -> bytes:
        """Where a symlink leads; who follows it is the client's kernel."""
        return await self._quick(passwork.readlink, self.nodes.get(number))

    async def opendir(self, number: int) -> Listing:
        """Open a directory."""
        node = self.nodes.get(number)
        return Listing(self._workers, node, await self._workers.do(passwork.open_directory, self.nodes, node))

    # -- files --------------------------------------------------------------------------------------------------

    def _opened(self, node: Node, held: Held, flags: int) -> PassHandle:
        return PassHandle(self._workers, node, Opened(held, flags), self.nodes.is_near(node))

    async def open(self, number: int, flags: int, pid: int) -> PassHandle:
        """Open a file; O_CREAT means nothing here."""
        node = self.nodes.get(number)
        if flags & (os.O_ACCMODE | os.O_TRUNC):
            await self._permit(pid, (node, b""))
        if flags & os.O_TRUNC:
            held = await self._workers.do(passwork.open_file, find, self.nodes, node, node.opened(), flags)
            node.size = 0
        else:
            held = await self._quick(passwork.open_file, node, node.opened(), flags)
        return self._opened(node, held, flags)

    async def create(self, parent: int, name: bytes, mode: int, flags: int, pid: int) -> tuple[PassHandle, Found]:
        """Make a file, or open the one that is there, and open it."""
        directory = await self._directory(parent, name, pid, links=False)
        held, found = await self._workers.do(passwork.create, self.nodes, directory, name, mode, flags)
        told = self.nodes.told(directory, name, found)
        return self._opened(self.nodes.get(told.number), held, flags), told

    async def setattr(self, number: int, change: Change, handle: PassHandle | None, pid: int) -> Found:
        """Change mode, owner, size or times."""
        node = self.nodes.get(number)
        await self._permit(pid, (node, b""))
        opened, flags = node.opened(), os.O_RDONLY
        if handle is not None:
            opened, flags = handle.opened.held, handle.opened.flags
        return _again(node, await self._workers.do(passwork.alter, self.nodes, node, opened, flags, change))

    # -- names --------------------------------------------------------------------------------------------------

    async def _make(self, directory: Node, name: bytes, work: Callable[[Held], None]) -> Found:
        """Do `work` with the directory's descriptor; what it made."""
        return self.nodes.told(
            directory, name, await self._workers.do(passwork.make, self.nodes, directory, name, work)
        )

    async def mknod(self, parent: int, name: bytes, mode: int, pid: int) -> Found:
        """Make a file, a FIFO or a socket's name; no device."""
        directory = await self._directory(parent, name, pid, links=False)
        if stat.S_IFMT(mode) not in _MADE:
            raise OSError(errno.EPERM, "no such thing can be made here")
        return await self._make(directory, name, lambda held: passwork.make_file(held, name, mode))

    async def mkdir(self, parent: int, name: bytes, mode: int, pid: int) -> Found:
        """Make a directory."""
        directory = await self._directory(parent, name, pid, links=False)
        return await self._make(directory, name, lambda held: passwork.make_directory(held, name, mode))

    async def symlink(self, parent: int, name: bytes, target: bytes, pid: int) -> Found:
        """Make a symlink, wherever it leads: nobody here follows it."""
        directory = await self._directory(parent, name, pid)
        return await self._make(directory, name, lambda held: os.symlink(target, name, dir_fd=held.fd))

    async def link(self, number: int, parent: int, name: bytes, pid: int) -> Found:
        """Give a file another name; who may not write the file may not have it under a name where it may write."""
        node, directory = self.nodes.get(number), self.nodes.get(parent)
        _check(directory)
        if node.rule is not directory.rule:
            raise OSError(errno.EXDEV, "no link between these trees")
        await self._permit(pid, (node, b""), (directory, name))
        opened = node.opened()
        return await self._make(directory, name, lambda held: passwork.link(self.nodes, node, opened, held, name))

    async def unlink(self, parent: int, name: bytes, pid: int) -> None:
        """Remove a name."""
        directory = await self._directory(parent, name, pid)
        await self._workers.do(passwork.remove, self.nodes, os.unlink, directory, name)

    async def rmdir(self, parent: int, name: bytes, pid: int) -> None:
        """Remove an empty directory."""
        directory = await self._directory(parent, name, pid)
        await self._workers.do(passwork.remove, self.nodes, os.rmdir, directory, name)

    async def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, pid: int) -> None:
        """renameat2(2), within a tree and between those that may be written."""
        old, new = self.nodes.get(parent), self.nodes.get(new_parent)
        await self._permit(pid, (old, name), (new, new_name))
        for where, what, found in await self._workers.do(passwork.move, self.nodes, old, name, new, new_name, flags):
            self.nodes.moved(where, what, found)


def _check(node: Node) -> None:
    """Refuse a change of what is to be looked at only."""
    if node.rule is Through.LOOKING:
        raise OSError(errno.EROFS, "this tree is read only")


def _again(node: Node, found: os.stat_result) -> Found:
    """The kernel is told anew what a file that it knows is."""
    node.size = found.st_size
    return Found(node.number, found, LONG if node.root else 0.0)
