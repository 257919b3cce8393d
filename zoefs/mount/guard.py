"""The door of every write: who opens, may they, and what is said and noted where they may not.

Whoever lets clients write to a part of the tree asks here once, at the open or at the call that changes a name:

    opener = await guard.opener(ctx.pid)          # None is a person
    guard.check(opener, What.TASKS_NEW)           # raises Refusal(EACCES)

Rules. Readers are never looked at. Looking at a process may wait for that process, so it is done in a thread of a few
of its own; who is known already costs one small read.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Mapping
from typing import Any

import trio

from zoefs.contract.guard import Opener, Target, What, Whose, exceeds, may, whose_is
from zoefs.contract.home import Home
from zoefs.contract.refusal import Refusal
from zoefs.contract.spec import SpecError, effective
from zoefs.disk.files import read
from zoefs.disk.openers import Found, Openers
from zoefs.mount.roster import Roster
from zoefs.mount.view import View

_AT_ONCE = 16
"""Processes looked at at the same moment."""


class Guard:
    """See module. `roster` are the agents; `note` writes a line of the mount's journal."""

    def __init__(self, home: Home, roster: Roster, note: Callable[[str, Mapping[str, Any]], object]) -> None:
        self._home = home
        self._roster = roster
        self._note = note
        self._openers = Openers(home)
        self._limiter = trio.CapacityLimiter(_AT_ONCE)

    async def opener(self, pid: int) -> Opener | None:
        """The agent that a process acts for; None for a person's."""
        known, found = self._openers.remembered(pid)
        if not known:
            found = await trio.to_thread.run_sync(self._openers.find, pid, limiter=self._limiter)
        return None if found is None else await self._as_opener(found)

    async def _as_opener(self, found: Found) -> Opener:
        view = await self._roster.find(found.agent)
        return Opener() if view is None else Opener(view.name, view.born, view.spec)

    def check(self, opener: Opener | None, what: What, view: View | None = None, place: str = "") -> None:
        """Refuse what the agent may not write. Raises Refusal(EACCES), noted and readable in `error`."""
        if opener is None:
            return
        sentence = may(opener, what, _target(view), place)
        if sentence:
            raise self._refused(opener, view, sentence)

    def cap(self, opener: Opener | None, view: View) -> Callable[[bytes], str] | None:
        """What a spec is judged by that an agent writes: why this text may not be its spec, empty where it may."""
        if opener is None:
            return None

        def judge(text: bytes) -> str:
            if sentence := may(opener, What.SPEC, _target(view)):
                return sentence
            config = (read(self._home.config) or b"").decode(errors="replace")
            try:
                spec = effective(text.decode(errors="replace"), config)
            except SpecError:
                return ""  # it cannot start before it is mended, and is judged then
            return exceeds(spec, opener.spec)

        return judge

    def maker(self, opener: Opener | None) -> str:
        """What is kept of who made an agent: the born word of an agent, nothing of a person."""
        return opener.id if opener else ""

    def is_its_own(self, opener: Opener | None, view: View) -> bool:
        """Whether the agent itself acts."""
        return opener is not None and Whose.ITS_OWN in whose_is(opener, _target(view))

    def _refused(self, opener: Opener, view: View | None, sentence: str) -> Refusal:
        """A refusal, in the `error` of the target, or of the one that acts where there is none, and in the log."""
        shown = view or self._roster.known(opener.name)
        if shown is not None:
            return shown.refused(errno.EACCES, sentence, opener.name)
        with contextlib.suppress(OSError):
            self._note("refused", {"agent": "", "errno": "EACCES", "text": sentence, "by": opener.name})
        return Refusal(errno.EACCES, sentence)


def _target(view: View | None) -> Target | None:
    return None if view is None else Target(view.name, view.spec, view.maker, view.was_started)
