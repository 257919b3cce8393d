"""The agents there are: found at the start, read when somebody first asks for them, followed from then on.

Rules. A start finds the names of the agents and reads no more. What one of them holds is read when somebody first
asks for it (`ready`), or in its turn (`read_rest`): so nobody waits for another agent's journal, and nobody is told
of an agent what its journal does not say. What tells of all agents waits for all
(`whole`), and not for long.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import trio

from zoefs.contract.home import Home
from zoefs.contract.words import AgentName, is_agent_name
from zoefs.disk.files import names
from zoefs.disk.history import History
from zoefs.mount.inodes import AGENT_BASE, ENTRY_BASE, split
from zoefs.mount.recovery import recover
from zoefs.mount.view import View

AGAIN_SECONDS = 1.0
"""How often an agent is tried again that cannot be read."""
AT_ONCE = 100
"""So many agents are looked at before whoever waits has a turn."""

log = logging.getLogger("zoefs.mount")


class Roster:
    """See module. `views`: the agents by name, `numbers` by number. `note` writes a line of the mount's journal that
    lasts; `refuse` and `published` are what a view calls; `refusals`: time and sentence of each agent's last one."""

    def __init__(
        self,
        home: Home,
        note: Callable[[str, Mapping[str, Any]], object],
        refuse: Callable[[View, int, str, str], None],
        published: Callable[[View, bool], None],
        refusals: dict[str, tuple[str, str]],
    ) -> None:
        self.views: dict[str, View] = {}
        self.numbers: dict[int, View] = {}
        self.whole = trio.Event()
        self.unread: set[View] = set()
        self.unreadable: set[View] = set()
        self._home = home
        self._note = note
        self._refuse, self._published = refuse, published  # one object each for all agents
        self._refusals = refusals
        self._last_number = 0
        self._capitals: set[str] = set()
        self._lagging: set[View] = set()
        self._sorted: list[View] | None = None

    def load(self) -> None:
        """Find every agent on disk; take away what the death of an earlier mount left of a mkdir."""
        for name in names(self._home.agents):
            if is_agent_name(name):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    self.add(name, os.stat(f"{self._home.agents}/{name}/born").st_mtime_ns)
            elif name.startswith("."):
                shutil.rmtree(self._home.agents / name, ignore_errors=True)  # a mkdir that never returned

    def add(self, name: str, made: int) -> View:
        """Know an agent that was made at `made`, in nanoseconds since 1970."""
        self._last_number += 1
        agent = self._home.agent(AgentName(name))
        view = View(self._home, agent, self._last_number, made, self._refuse, self._published)
        self.views[name] = self.numbers[view.number] = view
        if (lower := name.lower()) != name:
            self._capitals.add(lower)
        self.unread.add(view)
        self._sorted = None
        return view

    def remove(self, view: View) -> None:
        """It was retired. Its number stays its own."""
        view.gone = True
        del self.views[view.name]
        self._capitals.discard(view.name.lower())
        self._lagging.discard(view)
        self._sorted = None

    def is_taken(self, name: str) -> bool:
        """Whether an agent goes by this name, or by one that differs in case only."""
        lower = name.lower()
        return lower in self.views or lower in self._capitals

    def by_name(self) -> list[View]:
        """The agents, sorted by name."""
        if self._sorted is None:
            self._sorted = [self.views[name] for name in sorted(self.views)]
        return self._sorted

    def read(self, view: View, found: tuple[str, History] | None = None) -> None:
        """Read an agent, once; finish what the death of an earlier mount left half done of it. `found`: its history,
        where that was read already."""
        if view.is_read or view.gone:
            return
        for left in recover(view.home):
            self._note(left.kind, {"agent": view.name, "id": left.id, "bytes": left.bytes})
        view.read_in(found or view.read_history())
        t, text = self._refusals.pop(view.name, ("", ""))
        if t >= view.fold.created_t:
            view.refusal_t, view.refusal = t, text
        self.unread.discard(view)
        self.unreadable.discard(view)

    async def _read_aside(self, view: View) -> None:
        """The same, the journal in a thread: it delays nobody but the caller."""
        self.read(view, await trio.to_thread.run_sync(view.read_history))

    async def ready(self, inode: int) -> None:
        """Return once the agent that this inode belongs to was read."""
        if self.unread and AGENT_BASE <= inode < ENTRY_BASE:
            view = self.numbers.get(split(inode)[0])
            if view is not None and not view.is_read and not view.gone:
                await self._read_aside(view)

    async def all_told(self, seconds: float) -> bool:
        """Whether every agent was tried, now or within this time."""
        with trio.move_on_after(seconds):
            await self.whole.wait()
        return self.whole.is_set()

    async def read_rest(self) -> None:
        """Read every agent that nobody asked for yet. One whose files cannot be read is tried again, now and then."""
        while self.unread:
            for view in sorted(self.unread, key=lambda view: view.number):
                try:
                    await self._read_aside(view)
                except Exception as error:
                    if view not in self.unreadable:
                        bug = None if isinstance(error, OSError) else error
                        log.warning("%s: it cannot be read, and is tried again: %s", view.name, error, exc_info=bug)
                    self.unreadable.add(view)
            self.whole.set()
            gc.freeze()  # they live long: the collector need not go through them all each time a few objects were made
            await trio.sleep(AGAIN_SECONDS if self.unread else 0)
        self.whole.set()

    async def find(self, name: str) -> View | None:
        """The agent of this name, read."""
        view = self.views.get(name)
        if view is not None and not view.is_read:
            await self._read_aside(view)
        return None if view is None or view.gone else view

    def known(self, name: str) -> View | None:
        """The agent of this name, if it was read."""
        view = self.views.get(name)
        return view if view is not None and view.is_read else None

    def catch_up(self, name: str) -> None:
        """The journal of this agent grew."""
        view = self.views.get(name)
        if view is None or not view.is_read:
            return
        try:
            grew = view.catch_up()
        except OSError as error:
            if view not in self._lagging:
                log.warning("%s: its journal could not be read, looking again soon: %s", name, error)
            self._lagging.add(view)
        else:
            self._lagging.discard(view)
            if grew:
                view.publish()

    async def look_at_all(self) -> None:
        """Catch up with every journal that grew; some at a time, so that no request waits for all of them."""
        for n, view in enumerate(list(self.by_name())):
            if view.is_read and not view.gone:
                try:
                    behind = view in self._lagging or view.is_behind()
                except OSError:
                    behind = True  # what is wrong is told by who reads it
                if behind:
                    self.catch_up(view.name)
            if n % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
