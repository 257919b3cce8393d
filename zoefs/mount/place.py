"""The mount point before the mount: what a killed daemon left is cleared, what somebody uses is refused.

Theory. stat(2) of a dead mount may still be answered from the kernel's cache; statfs(2) never is, so it is asked. A
killed daemon's own helper (`auto_unmount`) takes its mount away within moments; it is given them, so that it never
comes to a mount that is ours.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path

from zoefs.contract.refusal import Refusal
from zoefs.disk.mounts import mounts

HELPER_SECONDS = 0.5
_DEAD = (errno.ENOTCONN, errno.ECONNABORTED)


def mounts_at(path: Path) -> int:
    """How many mounts are stacked at `path`, dead ones included."""
    return sum(mount.path == path for mount in mounts())


def is_dead(path: Path) -> bool:
    """Whether the topmost mount at `path` is of a FUSE daemon that is gone."""
    try:
        os.statvfs(path)
    except OSError as error:
        return error.errno in _DEAD
    return False


def prepare(path: Path) -> None:
    """Make `path` a free mount point. Raises Refusal where somebody uses it, OSError where it cannot be made."""
    patience = time.monotonic() + HELPER_SECONDS
    while mounts_at(path):
        if not is_dead(path):
            raise Refusal(errno.EBUSY, f"{path}: something is mounted there already")
        if time.monotonic() < patience:
            time.sleep(0.01)
        else:
            subprocess.run(["fusermount3", "-uz", str(path)], check=False)
            time.sleep(0.05)
            if mounts_at(path) and is_dead(path) and time.monotonic() > patience + 10:
                raise Refusal(
                    errno.EBUSY, f"{path}: a dead mount there cannot be taken away; try: fusermount3 -uz {path}"
                )
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise Refusal(errno.ENOTEMPTY, f"{path} is not empty; a mount would hide what is in it")
