"""Open files. Each kind is a class with `read write flush release truncate`; nothing here knows FUSE.

Rules. Content is fixed at open and fixed anew by a read at offset 0, so one pass over a file never mixes two
versions. A write that was refused spoils its handle: nothing of it is committed. Only WaitHandle ever sleeps.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import trio

from zoefs.contract.home import OrderKind
from zoefs.contract.refusal import Refusal
from zoefs.contract.spec import SpecError, check_keys
from zoefs.contract.verbs import check_permitted, parse_ctl
from zoefs.contract.words import CTL_MAX, PROMPT_MAX, WAIT_SECONDS
from zoefs.disk.files import read, replace, sync_dir
from zoefs.mount.stage import Staged
from zoefs.mount.view import Queued, View, after

SPEC_MAX = 1 << 20


class Handle:
    """An open file that can be neither read nor written. `view` is its agent; `counter` what poll(2) waits for."""

    def __init__(self, view: View | None = None, counter: str = "") -> None:
        self.view = view
        self.counter = counter
        self.seen = 0

    @property
    def ready(self) -> bool:
        """Whether a read would return something this handle has not returned yet."""
        return self.view is None or not self.counter or self.view.counters[self.counter] != self.seen

    def mark(self) -> None:
        """What is there now has been seen by this handle."""
        if self.view is not None and self.counter:
            self.seen = self.view.counters[self.counter]

    async def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; empty at the end."""
        return b""

    def write(self, offset: int, data: bytes) -> int:
        """Take all of `data`, or raise and spoil the handle."""
        raise Refusal(errno.EBADF, "not open for writing")

    async def flush(self, final: bool = False) -> None:
        """A descriptor of this handle was closed, or fsync was called."""

    def release(self) -> None:
        """The last descriptor was closed. Waits for nothing, fails never."""

    def truncate(self, size: int) -> None:
        """Cut what was written through this handle."""


class TextHandle(Handle):
    """A small file rendered by a function of now."""

    def __init__(self, render: Callable[[], bytes], view: View | None = None, counter: str = "") -> None:
        super().__init__(view, counter)
        self._render = render
        self._text: bytes | None = None

    async def read(self, offset: int, size: int) -> bytes:
        if offset == 0 or self._text is None:
            self._text = self._render()
            self.mark()
        return self._text[offset : offset + size]


class WordHandle(Handle):
    """`status`: the word, as short a way as there is."""

    def __init__(self, view: View) -> None:
        super().__init__(view, "statuses")
        self._view = view
        self._text = view.word

    async def read(self, offset: int, size: int) -> bytes:
        if offset == 0:
            self._text = self._view.word
            self.seen = self._view.counters["statuses"]
        return self._text[offset : offset + size]


class WaitHandle(Handle):
    """`wait`: the word once the agent is settled, else nothing after WAIT_SECONDS."""

    def __init__(self, view: View, nonblocking: bool) -> None:
        super().__init__(view, "statuses")
        self._view = view
        self._nonblocking = nonblocking

    @property
    def ready(self) -> bool:
        return self._view.settled and super().ready

    async def read(self, offset: int, size: int) -> bytes:
        if offset:
            return b""
        if not self._nonblocking:
            with trio.move_on_after(WAIT_SECONDS):
                await self._settle()
        if self._view.gone:
            raise Refusal(errno.ESTALE, f"{self._view.name} was retired")
        if self._view.closing:
            raise Refusal(errno.ESHUTDOWN, "the mount is going")
        if not self._view.settled:
            return b""
        self.mark()
        return self._view.word[:size]

    async def _settle(self) -> None:
        while not (self._view.settled or self._view.gone or self._view.closing):
            await self._view.changed.wait()


