"""The life of an agent: `status = fold(journal) + orders waiting`.

Theory. An agent has two independent parts. Its *life* is where its process stands (Life); TRANSITIONS lists every
edge, keyed by event kind, and nothing else moves it. Its *turn* is open from `prompt-given` to `turn-ended`.
`status_of` combines both with the orders that the journal does not know yet, in the precedence of `words.Status`.

Rules. Events of an earlier incarnation change nothing. An event that has no edge from where the agent stands
changes nothing and is counted (`illegal`). A turn ends once: a second end of the same turn changes nothing. So any
interleaving of events, crashes and replays yields a legal status, and feeding events one by one gives the same
fold as replaying them all.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import attrs

from zoefs.contract.asks import Ask, ask_of
from zoefs.contract.events import Event, Kind
from zoefs.contract.words import FATE_OF_TURN, FINAL, RECEIPTS_SHOWN, Fate, How, Reason, Status, Verb


class Life(StrEnum):
    """Where the process of an agent stands. `resting`: there is none, and one may be started when needed."""

    RESTING = "resting"
    STARTING = "starting"
    UP = "up"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPED = "stopped"


_ALL = frozenset(Life)
_DOWN = _ALL - {Life.STARTING, Life.UP}


@attrs.frozen
class Transition:
    """Events of `kind` (for `exited`: whose `next` is `to`) lead from each of `sources` to `to`."""

    kind: Kind
    sources: frozenset[Life]
    to: Life
    why: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(Kind.CREATED, _ALL, Life.RESTING, "mkdir; the fold begins anew"),
    Transition(Kind.STARTED, _DOWN, Life.RESTING, "start, restart: it may work again"),
    Transition(Kind.SPAWNED, frozenset({Life.RESTING, Life.BACKOFF}), Life.STARTING, "the keeper runs"),
    Transition(Kind.READY, frozenset({Life.STARTING}), Life.UP, "handshake finished"),
    Transition(Kind.EXITED, frozenset({Life.STARTING, Life.UP}), Life.RESTING, "it ended and was to end"),
    Transition(Kind.EXITED, frozenset({Life.STARTING, Life.UP}), Life.BACKOFF, "it died; a restart is due"),
    Transition(Kind.EXITED, frozenset({Life.STARTING, Life.UP}), Life.FAILED, "it died and is given up"),
    Transition(Kind.EXITED, frozenset({Life.STARTING, Life.UP}), Life.STOPPED, "it was stopped"),
    Transition(Kind.FAILED, frozenset({Life.RESTING, Life.BACKOFF}), Life.FAILED, "it cannot be started"),
    Transition(Kind.STOPPED, _DOWN, Life.STOPPED, "stopped while no process ran"),
)

_EDGES: dict[tuple[str, Life, str], Life] = {
    (row.kind, source, row.to if row.kind is Kind.EXITED else ""): row.to
    for row in TRANSITIONS
    for source in row.sources
}


@attrs.frozen
class Spent:
    """What was spent: USD and tokens. `estimated`: from a price table. `unpriced`: tokens whose price is not known.
    `total`: the running total in USD that the CLI told with it, None where it told none."""

    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    unpriced: int = 0
    estimated: bool = False
    total: float | None = None

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            self.usd + other.usd,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.unpriced + other.unpriced,
            self.estimated or other.estimated,
        )

    def encode(self) -> dict[str, object]:
        """As fields of an event."""
        fields: dict[str, object] = {
            "cost_usd": self.usd,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
        }
        fields |= {"total_usd": self.total} if self.total is not None else {}
        fields |= {"cost_estimated": True} if self.estimated else {}
        return fields | ({"tokens_unpriced": self.unpriced} if self.unpriced else {})


def spent_of(event: Event) -> Spent:
    """What an event says was spent."""
    tokens_in, tokens_out, unpriced = (event.number(f"tokens_{word}") for word in ("in", "out", "unpriced"))
    total = event.amount("total_usd") if "total_usd" in event.data else None
    estimated = event.data.get("cost_estimated") is True
    return Spent(event.amount("cost_usd"), tokens_in, tokens_out, unpriced, estimated, total)


@attrs.frozen
class Receipt:
    """A prompt's, or a keyed verb's, fate as the journal knows it. `turn` is 0 before it was given; `spent` is what
    that turn cost, once it ended."""

    id: str
    fate: Fate
    t: str
    turn: int = 0
    note: str = ""
    verb: str = ""
    spent: Spent | None = None


@attrs.define
class Fold:
    """What the journal says. Fed event by event; everything in it follows from the events alone.

    `standing`: what the CLI has of this session: nothing yet, `accepted` prompt, or a turn that is `done`.
    `former_session`: one that was given up, since its record was gone. `turn_raw`: how far into what this incarnation
    said everything is settled; who takes over begins to read there. `total_usd`: the running total that the CLI told
    last. `stdin_open`: what was begun on stdin is not noted done; `stdin_for`: it is this prompt alone. `begun`: by ctl
    order, the verb of its line that is under way and the turn that it meant; `lines_done`: how many of its lines are.
    `missing`: how many events the journal lacks, by their numbers; `missing_told`: of how many it says so itself.
    """

    born: str = ""
    created_t: str = ""
    seq: int = 0
    life: Life = Life.RESTING
    backend: str = ""
    inc: int = 0
    pid: int = 0
    spawned_t: str = ""
    session: str = ""
    turn: int = 0
    given: str = ""
    given_t: str = ""
    given_order: str = ""
    given_inc: int = 0
    given_boot: str = ""
    sent_inc: int = 0
    stdin_open: bool = False
    stdin_for: str = ""
    own_answer: str = ""
    turn_open: bool = False
    last_turn: str = ""
    reason: str = ""
    error: str = ""
    error_t: str = ""
    since: str = ""
    evidence: str = ""
    until: float = 0.0
    deaths: tuple[float, ...] = ()
    restarts: int = 0
    asks: dict[str, Ask] = attrs.Factory(dict)
    out: str = ""
    raw_inc: int = 0
    raw_end: int = 0
    turn_raw: int = 0
    chat_end: int = 0
    spent: Spent = Spent()
    total_usd: float = 0.0
    version: str = ""
    model: str = ""
    capabilities: tuple[str, ...] = ()
    standing: str = ""
    former_session: str = ""
    receipts: dict[str, Receipt] = attrs.Factory(dict)
    ids: set[str] = attrs.Factory(set)
    orders_done: tuple[str, ...] = ()
    lines_done: dict[str, int] = attrs.Factory(dict)
    begun: dict[str, tuple[str, int]] = attrs.Factory(dict)
    illegal: int = 0
    missing: int = 0
    missing_told: int = 0

    def feed(self, event: Event) -> None:
        """Take one event in. Total: any event is taken, in any order, and leaves a legal fold."""
        if event.kind == Kind.CREATED:
            self._begin(event)
        self.missing += max(0, event.seq - self.seq - 1) if self.seq else 0
        self.seq = max(self.seq, event.seq)
        inc = event.number("inc")
        if inc and self.inc and inc < self.inc:
            return
        if event.kind in _MOVING and not self._move(event):
            self.illegal += 1
            return
        handler = _HANDLERS.get(event.kind)
        if handler is not None and handler(self, event) is False:
            self.illegal += 1
            return
        if inc == self.inc and inc and (raw_end := event.offset("raw_end")) is not None:
            self.raw_inc, self.raw_end = inc, raw_end
        if (chat_end := event.offset("chat_end")) is not None:
            self.chat_end = chat_end

    def carry(self, seq: int, inc: int, raw_end: int) -> None:
        """What `feed` does with an event of a kind in CARRIED; `raw_end` is -1 where it tells none."""
        self.missing += max(0, seq - self.seq - 1) if self.seq else 0
        self.seq = max(self.seq, seq)
        if inc and inc == self.inc and raw_end >= 0:
            self.raw_inc, self.raw_end = inc, raw_end

    def _begin(self, event: Event) -> None:
        fresh = Fold(born=event.text("born"), created_t=event.t, seq=self.seq, since=event.t)
        for field in attrs.fields(Fold):
            setattr(self, field.name, getattr(fresh, field.name))

    def _move(self, event: Event) -> bool:
        """Follow the edge of TRANSITIONS that the event names; False where there is none from here."""
        to = event.text("next") if event.kind == Kind.EXITED else ""
        inc = event.number("inc")
        if event.kind in (Kind.READY, Kind.EXITED) and inc != self.inc:
            return False
        if event.kind == Kind.SPAWNED and 0 < inc <= self.inc:
            return False
        target = _EDGES.get((event.kind, self.life, to))
        if target is None:
            return False
        self.life = target
        self._mark(event)
        match target:
            case Life.STARTING:
                self.inc = max(self.inc + 1, event.number("inc"))
                self.pid = event.number("pid")
                self.spawned_t = event.t
                self.asks, self.stdin_open, self.turn_raw = {}, False, 0
                if event.data.get("ready") is True:
                    self.life = Life.UP
            case Life.BACKOFF:
                self.until = event.amount("until")
                self.restarts += 1
                self.deaths = (*self.deaths, event.amount("died"))[-50:]
                self._complain(event)
            case Life.FAILED:
                self.reason = event.text("reason") or Reason.CONFIG
                self._complain(event)
            case _:
                pass
        if self.life in _DOWN:
            self.pid = 0
            self.asks = {}
        if self.life is not Life.FAILED:
            self.reason = event.text("reason") if self.life is Life.BACKOFF else ""
        return True

    def _mark(self, event: Event) -> None:
        self.since = event.t
        self.evidence = f"{event.kind} {event.seq}"

    def _complain(self, event: Event) -> None:
        if text := event.text("text"):
            self.error, self.error_t = text, event.t

    def _settle(
        self,
        id: str,
        fate: Fate,
        event: Event,
        turn: int = 0,
        note: str = "",
        verb: str = "",
        spent: Spent | None = None,
    ) -> None:
        """Write one receipt; a final fate stays. Ended ones beyond the newest RECEIPTS_SHOWN are dropped."""
        if not id:
            return
        old = self.receipts.get(id)
        if old is None and id in self.ids:
            return
        if old is not None and (old.fate in FINAL or bool(old.verb) != bool(verb)):
            return
        self.receipts.pop(id, None)
        kept_note = note or (old.note if old else "")
        self.receipts[id] = Receipt(id, fate, event.t, turn or (old.turn if old else 0), kept_note, verb, spent)
        self.ids.add(id)
        if len(self.receipts) > RECEIPTS_SHOWN + 64:
            ended = [key for key, receipt in self.receipts.items() if receipt.fate in FINAL]
            for key in ended[: max(0, len(ended) - RECEIPTS_SHOWN)]:
                del self.receipts[key]

    def _started(self, event: Event) -> None:
        if event.data.get("forget") is True:
            self.deaths = ()
        if event.data.get("renew") is True:
            self.former_session, self.session, self.standing = self.session, "", ""

    def _exited(self, event: Event) -> None:
        """A CLI that was killed leaves no total for the next one to go on from."""
        if event.number("rc", -1) not in (0, 1, 128 + 15):
            self.total_usd = 0.0

    def _spawned(self, event: Event) -> None:
        self.backend = event.text("backend") or self.backend

    def _session(self, event: Event) -> None:
        if (id := event.text("id")) and id != self.session:
            self.session, self.standing = id, ""

    def _ready(self, event: Event) -> None:
        self.version = event.text("version")
        self.model = event.text("model")

    def _capable(self, event: Event) -> None:
        words = event.data.get("words")
        self.capabilities = tuple(map(str, words)) if isinstance(words, list) else ()
        self.version = event.text("version") or self.version

    def _given(self, event: Event) -> bool:
        turn, id = event.number("turn"), event.text("id")
        if self.turn_open or turn <= self.turn or id in self.ids:
            return False
        self.turn, self.given, self.turn_open, self.given_t = turn, id, True, event.t
        self.given_order, self.given_inc = event.text("order"), event.number("inc")
        self.given_boot, self.sent_inc, self.own_answer = event.text("boot"), 0, ""
        self._settle(id, Fate.SENT, event, turn, event.text("note"))
        self._mark(event)
        return True

    def _sent(self, event: Event) -> None:
        if self.turn_open and event.text("id") == self.given:
            self.sent_inc = event.number("inc")
            self._settle(self.given, Fate.SENT, event, self.turn)

    def _accepted(self, event: Event) -> None:
        if self.turn_open and event.text("id") == self.given:
            self.sent_inc = event.number("inc")
            self._settle(self.given, Fate.ACCEPTED, event, self.turn)
            self.standing = self.standing or "accepted"
            if self.stdin_for == self.given and event.number("inc") == self.inc:
                self.stdin_open, self.stdin_for = False, ""  # the CLI has read the line: it was written whole

    def _uncertain(self, event: Event) -> None:
        """The CLI died under the turn and may be brought to continue it."""
        if self.turn_open and event.number("turn") == self.turn:
            self._settle(self.given, Fate.UNCERTAIN, event, self.turn)

    def _cancelled(self, event: Event) -> None:
        self._settle(event.text("id"), Fate.CANCELLED, event, note=event.text("note"))

    def _cut(self, event: Event) -> None:
        self._settle(event.text("id"), Fate.LOST, event, note=event.text("note"))
        self._complain(event)

    def _turn_ended(self, event: Event) -> bool:
        if not self.turn_open or event.number("turn") != self.turn:
            return False
        how = How(event.text("how")) if event.text("how") in How.__members__.values() else How.LOST
        spent = spent_of(event)
        told = spent if spent != Spent(total=spent.total) else None
        self._settle(self.given, FATE_OF_TURN[how], event, self.turn, event.text("note"), spent=told)
        self.turn_open, self.given, self.last_turn, self.asks = False, "", how, {}
        self.own_answer = ""
        if (raw_end := event.offset("raw_end")) is not None:  # else it ended without a word of the CLI
            self.turn_raw = raw_end
        self.out = f"turns/{self.turn}"
        self._spend(spent)
        if how is How.DONE:
            self.standing = "done"
        if how in (How.FAILED, How.LOST):
            self._complain(event)
        self._mark(event)
        return True

    def _stdin(self, event: Event) -> None:
        """A line too long for one atomic write is on its way; until it is done, the CLI's stdin is in mid-line."""
        self.stdin_open = event.kind == Kind.STDIN_BEGUN and event.number("inc") == self.inc
        self.stdin_for = event.text("id") if self.stdin_open else ""

    def _asked(self, event: Event) -> None:
        id = event.text("ask")
        if self.turn_open and self.life is Life.UP and id:
            self.asks = {**self.asks, id: ask_of(event)}
            self._mark(event)

    def _ask_gone(self, event: Event) -> None:
        if event.text("ask") in self.asks:
            self.asks = {id: ask for id, ask in self.asks.items() if id != event.text("ask")}
            self._mark(event)

    def _gap(self, event: Event) -> None:
        self.missing_told = event.number("missing")
        self._complain(event)

    def _spend(self, spent: Spent) -> None:
        self.spent = self.spent.plus(spent)
        if spent.total is not None:
            self.total_usd = spent.total

    def _compacted(self, event: Event) -> None:
        """Between turns: what the CLI said up to here is not needed to understand what it says next."""
        self._spend(spent_of(event))
        if not self.turn_open:
            self.turn_raw = event.offset("raw_end") or self.turn_raw

    def _verb_begun(self, event: Event) -> None:
        """A verb was begun in this turn: done again after a crash, it must mean the same turn."""
        if ctl := event.text("ctl"):
            self.begun = {**self.begun, ctl: (event.text("verb"), event.number("turn"))}

    def _verb_done(self, event: Event) -> None:
        """One order of `ctl` was carried out as a whole, or one keyed line of it."""
        fate = Fate.DONE if event.data.get("ok") is not False else Fate.FAILED
        self._settle(event.text("key"), fate, event, note=event.text("text"), verb=event.text("verb"))
        if id := event.text("steer"):
            self.ids.add(id)
        self._finish_order(event)
        if fate is Fate.FAILED:
            self._complain(event)

    def _out_written(self, event: Event) -> None:
        self.out = event.text("file") or self.out
        if event.text("by") == "agent" and self.turn_open and event.number("turn") == self.turn:
            self.own_answer = event.text("file")
        self._finish_order(event)

    def _finish_order(self, event: Event) -> None:
        """Count the lines of a ctl order; its last event names it as `order`: on disk it is history from then on."""
        if ctl := event.text("ctl"):
            self.begun = {key: value for key, value in self.begun.items() if key != ctl}
            self.lines_done = {**self.lines_done, ctl: self.lines_done.get(ctl, 0) + 1}
        if order := event.text("order"):
            self.orders_done = (*self.orders_done, order)[-64:]
            self.lines_done = {key: n for key, n in self.lines_done.items() if key != order}


