"""Journals on disk: one writer appends whole lines, any number of readers follow, from segment to segment.

Rules. A batch is one write(), so a reader that sees its first line will, at its next look, see all of it. A write
that fails midway is taken back: the file is cut to where it began. A torn tail left by a crash is cut off before the
next line is added: a line counts from its newline on. `sync=True` returns only when the lines will outlive a power
cut; where the disk fails at that, the lines stand and the error is raised. A segment lasts as a whole before a newer
one takes its place, and its new name lasts before the newer one is made: so no cut can leave a gap.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs

from zoefs.contract.events import Event, decode_lines, utc
from zoefs.contract.home import segment_of
from zoefs.contract.snapshot import Place
from zoefs.disk.files import open_or_none, sync_dir, write_all
from zoefs.disk.segments import CHUNK, batches, first_seq, following, inode_of, kept_as, older


@attrs.frozen
class Sizes:
    """How long a journal's segment grows, in bytes: an agent's, and a program's; and after how many more bytes of its
    journal an agent's fold is kept anew."""

    rotate: int = 8 << 20
    log: int = 1 << 20
    snapshot: int = 256 << 10

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Sizes:
        """Those of the environment where it names any (ZOEFS_ROTATE_BYTES, ZOEFS_SNAPSHOT_BYTES)."""
        rotate, snapshot = env.get("ZOEFS_ROTATE_BYTES", ""), env.get("ZOEFS_SNAPSHOT_BYTES", "")
        sizes = cls(rotate=int(rotate), log=int(rotate)) if rotate.isdecimal() else cls()
        return attrs.evolve(sizes, snapshot=int(snapshot)) if snapshot.isdecimal() else sizes


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Writer:
    """The one writer of a journal. `seq` is that of the last line in it, `size` the length of the current segment,
    `written` how much was appended by this writer, and `wrote` when last (or when it began), as time.monotonic() has
    it. Beyond `limit` bytes `append` itself begins a new segment. One that rests holds no descriptor until it is used
    again."""

    def __init__(self, path: Path, seq: int, now: Callable[[], float] = time.time, limit: int = 0) -> None:
        self.path = path
        self.seq = seq
        self.written = 0
        self.wrote = time.monotonic()
        self._now = now
        self._limit = limit
        self._opened = -1
        self._named = True
        self.size = os.fstat(self._fd).st_size
        if not self.size:
            sync_dir(path.parent)  # made just now, or by one who died before it could say this

    @property
    def _fd(self) -> int:
        if self._opened < 0:
            self._opened = os.open(self.path, _FLAGS, 0o600)
        return self._opened

    def rest(self) -> None:
        """Give the descriptor back until it is needed."""
        if self._opened >= 0:
            os.close(self._opened)
            self._opened = -1

    def append(self, *notes: tuple[str, Mapping[str, Any]], sync: bool = False) -> list[Event]:
        """Note `(kind, fields)` one after another in a single write; returns the events.

        Raises OSError (ENOSPC, EDQUOT, EIO…) with nothing noted.
        """
        t = utc(self._now())
        events = [Event(t, self.seq + n, kind, dict(fields)) for n, (kind, fields) in enumerate(notes, 1)]
        data = b"".join(event.encode() for event in events)
        start = self._cut_torn_tail()
        if self._limit and start > self._limit:
            with contextlib.suppress(OSError):
                self.rotate()
            start = self.size
        try:
            write_all(self._fd, data)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        self.seq += len(events)
        self.size = start + len(data)
        self.written += len(data)
        self.wrote = time.monotonic()
        if sync:
            os.fdatasync(self._fd)
            self._name()
        return events

    @property
    def place(self) -> Place:
        """Where a reader stands that has read everything."""
        return Place(first_seq(self._fd) or self.seq + 1, self.size, self.seq)

    def rotate(self) -> None:
        """Begin a new segment; one without a line in it is kept.

        Raises OSError where that cannot be done now: the journal then goes on in the segment that it has.
        """
        self._cut_torn_tail()
        first = first_seq(self._fd)
        if not first:
            return
        kept = segment_of(self.path, first)
        if kept.exists():
            raise FileExistsError(str(kept))
        os.fsync(self._fd)
        os.rename(self.path, kept)
        try:
            sync_dir(self.path.parent)
            fd = os.open(self.path, _FLAGS | os.O_EXCL, 0o600)
        except OSError:
            os.rename(kept, self.path)
            raise
        os.close(self._fd)
        self._opened, self._named, self.size = fd, False, 0
        self._name()

    def _name(self) -> None:
        """Make the current segment's name last, where it does not yet."""
        if not self._named:
            sync_dir(self.path.parent)
            self._named = True

    def _cut_torn_tail(self) -> int:
        """Cut the file back to its last newline: what stands behind it nobody has read as a line. The length then."""
        whole = end = os.fstat(self._fd).st_size
        if not end or os.pread(self._fd, 1, end - 1) == b"\n":
            return end
        while whole and (data := os.pread(self._fd, min(CHUNK, whole), max(0, whole - CHUNK))):
            at = data.rfind(b"\n")
            whole = whole - len(data) + at + 1
            if at >= 0:
                break
        if whole != end:
            os.ftruncate(self._fd, whole)
        return whole

    def close(self) -> None:
        """Close the file; the writer is not to be used afterwards."""
        self.rest()


