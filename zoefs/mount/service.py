"""The tree as operations on inode numbers and handles. Knows no FUSE library: `operations` translates.

Inode numbers. 1 is the root and 2… its entries. Each agent that this mount has ever seen has a number, and with it a
block of inode numbers, one for its directory and one a file; `inbox/` entries get numbers as they are looked up.
No number is used twice in the life of a mount.

Errors are Refusal (a person's mistake: also noted in the agent's `error`) or OSError; anything else is a bug.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator

import attrs
import trio

from zoefs.contract.events import utc
from zoefs.contract.home import SHARED, Home, Order, OrderKind, parse_stage
from zoefs.contract.lifecycle import Life
from zoefs.contract.refusal import Refusal
from zoefs.contract.words import (
    AGENT_NAME_RULE,
    LONGEST_STATUS,
    ORDER_ID_RULE,
    SINGLE_WRITE_MAX,
    AgentName,
    Fate,
    OrderId,
    is_agent_name,
    is_order_id,
)
from zoefs.disk.files import names, read, size, sync_dir
from zoefs.disk.journal import Tail, Writer
from zoefs.disk.lock import holder, try_lock
from zoefs.disk.process import agent_of
from zoefs.mount import readers
from zoefs.mount.handles import (
    CtlHandle,
    DraftHandle,
    FileHandle,
    Handle,
    OutHandle,
    PromptHandle,
    SpecHandle,
    TextHandle,
    WaitHandle,
    WordHandle,
)
from zoefs.mount.stage import next_stamp
from zoefs.mount.tree import BY_INDEX, FILES, LIST, LONG, ROOT, ROOT_BY_INDEX, FileRow, help_text
from zoefs.mount.view import Queued, View

ROOT_INODE = 1
LIST_INODE = 40
_AGENT_BASE = 1 << 20
_AGENT_BITS = 5
_ENTRY_BASE = 1 << 48
_WRITES = os.O_WRONLY | os.O_RDWR
_IN, _INBOX, _OUT, _STATUS, _WAIT, _CTL, _SPEC = (
    FILES[name].index for name in ("in", "inbox", "out", "status", "wait", "ctl", "spec")
)
_AGENTS = ROOT["agents"].index + ROOT_INODE


@attrs.frozen
class Attributes:
    """What stat(2) says of an inode. Timeouts in seconds; `mtime` in nanoseconds since 1970."""

    inode: int
    mode: int
    size: int
    mtime: int
    attr_seconds: float = 0.0
    entry_seconds: float = 0.0
    links: int = 1


@attrs.define
class Entry:
    """An `inbox/` entry that the kernel knows: how often it was looked up."""

    view: View
    name: str
    inode: int
    lookups: int = 0


class Service:
    """See module. `changed(view, word)` is called after each change of an agent, with whether its status is another."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.began = utc(time.time())
        self.views: dict[str, View] = {}
        self._numbers: dict[int, View] = {}
        self._next_number = 0
        self._entries: dict[int, Entry] = {}
        self._entry_inodes: dict[tuple[int, str], int] = {}
        self._next_entry = _ENTRY_BASE
        self._drafts: set[DraftHandle] = set()
        self._creating: set[str] = set()
        self.changed: Callable[[View, bool], None] = lambda view, word: None
        past = Tail(home.mount_log).read()
        self._log = Writer(home.mount_log, max((event.seq for event in past), default=0))
        self._refusals = {e.text("agent"): (e.t, e.text("text")) for e in past if e.kind == "refused"}
        self._mtime = time.time_ns()
        self.closing = False

    # -- the agents ---------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take in every agent on disk; finish what the death of an earlier mount left half done."""
        for name in names(self.home.agents):
            if is_agent_name(name) and (self.home.agents / name / "born").exists():
                self._recover(name)
                self._add(name)
            elif name.startswith("."):
                shutil.rmtree(self.home.agents / name, ignore_errors=True)

    def _add(self, name: str) -> View:
        self._next_number += 1
        agent = self.home.agent(AgentName(name))
        view = View(self.home, agent, self._next_number, self._refuse, self._published)
        t, text = self._refusals.get(name, ("", ""))
        if t >= view.fold.since:
            view.refusal_t, view.refusal = t, text
        self.views[name] = view
        self._numbers[view.number] = view
        return view

    def _refuse(self, view: View, number: int, sentence: str) -> None:
        """Note a refusal. The same one again within a second is not written again."""
        t = utc(time.time())
        again = view.refusal == sentence and t[:19] == view.refusal_t[:19]
        view.refusal, view.refusal_t = sentence, t
        if not again:
            name = errno.errorcode.get(number, str(number))
            with contextlib.suppress(OSError):
                self._log.append(("refused", {"agent": view.name, "errno": name, "text": sentence}))

    def _recover(self, name: str) -> None:
        """Commit what was accepted as a whole, set aside what was cut off (guarantee 1), drop what never counted."""
        agent = self.home.agent(AgentName(name))
        for file in names(agent.tmp):
            stage = parse_stage(file)
            path = agent.tmp / file
            if stage is None:
                continue
            length = size(path)
            if stage.order.kind not in (OrderKind.PROMPT, OrderKind.RECOVERED) or length == 0:
                path.unlink()
                continue
            whole = stage.is_whole(length, SINGLE_WRITE_MAX)
            order = attrs.evolve(stage.order, kind=OrderKind.RECOVERED)
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            target = agent.new if whole else agent.cut
            os.rename(path, target / order.name)
            sync_dir(target)
            kind = "recovered" if whole else "cut"
            self._log.append((kind, {"agent": name, "id": order.id, "bytes": length}), sync=True)

    def _published(self, view: View, word: bool) -> None:
        self._mtime = time.time_ns()
        self.changed(view, word)

    def catch_up(self, name: str) -> None:
        """The journal of this agent grew."""
        view = self.views.get(name)
        if view is not None and view.catch_up():
            view.publish()

    def inode(self, view: View, index: int) -> int:
        """The inode of an agent's file; index 0 is its directory."""
        return _AGENT_BASE + (view.number << _AGENT_BITS) + index

    def _agent_of(self, inode: int) -> tuple[View, int]:
        view = self._numbers.get((inode - _AGENT_BASE) >> _AGENT_BITS)
        if view is None or view.gone:
            raise OSError(errno.ESTALE, "retired")
        return view, inode & ((1 << _AGENT_BITS) - 1)

    # -- names --------------------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: str) -> Attributes:
        """The attributes of a name. Raises OSError(ENOENT)."""
        if parent == _AGENTS:
            if name == LIST.name:
                return self.attributes(LIST_INODE)
            view = self.views.get(name)
            if view is None:
                raise OSError(errno.ENOENT, name)
            return self._agent_attributes(view, 0)
        if parent == ROOT_INODE:
            if name not in ROOT:
                raise OSError(errno.ENOENT, name)
            return self.attributes(ROOT_INODE + ROOT[name].index)
        if _AGENT_BASE <= parent < _ENTRY_BASE:
            view, index = self._agent_of(parent)
            if index == 0:
                if name not in FILES:
                    raise OSError(errno.ENOENT, name)
                return self._agent_attributes(view, FILES[name].index)
            if index == _INBOX and self._in_inbox(view, name):
                return self._entry_attributes(self._entry(view, name))
        raise OSError(errno.ENOENT, name)

    def _in_inbox(self, view: View, name: str) -> bool:
        if name.startswith("."):
            return is_order_id(name[1:]) and (view.home.tmp / name).exists()
        return view.fate(name) is not None

    def _entry(self, view: View, name: str) -> Entry:
        key = (view.number, name)
        inode = self._entry_inodes.get(key)
        if inode is None:
            self._next_entry += 1
            inode = self._entry_inodes[key] = self._next_entry
            self._entries[inode] = Entry(view, name, inode)
        return self._entries[inode]

    def looked_up(self, inode: int) -> None:
        """The kernel was told of this inode once more."""
        if inode >= _ENTRY_BASE and inode in self._entries:
            self._entries[inode].lookups += 1

    def forget(self, inode: int, count: int) -> None:
        """The kernel forgets this inode `count` times."""
        entry = self._entries.get(inode)
        if entry is not None:
            entry.lookups -= count
            if entry.lookups <= 0:
                del self._entries[inode]
                if self._entry_inodes.get((entry.view.number, entry.name)) == inode:
                    del self._entry_inodes[entry.view.number, entry.name]

    def attributes(self, inode: int) -> Attributes:
        """What stat(2) says. Raises OSError(ESTALE) for what is gone."""
        if inode >= _ENTRY_BASE:
            entry = self._entries.get(inode)
            if entry is None or entry.view.gone:
                raise OSError(errno.ESTALE, "gone")
            return self._entry_attributes(entry)
        if inode >= _AGENT_BASE:
            return self._agent_attributes(*self._agent_of(inode))
        if inode == ROOT_INODE:
            return Attributes(inode, stat.S_IFDIR | 0o755, 0, self._mtime, LONG, LONG, 2)
        if inode == LIST_INODE:
            return Attributes(inode, stat.S_IFREG | LIST.mode, len(self._list()), self._mtime, 0.0, LONG)
        row = ROOT_BY_INDEX.get(inode - ROOT_INODE)
        if row is None:
            raise OSError(errno.ENOENT, str(inode))
        match row.name:
            case "agents":
                return Attributes(inode, stat.S_IFDIR | row.mode, 0, self._mtime, LONG, LONG, 2)
            case "help" | "health":
                length = len(self._root_text(row.name))
                return Attributes(inode, stat.S_IFREG | row.mode, length, self._mtime, row.attr_seconds, LONG)
            case _:
                length = len(os.fsencode(self.readlink(inode)))
                return Attributes(inode, stat.S_IFLNK | row.mode, length, self._mtime, LONG, LONG)

    def _agent_attributes(self, view: View, index: int) -> Attributes:
        inode = self.inode(view, index)
        if index == 0:
            return Attributes(inode, stat.S_IFDIR | 0o755, 0, self._mtime, LONG, LONG, 3)
        row = BY_INDEX[index]
        if index == _INBOX:
            return Attributes(inode, stat.S_IFDIR | row.mode, 0, self._mtime, 0.0, LONG, 2)
        return Attributes(inode, stat.S_IFREG | row.mode, self._size(view, row), self._mtime, row.attr_seconds, LONG)

    def _size(self, view: View, row: FileRow) -> int:
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
            case _:
                return len(self._text(view, row.name))

    def _entry_attributes(self, entry: Entry) -> Attributes:
        if entry.name.startswith("."):
            found = (entry.view.home.tmp / entry.name).stat()
            return Attributes(entry.inode, stat.S_IFREG | 0o600, found.st_size, found.st_mtime_ns)
        writing = entry.view.fate(entry.name) is Fate.WRITING
        length = 0 if writing else readers.receipt_size(entry.view, entry.name)
        return Attributes(entry.inode, stat.S_IFREG | 0o600, length, self._mtime)

    def entries(self, inode: int) -> Iterator[tuple[str, Callable[[], Attributes]]]:
        """The names of a directory, each with how to get its attributes."""
        if inode == ROOT_INODE:
            for row in ROOT.values():
                yield row.name, lambda row=row: self.attributes(ROOT_INODE + row.index)  # type: ignore[misc]
        elif inode == _AGENTS:
            yield LIST.name, lambda: self.attributes(LIST_INODE)
            for view in list(self.views.values()):
                yield view.name, lambda view=view: self._agent_attributes(view, 0)  # type: ignore[misc]
        else:
            view, index = self._agent_of(inode)
            if index == 0:
                for row in FILES.values():
                    if row.listed:
                        yield row.name, lambda row=row: self._agent_attributes(view, row.index)  # type: ignore[misc]
            elif index == _INBOX:
                drafts = [name for name in names(view.home.tmp) if self._is_draft(name)]
                for name in (*drafts, *(id for id in view.ids() if view.fate(id) is not None)):
                    yield name, lambda name=name: self._entry_attributes(self._entry(view, name))  # type: ignore[misc]
            else:
                raise OSError(errno.ENOTDIR, "no directory")

    def _is_draft(self, name: str) -> bool:
        return name.startswith(".") and is_order_id(name[1:])

    def readlink(self, inode: int) -> str:
        """Where a symlink of the root leads."""
        row = ROOT_BY_INDEX.get(inode - ROOT_INODE)
        if row is None or row.name not in (*SHARED, "log"):
            raise OSError(errno.EINVAL, "no symlink")
        return str(self.home.path / row.name)

    # -- text ---------------------------------------------------------------------------------------------------

    def supervisor_health(self) -> str:
        """`ok`, `degraded` or `absent`."""
        return holder(self.home.supervisor_lock).health(time.time())

    def _root_text(self, name: str) -> bytes:
        if name == "help":
            return help_text().encode()
        state = holder(self.home.supervisor_lock)
        health = state.health(time.time())
        beat = utc(state.beat) if state.beat else "-"
        why = {"ok": f"pid {state.mark.pid}", "degraded": f"no heartbeat since {beat}", "absent": "not running"}[health]
        lines = [
            f"mount ok since {self.began} pid {os.getpid()}",
            f"supervisor {health} since {beat} {why}",
            "conductor absent since - not in this version",
            "bonfire absent since - not in this version",
        ]
        return "".join(line + "\n" for line in lines).encode()

    def _list(self) -> bytes:
        return readers.list_text(self.views[name] for name in sorted(self.views))

    def _text(self, view: View, name: str) -> bytes:
        match name:
            case "stat":
                health = self.supervisor_health()
                return readers.stat_text(view, health if health != "degraded" else "absent")
            case "error":
                return readers.error_text(view)
            case "session":
                return readers.session_text(view)
            case "ask":
                return readers.ask_text(view)
            case _:
                raise OSError(errno.EIO, name)

    def _open_out(self, view: View) -> int | None:
        """A descriptor of what `out` is now; its file may be renamed under us by a claim."""
        order = view.newest_out()
        candidates = [view.home.new / order.name, view.home.taken / order.name] if order else []
        if not order and view.fold.out:
            candidates = [view.home.path / view.fold.out, view.home.new / (view.home.path / view.fold.out).name]
        for path in (*candidates, *candidates):
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return None

    def _out_size(self, view: View) -> int:
        fd = self._open_out(view)
        if fd is None:
            return 0
        try:
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    # -- opening ------------------------------------------------------------------------------------------------

    def open(self, inode: int, flags: int, pid: int) -> Handle:
        """Open a file. `pid` is who opens it. Raises Refusal or OSError."""
        writes = bool(flags & _WRITES)
        if self.closing:
            raise OSError(errno.ESHUTDOWN, "the mount is going")
        if inode >= _ENTRY_BASE:
            entry = self._entries.get(inode)
            if entry is None or entry.view.gone:
                raise OSError(errno.ESTALE, "gone")
            return self._open_entry(entry.view, entry.name, flags)
        if inode < _AGENT_BASE:
            if writes:
                raise OSError(errno.EACCES, "read only")
            if inode == LIST_INODE:
                return TextHandle(self._list)
            row = ROOT_BY_INDEX[inode - ROOT_INODE]
            return TextHandle(lambda: self._root_text(row.name))
        view, index = self._agent_of(inode)
        if index == _STATUS and not writes:
            return WordHandle(view)
        row = BY_INDEX[index]
        return self._open_to_write(view, row, flags, pid) if writes else self._open_to_read(view, row, flags)

    def _open_to_read(self, view: View, row: FileRow, flags: int) -> Handle:
        match row.name:
            case "wait":
                return WaitHandle(view, bool(flags & os.O_NONBLOCK))
            case "in" | "ctl":
                return Handle(view)
            case "out":
                return FileHandle(lambda: self._open_out(view), view, "outs")
            case "events":
                return FileHandle(lambda: _open(self.home.journal(view.name)), view, "events", grows=True)
            case "chat":
                return FileHandle(lambda: _open(view.home.chat), view, "chat", grows=True)
            case "spec":
                return TextHandle(lambda: read(view.home.spec) or b"")
            case name:
                return TextHandle(lambda: self._text(view, name))

    def _open_to_write(self, view: View, row: FileRow, flags: int, pid: int) -> Handle:
        appends, empty = bool(flags & os.O_APPEND), bool(flags & os.O_TRUNC)
        match row.name:
            case "in":
                view.check_accepts()
                return PromptHandle(view, "", appends)
            case "ctl":
                return CtlHandle(view)
            case "out":
                kind = OrderKind.ANSWER if agent_of(pid, self.home.path) == view.name else OrderKind.OUT
                return OutHandle(view, kind, appends)
            case "spec":
                f = view.fold
                if (f.inc or f.turn) and f.life not in (Life.STOPPED, Life.FAILED):
                    raise view.refused(errno.EBUSY, f"{view.name} is {view.status}; its spec can be changed once it is stopped")
                return SpecHandle(view, empty, appends)
            case name:
                raise OSError(errno.EACCES, f"{name} is read only")

    def _open_entry(self, view: View, name: str, flags: int) -> Handle:
        if name.startswith("."):
            return self._draft(view, name, flags)
        if flags & _WRITES:
            raise view.refused(errno.EEXIST, f"{view.name}: inbox/{name} exists; an id is used once in an agent's life")
        if view.fate(name) is Fate.WRITING:
            return Handle(view)

        def find() -> int | None:
            answer = readers.answer_of(view, name)
            return _open(answer) if answer else None

        return FileHandle(find, view, head=lambda: readers.receipt_head(view, name))

    def _draft(self, view: View, name: str, flags: int) -> DraftHandle:
        handle = DraftHandle(view, view.home.tmp / name, flags)
        self._drafts.add(handle)
        return handle

    def create(self, parent: int, name: str, flags: int) -> tuple[Handle, Attributes]:
        """Make and open a file: only in an `inbox/`."""
        view, index = self._agent_of(parent) if _AGENT_BASE <= parent < _ENTRY_BASE else (None, -1)
        if view is None or index != _INBOX:
            raise OSError(errno.EPERM, "nothing can be made here")
        if name.startswith("."):
            self._check_id(view, name[1:])
            handle: Handle = self._draft(view, name, flags | os.O_CREAT)
        else:
            self._check_id(view, name)
            if view.knows(name):
                raise view.refused(errno.EEXIST, f"{view.name}: inbox/{name} exists; an id is used once in an agent's life")
            view.check_accepts()
            handle = PromptHandle(view, name, bool(flags & os.O_APPEND))
        return handle, self._entry_attributes(self._entry(view, name))

    def _check_id(self, view: View, id: str) -> None:
        if not is_order_id(id):
            raise view.refused(errno.EINVAL, f"{view.name}: an id is {ORDER_ID_RULE}")

    def released(self, handle: Handle) -> None:
        """The last descriptor of a handle was closed."""
        if isinstance(handle, DraftHandle):
            self._drafts.discard(handle)
        handle.release()

    # -- changing names -----------------------------------------------------------------------------------------

    async def mkdir(self, parent: int, name: str) -> Attributes:
        """Make an agent. EEXIST is loud; names that differ only in case are one name."""
        if parent != _AGENTS:
            raise OSError(errno.EPERM, "only agents can be made, in agents/")
        if not is_agent_name(name):
            raise Refusal(errno.EINVAL, f"an agent's name is {AGENT_NAME_RULE}")
        taken = {other.lower() for other in (*self.views, *self._creating)}
        if name.lower() in taken:
            raise Refusal(errno.EEXIST, f"an agent of that name exists: {name}")
        self._creating.add(name)
        try:
            await trio.to_thread.run_sync(self._make, name)
        finally:
            self._creating.discard(name)
        view = self._add(name)
        self._mtime = time.time_ns()
        return self._agent_attributes(view, 0)

    def _make(self, name: str) -> None:
        """Make the directory whole under another name, then rename it: it exists complete or not at all."""
        final = self.home.agent(AgentName(name))
        temp = attrs.evolve(final, path=final.path.with_name(f".{name}.{uuid.uuid4().hex[:8]}"))
        for path in temp.directories:
            path.mkdir(mode=0o700)
        for path, data in ((temp.spec, b""), (temp.born, uuid.uuid4().hex.encode() + b"\n"), (temp.lock, b"")):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_dir(temp.path)
        os.rename(temp.path, final.path)
        sync_dir(self.home.agents)

    async def rmdir(self, parent: int, name: str) -> None:
        """Retire an agent: its directory moves to HOME/retired, its journal stays."""
        if parent != _AGENTS:
            raise OSError(errno.EPERM, "only agents can be retired")
        view = self.views.get(name)
        if view is None:
            raise OSError(errno.ENOENT, name)
        lock = try_lock(view.home.lock)
        if lock is None:
            raise view.refused(errno.EBUSY, f"{name} has a CLI running; echo stop > ctl first")
        try:
            view.catch_up()
            f = view.fold
            started = f.inc or f.turn_open or f.life is Life.BACKOFF
            if started and f.life not in (Life.STOPPED, Life.FAILED):
                raise view.refused(errno.EBUSY, f"{name} is {view.status}; echo stop > ctl first")
            os.rename(view.home.path, self.home.retired / f"{name}.{view.born}")
        finally:
            os.close(lock)
        view.gone = True
        del self.views[name]
        for draft in self._drafts:
            if draft.view is view:
                draft.stale = True
        view.publish()
        await trio.to_thread.run_sync(self._sync_retired)
        del self._numbers[view.number]

    def _sync_retired(self) -> None:
        sync_dir(self.home.retired)
        sync_dir(self.home.agents)

    async def rename(self, parent: int, name: str, new_parent: int, new_name: str, flags: int) -> None:
        """Within one inbox: a draft to another draft's name, or the commit of a draft as a prompt."""
        view, index = self._agent_of(parent) if _AGENT_BASE <= parent < _ENTRY_BASE else (None, -1)
        if view is None or index != _INBOX or new_parent != parent or flags & ~1 or not name.startswith("."):
            raise OSError(errno.EPERM, "only inbox/.NAME can be renamed, within its inbox")
        source = view.home.tmp / name
        if not source.exists():
            raise OSError(errno.ENOENT, name)
        if new_name.startswith("."):
            self._check_id(view, new_name[1:])
            if flags & 1 and (view.home.tmp / new_name).exists():
                raise OSError(errno.EEXIST, new_name)
            os.rename(source, view.home.tmp / new_name)
            self._move_entry(view, name, new_name)
            for draft in self._drafts:
                if draft.path == source:
                    draft.path = view.home.tmp / new_name
            return
        await self._commit_draft(view, name, new_name)

    def _move_entry(self, view: View, name: str, new_name: str) -> None:
        inode = self._entry_inodes.pop((view.number, name), None)
        if inode is not None:
            self._entry_inodes[view.number, new_name] = inode
            self._entries[inode].name = new_name

    async def _commit_draft(self, view: View, name: str, id: str) -> None:
        """The commit: refused here or nowhere; durable, and the status flipped, when it returns."""
        self._check_id(view, id)
        if view.knows(id):
            raise view.refused(errno.EEXIST, f"{view.name}: inbox/{id} exists; an id is used once in an agent's life")
        view.check_accepts()
        source = view.home.tmp / name
        length = size(source)
        if length == 0:
            raise view.refused(errno.EINVAL, f"{view.name}: inbox/{name} is empty, and an empty prompt is nothing")
        view.check_room(length)
        view.reserved.add(id)
        for draft in self._drafts:
            if draft.path == source:
                draft.stale = True
        view.arriving += 1
        view.publish()
        try:
            fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            try:
                await trio.to_thread.run_sync(os.fsync, fd)
            finally:
                os.close(fd)
            order = Order(next_stamp(), OrderKind.PROMPT, OrderId(id))
            view.add(Queued(order, length))
            try:
                os.rename(source, view.home.new / order.name)
            except OSError:
                view.drop(order)
                raise
            self._move_entry(view, name, id)
        finally:
            view.arriving -= 1
            view.reserved.discard(id)
            view.publish()
        await trio.to_thread.run_sync(self._sync_orders, view)

    def _sync_orders(self, view: View) -> None:
        sync_dir(view.home.new)
        sync_dir(view.home.tmp)

    def unlink(self, parent: int, name: str) -> None:
        """Remove a draft, or cancel a prompt that waits."""
        view, index = self._agent_of(parent) if _AGENT_BASE <= parent < _ENTRY_BASE else (None, -1)
        if view is None or index != _INBOX:
            raise OSError(errno.EPERM, "nothing can be removed here")
        if name.startswith("."):
            (view.home.tmp / name).unlink()
            for draft in self._drafts:
                draft.stale = draft.stale or draft.path == view.home.tmp / name
            return
        queued = next((q for q in view.prompts() if q.order.id == name), None)
        if queued is not None:
            with contextlib.suppress(FileNotFoundError):
                os.rename(view.home.new / queued.order.name, view.home.cancelled / queued.order.name)
                view.drop(queued.order)
                view.cancelled.add(name)
                view.publish()
                return
        match view.fate(name):
            case None:
                raise OSError(errno.ENOENT, name)
            case Fate.DONE | Fate.FAILED | Fate.LOST | Fate.CANCELLED:
                raise view.refused(errno.EPERM, f"{view.name}: inbox/{name} has ended and stays as the record")
            case _:
                raise view.refused(errno.EBUSY, f"{view.name}: inbox/{name} is being worked on; echo interrupt > ctl")

    def close(self) -> None:
        """Let go of everything; new opens are refused, whoever waits is woken."""
        self.closing = True
        for view in list(self.views.values()):
            view.gone = True
            view.changed.set()


def _open(path: os.PathLike[str]) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
