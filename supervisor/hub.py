"""What all agents of one supervisor share: the home, the nursery, how many may start at once, room on the disk."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from typing import Protocol

import attrs
import trio

from supervisor.running import Running
from zoefs.contract.home import RESERVE, Home
from zoefs.disk.files import free
from zoefs.disk.journal import Sizes

STARTS_AT_ONCE = 3
FULL = 1 << 14
"""With fewer bytes free, what a CLI writes may be lost."""


def complain(text: str) -> None:
    """One line for the operator on stderr (HOME/log/supervisor.err), where its disk has room for it."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} supervisor: {text}", file=sys.stderr, flush=True)


class Kept(Protocol):
    """An agent, as far as the others need it."""

    running: Running | None

    def wake(self) -> None:
        """Have it look again."""

    def hear(self) -> None:
        """Have it listen to its CLI."""


@attrs.define
class Hub:
    """What all agents of one supervisor share. `resting`: it goes, and takes the CLIs with it."""

    home: Home
    boot: str
    env: Mapping[str, str]
    nursery: trio.Nursery
    agents: dict[str, Kept] = attrs.Factory(dict)
    resting: bool = False
    room: bool = True
    starting: set[str] = attrs.Factory(set)

    @property
    def sizes(self) -> Sizes:
        """How long journals grow."""
        return Sizes.of(self.env)

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
        """Whether one more CLI may start now: STARTS_AT_ONCE at most are in their handshake."""
        return name in self.starting or len(self.starting) < STARTS_AT_ONCE

    def started(self, name: str) -> None:
        """A start is over, well or badly: the next in line may go."""
        if name in self.starting:
            self.starting.discard(name)
            for agent in self.agents.values():
                agent.wake()
