"""One agent as the mount sees it: the fold of its journal, plus the orders the journal does not know yet.

Rules. An order is in `waiting` from before its rename into `orders/new` until the journal names it, so at no moment
does the status forget it. `publish` computes the status anew after every change and wakes whoever waits for it;
everything a waiter may read is in place before.

There may be ten thousand of these, most of them at rest: what is empty is shared, what can be derived is not kept,
and the disk is read at the first look, not at the start.
"""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import trio

from zoefs.contract.backends import BACKENDS, Backend, is_tested
from zoefs.contract.events import Event, Kind
from zoefs.contract.home import PROMPTS, AgentHome, Home, Order, OrderKind, parse_order
from zoefs.contract.lifecycle import Fold, Life, Waiting, helps, queues, status_of
from zoefs.contract.refusal import Refusal
from zoefs.contract.spec import DEFAULT_BACKEND, Spec, SpecError, effective
from zoefs.contract.verbs import Command
from zoefs.contract.words import FINAL, QUEUE_BYTES_MAX, QUEUE_MAX, SETTLED, Fate, Status, Verb
from zoefs.disk.files import read, read_text
from zoefs.disk.history import History, load
from zoefs.disk.journal import TakenBack
from zoefs.mount import orders
from zoefs.mount.orders import Queued

WORDS: Mapping[Status, bytes] = {status: status.encode() + b"\n" for status in Status}
"""What `status` holds."""
_NOBODY: frozenset[str] = frozenset()
_NEVER: Mapping[str, int] = MappingProxyType({})


