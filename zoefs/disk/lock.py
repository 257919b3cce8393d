"""One program a HOME: a kernel lock held for life, with the holder's mark as the file's text.

The kernel releases the lock when the holder dies, however it dies. Nobody ever removes the file.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import attrs

from zoefs.contract.home import HEARTBEAT_STALE
from zoefs.disk.files import pwrite_all, read_text
from zoefs.disk.process import Mark, lives, mark_of


class Held(Exception):
    """Somebody else holds the lock; `mark` says who, as far as the file tells."""

    def __init__(self, path: Path, mark: Mark) -> None:
        super().__init__(f"{path} is held by pid {mark.pid}")
        self.mark = mark


def take(path: Path, *words: str) -> int:
    """Hold the lock for the life of this process (or of the returned descriptor), and tell who holds it.


    Raises Held where another holds it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise Held(path, holder(path).mark) from None
    tell(fd, *words)
    return fd


def tell(fd: int, *words: str) -> None:
    """Write who holds the lock: pid, start time, boot and `words`, each on a line."""
    mark = mark_of(os.getpid())
    text = "\n".join((str(mark.pid), str(mark.start), mark.boot, *words, "")).encode()
    pwrite_all(fd, text, 0)
    os.ftruncate(fd, len(text))


def try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock, or None where another does. Writes nothing."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@attrs.frozen
class Holder:
    """What a lock file tells: who wrote it last, whether that process lives, since when and how fresh it is."""

    mark: Mark
    alive: bool
    beat: float
    words: tuple[str, ...] = ()

    def health(self, now: float) -> str:
        """`ok`, `degraded` (it lives and its heartbeat is stale) or `absent`."""
        if not self.alive:
            return "absent"
        return "ok" if now - self.beat <= HEARTBEAT_STALE else "degraded"


def holder(path: Path) -> Holder:
    """Who holds, or last held, the lock. Takes nothing and disturbs nobody."""
    words = read_text(path).split("\n")
    try:
        mark = Mark(int(words[0]), int(words[1]), words[2])
        beat = path.stat().st_mtime
    except (IndexError, ValueError, OSError):
        return Holder(Mark(0, 0), False, 0.0)
    return Holder(mark, lives(mark), beat, tuple(words[3:]))


def beat(fd: int) -> None:
    """Renew the heartbeat of a lock we hold."""
    os.utime(fd, (time.time(), time.time()))