_HANDLERS: dict[str, Callable[[Fold, Event], bool | None]] = {
    Kind.STARTED: Fold._started,
    Kind.SPAWNED: Fold._spawned,
    Kind.EXITED: Fold._exited,
    Kind.SESSION: Fold._session,
    Kind.READY: Fold._ready,
    Kind.CAPABLE: Fold._capable,
    Kind.COMPACTED: Fold._compacted,
    Kind.GAP: Fold._gap,
    Kind.PROMPT_GIVEN: Fold._given,
    Kind.PROMPT_SENT: Fold._sent,
    Kind.PROMPT_ACCEPTED: Fold._accepted,
    Kind.PROMPT_CANCELLED: Fold._cancelled,
    Kind.PROMPT_CUT: Fold._cut,
    Kind.TURN_ENDED: Fold._turn_ended,
    Kind.TURN_LOST: Fold._uncertain,
    Kind.STDIN_BEGUN: Fold._stdin,
    Kind.STDIN_DONE: Fold._stdin,
    Kind.ASKED: Fold._asked,
    Kind.ANSWERED: Fold._ask_gone,
    Kind.ASK_GONE: Fold._ask_gone,
    Kind.VERB_BEGUN: Fold._verb_begun,
    Kind.VERB_DONE: Fold._verb_done,
    Kind.OUT_WRITTEN: Fold._out_written,
}
_MOVING: frozenset[str] = frozenset(row.kind for row in TRANSITIONS)
CARRIED: frozenset[str] = frozenset(Kind) - _HANDLERS.keys() - _MOVING
"""The kinds that move nothing: of these the fold takes their number, and how far the CLI's output was read."""


