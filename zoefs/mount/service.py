"""The tree as operations on inode numbers and handles. Knows no FUSE library: `operations` translates.

Errors are Refusal (a person's mistake: also noted in the agent's `error`) or OSError; anything else is a bug.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import stat
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import attrs
import trio

from zoefs.contract.events import utc
from zoefs.contract.guard import Opener, What
from zoefs.contract.home import AgentHome, Home, OrderKind
from zoefs.contract.lifecycle import Life
from zoefs.contract.refusal import Refusal
from zoefs.contract.words import AGENT_NAME_RULE, WAIT_SECONDS, AgentName, is_agent_name
from zoefs.disk.files import open_or_none, read, sync_dir
from zoefs.disk.journal import Sizes, Writer, recent
from zoefs.disk.lock import try_lock
from zoefs.mount import readers
from zoefs.mount.content import Content
from zoefs.mount.events import JournalHandle
from zoefs.mount.guard import Guard
from zoefs.mount.handles import FileHandle, GrowingHandle, Handle, TextHandle, WaitHandle, WordHandle
from zoefs.mount.inbox import Inboxes, is_draft
from zoefs.mount.inodes import (
    AGENT_BASE,
    AGENTS_INODE,
    ENTRY_BASE,
    LIST_INODE,
    ROOT_INODE,
    Attributes,
    Entries,
    Entry,
    agent_inode,
    split,
)
from zoefs.mount.nodes import Found
from zoefs.mount.passthrough import Passthrough
from zoefs.mount.roster import Roster
from zoefs.mount.tree import BY_INDEX, FILES, LIST, LONG, ROOT, ROOT_BY_INDEX, FileRow
from zoefs.mount.view import View
from zoefs.mount.writing import CtlHandle, OutHandle, PromptHandle, SpecHandle

_WRITES = os.O_WRONLY | os.O_RDWR
_INBOX, _STATUS = FILES["inbox"].index, FILES["status"].index
_ROOT_LINKS = 2 + sum(row.through is not None or row.name == "agents" for row in ROOT.values())
_OF_ALL = frozenset({LIST_INODE, ROOT_INODE + ROOT["metrics"].index})
"""What tells of all agents."""
_WRITTEN = {"in": What.IN, "out": What.OUT, "ctl": What.CTL, "spec": What.SPEC}

Told = Attributes | Awaitable[Found]
"""Attributes; those of a directory of HOME may have to be waited for."""
Make = Callable[[], Told]


class Service:
    """See module. `changed(view, word)` is called after each change of an agent, with whether its status is another."""

    def __init__(self, home: Home, sizes: Sizes) -> None:
        self.home = home
        self.changed: Callable[[View, bool], None] = lambda view, word: None
        self.entries = Entries()
        self._content = Content(home)
        self.metrics = self._content.metrics
        self._inboxes = Inboxes(self.entries)
        self._creating: set[str] = set()
        self._mtime = self._began = self._names = time.time_ns()
        self._closing = False
        past = recent(home.mount_log)
        self._log = Writer(home.mount_log, max((event.seq for event in past), default=0), limit=sizes.log)
        refusals = {e.text("agent"): (e.t, e.text("text")) for e in past if e.kind == "refused"}
        self.agents = Roster(home, self._note_lasting, self._refuse, self._published, refusals)
        self.guard = Guard(home, self.agents, lambda kind, fields: self._log.append((kind, fields)))
        self.through = Passthrough(home, self.guard)

    def _note_lasting(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._log.append((kind, fields), sync=True)

    def _refuse(self, view: View, number: int, sentence: str, by: str) -> None:
        """Note a refusal, with the agent that met it. The same one again within a second is not written again."""
        t = utc(time.time())
        shown = view.refusal == sentence and view.refusal_t >= view.fold.error_t
        again = shown and t[:19] == view.refusal_t[:19]
        if not again:
            name = errno.errorcode.get(number, str(number))
            with contextlib.suppress(OSError):
                told = {"agent": view.name, "errno": name, "text": sentence} | ({"by": by} if by else {})
                noted = self._log.append(("refused", told))
                t = noted[0].t  # a mount that starts anew says the same
            view.refusal, view.refusal_t = sentence, t
        view.mtime = time.time_ns()

    def _published(self, view: View, word: bool) -> None:
        self._mtime = time.time_ns()
        self.changed(view, word)

    def status_inode(self, view: View) -> int:
        """The inode whose cached attributes a change of the word makes stale."""
        return agent_inode(view, _STATUS)

    def _agent_of(self, inode: int) -> tuple[View, int]:
        number, index = split(inode)
        view = self.agents.numbers.get(number)
        if view is None or view.gone:
            raise OSError(errno.ESTALE, "retired")
        if index:
            self.agents.read(view)
        return view, index

    def _inbox_of(self, inode: int) -> View:
        """The agent whose inbox this directory is. Raises OSError(EPERM): nothing is made or removed elsewhere."""
        if AGENT_BASE <= inode < ENTRY_BASE:
            view, index = self._agent_of(inode)
            if index == _INBOX:
                return view
        raise OSError(errno.EPERM, "nothing can be made, renamed or removed here")

    async def _inbox_for(self, inode: int, pid: int) -> View:
        """The same, once it is certain that this process may write there."""
        self._inbox_of(inode)
        opener = await self.guard.opener(pid)
        view = self._inbox_of(inode)  # it may have been retired meanwhile
        self.guard.check(opener, What.INBOX, view)
        return view

    # -- looking ------------------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: str) -> Told:
        """The attributes of a name. Raises OSError(ENOENT)."""
        if parent == AGENTS_INODE:
            if name == LIST.name:
                return self.attributes(LIST_INODE)
            if (view := self.agents.views.get(name)) is not None:
                return self._agent_attributes(view, 0)
        elif parent == ROOT_INODE:
            if name in ROOT:
                return self._root_attributes(ROOT_INODE + ROOT[name].index)
        elif AGENT_BASE <= parent < ENTRY_BASE:
            view, index = self._agent_of(parent)
            if index == 0 and name in FILES:
                return self._agent_attributes(view, FILES[name].index)
            if index == _INBOX and self._inboxes.exists(view, name):
                return self._entry_attributes(self.entries.of(view, name))
        raise OSError(errno.ENOENT, name)

    def attributes(self, inode: int) -> Attributes:
        """What stat(2) says. Raises OSError(ESTALE) for what is gone."""
        if inode >= ENTRY_BASE:
            return self._entry_attributes(self._known_entry(inode))
        if inode >= AGENT_BASE:
            return self._agent_attributes(*self._agent_of(inode))
        if inode == ROOT_INODE:
            return Attributes(inode, stat.S_IFDIR | 0o755, 0, self._began, LONG, LONG, _ROOT_LINKS)
        if inode == LIST_INODE:
            length = len(self._content.listing(self.agents.by_name()))
            return Attributes(inode, stat.S_IFREG | LIST.mode, length, self._mtime, 0.0, LONG)
        row = ROOT_BY_INDEX[inode - ROOT_INODE]
        if inode == AGENTS_INODE:
            links = 2 + len(self.agents.views)
            return Attributes(inode, stat.S_IFDIR | row.mode, 0, self._names, LONG, LONG, links)
        mtime = self._began if row.attr_seconds else self._mtime
        return Attributes(inode, stat.S_IFREG | row.mode, len(self._root(row.name)), mtime, row.attr_seconds, LONG)

    def _root(self, name: str) -> bytes:
        unreadable = sorted(view.name for view in self.agents.unreadable)
        return self._content.root(name, self.agents.by_name(), len(self.agents.unread), unreadable)

    def _root_attributes(self, inode: int) -> Told:
        return self.through.attributes(inode) if self.through.nodes.owns(inode) else self.attributes(inode)

    def _agent_attributes(self, view: View, index: int) -> Attributes:
        """The names of an agent's files cannot change, and agents come and go through the mount only."""
        inode = agent_inode(view, index)
        if index == 0:
            return Attributes(inode, stat.S_IFDIR | 0o755, 0, view.made, LONG, LONG, 3)
        row = BY_INDEX[index]
        if index == _INBOX:
            return Attributes(inode, stat.S_IFDIR | row.mode, 0, view.mtime, 0.0, LONG, 2)
        length, mtime = self._content.size(view, row), self._content.mtime(view, row)
        return Attributes(inode, stat.S_IFREG | row.mode, length, mtime, row.attr_seconds, LONG)

    def _known_entry(self, inode: int) -> Entry:
        entry = self.entries.get(inode)
        if entry is None or entry.view.gone:
            raise OSError(errno.ESTALE, "gone")
        return entry

    def _entry_attributes(self, entry: Entry) -> Attributes:
        if is_draft(entry.name):
            found = self._inboxes.way(entry).stat()
            return Attributes(entry.inode, stat.S_IFREG | 0o600, found.st_size, found.st_mtime_ns, links=found.st_nlink)
        length = readers.receipt_size(entry.view, entry.name)
        return Attributes(entry.inode, stat.S_IFREG | 0o600, length, entry.view.mtime)

    def listing(self, inode: int) -> Iterator[tuple[str, Make]]:
        """The names of a directory, itself and the one above first, each with how to get its attributes."""
        yield ".", functools.partial(self.attributes, inode)
        yield "..", functools.partial(self.attributes, self._above(inode))
        if inode == ROOT_INODE:
            for row in ROOT.values():
                yield row.name, functools.partial(self._root_attributes, ROOT_INODE + row.index)
        elif inode == AGENTS_INODE:
            yield LIST.name, functools.partial(self.attributes, LIST_INODE)
            for view in self.agents.by_name():
                yield view.name, functools.partial(self._directory, view)
        else:
            view, index = self._agent_of(inode)
            if index == 0:
                for row in FILES.values():
                    if row.listed:
                        yield row.name, functools.partial(self.attributes, agent_inode(view, row.index))
            elif index == _INBOX:
                for name in self._inboxes.listed(view):
                    yield name, functools.partial(self._entry_of, view, name)

    def _above(self, inode: int) -> int:
        """The directory that a directory is in; the root is in itself."""
        if inode < AGENT_BASE:
            return ROOT_INODE
        view, index = self._agent_of(inode)
        return agent_inode(view, 0) if index else AGENTS_INODE

    def _directory(self, view: View) -> Attributes:
        if view.gone:
            raise OSError(errno.ESTALE, "retired")
        return self._agent_attributes(view, 0)

    def _entry_of(self, view: View, name: str) -> Attributes:
        return self._entry_attributes(self.entries.of(view, name))

    # -- opening ------------------------------------------------------------------------------------------------

    async def open(self, inode: int, flags: int, pid: int) -> Handle:
        """Open a file. `pid` is who opens it, which only matters for writing. Raises Refusal or OSError."""
        if flags & (_WRITES | os.O_TRUNC):
            opener = await self.guard.opener(pid)
            return self._open(inode, flags, opener)
        if self.agents.unread and inode in _OF_ALL and not await self.agents.all_told(WAIT_SECONDS):
            raise OSError(errno.EAGAIN, "agents are still being read")
        return self._open(inode, flags, None)

    def _open(self, inode: int, flags: int, opener: Opener | None) -> Handle:
        writes = bool(flags & _WRITES)
        if self._closing:
            raise OSError(errno.ESHUTDOWN, "the mount is going")
        if inode >= ENTRY_BASE:
            entry = self._known_entry(inode)
            self.guard.check(opener, What.INBOX, entry.view)
            return self._inboxes.open(entry, flags)
        if inode < AGENT_BASE:
            if writes:
                raise OSError(errno.EACCES, "read only")
            if inode == LIST_INODE:
                return TextHandle(lambda: self._content.listing(self.agents.by_name()))
            name = ROOT_BY_INDEX[inode - ROOT_INODE].name
            return TextHandle(lambda: self._root(name))
        view, index = self._agent_of(inode)
        if index == _STATUS and not writes:
            return WordHandle(view)
        row = BY_INDEX[index]
        return self._open_to_write(view, row, flags, opener) if writes else self._open_to_read(view, row, flags)

    def _open_to_read(self, view: View, row: FileRow, flags: int) -> Handle:
        match row.name:
            case "wait":
                return WaitHandle(view, bool(flags & os.O_NONBLOCK))
            case "in" | "ctl":
                return Handle(view)
            case "out":
                return FileHandle(lambda: self._content.open_out(view), view, row.wakes)
            case "events":
                return JournalHandle(self.home.journal(view.name), view, row.wakes)
            case "chat":
                return GrowingHandle(lambda: open_or_none(view.home.chat), view, row.wakes)
            case "spec":
                return TextHandle(lambda: read(view.home.spec) or b"")
            case name:
                return TextHandle(lambda: self._content.text(view, name))

    def _open_to_write(self, view: View, row: FileRow, flags: int, opener: Opener | None) -> Handle:
        appends, empty = bool(flags & os.O_APPEND), bool(flags & os.O_TRUNC)
        self.guard.check(opener, _WRITTEN.get(row.name, What.ELSEWHERE), view)
        match row.name:
            case "in":
                view.check_accepts()
                return PromptHandle(view, "", appends)
            case "ctl":
                return CtlHandle(view)
            case "out":
                kind = OrderKind.ANSWER if self.guard.is_its_own(opener, view) else OrderKind.OUT
                return OutHandle(view, kind, appends)
            case "spec":
                if not view.spec_may_change:
                    sentence = f"{view.name} is {view.status}; its spec can be changed once it is stopped"
                    raise view.refused(errno.EBUSY, sentence)
                by = opener.name if opener else ""
                return SpecHandle(view, empty, appends, self.guard.cap(opener, view), by)
            case name:
                raise OSError(errno.EACCES, f"{name} is read only")

    async def create(self, parent: int, name: str, flags: int, pid: int) -> tuple[Handle, Attributes]:
        """Make and open a file: only in an `inbox/`."""
        view = await self._inbox_for(parent, pid)
        handle = self._inboxes.create(view, name, flags)
        return handle, self._entry_of(view, name)

    def released(self, handle: Handle) -> None:
        """The last descriptor of a handle was closed."""
        self._inboxes.released(handle)
        handle.release()

    # -- changing names -----------------------------------------------------------------------------------------

    async def mkdir(self, parent: int, name: str, pid: int) -> Attributes:
        """Make an agent. EEXIST is loud; names that differ only in case are one name."""
        if parent != AGENTS_INODE:
            raise OSError(errno.EPERM, "only agents can be made, in agents/")
        opener = await self.guard.opener(pid)
        self.guard.check(opener, What.MKDIR)
        if not is_agent_name(name):
            raise Refusal(errno.EINVAL, f"an agent's name is {AGENT_NAME_RULE}")
        if self.agents.is_taken(name) or name.lower() in {other.lower() for other in self._creating}:
            raise Refusal(errno.EEXIST, f"an agent of that name exists: {name}")
        self._creating.add(name)
        try:
            made = await trio.to_thread.run_sync(self._make_agent, name, self.guard.maker(opener))
        finally:
            self._creating.discard(name)
        view = self.agents.add(name, made)
        self.agents.read(view)
        self._mtime = self._names = time.time_ns()
        return self._agent_attributes(view, 0)

    def _make_agent(self, name: str, maker: str) -> int:
        """Make the directory whole under another name, then rename it: it exists complete or not at all. When, in
        nanoseconds since 1970."""
        final = self.home.agent(AgentName(name))
        temp = attrs.evolve(final, path=final.path.with_name(f".{name}.{uuid.uuid4().hex[:8]}"))
        try:
            self._fill(temp, maker)
            os.rename(temp.path, final.path)
        except OSError:
            shutil.rmtree(temp.path, ignore_errors=True)
            raise
        try:
            sync_dir(self.home.agents)
        except OSError:
            os.rename(final.path, temp.path)
            shutil.rmtree(temp.path, ignore_errors=True)
            raise
        return final.born.stat().st_mtime_ns

    def _fill(self, temp: AgentHome, maker: str) -> None:
        """Everything that a new agent has, lasting."""
        for path in temp.directories:
            path.mkdir(mode=0o700)
        texts = {temp.spec: b"", temp.born: uuid.uuid4().hex.encode() + b"\n", temp.lock: b""}
        if maker:
            texts[temp.maker] = maker.encode() + b"\n"
        for path, data in texts.items():
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_dir(temp.path)

    async def rmdir(self, parent: int, name: str, pid: int) -> None:
        """Retire an agent: its directory moves to HOME/retired, its journal stays."""
        if parent != AGENTS_INODE:
            raise OSError(errno.EPERM, "only agents can be retired")
        opener = await self.guard.opener(pid)
        view = await self.agents.find(name)
        if view is None:
            raise OSError(errno.ENOENT, name)
        self.guard.check(opener, What.RMDIR, view)
        lock = try_lock(view.home.lock)
        if lock is None:
            raise view.refused(errno.EBUSY, f"{name} has a CLI running; echo stop > ctl first")
        try:
            self.agents.catch_up(name)
            f = view.fold
            started = f.inc or f.turn_open or f.life is Life.BACKOFF
            busy = started or view.arriving or view.prompts()
            if busy and f.life not in (Life.STOPPED, Life.FAILED):
                raise view.refused(errno.EBUSY, f"{name} is {view.status}; echo stop > ctl first")
            os.rename(view.home.path, self.home.retired / f"{name}.{view.born}")
        finally:
            os.close(lock)
        self.agents.remove(view)
        self.metrics.retired.add(view)
        self._names = time.time_ns()
        self._inboxes.retired(view)
        view.publish()
        await trio.to_thread.run_sync(self._sync_retired)
        del self.agents.numbers[view.number]

    def _sync_retired(self) -> None:
        sync_dir(self.home.retired)
        sync_dir(self.home.agents)

    async def rename(self, parent: int, name: str, new_parent: int, new_name: str, flags: int, pid: int) -> None:
        """Only a draft, and only within its inbox."""
        view = await self._inbox_for(parent, pid)
        if new_parent != parent or not is_draft(name) or flags & ~1:
            raise OSError(errno.EPERM, "only inbox/.NAME can be renamed, within its inbox")
        await self._inboxes.rename(view, name, new_name, flags)

    async def unlink(self, parent: int, name: str, pid: int) -> None:
        """Remove a draft, or cancel a prompt that waits."""
        view = await self._inbox_for(parent, pid)
        await self._inboxes.unlink(view, name)

    async def truncate(self, inode: int, size: int, pid: int) -> None:
        """truncate(2) by name: a draft is cut; to any other file it means nothing, and sends nothing."""
        if inode >= ENTRY_BASE:
            opener = await self.guard.opener(pid)
            entry = self._known_entry(inode)
            self.guard.check(opener, What.INBOX, entry.view)
            self._inboxes.truncate(entry, size)

    def close(self) -> None:
        """New opens are refused from now on, and whoever waits is woken."""
        self._closing = True
        self.agents.whole.set()
        for view in list(self.agents.views.values()):
            view.closing = True
            if view.is_read:
                view.publish()
