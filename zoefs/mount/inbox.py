"""`inbox/` of one agent: prompts under the client's own ids, and the drafts they may be made from.

Rules. An id is used once in an agent's life, whoever is first: it is reserved before anything is awaited. The rename
of a draft to an id is the commit: refused there or nowhere, durable when it returns, never replacing. A cancel is one
rename out of `orders/new`; the supervisor's claim is another; the winner decides.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import trio

from zoefs.contract.home import Order, OrderKind
from zoefs.contract.words import FINAL, ORDER_ID_RULE, OrderId, is_order_id
from zoefs.disk.files import names, open_or_none, size, sync_dir, sync_file
from zoefs.mount import readers
from zoefs.mount.handles import FileHandle, Handle
from zoefs.mount.inodes import Entries, Entry
from zoefs.mount.orders import Queued
from zoefs.mount.stage import next_stamp
from zoefs.mount.view import View
from zoefs.mount.writing import DraftHandle, PromptHandle

_WRITES = os.O_WRONLY | os.O_RDWR
RENAME_NOREPLACE = 1


def is_draft(name: str) -> bool:
    """Whether a name of `inbox/` is a draft's."""
    return name.startswith(".")


class Inboxes:
    """The inboxes of all agents, and the drafts that are open."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._open: dict[DraftHandle, Entry] = {}
        self._committing: set[Path] = set()

    def path(self, view: View, name: str) -> Path:
        """Where a draft is kept."""
        return view.home.tmp / name

    def way(self, entry: Entry) -> Path:
        """A path of exactly this draft. One that is open lives on without a name, or when the name is another's."""
        path = self.path(entry.view, entry.name)
        if self._entries.is_named(entry) and path.exists():
            return path
        draft = next((draft for draft, one in self._open.items() if one is entry), None)
        if draft is None:
            raise OSError(errno.ENOENT, entry.name)
        return draft.way

    def exists(self, view: View, name: str) -> bool:
        """Whether there is such an entry."""
        if is_draft(name):
            return is_order_id(name[1:]) and self.path(view, name).exists()
        return view.fate(name) is not None

    def listed(self, view: View) -> list[str]:
        """The names of one inbox."""
        drafts = [name for name in names(view.home.tmp) if is_draft(name) and is_order_id(name[1:])]
        return [*drafts, *(id for id in view.ids() if view.fate(id) is not None)]

    def _check_id(self, view: View, id: str) -> None:
        if not is_order_id(id):
            raise view.refused(errno.EINVAL, f"{view.name}: an id is {ORDER_ID_RULE}")

    def _check_new(self, view: View, id: str) -> None:
        self._check_id(view, id)
        if view.knows(id):
            raise view.refused(errno.EEXIST, f"{view.name}: inbox/{id} exists; an id is used once in an agent's life")

    def open(self, entry: Entry, flags: int) -> Handle:
        """Open an entry that is there."""
        view, name = entry.view, entry.name
        if is_draft(name):
            return self._draft(view, name, flags, entry)
        if flags & _WRITES:
            self._check_new(view, name)

        def find() -> int | None:
            answer = readers.answer_of(view, name)
            return open_or_none(answer) if answer else None

        return FileHandle(find, view, head=lambda: readers.receipt_head(view, name))

    def create(self, view: View, name: str, flags: int) -> Handle:
        """Make and open an entry."""
        if is_draft(name):
            self._check_id(view, name[1:])
            return self._draft(view, name, flags | os.O_CREAT)
        self._check_new(view, name)
        view.check_accepts()
        return PromptHandle(view, name, bool(flags & os.O_APPEND))

    def _draft(self, view: View, name: str, flags: int, entry: Entry | None = None) -> DraftHandle:
        path = self.path(view, name)
        if path in self._committing and (entry is None or self._entries.is_named(entry)):
            raise view.refused(errno.EBUSY, f"{view.name}: inbox/{name} is being committed")
        handle = DraftHandle(view, name, self.way(entry) if entry else path, flags)
        self._open[handle] = entry or self._entries.of(view, name)
        return handle

    def released(self, handle: Handle) -> None:
        """A handle was closed for good."""
        if isinstance(handle, DraftHandle):
            self._open.pop(handle, None)

    def retired(self, view: View) -> None:
        """Nothing of this agent can be written any more."""
        for draft in self._open:
            draft.stale = draft.stale or draft.view is view

    async def rename(self, view: View, name: str, new_name: str, flags: int) -> None:
        """Give a draft another draft's name, or commit it."""
        source = self.path(view, name)
        if not source.exists():
            raise OSError(errno.ENOENT, name)
        if not is_draft(new_name):
            await self._commit(view, name, new_name)
            return
        self._check_id(view, new_name[1:])
        target = self.path(view, new_name)
        if flags & RENAME_NOREPLACE and target.exists():
            raise OSError(errno.EEXIST, new_name)
        os.rename(source, target)
        self._entries.drop(view, new_name)
        self._entries.move(view, name, new_name)

    def _make_stale(self, view: View, name: str) -> list[DraftHandle]:
        """Nothing is written any more through the handles of this draft; those it was possible with until now."""
        entry = self._entries.of(view, name)
        stale = [draft for draft, one in self._open.items() if one is entry and not draft.stale]
        for draft in stale:
            draft.stale = True
        return stale

    def truncate(self, entry: Entry, size: int) -> None:
        """Cut a draft; of anything else there is nothing to cut."""
        if is_draft(entry.name):
            handle = self._draft(entry.view, entry.name, os.O_WRONLY, entry)
            try:
                handle.truncate(size)
            finally:
                self.released(handle)
                handle.release()

    async def _commit(self, view: View, name: str, id: str) -> None:
        self._check_new(view, id)
        view.check_accepts()
        source = self.path(view, name)
        length = size(source)
        if length == 0:
            raise view.refused(errno.EINVAL, f"{view.name}: inbox/{name} is empty, and an empty prompt is nothing")
        view.check_room(length)
        stale = self._make_stale(view, name)
        self._committing.add(source)
        view.reserved |= {id}
        view.arriving += 1
        view.publish()
        order = Order(next_stamp(), OrderKind.PROMPT, OrderId(id))
        try:
            await trio.to_thread.run_sync(sync_file, source)
            view.add(Queued(order, length))
            os.rename(source, view.home.new / order.name)
            self._make_stale(view, name)
        except OSError:
            view.drop(order.name)
            for draft in stale:
                draft.stale = False
            raise
        finally:
            self._committing.discard(source)
            view.arriving -= 1
            view.reserved -= {id}
            view.publish()
        self._entries.move(view, name, id)
        await trio.to_thread.run_sync(_sync_orders, view)

    async def unlink(self, view: View, name: str) -> None:
        """Remove a draft, or cancel a prompt that waits."""
        if is_draft(name):
            self.path(view, name).unlink()
            self._entries.drop(view, name)
            return
        queued = next((q for q in view.prompts() if q.order.id == name), None)
        if queued is not None:
            with contextlib.suppress(FileNotFoundError):
                os.rename(view.home.new / queued.order.name, view.home.cancelled / queued.order.name)
                view.drop(queued.order.name)
                view.cancelled |= {name}
                view.publish()
                await trio.to_thread.run_sync(_sync_cancel, view)
                return
        fate = view.fate(name)
        if fate is None:
            raise OSError(errno.ENOENT, name)
        if fate in FINAL:
            raise view.refused(errno.EPERM, f"{view.name}: inbox/{name} has ended and stays as the record")
        raise view.refused(errno.EBUSY, f"{view.name}: inbox/{name} is being worked on; echo interrupt > ctl")


def _sync_cancel(view: View) -> None:
    sync_dir(view.home.cancelled)
    sync_dir(view.home.new)


def _sync_orders(view: View) -> None:
    sync_dir(view.home.new)
    sync_dir(view.home.tmp)
