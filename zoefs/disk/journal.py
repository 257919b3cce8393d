"""Journals on disk: one writer appends whole lines, any number of readers follow.

Rules. A batch is one write(), so a reader that sees its first line will, at its next look, see all of it. A write
that fails midway is taken back (the file is cut to where it began); a torn tail left by a crash is closed with a
newline before the next line, and readers skip it. `sync=True` returns only when the lines will outlive a power cut.
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
        torn = b"\n" if start and os.pread(self._fd, 1, start - 1) != b"\n" else b""
        try:
            write_all(self._fd, torn + b"".join(event.encode() for event in events))
            if sync:
                os.fdatasync(self._fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        self.seq += len(events)
        return events

    def close(self) -> None:
        """Close the file; the writer cannot be used afterwards."""
        os.close(self._fd)


class Tail:
    """A reader that follows a journal: each `read` gives the events that are new. `offset` counts whole lines."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def read(self) -> list[Event]:
        """The events added since the last call; none where there is no file."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
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
