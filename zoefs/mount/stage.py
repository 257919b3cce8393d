"""Bytes on their way into `orders/new`: on disk as they come, lasting at each flush, counted by one rename.

The order of system calls is the guarantee (source: facts on fsync and rename):
write …, fsync(file), rename to `…@LEN`, fsync(orders/tmp) at a flush; rename into orders/new at the commit.
Killed in between, the name in `orders/tmp/` tells what may be believed of the bytes (contract.home.Stage).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import attrs
import trio

from zoefs.contract.home import AgentHome, Order, OrderKind, Stage, made_id, stamp_of
from zoefs.contract.words import OrderId, Stamp
from zoefs.disk.files import pwrite_all, sync_dir

_last = 0


def next_stamp() -> Stamp:
    """A stamp greater than every one that this process made before; close to the clock in nanoseconds."""
    global _last
    _last = max(time.time_ns(), _last + 1)
    return stamp_of(_last)


class Staged:
    """One order being written. `id` empty: one is made from the stamp."""

    def __init__(self, home: AgentHome, kind: OrderKind, id: str = "", prefix: str = "") -> None:
        stamp = next_stamp()
        self.home = home
        made = OrderId(prefix + stamp) if prefix else made_id(stamp)
        self.stage = Stage(Order(stamp, kind, OrderId(id) if id else made))
        self.length = 0
        self._dirty = False
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    @property
    def order(self) -> Order:
        """The order this becomes."""
        return self.stage.order

    @property
    def path(self) -> Path:
        """Where the bytes are now."""
        return self.home.tmp / self.stage.name

    def _rename(self, stage: Stage) -> None:
        os.rename(self.path, self.home.tmp / stage.name)
        self.stage = stage

    def add(self, data: bytes) -> None:
        """Append. Raises OSError (ENOSPC…) with nothing appended."""
        if self._dirty and not self.stage.several:
            self._rename(attrs.evolve(self.stage, several=True, flushed=None))
        try:
            pwrite_all(self.fd, data, self.length)
        except OSError:
            os.ftruncate(self.fd, self.length)
            raise
        self.length += len(data)
        self._dirty = True

    async def flush(self) -> None:
        """Make what was added last; does nothing where nothing was. Raises OSError."""
        if not self._dirty:
            return
        length = self.length
        await trio.to_thread.run_sync(os.fsync, self.fd)
        if self.length == length:
            self._dirty = False
            self._rename(Stage(self.order, flushed=length))
            await trio.to_thread.run_sync(sync_dir, self.home.tmp)

    def commit(self) -> None:
        """It counts from now on: one rename into `orders/new`. Waits for nothing."""
        os.rename(self.path, self.home.new / self.order.name)
        self.close()

    def discard(self) -> None:
        """It never was."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