class View:
    """See module. `number` makes its inode numbers; `refuse` notes a refusal in the mount's log; `published` is told
    of each change, with whether the word is another. `ended`: turns seen to end, by how they did. `statuses`,
    `settlings` and `outs` count changes. `made`, `mtime` and `word_mtime`: when it was made and last changed, and when
    its word did, in nanoseconds since 1970. Until `is_read`, nothing but its name, its number and `made` is known.
    `row`: its line of `agents/list`, where nothing changed since that was made."""

    __slots__ = (
        "_by_id",
        "_changed",
        "_home",
        "_moment",
        "_places",
        "_published",
        "_refuse",
        "_sorted",
        "_tail",
        "arriving",
        "arriving_bytes",
        "born",
        "cancelled",
        "closing",
        "cut",
        "ended",
        "fold",
        "gone",
        "home",
        "is_read",
        "made",
        "maker",
        "mtime",
        "name",
        "number",
        "outs",
        "refusal",
        "refusal_t",
        "reserved",
        "row",
        "settlings",
        "spec",
        "spec_error",
        "status",
        "statuses",
        "waiting",
        "word",
        "word_mtime",
    )

    def __init__(
        self,
        home: Home,
        agent: AgentHome,
        number: int,
        made: int,
        refuse: Callable[[View, int, str, str], None],
        published: Callable[[View, bool], None],
    ) -> None:
        self._home = home
        self.home = agent
        self.name = agent.name
        self.number = number
        self.made = self.mtime = self.word_mtime = made
        self._refuse = refuse
        self._published = published
        self._changed: trio.Event | None = None
        self.gone = False
        self.closing = False
        self.is_read = False

    def read_history(self) -> tuple[str, History]:
        """The word it was born under, and its fold from disk. Changes nothing: it may run in a thread."""
        born = sys.intern(read_text(self.home.born))
        return born, load(self._home.journal(self.name), self.home.snapshot, born)

    def read_in(self, found: tuple[str, History]) -> None:
        """Take in what `read_history` found, the rest of the disk, and what was noted since. Where an OSError is raised
        it is not read, and this can be done again."""
        self.born, history = found
        self.maker = read_text(self.home.maker)
        self.waiting: dict[str, Queued] = {}
        self._by_id: dict[str, Queued] = {}
        self._sorted: dict[str, Queued] | None = None
        self._places: Mapping[str, int] = _NEVER
        self.arriving = 0
        self.arriving_bytes = 0
        self.reserved: frozenset[str] = _NOBODY
        self.cancelled: frozenset[str] = _NOBODY
        self.cut: frozenset[str] = _NOBODY
        self.refusal = ""
        self.refusal_t = ""
        self.statuses = self.settlings = self.outs = 1
        self.ended: Mapping[str, int] = _NEVER
        self.row: bytes | None = None
        self.status = Status.AWAIT
        self.word = b""
        self._take(history)
        self.read_spec()
        self.catch_up()
        self._set_status()
        self._moment = self._moments()
        self.is_read = True

    @property
    def changed(self) -> trio.Event:
        """Set at the next change."""
        if self._changed is None:
            self._changed = trio.Event()
        return self._changed

    @property
    def journal(self) -> Path:
        """The current segment of its journal."""
        return self._tail.path

    # -- what waits ---------------------------------------------------------------------------------------------

    def _take(self, history: History) -> None:
        """Hold what is on disk now: the journal as read, and the orders that it does not know. Where an OSError is
        raised, what was held before is held."""
        fold = history.fold if history.fold.born == self.born else Fold(born=self.born, seq=history.fold.seq)
        found = orders.look(self.home, fold)
        self._tail, self.fold = history.tail, fold
        self.waiting, self._by_id = {}, {}
        for queued in found.waiting:
            self.add(queued)
        self.cancelled, self.cut = found.cancelled or _NOBODY, found.cut or _NOBODY

    def add(self, queued: Queued) -> None:
        """An order is about to be renamed into `orders/new`."""
        self.waiting[queued.order.name] = queued
        for id in queued.ids:
            self._by_id[id] = queued
        self._sorted = self.row = None

    def drop(self, name: str) -> None:
        """The order of this name waits no longer."""
        queued = self.waiting.pop(name, None)
        for id in queued.ids if queued else ():
            if self._by_id.get(id) is queued:  # and not yet of the prompt that a steer became
                del self._by_id[id]
        self._sorted = self.row = None

    def pending(self) -> list[Command]:
        """The verbs accepted and not carried out yet, oldest first."""
        found: list[Command] = []
        for name in sorted(name for name, q in self.waiting.items() if q.commands):
            found += self.waiting[name].commands[self.fold.lines_done.get(name, 0) :]
        return found

    def prompts(self) -> list[Queued]:
        """The prompts that wait, oldest first."""
        return list(self._in_order().values()) if self.waiting else []

    def ahead(self, id: str) -> int | None:
        """How many prompts wait before this one; None where it does not wait."""
        self._in_order()
        return self._places.get(id)

    def _in_order(self) -> dict[str, Queued]:
        if self._sorted is None:
            prompts = sorted((q for q in self.waiting.values() if q.order.kind in PROMPTS), key=lambda q: q.order)
            self._sorted = {q.order.id: q for q in prompts}
            self._places = {id: n for n, id in enumerate(self._sorted)}
        return self._sorted

    def is_steer(self, id: str) -> bool:
        """Whether a waiting prompt is a steer that no turn could take."""
        queued = self._by_id.get(id)
        return queued is not None and queued.order.kind is OrderKind.STEER

    def newest_out(self) -> Order | None:
        """Text written to `out` that the journal does not know yet."""
        outs = [q.order for q in self.waiting.values() if q.order.kind in (OrderKind.OUT, OrderKind.ANSWER)]
        return max(outs, default=None)

    def knows(self, id: str) -> bool:
        """Whether this id names, or named, a prompt or a keyed verb of this agent."""
        return id in self.fold.ids or id in self.reserved or id in self.cancelled or id in self.cut or id in self._by_id

    def fate(self, id: str) -> Fate | None:
        """A prompt's or verb's fate as of now; None where the id is unknown or its receipt is no longer shown."""
        receipt = self.fold.receipts.get(id)
        if receipt is not None and receipt.fate in FINAL:
            return receipt.fate
        if id in self.cancelled:
            return Fate.CANCELLED
        if id in self.cut:
            return Fate.LOST
        if receipt is not None:
            return receipt.fate
        if id in self.reserved:
            return Fate.WRITING
        return Fate.QUEUED if id not in self.fold.ids and id in self._by_id else None

    def ids(self) -> list[str]:
        """The names in `inbox/` that can be read: prompts and keyed verbs."""
        found = dict.fromkeys(self.fold.receipts)
        found.update(dict.fromkeys(self._by_id))
        found.update(dict.fromkeys((*sorted(self.reserved), *sorted(self.cancelled), *sorted(self.cut))))
        return list(found)

    # -- status -------------------------------------------------------------------------------------------------

    @property
    def backend(self) -> Backend:
        """The row of the spec's backend."""
        return BACKENDS[self.spec.backend]

    @property
    def is_tested(self) -> bool:
        """Whether its CLI is of a version that the tests run with, as far as it told one."""
        return is_tested(self.fold.backend, self.fold.version)

    @property
    def was_started(self) -> bool:
        """Whether it ever ran."""
        return bool(self.fold.inc or self.fold.turn)

    @property
    def spec_may_change(self) -> bool:
        """Whether the agent was never started, or is stopped or failed."""
        return not self.was_started or self.fold.life in (Life.STOPPED, Life.FAILED)

    def read_spec(self) -> None:
        """Read the spec that holds; what is wrong with it is the supervisor's to tell when it is to start."""
        text = (read(self.home.spec) or b"").decode(errors="replace")
        config = (read(self._home.config) or b"").decode(errors="replace")
        self.spec_error = ""
        self.row = None
        try:
            self.spec = effective(text, config)
        except SpecError as error:
            self.spec_error = error.placed
            self.spec = Spec(backend=self.fold.backend or DEFAULT_BACKEND)

    def _set_status(self) -> None:
        waiting = Waiting(self.arriving, sum(q.order.kind in PROMPTS for q in self.waiting.values()))
        status = status_of(self.fold, waiting, self.backend.transport)
        self.status = status
        self.word = WORDS[status]
        self.row = None

    @property
    def settled(self) -> bool:
        """Whether `wait` may answer. A steer under way holds no `blocked` back: the CLI takes it after the answer."""
        if self.status is Status.BLOCKED:
            return all(command.verb is Verb.STEER for command in self.pending())
        return self.status in SETTLED and not any(q.commands for q in self.waiting.values())

    def publish(self) -> None:
        """Compute the status after a change and wake whoever waits."""
        self.mtime = time.time_ns()
        self._set_status()
        was, self._moment = self._moment, self._moments()
        self.statuses += self._moment[:2] != was[:2]
        self.settlings += self._moment != was
        different = self._moment[0] is not was[0]
        if different:
            self.word_mtime = self.mtime
        if self._changed is not None:
            self._changed.set()
            self._changed = None
        self._published(self, different)

    def _moments(self) -> tuple[Status, int, bool]:
        """What counts as another `status`, the first two, and another `wait`, all three: the same word after another
        turn is news."""
        return self.status, self.fold.turn - self.fold.turn_open, self.settled

    def status_after_pending(self) -> Status:
        """The status that the verbs under way lead to: what a further verb will meet."""
        return after(self.status, self.pending())

    def catch_up(self) -> bool:
        """Take in what the supervisor noted since; True where there was anything."""
        try:
            events = self._tail.read()
        except TakenBack:
            return self._begin_anew()
        for event in events:
            self._feed(event)
        return bool(events)

    def unread_since(self) -> float:
        """When the journal was written to last, in seconds since 1970, if that is not taken in yet; else 0."""
        try:
            found = self.journal.stat()
        except FileNotFoundError:
            return 0.0
        return 0.0 if self._tail.stands_at_end(found) else found.st_mtime

    def is_behind(self) -> bool:
        """Whether the journal is not as it was when it was read last: grown, begun anew, or shorter."""
        try:
            return not self._tail.stands_exactly(self.journal.stat())
        except FileNotFoundError:
            return self._tail.place.offset > 0

    def _begin_anew(self) -> bool:
        """The supervisor took back lines on a full disk: fold the whole journal again."""
        self._take(self.read_history()[1])
        self._set_status()
        self.statuses += 1
        self.settlings += 1
        self.outs += 1
        return True

    def _feed(self, event: Event) -> None:
        if event.kind == Kind.CREATED and event.text("born") != self.born:
            return
        out = self._out_name()
        was_open = self.fold.turn_open
        self.fold.feed(event)
        self.row = None
        if event.kind == Kind.TURN_ENDED and was_open and not self.fold.turn_open:
            how = self.fold.last_turn
            self.ended = {**self.ended, how: self.ended.get(how, 0) + 1}
        name = event.text("order")
        match event.kind:
            case Kind.PROMPT_GIVEN:
                self.drop(name)
            case Kind.PROMPT_CANCELLED | Kind.PROMPT_CUT:
                self.cancelled = self.cancelled - {event.text("id")} or _NOBODY
                self.cut = self.cut - {event.text("id")} or _NOBODY
                if (waiting := self._by_id.get(event.text("id"))) is not None:
                    self.drop(waiting.order.name)
            case Kind.VERB_DONE:
                self.drop(name)
                queued = parse_order(event.text("queued"))
                if queued is not None and queued.id not in self.fold.ids:
                    self.add(Queued(queued, event.number("bytes")))
            case Kind.OUT_WRITTEN:
                self.drop(name)
            case _:
                pass
        if self._out_name() != out:
            self.outs += 1

    def _out_name(self) -> str:
        """The file that `out` is, wherever a claim moved it."""
        order = self.newest_out()
        return order.name if order else self.fold.out.rpartition("/")[2]

    # -- refusals -----------------------------------------------------------------------------------------------

    def refused(self, number: int, sentence: str, by: str = "") -> Refusal:
        """A refusal, noted where it can be read; to be raised. It is one line, whatever words of others it repeats.

        `by`: the agent that was refused something, when it was an agent.
        """
        sentence = "".join(c if c.isprintable() else " " for c in sentence)
        self._refuse(self, number, sentence, by)
        return Refusal(number, sentence)

    def check_accepts(self) -> None:
        """Refuse a prompt that this status, or a full queue, does not accept."""
        if self.gone:
            raise Refusal(errno.ESTALE, f"{self.name} was retired")
        reason = self.fold.reason
        status = self.status_after_pending()
        if not queues(status, reason):
            verb = helps(status, reason)
            number = errno.EDQUOT if verb is Verb.RESET_BUDGET else errno.EHOSTDOWN
            why = f" ({reason}: {self.fold.error})" if reason else ""
            raise self.refused(number, f"{self.name} is {status}{why} and takes no prompt; echo {verb} > ctl")
        prompts = self.prompts()
        if len(prompts) + self.arriving >= QUEUE_MAX:
            sentence = f"{self.name}: {QUEUE_MAX} prompts wait already; wait, or rm some of inbox/"
            raise self.refused(errno.EAGAIN, sentence)

    def check_room(self, more: int) -> None:
        """Refuse bytes that the queue has no room for."""
        if sum(q.size for q in self.waiting.values()) + self.arriving_bytes + more > QUEUE_BYTES_MAX:
            sentence = f"{self.name}: {QUEUE_BYTES_MAX >> 20} MiB of prompts wait already; wait, or rm some of inbox/"
            raise self.refused(errno.EAGAIN, sentence)


def after(status: Status, commands: list[Command]) -> Status:
    """The status that these verbs lead to, as far as it decides which verb may follow."""
    for command in commands:
        match command.verb:
            case Verb.STOP | Verb.KILL:
                status = Status.STOPPED
            case Verb.START | Verb.RESTART:
                status = Status.AWAIT
            case _:
                pass
    return status
