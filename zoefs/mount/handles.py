"""Open files that are read. Each kind of open file is a class with `read write flush release truncate`.

Rules. Content is fixed at open and fixed anew by a read at offset 0, so one pass over a file never mixes two
versions. Only WaitHandle ever sleeps. Nothing here knows FUSE.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import trio

from zoefs.contract.refusal import Refusal
from zoefs.contract.words import WAIT_SECONDS
from zoefs.mount.view import View


class Handle:
    """An open file that can be neither read nor written. `view` is its agent; `counter` what poll(2) waits for."""

    def __init__(self, view: View | None = None, counter: str = "") -> None:
        self.view = view
        self.counter = counter
        self.seen = 0

    @property
    def ready(self) -> bool:
        """Whether a read would return something this handle has not returned yet."""
        return self.view is None or not self.counter or getattr(self.view, self.counter) != self.seen

    def mark(self) -> None:
        """What is there now has been seen by this handle."""
        if self.view is not None and self.counter:
            self.seen = getattr(self.view, self.counter)

    async def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; empty at the end."""
        return b""

    def write(self, offset: int, data: bytes) -> int:
        """Take all of `data`, or raise and spoil the handle."""
        raise Refusal(errno.EBADF, "not open for writing")

    async def flush(self, final: bool = False) -> None:
        """A descriptor of this handle was closed, or fsync was called."""

    def release(self) -> None:
        """The last descriptor was closed. Waits for nothing, fails never."""

    def truncate(self, size: int) -> None:
        """Cut what was written through this handle."""


class TextHandle(Handle):
    """A small file rendered by a function of now."""

    def __init__(self, render: Callable[[], bytes], view: View | None = None, counter: str = "") -> None:
        super().__init__(view, counter)
        self._render = render
        self._text: bytes | None = None

    async def read(self, offset: int, size: int) -> bytes:
        if offset == 0 or self._text is None:
            self._text = self._render()
            self.mark()
        return self._text[offset : offset + size]


class WordHandle(Handle):
    """`status`: the word, as short a way as there is."""

    def __init__(self, view: View) -> None:
        super().__init__(view, "statuses")
        self._view = view
        self._text = view.word

    async def read(self, offset: int, size: int) -> bytes:
        if offset == 0:
            self._text = self._view.word
            self.seen = self._view.statuses
        return self._text[offset : offset + size]


class WaitHandle(Handle):
    """`wait`: the word once the agent is settled, else nothing after WAIT_SECONDS."""

    def __init__(self, view: View, nonblocking: bool) -> None:
        super().__init__(view, "settlings")
        self._view = view
        self._nonblocking = nonblocking

    @property
    def ready(self) -> bool:
        return self._view.settled and super().ready

    async def read(self, offset: int, size: int) -> bytes:
        if offset:
            return b""
        if not self._nonblocking:
            with trio.move_on_after(WAIT_SECONDS):
                await self._settle()
        if self._view.gone:
            raise Refusal(errno.ESTALE, f"{self._view.name} was retired")
        if self._view.closing:
            raise Refusal(errno.ESHUTDOWN, "the mount is going")
        if not self._view.settled:
            return b""
        self.mark()
        return self._view.word[:size]

    async def _settle(self) -> None:
        while not (self._view.settled or self._view.gone or self._view.closing):
            await self._view.changed.wait()


class FileHandle(Handle):
    """Bytes of a file in HOME that is replaced as a whole, behind a head that is rendered."""

    def __init__(
        self, find: Callable[[], int | None], view: View, counter: str = "", head: Callable[[], bytes] | None = None
    ) -> None:
        super().__init__(view, counter)
        self._find = find
        self._make_head = head
        self._head = b""
        self._fd: int | None = None
        self._open()

    def _open(self) -> None:
        self._head = self._make_head() if self._make_head else b""
        self._fd = self._find()

    async def read(self, offset: int, size: int) -> bytes:
        if offset == 0:
            self.release()
            self.mark()
            self._open()
        data = self._head[offset : offset + size]
        if self._fd is not None and len(data) < size:
            data += os.pread(self._fd, size - len(data), max(0, offset - len(self._head)))
        return data

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class GrowingHandle(Handle):
    """A file in HOME that is only ever appended to: readable while there is more than was read."""

    def __init__(self, find: Callable[[], int | None], view: View, counter: str) -> None:
        super().__init__(view, counter)
        self._find = find
        self._fd = find()
        self._end = 0

    @property
    def ready(self) -> bool:
        if self._fd is None:
            self._fd = self._find()
        return self._fd is not None and os.fstat(self._fd).st_size > self._end

    async def read(self, offset: int, size: int) -> bytes:
        if self._fd is None:
            self._fd = self._find()
        data = b"" if self._fd is None else os.pread(self._fd, size, offset)
        self._end = max(self._end, offset + len(data))
        return data

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
