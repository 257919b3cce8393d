"""`events`, open: a journal whose segments follow one another, read as one file that grows.

Rules. Whoever reads on gets every byte once, over any number of rotations. Whoever reads at offset 0 gets the current
segment, whose length stat(2) tells.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from zoefs.contract.home import segment_of
from zoefs.contract.refusal import Refusal
from zoefs.disk.files import open_or_none
from zoefs.disk.segments import following, inode_of, kept_as
from zoefs.mount.handles import Handle
from zoefs.mount.view import View


class JournalHandle(Handle):
    """See module. `_base`: the offset at which the segment that is open begins; `_past`: offset and inode of those
    before it; `_end`: the offset behind what was read."""

    def __init__(self, path: Path, view: View, counter: str) -> None:
        super().__init__(view, counter)
        self._path = path
        self._fd: int | None = None
        self._base = 0
        self._end = 0
        self._past: list[tuple[int, int]] = []
        self._open()

    def _open(self) -> None:
        """Begin with the current segment."""
        self.release()
        self._fd = open_or_none(self._path)
        self._base, self._end, self._past = 0, 0, []

    @property
    def ready(self) -> bool:
        if self._fd is None:
            self._open()
        return self._left() > 0 or (self._go_on() and self._left() > 0)

    def _left(self) -> int:
        """How many bytes of the open segment were not read yet."""
        return 0 if self._fd is None else self._base + os.fstat(self._fd).st_size - self._end

    def _go_on(self) -> bool:
        """Go on to the next segment, where there is one and this one was read to its end; whether it was so."""
        inode = 0 if self._fd is None else inode_of(self._fd)
        fd = following(self._path, inode) if inode else None
        if fd is None:
            return False
        if self._left() > 0:
            os.close(fd)
            return False
        self._past.append((self._base, inode))
        self.release()
        self._fd, self._base = fd, self._end
        return True

    def _is_current(self) -> bool:
        try:
            return self._fd is not None and self._path.stat().st_ino == inode_of(self._fd)
        except FileNotFoundError:
            return False

    async def read(self, offset: int, size: int) -> bytes:
        if self._fd is None or (offset == 0 and (self._base or not self._is_current())):
            self._open()
        if self._fd is None:
            return b""
        if offset < self._base:
            return self._read_past(offset, size)
        data = b""
        while len(data) < size:
            piece = os.pread(self._fd, size - len(data), offset + len(data) - self._base)
            data += piece
            self._end = max(self._end, min(offset + len(data), self._base + os.fstat(self._fd).st_size))
            if not piece and not self._go_on():
                break
        return data

    def _read_past(self, offset: int, size: int) -> bytes:
        """Bytes of a segment that this handle has left behind; to its end at most."""
        base, inode = next(one for one in reversed(self._past) if one[0] <= offset)
        first = kept_as(self._path, inode)
        fd = open_or_none(segment_of(self._path, first)) if first is not None else None
        if fd is None:
            raise Refusal(errno.ESTALE, "this part of the journal was taken away")
        try:
            return os.pread(fd, size, offset - base)
        finally:
            os.close(fd)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
