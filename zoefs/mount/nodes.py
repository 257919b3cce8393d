"""The files of HOME's directories that the kernel knows, and how each is found again.

Theory. A file is known by what it is (device and inode number), not by its name: names are hints, tried newest first
and believed only if they lead to that same file. So nothing is held open for a file that no client has open, a name
that somebody changed in HOME is ESTALE, upon which the kernel looks anew, and no name leads out of its tree
(`disk/beneath`). Only the directories used last are held open. Of those Linux tells where they are now, so one that
somebody moved within its tree is found where it is, and is judged by that; one that was moved out of it is ESTALE.

Rules. The table is changed in the trio thread alone; finding a file may be done in any. HOME's device and inode number
make the number that stat(2) shows, so two links to a file are one file, also after the kernel forgot it.
"""

from __future__ import annotations

import collections
import errno
import os
import stat
import threading
from collections.abc import Iterator

import attrs

from zoefs.contract.home import Home
from zoefs.disk.beneath import Finder, Held, find, is_local
from zoefs.mount.inodes import LOG_BASE, OTHER_BASE, PASS_BASE, PASS_SPAN, ROOT_INODE
from zoefs.mount.node import Node, key_of
from zoefs.mount.tree import ROOT, Through

DIRECTORIES = 512
"""Directories kept open."""
_ELSEWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})

Place = list[bytes]
"""The names that lead to a file from the top of HOME."""


@attrs.frozen
class Found:
    """What stat(2) says of a file of HOME, and the number it has here."""

    number: int
    stat: os.stat_result
    entry_seconds: float = 0.0