class FileHandle(Handle):
    """Bytes of a file in HOME that is replaced as a whole, behind a head that is rendered."""

    def __init__(
        self, find: Callable[[], int | None], view: View, counter: str = "", head: Callable[[], bytes] | None = None
    ) -> None:
        super().__init__(view, counter)
        self._find = find
        self._make_head = head
        self._head = b""
        self._fd: int | None = None
        self._open()

    def _open(self) -> None:
        self._head = self._make_head() if self._make_head else b""
        self._fd = self._find()

    async def read(self, offset: int, size: int) -> bytes:
        if offset == 0:
            self.release()
            self.mark()
            self._open()
        data = self._head[offset : offset + size]
        if self._fd is not None and len(data) < size:
            data += os.pread(self._fd, size - len(data), max(0, offset - len(self._head)))
        return data

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class GrowingHandle(Handle):
    """A file in HOME that is only ever appended to: readable while there is more than was read."""

    def __init__(self, find: Callable[[], int | None], view: View, counter: str) -> None:
        super().__init__(view, counter)
        self._find = find
        self._fd = find()
        self._end = 0

    @property
    def ready(self) -> bool:
        if self._fd is None:
            self._fd = self._find()
        return self._fd is not None and os.fstat(self._fd).st_size > self._end

    async def read(self, offset: int, size: int) -> bytes:
        if self._fd is None:
            self._fd = self._find()
        data = b"" if self._fd is None else os.pread(self._fd, size, offset)
        self._end = max(self._end, offset + len(data))
        return data

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)


class WritingHandle(Handle):
    """A handle whose text counts as a whole. A refused write spoils it: what follows is refused likewise."""

    def __init__(self, view: View, limit: int, noun: str) -> None:
        super().__init__(view)
        self._view = view
        self._limit = limit
        self._noun = noun
        self._refusal: Refusal | None = None

    def check_usable(self) -> None:
        """Refuse a write after a refused one, or to an agent that is gone."""
        if self._refusal is not None:
            raise self._refusal
        if self._view.gone:
            raise Refusal(errno.ESTALE, f"{self._view.name} was retired")

    def check_size(self, size: int) -> None:
        """Refuse a text of more than the limit."""
        if size > self._limit:
            raise self.spoil(errno.EFBIG, f"{self._noun} has at most {self._limit >> 20} MiB")

    def spoil(self, number: int, what: str) -> Refusal:
        """Nothing written through this handle is to count; the refusal to be raised, now and from now on."""
        self._refusal = self._view.refused(number, f"{self._view.name}: {what}")
        self.discard()
        return self._refusal

    def spoil_by(self, error: OSError) -> Refusal:
        """As `spoil`, for what the disk refused."""
        return self.spoil(error.errno or errno.EIO, f"{self._noun} could not be stored: {error.strerror}")

    def discard(self) -> None:
        """Forget what was written."""


class PromptHandle(WritingHandle):
    """`in` and a new `inbox/ID`: one open to last close is one prompt.

    The first byte accepted makes the agent busy; each flush makes the bytes last; the release commits them.
    """

    def __init__(self, view: View, id: str, appends: bool) -> None:
        super().__init__(view, PROMPT_MAX, "a prompt")
        self._id = id
        self._appends = appends
        self._base: int | None = None
        self._staged: Staged | None = None
        if id:
            view.reserved.add(id)

    def write(self, offset: int, data: bytes) -> int:
        self.check_usable()
        length = self._staged.length if self._staged else 0
        if self._base is None:
            self._base = offset
        if not self._appends and offset - self._base != length:
            raise self.spoil(errno.EINVAL, "a prompt is written from front to back")
        self.check_size(length + len(data))
        try:
            self._view.check_room(len(data))
            if self._staged is None:
                self._staged = Staged(self._view.home, OrderKind.PROMPT, self._id)
            self._staged.add(data)
        except OSError as error:
            raise self.spoil_by(error) from None
        except Refusal as refusal:
            self._refusal = refusal
            self.discard()
            raise
        self._view.arriving_bytes += len(data)
        if length == 0:
            self._view.arriving += 1
            self._view.publish()
        return len(data)

    def discard(self) -> None:
        self._view.reserved.discard(self._id)
        if self._staged is not None:
            staged, self._staged = self._staged, None
            self._arrived(staged)
            staged.discard()

    def _arrived(self, staged: Staged) -> None:
        """It arrives no longer."""
        if staged.length:
            self._view.arriving -= 1
            self._view.arriving_bytes -= staged.length
            self._view.publish()

    async def flush(self, final: bool = False) -> None:
        if self._staged is None or self._view.gone:
            return
        try:
            await self._staged.flush()
        except OSError as error:
            raise self.spoil_by(error) from None

    def release(self) -> None:
        staged = self._staged
        if staged is None or self._view.gone:
            self.discard()
            return
        self._view.add(Queued(staged.order, staged.length))
        try:
            staged.commit()
        except OSError as error:
            self._view.drop(staged.order.name)
            self.spoil_by(error)
            return
        self._staged = None
        self._view.reserved.discard(self._id)
        self._arrived(staged)


