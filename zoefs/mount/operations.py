"""Requests in, service calls, replies out. An inode is an agent's, or one of HOME's directories shown through.

Another FUSE transport could be put in the place of this file and `replies`. Rules (source: measured with pyfuse3
3.5.0): no exception but FUSEError may leave a handler; release commits before any checkpoint; a notification sent from
here is `attr_only` or a poll wake-up, the two that cannot deadlock.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pyfuse3
from pyfuse3 import EntryAttributes, FileHandleT, FileInfo, FUSEError, InodeT, RequestContext

from zoefs.contract.refusal import Refusal
from zoefs.mount import replies
from zoefs.mount.handles import Handle
from zoefs.mount.inodes import Attributes
from zoefs.mount.nodes import Found
from zoefs.mount.passfiles import Listing, PassHandle
from zoefs.mount.pollers import Pollers
from zoefs.mount.replies import entry
from zoefs.mount.service import Make, Service
from zoefs.mount.view import View

log = logging.getLogger("zoefs.mount")
P = ParamSpec("P")
R = TypeVar("R")
Names = list[tuple[bytes, Make]]
KINDS: list[str] = []
"""The requests that are counted, each from the start on."""


def guarded(
    handler: Callable[Concatenate[Operations, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Operations, P], Coroutine[Any, Any, R]]:
    """Whatever goes wrong in a handler, only its caller hears of it: a bug is EIO and a traceback in the log.

    Requests and errors are counted.
    """
    kind = handler.__name__
    KINDS.append(kind)
    answer: Callable[..., Coroutine[Any, Any, R]] = handler

    @functools.wraps(handler)
    async def safe(*args: Any) -> R:  # pyfuse3 names no argument, and each repacking of them costs
        operations: Operations = args[0]
        operations.asked[kind] += 1
        try:
            return await answer(*args)
        except FUSEError as error:
            operations.refused[error.errno] += 1
            raise
        except (Refusal, OSError) as error:
            number = error.errno or errno.EIO
            operations.refused[number] += 1
            raise FUSEError(number) from None
        except Exception:
            log.exception("%s", kind)
            operations.refused[errno.EIO] += 1
            raise FUSEError(errno.EIO) from None

    return cast("Callable[Concatenate[Operations, P], Coroutine[Any, Any, R]]", safe)


class Operations(pyfuse3.Operations):
    """See module."""

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self._through = service.through
        self._owns = service.through.nodes.owns
        self.asked, self.refused = service.metrics.operations, service.metrics.refusals
        self.asked.update(dict.fromkeys(KINDS, 0))
        self._handles: dict[int, Handle] = {}
        self._directories: dict[int, tuple[int, Names]] = {}
        self._listings: dict[int, Listing] = {}
        self._next = 1
        self._pollers = Pollers(self._handles)
        service.changed = self._changed

    # -- attributes and names -----------------------------------------------------------------------------------

    def _told(self, told: Attributes) -> EntryAttributes:
        self._service.entries.looked_up(told.inode)
        return entry(told)

    @guarded
    async def lookup(self, parent_inode: InodeT, name: bytes, ctx: RequestContext) -> EntryAttributes:
        if self._owns(parent_inode):
            return entry(await self._through.lookup(parent_inode, name))
        await self._service.agents.ready(parent_inode)
        told = self._service.lookup(parent_inode, os.fsdecode(name))
        return self._told(told) if isinstance(told, Attributes) else entry(await told)

    @guarded
    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        if self._owns(inode):
            return entry(await self._through.attributes(inode))
        await self._service.agents.ready(inode)
        return entry(self._service.attributes(inode))

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        for inode, count in inode_list:
            if self._owns(inode):
                self._through.nodes.forget(inode, count)
            else:
                self._service.entries.forget(inode, count)

    @guarded
    async def setattr(
        self,
        inode: InodeT,
        attr: EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: FileHandleT | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        if self._owns(inode):
            handle = self._handles.get(fh) if fh is not None else None
            opened = handle if isinstance(handle, PassHandle) else None
            return entry(await self._through.setattr(inode, replies.change(attr, fields), opened, ctx.pid))
        if fields.update_size and fh is not None:
            self._handles[fh].truncate(attr.st_size)
        elif fields.update_size:
            await self._service.truncate(inode, attr.st_size, ctx.pid)
        return entry(self._service.attributes(inode))

    @guarded
    async def readlink(self, inode: InodeT, ctx: RequestContext) -> bytes:
        if not self._owns(inode):
            raise FUSEError(errno.EINVAL)
        return await self._through.readlink(inode)

    # -- files --------------------------------------------------------------------------------------------------

    def _opened(self, handle: Handle) -> FileInfo:
        fh = self._next
        self._next += 1
        self._handles[fh] = handle
        direct = not isinstance(handle, PassHandle)  # without the page cache there is no shared mapping
        return FileInfo(fh=FileHandleT(fh), direct_io=direct, keep_cache=False, nonseekable=False)

    @guarded
    async def open(self, inode: InodeT, flags: int, ctx: RequestContext) -> FileInfo:
        if self._owns(inode):
            return self._opened(await self._through.open(inode, flags, ctx.pid))
        return self._opened(await self._service.open(inode, flags, ctx.pid))

    @guarded
    async def create(
        self, parent_inode: InodeT, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        if self._owns(parent_inode):
            opened, found = await self._through.create(parent_inode, name, mode, flags, ctx.pid)
            return self._opened(opened), entry(found)
        handle, told = await self._service.create(parent_inode, os.fsdecode(name), flags, ctx.pid)
        return self._opened(handle), self._told(told)

    @guarded
    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        return await self._handles[fh].read(off, size)

    @guarded
    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        handle = self._handles[fh]
        if isinstance(handle, PassHandle):
            return await handle.put(off, bytes(buf))
        return handle.write(off, bytes(buf))

    @guarded
    async def flush(self, fh: FileHandleT) -> None:
        await self._handles[fh].flush()

    @guarded
    async def fsync(self, fh: FileHandleT, datasync: bool) -> None:
        await self._handles[fh].flush(final=True)

    @guarded
    async def release(self, fh: FileHandleT) -> None:
        handle = self._handles.pop(fh)
        if isinstance(handle, PassHandle):
            return await handle.close()
        self._pollers.forget(fh, handle)
        self._service.released(handle)

    # -- waiting ------------------------------------------------------------------------------------------------

    @guarded
    async def poll(
        self, inode: InodeT, fh: FileHandleT, poll_handle: pyfuse3.PollHandle | None, ctx: RequestContext
    ) -> int:
        return self._pollers.poll(fh, poll_handle)

    def _changed(self, view: View, word: bool) -> None:
        if word:
            self._invalidate(self._service.status_inode(view))
        self._pollers.wake(view)

    def _invalidate(self, inode: int) -> None:
        try:
            pyfuse3.invalidate_inode(InodeT(inode), attr_only=True)
        except OSError as error:
            if error.errno != errno.ENOENT:
                log.warning("invalidate %d: %s", inode, error)

    # -- directories --------------------------------------------------------------------------------------------

    @guarded
    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        await self._service.agents.ready(inode)
        listing = await self._through.opendir(inode) if self._owns(inode) else None
        fh = self._next
        self._next += 1
        if listing is not None:
            self._listings[fh] = listing
        else:
            self._directories[fh] = inode, []
        return FileHandleT(fh)

    @guarded
    async def readdir(self, fh: FileHandleT, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        if fh in self._listings:
            return await self._read_listing(self._listings[fh], start_id, token)
        inode, entries = self._directories[fh]
        if start_id == 0:  # the beginning, or a rewind: what is there now
            entries = [(os.fsencode(name), make) for name, make in self._service.listing(inode)]
            self._directories[fh] = inode, entries
        for n in range(start_id, len(entries)):
            name, make = entries[n]
            try:
                made = make()
                told = made if isinstance(made, Attributes) else await made
            except OSError:
                continue
            if not pyfuse3.readdir_reply(token, name, entry(told), n + 1):
                return
            if isinstance(told, Attributes):
                self._service.entries.looked_up(told.inode)

    async def _read_listing(self, listing: Listing, start: int, token: pyfuse3.ReaddirToken) -> None:
        nodes = self._through.nodes
        while entries := await listing.entries(start):
            for behind, name, found in entries:
                near = listing.number(name)
                number = nodes.number(listing.node.rule, found) if near is None else near
                if not pyfuse3.readdir_reply(token, name, entry(Found(number, found)), behind):
                    return
                if near is None:
                    nodes.told(listing.node, name, found)
                start = behind

    @guarded
    async def releasedir(self, fh: FileHandleT) -> None:
        if self._listings.pop(fh, None) is None:
            del self._directories[fh]

    @guarded
    async def fsyncdir(self, fh: FileHandleT, datasync: bool) -> None:
        """Names of agents and prompts are lasting already when the call that made them returned."""
        if fh in self._listings:
            await self._listings[fh].sync()

    @guarded
    async def mkdir(self, parent_inode: InodeT, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        if self._owns(parent_inode):
            return entry(await self._through.mkdir(parent_inode, name, mode, ctx.pid))
        return self._told(await self._service.mkdir(parent_inode, os.fsdecode(name), ctx.pid))

    @guarded
    async def rmdir(self, parent_inode: InodeT, name: bytes, ctx: RequestContext) -> None:
        if self._owns(parent_inode):
            return await self._through.rmdir(parent_inode, name, ctx.pid)
        await self._service.rmdir(parent_inode, os.fsdecode(name), ctx.pid)

    @guarded
    async def rename(
        self,
        parent_inode_old: InodeT,
        name_old: bytes,
        parent_inode_new: InodeT,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        ours = self._owns(parent_inode_old)
        if ours != self._owns(parent_inode_new):
            raise FUSEError(errno.EXDEV)
        if ours:
            return await self._through.rename(parent_inode_old, name_old, parent_inode_new, name_new, flags, ctx.pid)
        old, new = os.fsdecode(name_old), os.fsdecode(name_new)
        await self._service.rename(parent_inode_old, old, parent_inode_new, new, flags, ctx.pid)

    @guarded
    async def unlink(self, parent_inode: InodeT, name: bytes, ctx: RequestContext) -> None:
        if self._owns(parent_inode):
            return await self._through.unlink(parent_inode, name, ctx.pid)
        await self._service.unlink(parent_inode, os.fsdecode(name), ctx.pid)

    # -- what is to be had of HOME's own directories only -------------------------------------------------------

    @guarded
    async def mknod(
        self, parent_inode: InodeT, name: bytes, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        self._check_ours(parent_inode)
        return entry(await self._through.mknod(parent_inode, name, mode, ctx.pid))

    @guarded
    async def symlink(self, parent_inode: InodeT, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        self._check_ours(parent_inode)
        return entry(await self._through.symlink(parent_inode, name, target, ctx.pid))

    @guarded
    async def link(
        self, inode: InodeT, new_parent_inode: InodeT, new_name: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        self._check_ours(new_parent_inode)
        if not self._owns(inode):
            raise FUSEError(errno.EXDEV)
        return entry(await self._through.link(inode, new_parent_inode, new_name, ctx.pid))

    def _check_ours(self, parent: InodeT) -> None:
        if not self._owns(parent):
            raise FUSEError(errno.EPERM)

    @guarded
    async def statfs(self, ctx: RequestContext) -> pyfuse3.StatvfsData:
        return replies.disk(self._service.home.path)
