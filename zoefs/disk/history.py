"""An agent's fold from disk: the kept one and what the journal says since, or all that the journal says.

Rules. A kept fold is used only where it fits: it is this agent's, the journal has a line's end where it says, in the
segment that it names, and goes on with a later event. Otherwise the journal is read from the last `created` on, since
there the fold begins anew. Memory holds a piece of a journal at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import attrs

from zoefs.contract.events import Kind, decode_line
from zoefs.contract.home import segment_of
from zoefs.contract.lifecycle import Fold
from zoefs.contract.replay import decode_past, replay
from zoefs.contract.snapshot import Place, decode
from zoefs.disk.files import open_or_none, read
from zoefs.disk.journal import Tail, TakenBack
from zoefs.disk.segments import CHUNK, first_seq, older

_CREATED = b'"kind":"%s"' % Kind.CREATED.encode()


@attrs.frozen
class History:
    """What the journal says so far: the fold, who reads on from there, and how many bytes were read for it."""

    fold: Fold
    tail: Tail

    @property
    def replayed(self) -> int:
        """The bytes of journal behind the kept fold; all that was read where there was none."""
        return self.tail.taken


def load(journal: Path, kept: Path, born: str) -> History:
    """The fold of a journal, for the agent that was born as `born`; another's where the journal does not know it yet.

    `kept`: where its fold may be kept.
    """
    data = None
    with contextlib.suppress(OSError):
        data = read(kept)
    snapshot = decode(data or b"", born)
    if snapshot is not None:
        with contextlib.suppress(TakenBack):
            return _read_on(Tail(journal, snapshot.place), snapshot.fold)
    with contextlib.suppress(TakenBack):
        return _read_on(Tail(journal, _beginning(journal)), Fold())
    return _read_on(Tail(journal), Fold())


def _read_on(tail: Tail, fold: Fold) -> History:
    for past in tail.look(decode_past):
        replay(fold, past)
    return History(fold, tail)


def _beginning(journal: Path) -> Place:
    """Where the last `created` stands; the beginning of all where there is none."""
    for path in _newest_first(journal):
        fd = open_or_none(path)
        if fd is None:
            continue
        try:
            at = _last_created(fd)
            if at is not None and (first := first_seq(fd)):
                return Place(first, at)
        finally:
            os.close(fd)
    return Place()


def _newest_first(journal: Path) -> Iterator[Path]:
    """The segments, the current one first. The older ones are looked for only where it does not do."""
    yield journal
    for first in reversed(older(journal)):
        yield segment_of(journal, first)


def _last_created(fd: int) -> int | None:
    """The offset of the last `created` in a segment; None where there is none. Few lines are decoded for it."""
    found, offset, rest = None, 0, b""
    while data := os.pread(fd, CHUNK, offset + len(rest)):
        data = rest + data
        end = at = data.rfind(b"\n") + 1
        while (at := data.rfind(_CREATED, 0, at)) >= 0:
            begin = data.rfind(b"\n", 0, at) + 1
            event = decode_line(data[begin : data.find(b"\n", at)])
            if event is not None and event.kind == Kind.CREATED:
                found = offset + begin
                break
        rest, offset = data[end:], offset + end
    return found
