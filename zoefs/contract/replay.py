"""A journal's lines as a replay needs them: most are of kinds that the fold only carries, and are not parsed.

Theory. The bulk of a journal is what a CLI said. Of such a line the fold takes its number and how far the CLI's
output had been read, and both stand in its head, which the one writer writes in one order. So a line that begins in
exactly that order, ends as a line ends, and tells of no offset behind its head, is known by its head; any other is
decoded whole. The fold is the same either way, but for one thing: of a line that a disk damaged behind its head, the
number counts as there.
"""

from __future__ import annotations

import re

import attrs

from zoefs.contract.events import VERSION, Event, decode_line
from zoefs.contract.lifecycle import CARRIED, Fold

_HEAD = re.compile(
    rb'\{"v":%d,"t":"[0-9TZ:.-]+","seq":([0-9]{1,18}),"kind":"(?:%s)","inc":([0-9]{1,18})(?:,"raw_end":([0-9]{1,18}))?'
    rb',"turn":[0-9]{1,18},"' % (VERSION, b"|".join(sorted(re.escape(kind.encode()) for kind in CARRIED)))
)


@attrs.frozen
class Carried:
    """A line that the fold only carries. `raw_end` is -1 where it tells none."""

    seq: int
    inc: int
    raw_end: int


def decode_past(data: bytes) -> tuple[list[Event | Carried], int]:
    """What the whole lines of `data` say, and how many bytes those lines take (torn tail excluded)."""
    end = data.rfind(b"\n") + 1
    found: list[Event | Carried] = []
    for line in data[:end].split(b"\n"):
        head = _HEAD.match(line)
        if head is not None and line.endswith(b"}") and line.find(b'_end":', head.end()) < 0:
            seq, inc, raw_end = head.groups()
            found.append(Carried(int(seq), int(inc), -1 if raw_end is None else int(raw_end)))
        elif line and (event := decode_line(line)) is not None:
            found.append(event)
    return found, end


def replay(fold: Fold, past: list[Event | Carried]) -> None:
    """Feed what was decoded."""
    for one in past:
        if isinstance(one, Carried):
            fold.carry(one.seq, one.inc, one.raw_end)
        else:
            fold.feed(one)
