"""Open files and open directories of HOME, as MOUNT shows them through."""

from __future__ import annotations

import contextlib
import os

from zoefs.disk.beneath import Held
from zoefs.disk.files import pwrite_all, write_all
from zoefs.mount.handles import Handle
from zoefs.mount.node import Node, Opened
from zoefs.mount.workers import Workers

BATCH = 64
"""Names of a listing whose attributes are looked up together."""
PAGE = 4096


class PassHandle(Handle):
    """A file of HOME, open. `near`: what memory has of it can be read without waiting."""

    def __init__(self, workers: Workers, node: Node, opened: Opened, near: bool) -> None:
        super().__init__()
        self.opened = opened
        self._node = node
        self._workers = workers
        self._near = near
        node.handles.append(opened)

    async def read(self, offset: int, size: int) -> bytes:
        held, found = self.opened.held, b""
        if self._near:
            buffer = bytearray(size)
            with contextlib.suppress(OSError):  # EAGAIN: not in memory; EOPNOTSUPP: this disk cannot tell
                found = memoryview(buffer)[: os.preadv(held.fd, [buffer], offset, os.RWF_NOWAIT)].tobytes()
            if len(found) == size or (found and offset + len(found) == held.stat().st_size):
                return found
        return await self._workers.do(_read, held, size, offset)

    async def put(self, offset: int, data: bytes) -> int:
        """Write all of `data`."""
        await self._workers.do(_write, self.opened, self._place(offset), data, offset)
        self._node.size = max(self._node.size, offset + len(data))
        return len(data)

    def _place(self, offset: int) -> Opened | None:
        """By which handle this goes to its offset; None where it is an append.

        A page that a client changed through a shared mapping may come by a handle that appends, if that one can be
        read too (source: mmap(2): who cannot read cannot map; measured: no other handle of the file is taken). It
        begins at the beginning of a page, below the end of the file as the kernel knows it; an append begins at it.
        """
        if not self.opened.appends:
            return self.opened
        if not self.opened.reads or offset % PAGE or offset >= self._node.size:
            return None
        return next((h for h in self._node.handles if h.writes and not h.appends), self.opened)

    async def flush(self, final: bool = False) -> None:
        if final:
            await self._workers.do(_sync, self.opened.held)
        elif self.opened.writes and not self._near:
            await self._workers.do(_flush, self.opened.held)

    async def close(self) -> None:
        """The last descriptor was closed. The end of a file without a name may take its time."""
        held = self.opened.held
        self._node.handles.remove(self.opened)
        del self.opened
        if not self._near or not held.stat().st_nlink:
            last = [held]
            del held
            await self._workers.do(last.clear)


def _read(held: Held, size: int, offset: int) -> bytes:
    return os.pread(held.fd, size, offset)


def _write(opened: Opened, place: Opened | None, data: bytes, offset: int) -> None:
    """Write. Linux appends with O_APPEND whatever the offset is, so appenders here and in HOME never overwrite."""
    if place is None:
        write_all(opened.held.fd, data)
    elif not place.appends:
        pwrite_all(place.held.fd, data, offset)
    else:
        other = Held(os.open(place.held.path, os.O_WRONLY | os.O_CLOEXEC))
        pwrite_all(other.fd, data, offset)


def _sync(held: Held) -> None:
    os.fsync(held.fd)


def _flush(held: Held) -> None:
    """close(2) of a copy: a network file system tells its errors then."""
    os.close(os.dup(held.fd))


class Listing:
    """An open directory: its names as of the last rewind, itself and the one above first, and what the next few are."""

    def __init__(self, workers: Workers, node: Node, held: Held) -> None:
        self.node = node
        self.held = held
        self._workers = workers
        self._names: list[bytes] = []
        self._ahead: list[tuple[int, bytes, os.stat_result]] = []

    async def entries(self, start: int) -> list[tuple[int, bytes, os.stat_result]]:
        """Some entries from position `start` on: the position behind each, its name, what it is. Empty at the end."""
        if start == 0:
            self._names, self._ahead = await self._workers.do(self._list), []
        ahead = [entry for entry in self._ahead if entry[0] > start]
        if not ahead or ahead[0][0] != start + 1:
            ahead = await self._workers.do(self._look, start)
        self._ahead = ahead
        return ahead

    def _list(self) -> list[bytes]:
        return [b".", b"..", *(os.fsencode(name) for name in os.listdir(self.held.fd))]

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

    def number(self, name: bytes) -> int | None:
        """The number of the directory itself, or of the one above; None for what is in it."""
        if name == b".":
            return self.node.number
        return self.node.above if name == b".." else None

    async def sync(self) -> None:
        """Make its names last."""
        await self._workers.do(_sync, self.held)
