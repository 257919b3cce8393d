"""What is mounted where, by the kernel's own list: no mount is touched, and a dead one stands there too.

Source: proc(5), mountinfo, which writes a space, a tab, a newline and a backslash of a path in octal.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import attrs

_OCTAL = re.compile(rb"\\([0-7]{3})")


@attrs.frozen
class Mount:
    """One mount. `type` is the kind of its file system, as `fuse.zoefs`."""

    path: Path
    type: str


def mounts() -> list[Mount]:
    """Every mount that this process sees, those stacked at one place one by one."""
    lines = Path("/proc/self/mountinfo").read_bytes().split(b"\n")
    return [decode(line) for line in lines if line]


def decode(line: bytes) -> Mount:
    """What one line tells."""
    words = line.split(b" ")
    path = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), words[4])
    return Mount(Path(os.fsdecode(path)), os.fsdecode(words[words.index(b"-", 6) + 1]))
