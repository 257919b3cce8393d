"""What the readable files hold, and how long they are: the same function renders and measures, so sizes are true."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Sequence

from zoefs.contract.events import utc
from zoefs.contract.home import RESERVE, Home
from zoefs.contract.words import LONGEST_STATUS
from zoefs.disk.files import free, modified, open_or_none, size
from zoefs.disk.lock import holder
from zoefs.disk.process import began
from zoefs.mount import readers
from zoefs.mount.metrics import Metrics
from zoefs.mount.tree import FileRow, help_text
from zoefs.mount.view import View

_LATER = ("conductor", "bonfire")


class Content:
    """See module. `began` is when this mount started."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.began = utc(time.time())
        self.metrics = Metrics(home)

    def supervisor(self) -> str:
        """The supervisor's health: `ok`, `degraded` or `absent`."""
        return holder(self.home.supervisor_lock).health(time.time())

    def root(self, name: str, views: Sequence[View], unread: int, unreadable: Sequence[str]) -> bytes:
        """`help`, `metrics` or `health`. A CLI of a version that nobody tested is told beside its supervisor.

        `unread`: so many of the agents were not read yet; `unreadable`: these cannot be.
        """
        if name == "help":
            return help_text().encode()
        known = [view for view in views if view.is_read] if unread else views
        if name == "metrics":
            return self.metrics.text(known, of_all=not unread)
        drifted = sorted(f"{v.name}={v.fold.backend}-{v.fold.version}" for v in known if not v.is_tested)
        full = "; HOME's disk is full" if free(self.home.path) < RESERVE else ""
        told = f"; not a tested version: {' '.join(drifted)}" if drifted else ""
        state = holder(self.home.supervisor_lock)
        health = state.health(time.time())
        beat = utc(state.beat) if state.beat else "-"
        since = utc(began(state.mark)) if health == "ok" else beat
        why = {"ok": f"pid {state.mark.pid}", "degraded": f"no heartbeat since {beat}", "absent": "not running"}[health]
        left = f"; agents still to be read: {unread}" if unread else ""
        left = f"; cannot be read: {' '.join(unreadable)}" if unreadable else left
        lines = [
            f"mount {'degraded' if unreadable else 'ok'} since {self.began} pid {os.getpid()}{left}",
            f"supervisor {health} since {since} {why}{full}{told}",
        ]
        lines += [f"{part} absent since - not in this version" for part in _LATER]
        return "".join(line + "\n" for line in lines).encode()

    def listing(self, views: Sequence[View]) -> bytes:
        """`agents/list`, in the order given. A line is made anew only where its agent changed."""
        lines = [readers.LIST_HEADER]
        for view in views:
            if view.is_read:
                view.row = view.row or readers.list_row(view)
                lines.append(view.row)
        return b"".join(lines)

    def text(self, view: View, name: str) -> bytes:
        """A small file of an agent."""
        match name:
            case "stat":
                return readers.stat_text(view, "ok" if self.supervisor() == "ok" else "absent")
            case "error":
                return readers.error_text(view)
            case "session":
                return readers.session_text(view)
            case "ask":
                return readers.ask_text(view)
            case _:
                raise OSError(errno.EIO, name)

    def open_out(self, view: View) -> int | None:
        """A descriptor of what `out` is now. A claim may rename its file between two looks, once."""
        order = view.newest_out()
        if order is not None:
            paths = [view.home.new / order.name, view.home.taken / order.name]
        elif view.fold.out:
            path = view.home.path / view.fold.out
            paths = [path, view.home.new / path.name]
        else:
            return None
        for path in (*paths, *paths):
            if (fd := open_or_none(path)) is not None:
                return fd
        return None

    def size(self, view: View, row: FileRow) -> int:
        """The length of an agent's file."""
        match row.name:
            case "status":
                return len(view.word)
            case "wait":
                return LONGEST_STATUS
            case "in" | "ctl":
                return 0
            case "out":
                return self._out_size(view)
            case "events":
                return size(self.home.journal(view.name))
            case "chat":
                return size(view.home.chat)
            case "spec":
                return size(view.home.spec)
            case name:
                return len(self.text(view, name))

    def mtime(self, view: View, row: FileRow) -> int:
        """When an agent's file last changed, in nanoseconds. An editor asks whether somebody else changed its file."""
        match row.name:
            case "in" | "ctl" | "wait":
                return view.made
            case "status":
                return view.word_mtime
            case "spec":
                return modified(view.home.spec)
            case _:
                return view.mtime

    def _out_size(self, view: View) -> int:
        with contextlib.ExitStack() as stack:
            fd = self.open_out(view)
            if fd is None:
                return 0
            stack.callback(os.close, fd)
            return os.fstat(fd).st_size
