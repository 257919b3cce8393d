"""One file of HOME that the kernel knows: what it is, by which names it was seen, and who has it open.

Rules. Changed in the trio thread alone, looked at in any. Its names are hints: `nodes` believes none unseen.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

import attrs

from zoefs.disk.beneath import Held
from zoefs.mount.inodes import ROOT_INODE
from zoefs.mount.tree import Through

HINTS = 16
"""Names remembered of one file."""
DEEPEST = 4096

Key = tuple[int, int, int]


def key_of(found: os.stat_result) -> Key:
    """What a file is: device, inode number, type."""
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode)


@attrs.define(eq=False)
class Opened:
    """A file of HOME that a client has open, with the flags of open(2)."""

    held: Held
    flags: int

    @property
    def appends(self) -> bool:
        return bool(self.flags & os.O_APPEND)

    @property
    def reads(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_WRONLY

    @property
    def writes(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_RDONLY


@attrs.define(eq=False)
class Node:
    """A file that the kernel knows. `root` is the name of its tree's directory where it is that directory itself.

    `size` is what the kernel takes its size for: as it was told last, or as it wrote.
    """

    number: int
    rule: Through
    key: Key = (0, 0, 0)
    root: bytes = b""
    hints: dict[tuple[Node, bytes], None] = attrs.Factory(dict)
    lookups: int = 0
    size: int = 0
    handles: list[Opened] = attrs.Factory(list)

    @property
    def is_directory(self) -> bool:
        return bool(self.root) or self.key[2] == stat.S_IFDIR

    def hint(self, parent: Node, name: bytes) -> None:
        """It has this name now. A directory has one name."""
        if self.is_directory:
            self.hints.clear()
        self.hints.pop((parent, name), None)
        self.hints[parent, name] = None
        if len(self.hints) > HINTS:
            del self.hints[next(iter(self.hints))]

    def newest(self) -> list[tuple[Node, bytes]]:
        """Its names, the newest first."""
        return list(reversed(list(self.hints)))

    @property
    def above(self) -> int:
        """The number of the directory it is in. Raises OSError(ESTALE)."""
        if self.root:
            return ROOT_INODE
        if not self.hints:
            raise OSError(errno.ESTALE, "its place is not known")
        return next(reversed(self.hints))[0].number

    def opened(self) -> Held | None:
        """A descriptor of it, where a client has it open."""
        return self.handles[-1].held if self.handles else None

    def up(self) -> Iterator[tuple[Node, bytes]]:
        """Itself and what is above it by the newest names, each with its own name, the tree's directory last."""
        at = self
        for _ in range(DEEPEST):
            if at.root:
                yield at, at.root
                return
            if not (names := at.newest()):
                break
            above, name = names[0]
            yield at, name
            at = above
        raise OSError(errno.ESTALE, "its place is not known")
