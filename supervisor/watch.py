"""Who must look again: inotify on HOME wakes an agent; a slow sweep stands behind it, so no wake-up is ever needed.

A lost or doubled wake-up is harmless: every woken agent reads its directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import trio
from inotify_simple import INotify, flags

from zoefs.contract.home import AgentHome, Home

_ORDERS = flags.MOVED_TO | flags.CREATE
_RAW = flags.MODIFY
BURST, RATE = 200.0, 1000.0
"""So many readings of the queue at once, and afterwards so many a second."""
_AGENTS = flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE


class Watch:
    """Calls `wake(name)` for an agent whose orders changed, `wake(None)` where agents came or went, and `hear(name)`
    for one whose CLI wrote something."""

    def __init__(self, home: Home, wake: Callable[[str | None], None], hear: Callable[[str], None]) -> None:
        self._inotify = INotify(nonblocking=True)
        self._wake = wake
        self._hear = hear
        self._raw: dict[int, str] = {}
        self._names: dict[int, str | None] = {self._inotify.add_watch(str(home.agents), _AGENTS): None}

    def add(self, agent: AgentHome) -> None:
        """Watch one agent's directories; the kernel drops the watch when they go."""
        for path in (agent.new, agent.cancelled, agent.cut):
            self._add(path, _ORDERS, agent.name)
        wd = self._add(agent.path / "raw", _RAW, agent.name)
        if wd is not None:
            self._raw[wd] = agent.name

    def drop(self, name: str) -> None:
        """Watch an agent no longer: its directory was moved away."""
        for wd in [wd for wd, owner in self._names.items() if owner == name]:
            del self._names[wd]
            self._raw.pop(wd, None)
            with contextlib.suppress(OSError):
                self._inotify.rm_watch(wd)

    def _add(self, path: Path, mask: int, name: str) -> int | None:
        try:
            wd = int(self._inotify.add_watch(str(path), mask | flags.ONLYDIR))
        except OSError:
            return None  # gone, or no watch to be had: the sweep looks instead
        self._names[wd] = name
        return wd

    async def run(self) -> None:
        """Deliver wake-ups until cancelled. Under a flood of them, the kernel folds what comes within a moment."""
        credit, then = BURST, trio.current_time()
        while True:
            await trio.lowlevel.wait_readable(self._inotify.fileno())
            now = trio.current_time()
            credit, then = min(BURST, credit + (now - then) * RATE) - 1.0, now
            if credit < 0.0:
                await trio.sleep(1.0 / RATE)
            for event in self._inotify.read(timeout=0):
                if event.mask & flags.Q_OVERFLOW:
                    for name in set(self._names.values()):
                        self._wake(name)
                elif event.wd in self._raw and not event.mask & flags.IGNORED:
                    self._hear(self._raw[event.wd])
                elif event.mask & flags.IGNORED:
                    self._names.pop(event.wd, None)
                    self._raw.pop(event.wd, None)
                else:
                    self._wake(self._names.get(event.wd))

    def close(self) -> None:
        """Stop watching."""
        self._inotify.close()
