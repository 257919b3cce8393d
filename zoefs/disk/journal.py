"""Journals on disk: one writer appends whole lines, any number of readers follow.

Rules. A batch is one write(), so a reader that sees its first line will, at its next look, see all of it. A write
that fails midway is taken back: the file is cut to where it began. A torn tail left by a crash is cut off before the
next line is added: a line counts from its newline on. `sync=True` returns only when the lines will outlive a power
cut; where the disk fails at that, the lines stand and the error is raised.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zoefs.contract.events import Event, decode_lines, utc
from zoefs.disk.files import sync_dir, write_all

CHUNK = 1 << 20


class Writer:
    """The one writer of a journal. `seq` is that of the last line in it."""

    def __init__(self, path: Path, seq: int, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self.seq = seq
        self._now = now
        fresh = not path.exists()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if fresh:
            sync_dir(path.parent)

    def append(self, *notes: tuple[str, Mapping[str, Any]], sync: bool = False) -> list[Event]:
        """Note `(kind, fields)` one after another in a single write; returns the events.

        Raises OSError (ENOSPC, EDQUOT, EIO…) with nothing noted.
        """
        t = utc(self._now())
        events = [Event(t, self.seq + n, kind, dict(fields)) for n, (kind, fields) in enumerate(notes, 1)]
        start = os.fstat(self._fd).st_size
        start = self._cut_torn_tail(start)
        try:
            write_all(self._fd, b"".join(event.encode() for event in events))
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        self.seq += len(events)
        if sync:
            os.fdatasync(self._fd)
        return events

    def _cut_torn_tail(self, end: int) -> int:
        """Cut the file back to its last newline: what stands behind it nobody has read as a line."""
        whole = end
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
        """Close the file; the writer cannot be used afterwards."""
        os.close(self._fd)


class TakenBack(Exception):
    """The writer took back lines that had been read already: read the journal anew."""


class Tail:
    """A reader that follows a journal: each `read` gives the events that are new. `offset` counts whole lines."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def read(self) -> list[Event]:
        """The events added since the last call; none where there is no file.

        Raises TakenBack where what was read is no longer there.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            if self.offset and os.pread(fd, 1, self.offset - 1) != b"\n":
                raise TakenBack(str(self.path))
            events: list[Event] = []
            rest = b""
            while data := os.pread(fd, CHUNK, self.offset + len(rest)):
                found, end = decode_lines(rest + data)
                rest = (rest + data)[end:]
                self.offset += end
                events += found
            return events
        finally:
            os.close(fd)
