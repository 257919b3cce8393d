"""An agent's journal is kept so that a start need not read a whole life: new segments, and the fold kept now and then.

Rules. Both happen between turns only. The fold is kept in the background, as of the moment it was asked for, and only
once what it tells of lasts in the journal. A segment is begun before something is to be noted, so that the current
one is never empty for long; a journal written just now is left alone until it is twice as long, so that who looks at
its length once in a while (`tail -f`) has seen its end. What fails is left for later: the journal alone is the truth,
and nobody waits for this.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from pathlib import Path

import trio

from supervisor.hub import complain
from zoefs.contract.home import RESERVE
from zoefs.contract.lifecycle import Fold
from zoefs.contract.snapshot import Snapshot, copied, encode
from zoefs.disk.files import free, names, replace, sync_file
from zoefs.disk.journal import Sizes, Writer

QUIET_SECONDS = 3.0


class Upkeep:
    """See module. `path` is where the fold is kept; `replayed`: how much of the journal was read behind it.

    `_kept`: what had been written when the fold was kept last; `_every`: after how many more bytes it is kept again,
    no fewer than it takes itself; `_longest`: beyond this length a new segment is begun.
    """

    __slots__ = ("_every", "_keeping", "_kept", "_longest", "journal", "path", "sizes")

    def __init__(self, journal: Writer, path: Path, sizes: Sizes, replayed: int) -> None:
        self.journal = journal
        self.path = path
        self.sizes = sizes
        self._kept = -replayed
        self._every = sizes.snapshot
        self._longest = sizes.rotate
        self._keeping = False

    def begin(self) -> None:
        """Take away what a supervisor left that was killed while it kept the fold."""
        for name in names(self.path.parent):
            if name.startswith(f".{self.path.name}."):
                (self.path.parent / name).unlink(missing_ok=True)

    def keep(self, fold: Fold, nursery: trio.Nursery) -> None:
        """Have the fold kept where it is time. Waits for nothing."""
        if fold.turn_open or self._keeping or self.journal.written - self._kept < self._every:
            return
        self._kept = self.journal.written
        self._keeping = True
        nursery.start_soon(self._keep, Snapshot(self.journal.place, copied(fold)))

    async def _keep(self, snapshot: Snapshot) -> None:
        try:
            self._every = max(self.sizes.snapshot, await trio.to_thread.run_sync(self._write, snapshot))
        except OSError as error:
            complain(f"{self.path}: not kept, tried again later: {error}")
        except Exception:
            complain(f"{self.path}: {traceback.format_exc()}")
        finally:
            self._keeping = False

    def _write(self, snapshot: Snapshot) -> int:
        """Returns the length. Where the room is needed for turns, nothing is written."""
        data = encode(snapshot)
        if free(self.path.parent) >= RESERVE + len(data):
            with contextlib.suppress(FileNotFoundError):  # a segment ends just now: what it holds lasts already
                sync_file(self.journal.path)
            replace(self.path, data)
        return len(data)

    async def rotate(self, fold: Fold) -> None:
        """Begin a new segment where the current one is long."""
        quiet = time.monotonic() - self.journal.wrote >= QUIET_SECONDS
        if fold.turn_open or self.journal.size <= self._longest * (1 if quiet else 2):
            return
        try:
            await trio.to_thread.run_sync(self.journal.rotate)
        except OSError as error:
            self._longest = self.journal.size + self.sizes.rotate
            complain(f"{self.journal.path}: no new segment, tried again later: {error}")
        else:
            self._longest = self.sizes.rotate
            self._kept = self.journal.written - self._every
