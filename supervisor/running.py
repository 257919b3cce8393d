"""One incarnation that runs: its keeper, what it wrote so far, and what is still to be written to it.

`sent`: the open turn's prompt was put on this process's stdin. `working`: it may be working on the open turn, since
it was sent or is being continued. `accepted`: the prompt that it told last to have. `interrupting`: when an interrupt
that was sent must have been answered, else 0. `compacting`: until when its history may be being shortened, else 0.
`unable`: what it said when its handshake failed.

Nothing here decides. Reading never loses a byte: the raw file is the truth and `offset` counts whole lines of it.
Writing never waits: what the FIFO does not take now stays in the outbox.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import attrs
import trio

from supervisor.backends import Codec
from supervisor.backends.codec import Unable
from zoefs.contract.home import AgentHome
from zoefs.disk.process import Mark

_CHUNK = 1 << 18
DELTA_SECONDS = 1.0
DELTA_MAX = 1 << 14
"""How long, and for how many characters, the bits of a piece are collected before they are noted as one."""


@attrs.define
class Running:
    """See module. `adopted`: another supervisor started it, so its orphans are not our children; `known`: how long its
    raw file was then."""

    agent: AgentHome
    inc: int
    keeper: Mark
    pidfd: int | None
    codec: Codec
    adopted: bool = False
    known: int = 0
    offset: int = 0
    ended: bool = False
    sent: bool = False
    working: bool = False
    timed_out: bool = False
    watched: bool = False
    interrupting: float = 0.0
    accepted: str = ""
    compacting: float = 0.0
    torn: bool = False
    unable: Unable | None = None
    _delta: list[str] = attrs.Factory(list)
    _delta_size: int = 0
    _delta_since: float = 0.0
    _rest: bytes = b""
    _outbox: bytearray = attrs.Factory(bytearray)
    _fifo: int | None = None

    def lines(self) -> Iterator[tuple[bytes, int]]:
        """The whole lines of stdout that are new, each with the offset behind it. Split at newlines only."""
        try:
            fd = os.open(self.agent.raw(self.inc), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            while data := os.pread(fd, _CHUNK, self.offset + len(self._rest)):
                if b"\n" not in data:
                    self._rest += data
                    continue
                *whole, rest = (self._rest + data).split(b"\n")
                self._rest = b""
                for line in whole:
                    self.offset += len(line) + 1
                    yield line, self.offset
                self._rest = rest
        finally:
            os.close(fd)

    def coalesce(self, text: str, now: float) -> str | None:
        """Collect what the model is saying; the text to be noted, once it is enough or has waited DELTA_SECONDS."""
        self._delta.append(text)
        self._delta_size += len(text)
        self._delta_since = self._delta_since or now
        if self._delta_size < DELTA_MAX and now < self._delta_since + DELTA_SECONDS:
            return None
        whole = "".join(self._delta)
        self.said_whole()
        self._delta_since = now
        return whole

    def said_whole(self) -> None:
        """What was collected is noted, or the whole piece is: forget it."""
        self._delta, self._delta_size, self._delta_since = [], 0, 0.0

    def put(self, data: bytes) -> None:
        """Add bytes for stdin."""
        self._outbox += data

    @property
    def waiting_bytes(self) -> int:
        """How much of what was put has not been taken yet."""
        return len(self._outbox)

    @property
    def drained(self) -> bool:
        """Whether all that was put has been taken by the FIFO."""
        return not self._outbox

    def pump(self) -> None:
        """Write what the FIFO takes now. A FIFO that nobody reads any more loses it: the process is dying."""
        if self._outbox and self._fifo is None:
            try:
                self._fifo = os.open(self.agent.stdin, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                return
        while self._outbox and self._fifo is not None:
            try:
                done = os.write(self._fifo, memoryview(self._outbox)[: 1 << 16])
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._outbox.clear()
                return
            del self._outbox[:done]

    async def writable(self) -> None:
        """Return when the FIFO takes more, or is closed by us."""
        if self._fifo is None:
            await trio.sleep(0.05)
            return
        with contextlib.suppress(trio.ClosedResourceError, trio.BusyResourceError):
            await trio.lowlevel.wait_writable(self._fifo)

    def close_stdin(self) -> None:
        """Give up our end of the FIFO, and what was not written yet."""
        self._outbox.clear()
        if self._fifo is not None:
            trio.lowlevel.notify_closing(self._fifo)
            os.close(self._fifo)
            self._fifo = None

    def close(self) -> None:
        """Forget the process; it may go on without us."""
        self.close_stdin()
        if self.pidfd is not None:
            trio.lowlevel.notify_closing(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = None