class CtlHandle(Handle):
    """`ctl`: each write is one order, all of it or nothing, and counts when write() returns."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._view = view
        self._unsynced: list[int] = []

    def write(self, offset: int, data: bytes) -> int:
        view = self._view
        if view.gone:
            raise Refusal(errno.ESTALE, f"{view.name} was retired")
        if len(data) > CTL_MAX:
            raise view.refused(errno.EFBIG, f"{view.name}: ctl takes at most {CTL_MAX >> 10} KiB at once")
        try:
            commands = parse_ctl(data)
            pending = view.pending()
            for n, command in enumerate(commands):
                status = after(view.status, [*pending, *commands[:n]])
                check_permitted(command, status, view.backend, frozenset(view.fold.asks))
                if command.key and (view.knows(command.key) or any(c.key == command.key for c in commands[:n])):
                    raise Refusal(errno.EEXIST, f"inbox/{command.key} exists; a key is used once in an agent's life")
        except Refusal as refusal:
            raise view.refused(refusal.errno, f"{view.name}: {refusal.sentence}") from None
        if not commands:
            return len(data)
        text = "".join(command.encode() + "\n" for command in commands).encode()
        staged = Staged(view.home, OrderKind.CTL, prefix="ctl-")
        try:
            staged.add(text)
            self._unsynced.append(os.dup(staged.fd))
            view.add(Queued(staged.order, len(text), tuple(commands)))
            staged.commit()
        except OSError as error:
            view.drop(staged.order.name)
            staged.discard()
            raise view.refused(error.errno or errno.EIO, f"{view.name}: {error.strerror}") from None
        view.publish()
        return len(data)

    async def flush(self, final: bool = False) -> None:
        fds, self._unsynced = self._unsynced, []
        if not fds:
            return

        def sync() -> None:
            try:
                for fd in fds:
                    os.fsync(fd)
                sync_dir(self._view.home.new)
            finally:
                for fd in fds:
                    os.close(fd)

        await trio.to_thread.run_sync(sync)

    def release(self) -> None:
        while self._unsynced:
            os.close(self._unsynced.pop())


class SpecHandle(WritingHandle):
    """`spec` for writing: the handle's text becomes the spec at each flush that brought new data."""

    def __init__(self, view: View, empty: bool, appends: bool) -> None:
        super().__init__(view, SPEC_MAX, "a spec")
        self._text = bytearray(b"" if empty else read(view.home.spec) or b"")
        self._appends = appends
        self._first = True
        self._dirty = False

    async def read(self, offset: int, size: int) -> bytes:
        return bytes(self._text[offset : offset + size])

    def write(self, offset: int, data: bytes) -> int:
        self.check_usable()
        offset = len(self._text) if self._appends else offset
        self.check_size(offset + len(data))
        self._text += bytes(max(0, offset - len(self._text)))
        self._text[offset : offset + len(data)] = data
        if self._first:
            self._first = False
            self._check_keys()
        self._dirty = True
        return len(data)

    def _check_keys(self) -> None:
        """Refuse a first write that no further one can make right; text that is no TOML yet may become it."""
        try:
            check_keys(bytes(self._text).decode(errors="replace"))
        except SpecError as error:
            if not error.syntax:
                where = f"line {error.line}: " if error.line else ""
                raise self.spoil(errno.EINVAL, f"spec {where}{error.sentence}") from None

    def truncate(self, size: int) -> None:
        self.check_size(size)
        del self._text[size:]
        self._text += bytes(size - len(self._text))

    async def flush(self, final: bool = False) -> None:
        if not self._dirty or self._refusal is not None or self._view.gone:
            return
        self._dirty = False
        try:
            await trio.to_thread.run_sync(replace, self._view.home.spec, bytes(self._text))
        except OSError as error:
            raise self.spoil_by(error) from None
        self._view.read_spec()
        self._view.publish()
        if self._view.spec_error:
            sentence = f"{self._view.name}: {self._view.spec_error}; it cannot start until mended"
            self._view.refused(errno.EINVAL, sentence)


