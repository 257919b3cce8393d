"""What all agents of one supervisor share: the home, the nursery, how many may start at once, room on the disk."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Protocol

import attrs
import trio

from supervisor.running import Running
from zoefs.contract.home import RESERVE, Home
from zoefs.disk.files import free
from zoefs.disk.journal import Sizes

STARTS_AT_ONCE = 3
LIMIT_SECONDS = 60.0
READS_AT_ONCE = 4
"""Journals that are read at the same moment: more would only keep more of them in memory."""
FULL = 1 << 14
"""With fewer bytes free, what a CLI writes may be lost."""


def complain(text: str) -> None:
    """One line for the operator on stderr (HOME/log/supervisor.err), where its disk has room for it."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} supervisor: {text}", file=sys.stderr, flush=True)


class Kept(Protocol):
    """An agent, as far as the others need it."""

    running: Running | None
    rests: bool

    async def keep(self) -> None:
        """Keep it until it rests."""

    def forget(self) -> None:
        """Let go of everything in memory."""

    def wake(self) -> None:
        """Have it look again."""

    def hear(self) -> None:
        """Have it listen to its CLI."""

    def glance(self) -> None:
        """Have it look again, if something on disk changed that nobody told of."""


@attrs.define
class Hub:
    """What all agents of one supervisor share. `resting`: it goes, and takes the CLIs with it. `rouse` begins the task
    of an agent that has none. `unread`: those that were not read from disk yet; `took_in`: all that were there at the
    start are; `failing`: those that an error came upon, until read anew. `line`: those that stand in line for a start,
    first come first, and whether each was called since there is a place for it. Who is called and does not start must
    leave the line, so that the next is called."""

    home: Home
    boot: str
    env: Mapping[str, str]
    nursery: trio.Nursery
    agents: dict[str, Kept] = attrs.Factory(dict)
    resting: bool = False
    room: bool = True
    starting: set[str] = attrs.Factory(set)
    rouse: Callable[[str], None] = lambda name: None
    unread: set[str] = attrs.Factory(set)
    took_in: bool = False
    failing: set[str] = attrs.Factory(set)
    line: dict[str, bool] = attrs.Factory(dict)
    readers: trio.CapacityLimiter = attrs.Factory(lambda: trio.CapacityLimiter(READS_AT_ONCE))
    readings: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)
    files: int = 0
    """How many files at once what we start may open; 0: as many as we."""
    _told: float = -LIMIT_SECONDS
    sizes: Sizes = attrs.field(default=attrs.Factory(lambda self: Sizes.of(self.env), takes_self=True))
    """How long journals grow."""

    @property
    def mount(self) -> str:
        """The mount point that agents are told of."""
        return self.env.get("ZOEFS_MOUNT", "")

    def space(self) -> int:
        """Bytes free on HOME's disk."""
        return free(self.home.path)

    def has_room(self, space: int) -> bool:
        """Whether HOME's disk can keep what a turn will say; told once each time it becomes full."""
        room = space >= RESERVE
        if self.room and not room:
            complain(f"less than {RESERVE >> 10} KiB left on the disk of {self.home.path}: prompts wait for room")
        self.room = room
        return room

    def may_start(self, name: str) -> bool:
        """Whether one more CLI may start now: STARTS_AT_ONCE at most are in their handshake, and who stands in line
        goes before who comes."""
        if name in self.starting or name in self._first():
            return True
        return name not in self.line and len(self.line) < STARTS_AT_ONCE - len(self.starting)

    def stand(self, name: str) -> None:
        """It would start if there were a place: it is called once there is."""
        self.line.setdefault(name, False)
        self._call()

    def leave(self, name: str) -> None:
        """It does not want to start, or cannot: whoever stands behind it moves up."""
        if self.line.pop(name, None) is not None:
            self._call()

    def begin(self, name: str) -> None:
        """Its start begins, and takes a place until `started`."""
        self.line.pop(name, None)
        self.starting.add(name)

    def started(self, name: str) -> None:
        """A start is over, well or badly: the next in line may go."""
        if name in self.starting:
            self.starting.discard(name)
            self._call()

    def _first(self) -> list[str]:
        """Those in line for whom there is a place."""
        return list(islice(self.line, max(0, STARTS_AT_ONCE - len(self.starting))))

    def _call(self) -> None:
        for name in self._first():
            if not self.line[name]:
                self.line[name] = True
                self.agents[name].wake()

    def was_read(self, name: str) -> None:
        """An agent was read from disk, or cannot be for now."""
        self.unread.discard(name)
        self.readings.unpark_all()

    def complain_of_limit(self) -> None:
        """Say, now and then, that there are too few descriptors."""
        if time.monotonic() - self._told >= LIMIT_SECONDS:
            self._told = time.monotonic()
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            complain(f"no descriptor is left (the limit is {limit}): agents wait; raise it (ulimit -Hn, LimitNOFILE=)")
