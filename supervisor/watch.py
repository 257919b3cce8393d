"""Who must look again: inotify on HOME wakes an agent; a slow sweep stands behind it, so no wake-up is ever needed.

A lost or doubled wake-up is harmless: every woken agent reads its directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import trio
from inotify_simple import INotify, flags

from supervisor.hub import complain
from zoefs.contract.home import AgentHome, Home

INSTEAD = "what it would tell of is looked for every half second instead"
_ORDERS = flags.MOVED_TO | flags.CREATE
_RAW = flags.MODIFY
BURST, RATE = 200.0, 1000.0
"""So many readings of the queue at once, and afterwards so many a second."""
_AGENTS = flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE


class Watch:
    """Calls `wake(name)` for an agent that is new, or whose orders changed, or that went, `hear(name)` for one whose
    CLI wrote something. `lost` is set where the kernel had more to tell than it could keep: who looks at all puts a new
    one there first. `blind`: those whose changes nothing tells of; `deaf`: nothing tells of new agents either."""

    def __init__(self, home: Home, wake: Callable[[str], None], hear: Callable[[str], None]) -> None:
        self.lost = trio.Event()
        self._wake = wake
        self._hear = hear
        self._raw: set[int] = set()
        self._names: dict[int, str] = {}
        self._watches: dict[str, list[int]] = {}
        self._agents = -1
        self.blind: set[str] = set()
        self.deaf = False
        self._inotify: INotify | None = None
        try:
            self._inotify = INotify(nonblocking=True)
            self._agents = int(self._inotify.add_watch(str(home.agents), _AGENTS))
        except OSError as error:
            self.deaf = True
            complain(f"no inotify to be had (fs.inotify.max_user_instances): {error.strerror}; {INSTEAD}")

    def add(self, agent: AgentHome) -> None:
        """Watch one agent's directories; the kernel drops the watch when they go."""
        raw = agent.path / "raw"
        for path, mask in ((agent.new, _ORDERS), (agent.cancelled, _ORDERS), (agent.cut, _ORDERS), (raw, _RAW)):
            wd = self._add(path, mask, agent.name)
            if wd is not None:
                self._names[wd] = agent.name
                self._watches.setdefault(agent.name, []).append(wd)
                if path is raw:
                    self._raw.add(wd)

    def drop(self, name: str) -> None:
        """Watch an agent no longer: its directory was moved away. Under another name it may be watched already."""
        self.blind.discard(name)
        for wd in self._watches.pop(name, ()):
            if self._names.get(wd) != name:
                continue
            del self._names[wd]
            self._raw.discard(wd)
            if self._inotify is not None:
                with contextlib.suppress(OSError):
                    self._inotify.rm_watch(wd)

    def _add(self, path: Path, mask: int, name: str) -> int | None:
        if self._inotify is None:
            self.blind.add(name)
            return None
        try:
            return int(self._inotify.add_watch(str(path), mask | flags.ONLYDIR))
        except FileNotFoundError:
            return None  # gone
        except OSError as error:
            if not self.blind:
                complain(f"{name}: no watch to be had (fs.inotify.max_user_watches): {error.strerror}; {INSTEAD}")
            self.blind.add(name)
            return None

    async def run(self) -> None:
        """Deliver wake-ups until cancelled. Under a flood of them, the kernel folds what comes within a moment."""
        if self._inotify is None:
            return
        credit, then = BURST, trio.current_time()
        while True:
            await trio.lowlevel.wait_readable(self._inotify.fileno())
            now = trio.current_time()
            credit, then = min(BURST, credit + (now - then) * RATE) - 1.0, now
            if credit < 0.0:
                await trio.sleep(1.0 / RATE)
            for event in self._inotify.read(timeout=0):
                if event.mask & flags.Q_OVERFLOW:
                    self.lost.set()
                elif event.wd == self._agents:
                    self._wake(event.name)
                elif event.mask & flags.IGNORED:
                    self._forget(event.wd)
                elif event.wd in self._raw:
                    self._hear(self._names[event.wd])
                elif event.wd in self._names:
                    self._wake(self._names[event.wd])

    def _forget(self, wd: int) -> None:
        """The kernel dropped this watch."""
        name = self._names.pop(wd, None)
        self._raw.discard(wd)
        if name is not None:
            self._watches[name].remove(wd)

    def close(self) -> None:
        """Stop watching."""
        if self._inotify is not None:
            self._inotify.close()
