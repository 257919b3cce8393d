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
_AGENTS = flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE


class Watch:
    """Calls `wake(name)` for an agent whose orders or output changed, `wake(None)` where agents came or went."""

    def __init__(self, home: Home, wake: Callable[[str | None], None]) -> None:
        self._inotify = INotify(nonblocking=True)
        self._wake = wake
        self._names: dict[int, str | None] = {self._inotify.add_watch(str(home.agents), _AGENTS): None}

    def add(self, agent: AgentHome) -> None:
        """Watch one agent's directories; the kernel drops the watch when they go."""
        for path in (agent.new, agent.cancelled, agent.cut):
            self._add(path, _ORDERS, agent.name)
        self._add(agent.path / "raw", _RAW, agent.name)

    def drop(self, name: str) -> None:
        """Watch an agent no longer: its directory was moved away."""
        for wd in [wd for wd, owner in self._names.items() if owner == name]:
            del self._names[wd]
            with contextlib.suppress(OSError):
                self._inotify.rm_watch(wd)

    def _add(self, path: Path, mask: int, name: str) -> None:
        try:
            self._names[self._inotify.add_watch(str(path), mask | flags.ONLYDIR)] = name
        except OSError:
            return  # gone, or no watch to be had: the sweep looks instead

    async def run(self) -> None:
        """Deliver wake-ups until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._inotify.fileno())
            for event in self._inotify.read(timeout=0):
                if event.mask & flags.Q_OVERFLOW:
                    for name in set(self._names.values()):
                        self._wake(name)
                elif event.mask & flags.IGNORED:
                    self._names.pop(event.wd, None)
                else:
                    self._wake(self._names.get(event.wd))

    def close(self) -> None:
        """Stop watching."""
        self._inotify.close()
