"""Inode numbers, and what stat(2) says.

1 is the root and 2… its entries. Each agent that this mount has ever seen has a number, and with it a block of inode
numbers: one for its directory and one a file, computed, never stored. `inbox/` entries get numbers as they are looked
up, and lose them when the kernel forgets. No number is used twice in the life of a mount. Files of HOME that are shown
through have the disk's own number behind a base, one for what may be written and one for what may not; those of other
disks, and of numbers that do not fit, are counted. All are below 2**53, which is as far as programs count whose
numbers are floating.
"""

from __future__ import annotations

import attrs

from zoefs.mount.tree import ROOT
from zoefs.mount.view import View

ROOT_INODE = 1
AGENTS_INODE = ROOT_INODE + ROOT["agents"].index
LIST_INODE = 40
AGENT_BASE = 1 << 20
_AGENT_BITS = 5
_INDEX_MASK = (1 << _AGENT_BITS) - 1
ENTRY_BASE = 1 << 48
PASS_BASE = 1 << 51
LOG_BASE = PASS_BASE + (1 << 50)
PASS_SPAN = 1 << 50
OTHER_BASE = 1 << 52


@attrs.frozen
class Attributes:
    """What stat(2) says of an inode. `mtime` in nanoseconds since 1970; how long it may be believed, in seconds."""

    inode: int
    mode: int
    size: int
    mtime: int
    attr_seconds: float = 0.0
    entry_seconds: float = 0.0
    links: int = 1


@attrs.define(eq=False)
class Entry:
    """An `inbox/` entry that the kernel knows: how often it was looked up."""

    view: View
    name: str
    inode: int
    lookups: int = 0


def agent_inode(view: View, index: int) -> int:
    """The inode of an agent's file; index 0 is its directory."""
    return AGENT_BASE + (view.number << _AGENT_BITS) + index


def split(inode: int) -> tuple[int, int]:
    """The agent's number and the file's index of an inode in an agent's block."""
    return (inode - AGENT_BASE) >> _AGENT_BITS, inode & _INDEX_MASK


class Entries:
    """The `inbox/` entries that the kernel knows."""

    def __init__(self) -> None:
        self._by_inode: dict[int, Entry] = {}
        self._by_name: dict[tuple[int, str], Entry] = {}
        self._last = ENTRY_BASE

    def get(self, inode: int) -> Entry | None:
        """The entry with this inode; None where the kernel was told to forget it, or never knew it."""
        return self._by_inode.get(inode)

    def of(self, view: View, name: str) -> Entry:
        """The entry of this name; made where there is none."""
        entry = self._by_name.get((view.number, name))
        if entry is None:
            self._last += 1
            entry = Entry(view, name, self._last)
            self._by_inode[entry.inode] = self._by_name[view.number, name] = entry
        return entry

    def is_named(self, entry: Entry) -> bool:
        """Whether its name still is its own."""
        return self._by_name.get((entry.view.number, entry.name)) is entry

    def move(self, view: View, name: str, new_name: str) -> None:
        """The kernel gave an entry another name."""
        entry = self._by_name.pop((view.number, name), None)
        if entry is not None:
            entry.name = new_name
            self._by_name[view.number, new_name] = entry

    def drop(self, view: View, name: str) -> None:
        """The name is free again; the inode lives until the kernel forgets it."""
        self._by_name.pop((view.number, name), None)

    def looked_up(self, inode: int) -> None:
        """The kernel was told of this inode once more."""
        entry = self._by_inode.get(inode)
        if entry is not None:
            entry.lookups += 1

    def forget(self, inode: int, count: int) -> None:
        """The kernel forgets this inode `count` times."""
        entry = self._by_inode.get(inode)
        if entry is None:
            return
        entry.lookups -= count
        if entry.lookups <= 0:
            del self._by_inode[inode]
            if self.is_named(entry):
                del self._by_name[entry.view.number, entry.name]