class Numbered(Protocol):
    """What a line was decoded to."""

    @property
    def seq(self) -> int:
        """Its number."""


Told = TypeVar("Told", bound=Numbered)


class TakenBack(Exception):
    """What was read is no longer there, or another journal is in its place: read it anew."""


class Tail:
    """A reader that follows a journal: each look gives the events that are new, from the oldest segment on or from
    `start`. Which segment it stands in it knows by the inode; while that is the current one, a look costs one open.
    """

    __slots__ = ("_inode", "path", "place", "taken")

    def __init__(self, path: Path, start: Place | None = None) -> None:
        self.path = path
        self.place = start or Place()
        self.taken = 0
        self._inode = 0

    def stands_at_end(self, found: os.stat_result) -> bool:
        """Whether everything of the current segment, of which stat(2) says this, was given."""
        return found.st_ino == self._inode and found.st_size <= self.place.offset

    def stands_exactly(self, found: os.stat_result) -> bool:
        """Whether the current segment, of which stat(2) says this, is what was given, and no longer or shorter."""
        return found.st_ino == self._inode and found.st_size == self.place.offset

    def read(self) -> list[Event]:
        """The events added since the last call, all or, where the disk fails, none; none where there is no file.

        Raises TakenBack where what was read is no longer there.
        """
        before = self.place, self._inode
        try:
            return [event for found in self.look(decode_lines) for event in found]
        except OSError:
            self.place, self._inode = before
            raise

    def look(self, decode: Callable[[bytes], tuple[list[Told], int]]) -> Iterator[list[Told]]:
        """The same a piece at a time, for journals that memory should not hold; what was given is taken. `decode` says
        what is made of the lines."""
        current = open_or_none(self.path)
        rotated = current is None or inode_of(current) != self._inode
        if rotated and current is not None:
            os.close(current)
        fd = self._find() if rotated else current
        while fd is not None:
            behind = None
            try:
                self._inode = inode_of(fd)
                if rotated:
                    behind = following(self.path, self._inode)  # asked first: if there is one, this one is all there
                yield from self._rest(fd, decode)
            except BaseException:
                if behind is not None:
                    os.close(behind)
                raise
            finally:
                os.close(fd)
            if behind is not None:
                self.place = Place(0, 0, self.place.seq)
            fd = behind

    def _find(self) -> int | None:
        """A descriptor of the segment to read on in, wherever it is by now."""
        current = open_or_none(self.path)
        gone = False
        if self._inode:
            mine = kept_as(self.path, self._inode)
            gone = mine is None and current is not None and inode_of(current) != self._inode
        elif self.place.first:
            begins = 0 if current is None else first_seq(current)
            ended = begins != self.place.first and segment_of(self.path, self.place.first).exists()
            mine = self.place.first if ended else None
            gone = not ended and begins != self.place.first and bool(begins or self.place.offset)
        else:
            mine = next(iter(older(self.path)), None)
        if current is not None and (gone or mine is not None):
            os.close(current)
        if gone:
            raise TakenBack(str(self.path))
        return current if mine is None else open_or_none(segment_of(self.path, mine))

    def _rest(self, fd: int, decode: Callable[[bytes], tuple[list[Told], int]]) -> Iterator[list[Told]]:
        """The events of this segment behind `place`."""
        goes_on = self.place.offset > 0
        if goes_on and os.pread(fd, 1, self.place.offset - 1) != b"\n":
            raise TakenBack(str(self.path))
        for found, offset in batches(fd, self.place.offset, decode):
            first, seq = self.place.first, self.place.seq
            if found:
                if goes_on and found[0].seq <= seq:
                    raise TakenBack(str(self.path))
                first, seq, goes_on = first or found[0].seq, found[-1].seq, False
            self.taken += offset - self.place.offset
            self.place = Place(first, offset, seq)
            yield found


def recent(path: Path) -> list[Event]:
    """The events of a journal's current segment and of the one before it."""
    numbers = older(path)
    return Tail(path, Place(numbers[-1]) if numbers else None).read()