class OutHandle(WritingHandle):
    """`out` for writing: the handle's text becomes current, as a whole, at each flush that brought new data."""

    def __init__(self, view: View, kind: OrderKind, appends: bool) -> None:
        super().__init__(view, PROMPT_MAX, "out")
        self._kind = kind
        self._appends = appends
        self._text = bytearray()
        self._staged: Staged | None = None

    def write(self, offset: int, data: bytes) -> int:
        self.check_usable()
        if not self._appends and offset != len(self._text):
            raise self.spoil(errno.EINVAL, "out is written from front to back")
        self.check_size(len(self._text) + len(data))
        try:
            if self._staged is None:
                self._staged = Staged(self._view.home, self._kind, prefix="out-")
                self._staged.add(bytes(self._text) + data)
            else:
                self._staged.add(data)
        except OSError as error:
            raise self.spoil_by(error) from None
        self._text += data
        return len(data)

    async def flush(self, final: bool = False) -> None:
        staged = self._staged
        if staged is None or self._view.gone:
            return
        try:
            await staged.flush()
            if self._staged is not staged:
                return  # another flush of this handle made it current
            self._staged = None
            self._view.add(Queued(staged.order, staged.length))
            staged.commit()
        except OSError as error:
            self._view.drop(staged.order.name)
            raise self.spoil_by(error) from None
        self._view.counters["outs"] += 1
        self._view.publish()
        await trio.to_thread.run_sync(sync_dir, self._view.home.new)

    def truncate(self, size: int) -> None:
        if size == 0 and self._staged is None:
            self._text.clear()

    def discard(self) -> None:
        if self._staged is not None:
            staged, self._staged = self._staged, None
            staged.discard()

    def release(self) -> None:
        self.discard()


class DraftHandle(Handle):
    """`inbox/.NAME`: an ordinary private file, until a rename commits it as a prompt."""

    def __init__(self, view: View, path: Path, flags: int) -> None:
        super().__init__(view)
        self._appends = bool(flags & os.O_APPEND)
        self.path = path
        self.stale = False
        kept = flags & (os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        self._fd = os.open(path, kept | os.O_CLOEXEC, 0o600)

    async def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def write(self, offset: int, data: bytes) -> int:
        if self.stale:
            raise Refusal(errno.ESTALE, f"{self.path.name} was committed or retired")
        if self._appends:
            offset = os.fstat(self._fd).st_size
        if offset + len(data) > PROMPT_MAX:
            raise Refusal(errno.EFBIG, f"a prompt has at most {PROMPT_MAX >> 20} MiB")
        view = memoryview(data)
        while view:
            done = os.pwrite(self._fd, view, offset)
            view, offset = view[done:], offset + done
        return len(data)

    def truncate(self, size: int) -> None:
        if self.stale:
            raise Refusal(errno.ESTALE, f"{self.path.name} was committed or retired")
        if size > PROMPT_MAX:
            raise Refusal(errno.EFBIG, f"a prompt has at most {PROMPT_MAX >> 20} MiB")
        os.ftruncate(self._fd, size)

    async def flush(self, final: bool = False) -> None:
        if final and not self.stale:
            await trio.to_thread.run_sync(os.fsync, self._fd)

    def release(self) -> None:
        os.close(self._fd)