def fold(events: list[Event], born: str = "") -> Fold:
    """The fold of a whole journal, for the agent that was born as `born`.

    Where the journal does not know that birth yet, the fold is fresh and only its `seq` goes on.
    """
    result = Fold()
    for event in events:
        result.feed(event)
    if born and result.born != born:
        return Fold(born=born, seq=result.seq)
    return result


@attrs.frozen
class Waiting:
    """The orders that the journal does not know yet: prompts arriving and queued, and verbs not carried out."""

    arriving: int = 0
    queued: int = 0
    verbs: tuple[str, ...] = ()


NOTHING_WAITS = Waiting()


def status_of(fold: Fold, waiting: Waiting = NOTHING_WAITS, transport: str = "") -> Status:
    """The word of `status`. `transport` is that of the spec's backend, for an agent never started."""
    match fold.life:
        case Life.FAILED:
            return Status.FAILED
        case Life.STOPPED:
            return Status.STOPPED
        case Life.BACKOFF:
            return Status.BACKOFF
        case _:
            pass
    if fold.asks:
        return Status.BLOCKED
    if fold.life is Life.STARTING:
        return Status.STARTING
    busy = fold.turn_open or waiting.arriving or waiting.queued
    if busy and fold.inc == 0 and not fold.turn_open and transport == "stream":
        return Status.STARTING
    return Status.RUNNING if busy else Status.AWAIT


def queues(status: Status, reason: str) -> bool:
    """Whether a prompt is accepted in this status (column "open of `in`" of the words)."""
    if status is Status.FAILED:
        return reason == Reason.USAGE_LIMIT
    return status is not Status.STOPPED


def helps(status: Status, reason: str) -> Verb:
    """The verb that brings an agent back which does not accept prompts."""
    if status is Status.STOPPED:
        return Verb.START
    return Verb.RESET_BUDGET if reason == Reason.OVER_BUDGET else Verb.RESTART