class Nodes:
    """See module."""

    def __init__(self, home: Home) -> None:
        self._home = Held(os.open(home.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        self._device = self._home.stat().st_dev
        self._is_local = is_local(self._home)
        self._nodes: dict[int, Node] = {}
        for row in ROOT.values():
            if row.through is not None:
                number = ROOT_INODE + row.index
                self._nodes[number] = Node(number, row.through, root=row.name.encode())
        self._roots = frozenset(self._nodes)
        self._others: dict[tuple[Through, int, int], int] = {}
        self._last_other = OTHER_BASE
        self._open: collections.OrderedDict[Node, Held] = collections.OrderedDict()
        self._lock = threading.Lock()

    def owns(self, number: int) -> bool:
        """Whether this inode is one of these trees'."""
        return number >= PASS_BASE or number in self._roots

    def is_near(self, node: Node) -> bool:
        """Whether this file is on HOME's own disk, and that is one of this machine."""
        return self._is_local and (bool(node.root) or node.key[0] == self._device)

    # -- the table ----------------------------------------------------------------------------------------------

    def get(self, number: int) -> Node:
        """The file with this number. Raises OSError(ESTALE)."""
        node = self._nodes.get(number)
        if node is None:
            raise OSError(errno.ESTALE, "forgotten")
        return node

    def number(self, rule: Through, found: os.stat_result) -> int:
        """The number that a file of HOME has here. What is shown read only is not the file that may be written."""
        if found.st_dev == self._device and found.st_ino < PASS_SPAN:
            return (LOG_BASE if rule is Through.LOOKING else PASS_BASE) + found.st_ino
        key = (rule, found.st_dev, found.st_ino)
        if key not in self._others:
            self._last_other += 1
            self._others[key] = self._last_other
        return self._others[key]

    def told(self, parent: Node, name: bytes, found: os.stat_result) -> Found:
        """The kernel is told that `name` is this file: it will forget it once more."""
        number = self.number(parent.rule, found)
        node = self._nodes.get(number)
        if node is None:
            node = self._nodes[number] = Node(number, parent.rule, key_of(found))
        elif node.key != key_of(found):  # the disk used the number again
            node.key, node.hints = key_of(found), {}
        node.hint(parent, name)
        node.rule = parent.rule
        node.lookups += 1
        node.size = found.st_size
        return Found(number, found)

    def forget(self, number: int, count: int) -> None:
        """The kernel forgets this inode `count` times."""
        node = self._nodes.get(number)
        if node is None or node.root:
            return
        node.lookups -= count
        if node.lookups <= 0:
            del self._nodes[number]
            if number > OTHER_BASE:
                self._others.pop((node.rule, *node.key[:2]), None)
            with self._lock:
                self._open.pop(node, None)

    def moved(self, parent: Node, name: bytes, found: os.stat_result) -> None:
        """What is at `name` now got there by a rename."""
        node = self._nodes.get(self.number(parent.rule, found))
        if node is not None and node.key == key_of(found):
            node.hint(parent, name)
            node.rule = parent.rule

    # -- finding ------------------------------------------------------------------------------------------------

    def directory(self, finder: Finder, node: Node) -> Held:
        """A descriptor of a directory: of those kept, else down from the first above it that is."""
        chain: list[tuple[Node, bytes]] = []
        for at, name in node.up():
            if kept := self._kept(at):
                held = kept[0]
                break
            if at.root:
                held = finder(self._home, at.root)
                if not stat.S_ISDIR(held.stat().st_mode):
                    raise OSError(errno.ENOTDIR, "a directory of HOME is none")
                break
            chain.append((at, name))
        for below, name in reversed(chain):
            try:
                held = finder(held, name)
            except OSError as error:
                raise OSError(errno.ESTALE if error.errno in _ELSEWHERE else error.errno, "moved") from None
            if key_of(held.stat()) != below.key:
                raise OSError(errno.ESTALE, "another one is in its place")
            self._keep(below, held)
        return held

    def _kept(self, node: Node) -> tuple[Held, Place] | None:
        """A descriptor of a directory that is kept, and where it is: somewhere in its tree."""
        with self._lock:
            held = self._open.get(node)
            if held is None:
                return None
            self._open.move_to_end(node)
        place = self._place_of(held)
        if place[:1] == [name for at, name in node.up() if at.root]:
            return held, place
        with self._lock:
            if self._open.get(node) is held:
                del self._open[node]
        return None

    def _place_of(self, held: Held) -> Place:
        """The names that lead to what is held from the top of HOME; none where it is elsewhere, or that is unknown."""
        try:
            top, at = (os.readlink(os.fsencode(one.path)) for one in (self._home, held))
        except OSError:  # it is too deep down
            return []
        return at.removeprefix(top + b"/").split(b"/") if at.startswith(top + b"/") else []

    def place(self, node: Node, name: bytes = b"") -> Place:
        """The names that lead to where `directory` finds a directory, from the top of HOME, and then `name` in it."""
        parts = [name] if name else []
        for at, last in node.up():
            if kept := self._kept(at):
                return [*kept[1], *reversed(parts)]
            parts.append(last)
        return parts[::-1]

    def places(self, node: Node, opened: Held | None) -> list[Place]:
        """Where this file is by each of the names that lead to it now; one that is open, else where Linux says."""
        if node.is_directory:
            return [self.place(node)]
        found = [self.place(parent, name) for _, parent, name in self._leading(find, node)]
        if not found and opened is not None:
            found = [self._place_of(opened)]
        if not found or not all(found):
            raise OSError(errno.ESTALE, "its place is not known")
        return found

    def _keep(self, node: Node, held: Held) -> None:
        """Keep a directory open; not one of a disk that somebody mounted in HOME and may want to unmount."""
        if node.key[0] == self._device:
            with self._lock:
                self._open[node] = held
                if len(self._open) > DIRECTORIES:
                    self._open.popitem(last=False)

    def held(self, finder: Finder, node: Node, opened: Held | None) -> Held:
        """A descriptor of exactly this file. `opened` is one that a client has open."""
        if opened is not None:
            return opened
        if node.is_directory:
            return self.directory(finder, node)
        for held, _, _ in self._leading(finder, node):
            return held
        raise OSError(errno.ESTALE, "another one is in its place")

    def _leading(self, finder: Finder, node: Node) -> Iterator[tuple[Held, Node, bytes]]:
        """The names that lead to this file, newest first, and a descriptor of it by each."""
        for parent, name in node.newest():
            try:
                held = finder(self.directory(finder, parent), name)
            except OSError as error:
                if error.errno not in _ELSEWHERE:
                    raise
                continue
            if key_of(held.stat()) == node.key:
                yield held, parent, name
