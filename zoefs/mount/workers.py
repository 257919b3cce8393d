"""Threads for what may wait for a disk, apart from those of all else."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import trio

P = ParamSpec("P")
R = TypeVar("R")


class Workers:
    """At most `count` threads at once; whoever comes then waits his turn."""

    def __init__(self, count: int) -> None:
        self._limiter = trio.CapacityLimiter(count)

    async def do(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it in a worker thread. What it raises comes without its frames, which hold descriptors open."""
        done = await trio.to_thread.run_sync(_captured, lambda: work(*args, **kwargs), limiter=self._limiter)
        if isinstance(done, int):
            raise OSError(done, os.strerror(done))
        return done[0]


def _captured(work: Callable[[], R]) -> tuple[R] | int:
    """The result, alone in a tuple, or the errno."""
    try:
        return (work(),)
    except OSError as error:
        return error.errno or errno.EIO
