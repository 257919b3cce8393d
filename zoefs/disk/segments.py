"""The segments of a journal on disk: the journal's path is the current one, JOURNAL.FIRST are those before it.

Theory. A segment ends by one rename, from the journal's path to the name with its first seq, and only then is the
next one made. So whoever finds another file at the path than before, or none, knows that his is complete: it is
found again by its inode, and what follows it by its number. A crash between rename and making leaves no current
segment; the next writer makes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from zoefs.contract.events import decode_line
from zoefs.contract.home import first_of, segment_of
from zoefs.disk.files import open_or_none, unsorted

Decoded = TypeVar("Decoded")
CHUNK = 1 << 20
_HEAD = 1 << 12


def older(journal: Path) -> list[int]:
    """The first seq of each segment before the current one, ascending. Lists the directory of all journals: not to be
    asked for every agent."""
    mine = f"{journal.name}."
    found = (first_of(journal, name) for name in unsorted(journal.parent) if name.startswith(mine))
    return sorted(first for first in found if first is not None)


def inode_of(fd: int) -> int:
    """The inode of an open file."""
    return os.fstat(fd).st_ino


def kept_as(journal: Path, inode: int) -> int | None:
    """The first seq under which the segment with this inode is kept; None where it is none of the older ones."""
    for first in reversed(older(journal)):
        try:
            if segment_of(journal, first).stat().st_ino == inode:
                return first
        except FileNotFoundError:
            continue
    return None


def following(journal: Path, inode: int) -> int | None:
    """A descriptor of the segment behind the one with this inode; None where that is the current one, or none follows.

    Where there is one, every byte of the segment before it has been written.
    """
    try:
        if journal.stat().st_ino == inode:
            return None
    except FileNotFoundError:
        pass
    current = open_or_none(journal)  # before the list is read: what is in it by then was ended before this one began
    numbers = older(journal)
    mine = kept_as(journal, inode)
    behind = [first for first in numbers if mine is not None and first > mine]
    if not behind:
        return current
    if current is not None:
        os.close(current)
    return open_or_none(segment_of(journal, behind[0]))


def batches(
    fd: int, offset: int, decode: Callable[[bytes], tuple[list[Decoded], int]]
) -> Iterator[tuple[list[Decoded], int]]:
    """What `decode` makes of the whole lines from `offset` on, as they are read, each time with the offset behind."""
    rest = b""
    while data := os.pread(fd, CHUNK, offset + len(rest)):
        found, end = decode(rest + data)
        rest = (rest + data)[end:]
        offset += end
        if end:
            yield found, offset


def first_seq(fd: int) -> int:
    """The seq of the first event of a segment; 0 where it has none yet."""
    rest, offset = b"", 0
    while data := os.pread(fd, _HEAD, offset):
        offset += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if (event := decode_line(line)) is not None:
                return event.seq
    return 0
