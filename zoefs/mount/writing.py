"""Open files that are written: prompts, verbs, specs, `out` and drafts, each with its own moment at which it counts.

Rules. A prompt counts at the release, a verb at the write, a spec and `out` at each flush that brought new data, a
draft when it is renamed. A write that was refused spoils its handle: nothing written through it counts, and every
further write is refused alike.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import trio

from zoefs.contract.home import OrderKind
from zoefs.contract.refusal import Refusal
from zoefs.contract.spec import SpecError, check_keys
from zoefs.contract.verbs import VERBS, check_permitted, parse_ctl, split_ask
from zoefs.contract.words import CTL_MAX, PROMPT_MAX, Verb
from zoefs.disk.files import pwrite_all, read, replace, sync_dir, sync_file
from zoefs.mount.handles import Handle
from zoefs.mount.orders import Queued
from zoefs.mount.stage import Staged
from zoefs.mount.view import View, after

SPEC_MAX = 1 << 20


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

    def spoil(self, number: int, what: str, by: str = "") -> Refusal:
        """Nothing written through this handle is to count; the refusal to be raised, now and from now on. `by`: the
        agent that is refused it."""
        self._refusal = self._view.refused(number, f"{self._view.name}: {what}", by)
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
            view.reserved |= {id}

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
        self._view.reserved -= {self._id}
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
        self._view.reserved -= {self._id}
        self._arrived(staged)


class CtlHandle(Handle):
    """`ctl`: each write is one order, all of it or nothing, and counts when write() returns."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._view = view
        self._unsynced: list[str] = []

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
                before = [*pending, *commands[:n]]
                answered = {split_ask(other)[0] for other in before if VERBS[other.verb].argument.startswith("ask")}
                asks = {id: ask for id, ask in view.fold.asks.items() if id not in answered}
                check_permitted(command, after(view.status, before), view.backend, asks)
                if command.key and (view.knows(command.key) or any(c.key == command.key for c in commands[:n])):
                    raise Refusal(errno.EEXIST, f"inbox/{command.key} exists; a key is used once in an agent's life")
        except Refusal as refusal:
            raise view.refused(refusal.errno, f"{view.name}: {refusal.sentence}") from None
        if not commands:
            return len(data)
        if any(command.verb is Verb.STEER for command in commands):  # it may become a prompt
            view.check_accepts()
            view.check_room(len(data))
        text = "".join(command.encode() + "\n" for command in commands).encode()
        staged = Staged(view.home, OrderKind.CTL, prefix="ctl-")
        try:
            staged.add(text)
            view.add(Queued(staged.order, len(text), tuple(commands)))
            staged.commit()
        except OSError as error:
            view.drop(staged.order.name)
            staged.discard()
            raise view.refused(error.errno or errno.EIO, f"{view.name}: {error.strerror}") from None
        self._unsynced.append(staged.order.name)
        view.publish()
        return len(data)

    async def flush(self, final: bool = False) -> None:
        orders, self._unsynced = self._unsynced, []
        if orders:
            await trio.to_thread.run_sync(self._sync, orders)

    def _sync(self, orders: list[str]) -> None:
        """Make these orders last, wherever a claim has moved them; of one carried out already, the note of it."""
        home = self._view.home
        for name in orders:
            for path in (home.new / name, home.taken / name, self._view.journal):
                with contextlib.suppress(FileNotFoundError):
                    sync_file(path)
                    break
        sync_dir(home.new)


class SpecHandle(WritingHandle):
    """`spec` for writing: the handle's text becomes the spec at each flush that brought new data.

    `cap` says why a text may not be the spec, for a writer that may not write what it likes: the agent `by`.
    """

    def __init__(
        self, view: View, empty: bool, appends: bool, cap: Callable[[bytes], str] | None = None, by: str = ""
    ) -> None:
        super().__init__(view, SPEC_MAX, "a spec")
        self._cap = cap
        self._by = by
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
            self._check_cap()
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

    def _check_cap(self) -> None:
        """Refuse a text that this writer may not make the spec."""
        if self._cap is not None and (sentence := self._cap(bytes(self._text))):
            raise self.spoil(errno.EACCES, sentence, self._by)

    def truncate(self, size: int) -> None:
        self.check_size(size)
        del self._text[size:]
        self._text += bytes(size - len(self._text))

    async def flush(self, final: bool = False) -> None:
        if not self._dirty or self._refusal is not None or self._view.gone:
            return
        self._dirty = False
        if not self._view.spec_may_change:
            raise self.spoil(errno.EBUSY, "it was started meanwhile; its spec can be changed once it is stopped")
        self._check_cap()
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
            staged.discard()
            self._staged = None
            raise self.spoil_by(error) from None
        self._view.outs += 1
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
    """`inbox/.NAME`: an ordinary private file, until a rename commits it as a prompt.

    `name` is what it was opened as, `path` where it is opened, `way` a path of it for as long as this handle lives.
    """

    def __init__(self, view: View, name: str, path: Path, flags: int) -> None:
        super().__init__(view)
        self._name = name
        self._appends = bool(flags & os.O_APPEND)
        self.stale = False
        kept = flags & (os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        self._fd = os.open(path, kept | os.O_CLOEXEC, 0o600)
        self.way = Path(f"/proc/self/fd/{self._fd}")

    async def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def write(self, offset: int, data: bytes) -> int:
        if self.stale:
            raise Refusal(errno.ESTALE, f"{self._name} was committed or retired")
        if self._appends:
            offset = os.fstat(self._fd).st_size
        if offset + len(data) > PROMPT_MAX:
            raise Refusal(errno.EFBIG, f"a prompt has at most {PROMPT_MAX >> 20} MiB")
        pwrite_all(self._fd, data, offset)
        return len(data)

    def truncate(self, size: int) -> None:
        if self.stale:
            raise Refusal(errno.ESTALE, f"{self._name} was committed or retired")
        if size > PROMPT_MAX:
            raise Refusal(errno.EFBIG, f"a prompt has at most {PROMPT_MAX >> 20} MiB")
        os.ftruncate(self._fd, size)

    async def flush(self, final: bool = False) -> None:
        if final and not self.stale:
            await trio.to_thread.run_sync(os.fsync, self._fd)

    def release(self) -> None:
        os.close(self._fd)
