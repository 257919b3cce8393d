"""What is known of one agent, and how something is noted: the record that looking, deciding and acting share.

Order of notes. What must not happen twice is noted, and lasts, before it is done (`prompt-given`, `session`). What
an act is known by afterwards is noted with its consequences in one write (`turn-ended` with the verbs it settles),
so no crash can leave one without the other. Everything a reader may want of a turn is on disk before `turn-ended`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from supervisor.decide import Line
from supervisor.hub import Hub
from supervisor.running import Running
from zoefs.contract.backends import BACKENDS, Backend
from zoefs.contract.events import Event, Kind
from zoefs.contract.home import AgentHome, Order, parse_order
from zoefs.contract.lifecycle import Fold
from zoefs.contract.spec import DEFAULT_BACKEND, Spec, SpecError, effective
from zoefs.contract.words import OnLost
from zoefs.disk.files import names, read
from zoefs.disk.journal import Writer

PIPE_BUF = 4096
INTERRUPT_ANSWER = 5.0
"""Seconds that a CLI has to end a turn it was told to interrupt; then its process is ended."""

ASLEEP = trio.Event()
"""Stands for both events of an agent that has no task."""

Note = tuple[str, Mapping[str, Any]]


@attrs.define
class Ending:
    """An ending under way: what for, which step is next, and when.

    `began`: when it did; `idle`: how often there was nothing to kill and yet the keeper lived.
    """

    why: str
    steps: list[str]
    deadline: float
    began: float
    idle: int = 0


class Desk:
    """One agent's record.

    `home` is its directory, `hub` what all agents of this supervisor share, `running` its process. `pending`: lines of
    ctl that are begun and not done; `ctl_orders`: those claimed; `wanted`: a verb asked for a start; `resume`: what the
    last words of a CLI said of how to start the next; `running_resumed`: how the present one was started. `called`:
    something other than the CLI's output may have changed. `starved`: the incarnation under whose open turn the disk
    was full, else 0. `turned`: the last one that ended was turned away as started the wrong way. `rests`: it has no
    task, since there is nothing to do; the next wake begins one.
    """

    __slots__ = (
        "born",
        "called",
        "ctl_orders",
        "ending",
        "fold",
        "home",
        "hub",
        "journal",
        "pending",
        "rests",
        "resume",
        "running",
        "running_resumed",
        "spec",
        "spec_error",
        "starved",
        "turned",
        "wanted",
        "woken",
    )

    def __init__(self, home: AgentHome, hub: Hub) -> None:
        self.home = home
        self.hub = hub
        self.rests = False
        self.woken = self.called = ASLEEP
        self.starved = 0
        self.running: Running | None = None
        self.journal: Writer | None = None
        self.fold = Fold()
        self.born = ""
        self.ending: Ending | None = None
        self.pending: list[Line] = []
        self.wanted = False
        self.resume: bool | None = None
        self.running_resumed: bool | None = None
        self.turned = False
        self.spec_error = ""
        self.spec = Spec(backend=DEFAULT_BACKEND)
        self.ctl_orders: list[Order] = []

    def wake(self) -> None:
        """Have the agent look again at everything."""
        if self.rests:
            self.rests = False
            self.hub.rouse(self.home.name)
        self.called.set()
        self.woken.set()

    def hear(self) -> None:
        """The CLI wrote something: have the agent listen."""
        self.woken.set()

    def forget(self) -> None:
        """Let go of everything in memory; the processes go on."""
        if self.running is not None:
            self.running.close()
            self.running = None
        if self.journal is not None:
            self.journal.close()
            self.journal = None
        self.ending, self.pending, self.wanted = None, [], False

    async def until_writable(self, running: Running) -> None:
        await running.writable()
        running.watched = False
        self.wake()

    def read_spec(self) -> None:
        own, config = read(self.home.spec) or b"", read(self.hub.home.config) or b""
        try:
            self.spec = effective(own.decode(errors="replace"), config.decode(errors="replace"))
            self.spec_error = ""
        except SpecError as error:
            self.spec = Spec(backend=self.fold.backend or DEFAULT_BACKEND)
            self.spec_error = error.placed

    @property
    def backend(self) -> Backend:
        return BACKENDS[self.spec.backend]

    @property
    def on_lost(self) -> OnLost:
        return OnLost(self.spec.on_lost) if self.spec.on_lost else self.backend.on_lost

    def orders_in(self, path: Path) -> tuple[Order, ...]:
        return tuple(order for name in names(path) if (order := parse_order(name)) is not None)

    def note(self, *notes: Note) -> None:
        """Write to the journal and take the same events into the fold."""
        if not notes:
            return
        assert self.journal is not None
        for event in self.journal.append(*notes):
            self.fold.feed(event)

    async def note_lasting(self, *notes: Note, before: Callable[[], None] | None = None) -> None:
        """As `note`, in a thread, after `before` and with an fsync: a slow disk delays this agent only."""
        journal = self.journal
        assert journal is not None

        def work() -> list[Event]:
            if before is not None:
                before()
            return journal.append(*notes, sync=True)

        for event in await trio.to_thread.run_sync(work):
            self.fold.feed(event)

    def message_id(self, order_id: str) -> str:
        """The uuid that a prompt has for the CLI: always the same for the same prompt."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"zoefs:{self.born}:{order_id}"))

    def claim(self, order: Order) -> bool:
        """One rename decides between us and whoever cancels."""
        try:
            os.rename(self.home.new / order.name, self.home.taken / order.name)
        except FileNotFoundError:
            return (self.home.taken / order.name).exists()
        return True

    def put(self, running: Running, data: bytes, begun: bool = False) -> None:
        """Write to stdin. What cannot go at once is noted begun (`begun`: it is already), and done once all is taken.

        Said of a prompt alone, the CLI's word that it has the prompt would end it; with more behind it, it may not.
        """
        running.put(data)
        if not begun and running.waiting_bytes > PIPE_BUF:
            self._note_begun(running)
        self.pump(running)
        if not begun and not running.drained and not running.torn:
            self._note_begun(running)

    def _note_begun(self, running: Running) -> None:
        if not self.fold.stdin_open or self.fold.stdin_for:
            self.note((Kind.STDIN_BEGUN, {"inc": running.inc, "bytes": running.waiting_bytes}))

    def pump(self, running: Running) -> None:
        """Write what stdin takes now, and note what has been written whole."""
        running.torn = running.torn and self.fold.stdin_open
        if running.torn:
            return
        running.pump()
        if not running.drained:
            if not running.watched:
                running.watched = True
                self.hub.nursery.start_soon(self.until_writable, running)
            return
        notes: list[Note] = [(Kind.STDIN_DONE, {"inc": running.inc})] if self.fold.stdin_open else []
        if self.fold.turn_open and running.sent and self.fold.sent_inc != running.inc:
            notes.append((Kind.PROMPT_SENT, {"id": self.fold.given, "inc": running.inc}))
        self.note(*notes)

    def begin(self, line: Line, **more: Any) -> None:
        """A line of ctl is under way, and meant for the turn that is open now: noted, since a crash must not redirect
        it."""
        if line.order.name not in self.fold.begun:
            fields = {"ctl": line.order.name, "verb": line.command.verb, "turn": self.fold.turn, **more}
            self.note((Kind.VERB_BEGUN, fields))
        self.pending.append(line)

    def settled(self, lines: list[Line], ok: bool = True, text: str = "", receipt: bool = True) -> list[Note]:
        """The notes that settle these lines of `ctl`; they are under way no longer. Without `receipt` their keys stay
        open: they go on as prompts."""
        notes: list[Note] = []
        for line in list(lines):
            fields: dict[str, Any] = {"ctl": line.order.name, "verb": line.command.verb, "ok": ok}
            fields |= {"key": line.command.key} if line.command.key and receipt else {}
            fields |= {"text": text} if text else {}
            fields |= {"order": line.order.name} if line.n + 1 == line.of else {}
            notes.append((Kind.VERB_DONE, fields))
            if line in self.pending:
                self.pending.remove(line)
        return notes
