"""Who waits in poll(2), and waking them: one waiter an open file, the newest, and one wake-up each.

Rules. Readiness is asked of the handle's state, never remembered. A wake-up takes no lock of the client's and may be
sent from any handler.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Mapping
from typing import Protocol

from zoefs.mount.handles import Handle
from zoefs.mount.view import View

log = logging.getLogger("zoefs.mount")
READY = select.POLLIN | select.POLLRDNORM | select.POLLOUT | select.POLLWRNORM


class Waiter(Protocol):
    """Somebody who waits; told once."""

    def notify(self) -> None:
        """Wake him. Raises OSError."""


class Pollers:
    """See module. `handles` are the open files by number."""

    def __init__(self, handles: Mapping[int, Handle]) -> None:
        self._handles = handles
        self._waiting: dict[int, Waiter] = {}
        self._by_view: dict[View, set[int]] = {}

    def poll(self, fh: int, waiter: Waiter | None) -> int:
        """The mask of what is ready; nobody waits where `waiter` is None."""
        handle = self._handles[fh]
        if _is_ready(handle):
            return READY
        if waiter is not None and handle.view is not None:
            self._waiting[fh] = waiter
            self._by_view.setdefault(handle.view, set()).add(fh)
        return 0

    def forget(self, fh: int, handle: Handle) -> None:
        """This open file is waited for no more."""
        if self._waiting.pop(fh, None) is None or handle.view is None:
            return
        waiting = self._by_view[handle.view]
        waiting.discard(fh)
        if not waiting:
            del self._by_view[handle.view]

    def wake(self, view: View) -> None:
        """This agent changed."""
        for fh in list(self._by_view.get(view, ())):
            handle = self._handles[fh]
            if _is_ready(handle):
                waiter = self._waiting[fh]
                self.forget(fh, handle)
                try:
                    waiter.notify()
                except OSError as error:
                    log.warning("a poller could not be woken: %s", error)


def _is_ready(handle: Handle) -> bool:
    """Whether who polls is to read: where looking fails, that read says why, and no writer has to hear of it."""
    if handle.view is not None and (handle.view.gone or handle.view.closing):
        return True
    try:
        return handle.ready
    except OSError:
        return True
