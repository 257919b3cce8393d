"""The fold and the status: every edge, every pair without one, the fates of prompts, and any journal at all."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_events import JSON
from zoefs.contract.asks import Ask
from zoefs.contract.events import Event, Kind, decode_lines
from zoefs.contract.lifecycle import TRANSITIONS, Fold, Life, Transition, Waiting, fold, helps, queues, status_of
from zoefs.contract.words import FINAL, RECEIPTS_SHOWN, Fate, How, Reason, Status, Verb

QUICK = settings(deadline=None, max_examples=200)
HOWS = frozenset(str(how) for how in How)
UP_LIVES = frozenset({Life.STARTING, Life.UP})


class Pen:
    """Writes a journal: each note gets the next seq and a time."""

    def __init__(self, seq: int = 0) -> None:
        self.seq = seq
        self.fold = Fold(seq=seq)
        self.events: list[Event] = []

    def event(self, kind: str, **data: Any) -> Event:
        self.seq += 1
        return Event(f"2026-01-01T00:00:00.{self.seq:03d}Z", self.seq, kind, data)

    def note(self, kind: str, **data: Any) -> Fold:
        event = self.event(kind, **data)
        self.events.append(event)
        self.fold.feed(event)
        return self.fold


def at(life: Life) -> Pen:
    """An agent that died once and now stands at `life`; where that is UP, in an open turn with an ask."""
    pen = Pen()
    pen.note("created", born="b1")
    pen.note("session", id="s1")
    pen.note("spawned", inc=1, pid=11, backend="claude")
    pen.note("exited", inc=1, next="backoff", until=9.0, died=5.0, raw_end=7)
    pen.note("spawned", inc=2, pid=12)
    match life:
        case Life.STARTING:
            pass
        case Life.UP:
            pen.note("ready", inc=2)
            pen.note("prompt-given", inc=2, turn=1, id="p1")
            pen.note("asked", inc=2, ask="a1", tool="Bash")
        case Life.RESTING | Life.BACKOFF | Life.FAILED | Life.STOPPED:
            pen.note("exited", inc=2, next=str(life), reason="auth", died=6.0)
    assert (pen.fold.life, pen.fold.illegal) == (life, 0)
    return pen


def moving(pen: Pen, kind: str, to: str) -> Event:
    """The event of `kind` with every field that its kind may carry."""
    match kind:
        case Kind.SPAWNED:
            return pen.event(kind, inc=pen.fold.inc + 1, pid=99, backend="exec")
        case Kind.STARTED:
            return pen.event(kind, forget=True)
        case Kind.READY:
            return pen.event(kind, inc=pen.fold.inc)
        case Kind.EXITED:
            return pen.event(kind, inc=pen.fold.inc, next=to, reason="crash-loop", text="why", until=20.0, died=10.0)
        case Kind.FAILED:
            return pen.event(kind, reason="cwd-missing", text="why")
        case Kind.CREATED:
            return pen.event(kind, born="b2")
        case _:
            return pen.event(kind)


EDGES = [(row, source) for row in TRANSITIONS for source in sorted(row.sources)]
NEXT_OF = {kind: sorted({row.to for row in TRANSITIONS if row.kind == kind}) for kind in {r.kind for r in TRANSITIONS}}
PAIRS = [
    (kind, to, life)
    for kind, ways in sorted(NEXT_OF.items())
    for to in (*ways, *(("starting", "up", "", "nowhere") if kind == Kind.EXITED else ()))
    for life in Life
    if not any(row.kind == kind and row.to == to and life in row.sources for row in TRANSITIONS)
]


def test_the_table_names_each_edge_once() -> None:
    keys = [(row.kind, source, row.to) for row, source in EDGES]
    assert len(keys) == len(set(keys))
    assert {row.kind for row in TRANSITIONS if len(NEXT_OF[row.kind]) > 1} == {Kind.EXITED}
    assert all(row.why for row in TRANSITIONS)


@pytest.mark.parametrize(("row", "source"), EDGES, ids=[f"{r.kind}-{s}-{r.to}" for r, s in EDGES])
def test_every_edge_is_followed(row: Transition, source: Life) -> None:
    pen = at(source)
    before = copy.deepcopy(pen.fold)
    event = moving(pen, row.kind, row.to)
    pen.fold.feed(event)
    after = pen.fold
    assert after.life is row.to
    assert after.illegal == 0
    assert (after.seq, after.since, after.evidence) == (event.seq, event.t, f"{row.kind} {event.seq}")
    assert (after.pid != 0) == (after.life in UP_LIVES)
    assert not after.asks
    assert (after.reason != "") == (after.life in (Life.FAILED, Life.BACKOFF))
    match row.kind:
        case Kind.CREATED:
            assert after == Fold(born="b2", created_t=event.t, seq=event.seq, since=event.t, evidence=after.evidence)
        case Kind.STARTED:
            assert before.deaths
            assert after.deaths == ()
        case Kind.SPAWNED:
            assert (after.inc, after.pid, after.backend) == (before.inc + 1, 99, "exec")
        case Kind.READY:
            assert (after.inc, after.pid) == (before.inc, before.pid)
        case Kind.EXITED if row.to is Life.BACKOFF:
            assert (after.until, after.restarts) == (20.0, before.restarts + 1)
            assert after.deaths == (*before.deaths, 10.0)
        case Kind.EXITED if row.to is Life.FAILED:
            assert (after.reason, after.error, after.error_t) == ("crash-loop", "why", event.t)
        case Kind.FAILED:
            assert (after.reason, after.error, after.error_t) == ("cwd-missing", "why", event.t)
        case _:
            assert after.deaths == before.deaths
    if row.kind is not Kind.CREATED:
        assert (after.session, after.turn, after.turn_open) == ("s1", before.turn, before.turn_open)


@pytest.mark.parametrize(("kind", "to", "life"), PAIRS, ids=[f"{k}-{t}-at-{s}" for k, t, s in PAIRS])
def test_where_there_is_no_edge_nothing_changes_and_it_is_counted(kind: str, to: str, life: Life) -> None:
    pen = at(life)
    before = copy.deepcopy(pen.fold)
    event = moving(pen, kind, to)
    pen.fold.feed(event)
    assert pen.fold == attrs.evolve(before, illegal=1, seq=event.seq)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("exited", {"inc": 2, "next": "resting"}),
        ("ready", {"inc": 2}),
        ("turn-ended", {"inc": 2, "turn": 1, "how": "done", "cost_usd": 1}),
        ("prompt-given", {"inc": 2, "turn": 0, "id": "p9"}),
    ],
)
def test_an_event_without_an_edge_moves_no_offset(kind: str, data: dict[str, Any]) -> None:
    pen = at(Life.RESTING)
    pen.note("note", inc=2, raw_end=50, chat_end=60)
    before = copy.deepcopy(pen.fold)
    pen.note(kind, **data, raw_end=3, chat_end=4)
    assert pen.fold == attrs.evolve(before, illegal=1, seq=pen.seq)


@pytest.mark.parametrize("kind", [*Kind, "from-the-future"])
@pytest.mark.parametrize("life", Life)
def test_events_of_an_earlier_incarnation_change_nothing(life: Life, kind: str) -> None:
    if kind == Kind.CREATED:
        return
    pen = at(life)
    before = copy.deepcopy(pen.fold)
    fields = {"next": "failed", "id": "p1", "turn": 1, "how": "done", "ask": "a1", "key": "k", "order": "o"}
    pen.note(kind, inc=1, raw_end=99, chat_end=99, cost_usd=5, text="x", file="turns/9", forget=True, **fields)
    assert pen.fold == attrs.evolve(before, seq=pen.seq)


@pytest.mark.parametrize("inc", [None, 0, 3, "2", 2.0, True])
def test_ready_and_exited_must_name_the_incarnation_that_runs(inc: object) -> None:
    for life, kind in ((Life.STARTING, "ready"), (Life.UP, "exited")):
        pen = at(life)
        pen.note(kind, next="resting", **({} if inc is None else {"inc": inc}))
        assert (pen.fold.life, pen.fold.illegal) == (life, 1)


def test_a_second_spawn_of_one_incarnation_is_no_other_incarnation() -> None:
    """The same `spawned` twice is not two processes."""
    pen = at(Life.BACKOFF)
    pen.note("spawned", inc=2, pid=12)
    assert pen.fold.inc == 2


@pytest.mark.parametrize(("inc", "known"), [(3, 3), (7, 7), (None, 3), (0, 3), ("9", 3)])
def test_a_spawned_process_is_the_next_incarnation_or_the_one_it_names(inc: object, known: int) -> None:
    pen = at(Life.BACKOFF)
    pen.note("spawned", pid=1, **({} if inc is None else {"inc": inc}))
    assert (pen.fold.inc, pen.fold.life, pen.fold.illegal) == (known, Life.STARTING, 0)


def test_spawned_may_be_ready_at_once() -> None:
    pen = at(Life.RESTING)
    assert pen.note("spawned", inc=3, pid=13, ready=True).life is Life.UP
    assert (pen.fold.pid, pen.fold.inc, pen.fold.illegal) == (13, 3, 0)


@attrs.frozen
class Seen:
    """What a row of the table of words.md looks at."""

    life: Life
    asks: bool
    turn_open: bool
    inc: int
    waits: bool
    transport: str


# Read from the top: the first row that holds is the status.
ROWS: tuple[tuple[Status, Callable[[Seen], bool]], ...] = (
    (Status.FAILED, lambda s: s.life is Life.FAILED),
    (Status.STOPPED, lambda s: s.life is Life.STOPPED),
    (Status.BACKOFF, lambda s: s.life is Life.BACKOFF),
    (Status.BLOCKED, lambda s: s.asks),
    (Status.STARTING, lambda s: s.life is Life.STARTING),
    (Status.STARTING, lambda s: s.inc == 0 and s.waits and not s.turn_open and s.transport == "stream"),
    (Status.RUNNING, lambda s: s.turn_open or s.waits),
    (Status.AWAIT, lambda s: True),
)


@pytest.mark.parametrize("life", Life)
def test_the_first_row_that_holds_is_the_status(life: Life) -> None:
    ask = Ask("a", "Bash", None, "t")
    some = (Waiting(), Waiting(arriving=1), Waiting(queued=2), Waiting(1, 1), Waiting(verbs=("stop",)))
    for asks, turn_open, inc, waiting, transport in itertools.product(
        (False, True), (False, True), (0, 1), some, ("stream", "turn", "")
    ):
        state = Fold(life=life, inc=inc, turn_open=turn_open, asks={"a": ask} if asks else {})
        seen = Seen(life, asks, turn_open, inc, bool(waiting.arriving or waiting.queued), transport)
        assert status_of(state, waiting, transport) is next(word for word, holds in ROWS if holds(seen)), seen


def test_an_agent_never_started_is_await_until_a_byte_comes() -> None:
    assert status_of(fold([])) is Status.AWAIT
    assert status_of(Pen().note("created", born="b"), Waiting(arriving=1), "stream") is Status.STARTING


@pytest.mark.parametrize("status", Status)
def test_which_statuses_queue_a_prompt(status: Status) -> None:
    for reason in Reason:
        down = status is Status.STOPPED or (status is Status.FAILED and reason is not Reason.USAGE_LIMIT)
        assert queues(status, reason) is not down
    assert helps(Status.STOPPED, "") is Verb.START
    assert helps(Status.FAILED, Reason.OVER_BUDGET) is Verb.RESET_BUDGET
    assert helps(Status.FAILED, Reason.CRASH_LOOP) is Verb.RESTART


def test_created_begins_anew_and_the_seq_goes_on() -> None:
    pen = at(Life.UP)
    pen.note("turn-ended", inc=2, turn=1, how="done", cost_usd=1.5)
    pen.note("turn-ended", inc=2, turn=1, how="done", cost_usd=1.5)
    assert pen.fold.illegal == 1
    pen.note("created", born="b2")
    assert pen.fold == Fold(
        born="b2", created_t=pen.events[-1].t, seq=pen.seq, since=pen.events[-1].t, evidence=f"created {pen.seq}"
    )
    pen.note("spawned", inc=1, pid=1)
    pen.note("prompt-given", inc=1, turn=1, id="p1")
    assert (pen.fold.inc, pen.fold.turn, pen.fold.receipts["p1"].fate, pen.fold.illegal) == (1, 1, Fate.SENT, 0)


def test_a_birth_that_the_journal_does_not_know_is_fresh() -> None:
    pen = at(Life.FAILED)
    assert fold(pen.events) == fold(pen.events, "b1") == pen.fold
    fresh = fold(pen.events, "b2")
    assert fresh == Fold(born="b2", seq=pen.seq)
    assert status_of(fresh) is Status.AWAIT
    assert fold([], "b2") == Fold(born="b2")
    pen.note("created", born="b2")
    assert fold(pen.events, "b2") == pen.fold
    assert fold(pen.events, "b1") == Fold(born="b1", seq=pen.seq)


def test_the_seq_never_falls() -> None:
    state = Fold()
    for seq, kind in ((5, "note"), (3, "note"), (-1, "odd"), (2, "created"), (5, "note")):
        state.feed(Event("t", seq, kind))
        assert state.seq == 5


def turn(pen: Pen, number: int, id: str) -> None:
    pen.note("prompt-given", inc=pen.fold.inc, turn=number, id=id)


def test_the_fate_of_a_prompt_on_its_way() -> None:
    pen = at(Life.STARTING)
    pen.note("ready", inc=2)
    turn(pen, 1, "p")
    receipt = pen.fold.receipts["p"]
    assert (receipt.id, receipt.fate, receipt.turn, receipt.t) == ("p", Fate.SENT, 1, pen.events[-1].t)
    assert pen.note("prompt-sent", inc=2, id="p").receipts["p"].fate is Fate.SENT
    assert pen.note("prompt-accepted", inc=2, id="p").receipts["p"].fate is Fate.ACCEPTED
    pen.note("exited", inc=2, next="backoff")
    assert pen.note("turn-lost", inc=2, turn=1).receipts["p"].fate is Fate.UNCERTAIN
    assert status_of(pen.fold) is Status.BACKOFF
    pen.note("spawned", inc=3, pid=3)
    assert status_of(pen.fold) is Status.STARTING
    pen.note("ready", inc=3)
    assert status_of(pen.fold) is Status.RUNNING
    pen.note("prompt-accepted", inc=3, id="p")
    pen.note("turn-ended", inc=3, turn=1, how="done", note="continued")
    receipt = pen.fold.receipts["p"]
    assert (receipt.fate, receipt.turn, receipt.note) == (Fate.DONE, 1, "continued")
    assert (pen.fold.last_turn, pen.fold.out, pen.fold.illegal) == ("done", "turns/1", 0)
    assert status_of(pen.fold) is Status.AWAIT


FATES = {"done": "done", "interrupted": "cancelled", "failed": "failed", "lost": "lost", "odd": "lost", "": "lost"}


@pytest.mark.parametrize("how", FATES)
def test_the_end_of_a_turn_is_the_fate_of_its_prompt(how: str) -> None:
    pen = at(Life.UP)
    pen.note("turn-ended", inc=2, turn=1, how=how, text="why")
    assert pen.fold.receipts["p1"].fate == FATES[how]
    assert pen.fold.last_turn in HOWS
    assert not pen.fold.turn_open
    assert not pen.fold.asks
    assert (pen.fold.error == "why") == (pen.fold.last_turn in ("failed", "lost"))
    assert status_of(pen.fold) is Status.AWAIT


ENDINGS: dict[str, dict[str, Any]] = {
    "prompt-given": {"turn": 2, "id": "p1"},
    "prompt-sent": {"id": "p1"},
    "prompt-accepted": {"id": "p1"},
    "turn-lost": {"turn": 1},
    "prompt-cancelled": {"id": "p1"},
    "prompt-cut": {"id": "p1"},
    "turn-ended": {"turn": 1, "how": "failed", "cost_usd": 2, "tokens_in": 3},
    "verb-done": {"key": "p1", "ok": False},
}


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("how", How)
def test_a_final_fate_stays_and_a_turn_ends_once(how: How, kind: str) -> None:
    pen = at(Life.UP)
    pen.note("turn-ended", inc=2, turn=1, how=how, cost_usd=1)
    pen.note("prompt-cut", id="other")
    before = copy.deepcopy(pen.fold)
    pen.note(kind, inc=2, **ENDINGS[kind])
    assert pen.fold.receipts == before.receipts
    assert (pen.fold.spent.usd, pen.fold.spent.tokens_in, pen.fold.turn) == (1, 0, 1)
    assert (pen.fold.last_turn, pen.fold.turn_open) == (how, False)
    if kind in ("turn-ended", "prompt-given"):
        assert pen.fold == attrs.evolve(before, illegal=1, seq=pen.seq)


def test_noting_an_end_again_does_not_make_it_newer() -> None:
    """The newest 1,000 that ended are kept, by when they ended."""
    pen = at(Life.RESTING)
    for id in ("p1", "p2", "p1"):
        pen.note("prompt-cut", id=id)
    assert list(pen.fold.receipts) == ["p1", "p2"]


@pytest.mark.parametrize("number", [0, 2, -1, "1", True, None])
def test_only_the_open_turn_ends(number: object) -> None:
    pen = at(Life.UP)
    before = copy.deepcopy(pen.fold)
    pen.note("turn-ended", inc=2, turn=number, how="done")
    assert pen.fold == attrs.evolve(before, illegal=1, seq=pen.seq)


@pytest.mark.parametrize(
    "data", [{"turn": 1, "id": "q"}, {"turn": 2, "id": "q"}, {"id": "q"}, {"turn": "2", "id": "q"}]
)
def test_no_prompt_is_given_into_an_open_turn(data: dict[str, Any]) -> None:
    pen = at(Life.UP)
    before = copy.deepcopy(pen.fold)
    pen.note("prompt-given", inc=2, **data)
    assert pen.fold == attrs.evolve(before, illegal=1, seq=pen.seq)


def test_a_prompt_that_waits_ends_without_a_turn() -> None:
    pen = at(Life.RESTING)
    pen.note("prompt-cancelled", id="c", note="removed by its client")
    pen.note("prompt-cut", id="l", text="the mount died while it was written")
    receipts = pen.fold.receipts
    assert (receipts["c"].fate, receipts["c"].turn, receipts["c"].note) == (Fate.CANCELLED, 0, "removed by its client")
    assert (receipts["l"].fate, pen.fold.error) == (Fate.LOST, "the mount died while it was written")
    assert status_of(pen.fold) is Status.AWAIT


@pytest.mark.parametrize(("ok", "fate"), [(True, Fate.DONE), (False, Fate.FAILED), (None, Fate.DONE)])
def test_the_fate_of_a_keyed_verb(ok: bool | None, fate: Fate) -> None:
    pen = at(Life.RESTING)
    pen.note("verb-done", key="k", verb="stop", text="said", order="0001.ctl.x", **({} if ok is None else {"ok": ok}))
    receipt = pen.fold.receipts["k"]
    assert (receipt.fate, receipt.verb, receipt.note) == (fate, "stop", "said")
    assert pen.fold.orders_done == ("0001.ctl.x",)
    assert (pen.fold.error == "said") == (fate is Fate.FAILED)


def test_a_verb_with_the_id_of_a_prompt_on_its_way_does_not_end_it() -> None:
    pen = at(Life.UP)
    pen.note("verb-done", inc=2, key="p1", verb="interrupt", ok=True)
    assert pen.fold.receipts["p1"].fate is Fate.SENT


def test_ids_are_kept_for_life_and_the_newest_thousand_are_shown() -> None:
    pen = at(Life.STARTING)
    pen.note("ready", inc=2)
    count = RECEIPTS_SHOWN + 200
    for n in range(1, count + 1):
        turn(pen, n, f"p{n}")
        pen.note("turn-ended", inc=2, turn=n, how="done")
        assert f"p{n}" in pen.fold.receipts
    turn(pen, count + 1, "open")
    assert pen.fold.ids == {"open", *(f"p{n}" for n in range(1, count + 1))}
    newest = [f"p{n}" for n in range(count - RECEIPTS_SHOWN + 1, count + 1)]
    assert list(pen.fold.receipts)[-len(newest) - 1 :] == [*newest, "open"]
    assert len(pen.fold.receipts) <= RECEIPTS_SHOWN + 64 + 1
    assert "p1" not in pen.fold.receipts
    for kind in ("prompt-cancelled", "prompt-cut"):
        pen.note(kind, id="p1")
    assert "p1" not in pen.fold.receipts
    assert pen.fold.illegal == 0


def test_an_id_whose_receipt_is_no_longer_kept_is_not_given_again() -> None:
    pen = at(Life.STARTING)
    pen.note("ready", inc=2)
    for n in range(RECEIPTS_SHOWN + 100):
        pen.note("prompt-cut", id=f"p{n}")
    assert "p0" in pen.fold.ids
    assert "p0" not in pen.fold.receipts
    turn(pen, 1, "p0")
    assert (pen.fold.turn_open, pen.fold.illegal) == (False, 1)


def test_asks_block_until_each_is_answered_or_gone() -> None:
    pen = at(Life.UP)
    pen.note("asked", inc=2, ask="a2", tool="Edit", input={"x": 1})
    assert pen.fold.asks["a2"].input == {"x": 1}
    assert status_of(pen.fold) is Status.BLOCKED
    pen.note("answered", inc=2, ask="a1", by="somebody")
    pen.note("answered", inc=2, ask="a1", by="somebody else")
    assert set(pen.fold.asks) == {"a2"}
    assert status_of(pen.fold, Waiting(queued=3)) is Status.BLOCKED
    pen.note("ask-gone", inc=2, ask="a2")
    assert status_of(pen.fold) is Status.RUNNING


@pytest.mark.parametrize("life", sorted(set(Life) - {Life.UP}))
def test_no_ask_without_a_process_in_a_turn(life: Life) -> None:
    pen = at(life)
    pen.note("asked", inc=2, ask="a1", tool="Bash")
    assert not pen.fold.asks
    assert status_of(pen.fold) is not Status.BLOCKED


@pytest.mark.parametrize("next_life", ["resting", "backoff", "failed", "stopped"])
def test_an_ask_ends_with_its_process(next_life: str) -> None:
    pen = at(Life.UP)
    pen.note("exited", inc=2, next=next_life)
    assert not pen.fold.asks
    assert pen.fold.turn_open
    assert not pen.note("asked", inc=2, ask="a9", tool="Bash").asks
    if next_life in ("resting", "backoff"):
        pen.note("spawned", inc=3)
        assert not pen.note("asked", inc=3, ask="a9", tool="Bash").asks


@pytest.mark.parametrize("value", ["x", None, True, 1.5, [], -1])
def test_a_field_of_another_type_is_not_guessed_at(value: object) -> None:
    """An offset that is no number is not 0, and a session that is no text is not none."""
    pen = at(Life.UP)
    pen.note("note", inc=2, raw_end=50, chat_end=60)
    pen.note("note", inc=2, raw_end=value, chat_end=value)
    assert (pen.fold.raw_inc, pen.fold.raw_end, pen.fold.chat_end) == (2, 50, 60)
    pen.note("session", inc=2, id=None if value == "x" else value)
    assert pen.fold.session == "s1"


@pytest.mark.parametrize("field", ["cost_usd", "until", "died"])
def test_a_number_too_large_for_a_float_does_not_raise(field: str) -> None:
    for kind, extra in (("turn-ended", {"turn": 1}), ("exited", {"next": "backoff"})):
        pen = at(Life.UP)
        pen.note(kind, inc=2, **extra, **{field: 10**400})
        assert status_of(pen.fold) in Status


SMALL = st.integers(-1, 4)
IDS = st.sampled_from(["", "p1", "p2", "p3"])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "inc": SMALL,
    "turn": SMALL,
    "id": IDS,
    "ask": IDS,
    "key": IDS,
    "next": st.sampled_from([*Life, "nowhere"]),
    "how": st.sampled_from([*How, "odd"]),
    "reason": st.sampled_from([*Reason, ""]),
    "text": st.text(max_size=4),
    "born": st.sampled_from(["b1", "b2"]),
    "cost_usd": st.floats(-1, 10),
    "tokens_in": SMALL,
    "until": st.floats(0, 10),
    "died": SMALL,
    "raw_end": SMALL,
    "chat_end": SMALL,
    "pid": SMALL,
    **{name: st.booleans() for name in ("ready", "ok", "forget", "cost_estimated")},
    "order": IDS,
    "file": IDS,
    "backend": st.sampled_from(["claude", "exec", "odd"]),
}
ALWAYS = ("inc", "turn", "id", "ask", "next", "how")
RIGHT = st.fixed_dictionaries(
    {key: FIELDS[key] for key in ALWAYS}, optional={key: FIELDS[key] for key in FIELDS if key not in ALWAYS}
)
WRONG = st.dictionaries(st.sampled_from(sorted(FIELDS)), JSON, max_size=6)
KINDS = st.sampled_from([*Kind, Kind.SPAWNED, Kind.READY, Kind.PROMPT_GIVEN, Kind.ASKED]) | st.text(max_size=5)
ANYTHING = st.lists(
    st.builds(Event, t=st.just("t"), seq=st.integers(0, 99), kind=KINDS, data=RIGHT | WRONG), max_size=25
)


def assert_legal(state: Fold) -> None:
    """What holds in every fold, whatever the journal says."""
    waiting = (Waiting(), Waiting(arriving=1), Waiting(queued=1))
    for status in [status_of(state, w, t) for w in waiting for t in ("stream", "turn", "")]:
        assert status in Status
        assert (status is Status.FAILED) == (state.life is Life.FAILED)
        assert (status is Status.BLOCKED) == bool(state.asks)
    assert isinstance(state.life, Life)
    assert not state.asks or (state.life is Life.UP and state.turn_open)
    assert state.pid == 0 or state.life in UP_LIVES
    assert state.inc >= 1 or state.life not in UP_LIVES
    assert state.reason or state.life is not Life.FAILED
    assert state.turn >= 1 or not state.turn_open
    assert not state.given or state.turn_open
    assert state.last_turn == "" or state.last_turn in HOWS
    assert state.receipts.keys() <= state.ids
    assert "" not in state.ids
    assert all(r.id == id and (r.fate in FINAL or id == state.given) for id, r in state.receipts.items())
    assert state.spent.usd >= 0
    assert state.illegal >= 0


@QUICK
@given(ANYTHING)
def test_any_interleaving_yields_a_legal_status(events: list[Event]) -> None:
    state = Fold()
    for event in events:
        before = copy.deepcopy(state)
        state.feed(event)
        assert_legal(state)
        if event.kind == Kind.CREATED:
            assert (state.inc, state.turn, state.illegal, state.receipts) == (0, 0, 0, {})
            continue
        assert state.seq >= before.seq
        assert state.inc >= before.inc
        assert state.turn >= before.turn
        assert state.spent.usd >= before.spent.usd
        assert state.ids >= before.ids
        finals = {id: r for id, r in before.receipts.items() if r.fate in FINAL}
        assert all(state.receipts.get(id) == r for id, r in finals.items())


@QUICK
@given(ANYTHING, ANYTHING, st.data())
def test_a_crash_at_any_byte_and_replay(first: list[Event], then: list[Event], data: st.DataObject) -> None:
    journal = b"".join(event.encode() for event in first)
    cut = journal[: data.draw(st.integers(0, len(journal)))]
    torn = b"" if not cut or cut.endswith(b"\n") else b"\n"
    journal = cut + torn + b"".join(event.encode() for event in then)
    events, end = decode_lines(journal)
    assert end == len(journal)
    assert events[len(events) - len(then) :] == then
    whole = fold(events)
    assert_legal(whole)
    state, rest = Fold(), b""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(journal)), max_size=4)))
    for start, stop in itertools.pairwise([0, *cuts, len(journal)]):
        found, taken = decode_lines(rest + journal[start:stop])
        rest = (rest + journal[start:stop])[taken:]
        for event in found:
            state.feed(event)
    assert state == whole
    middle = data.draw(st.integers(0, len(events)))
    state = fold(events[:middle])
    assert state == fold(events[:middle])
    for event in events[middle:]:
        state.feed(event)
    assert state == whole


class Driver:
    """A small supervisor that notes only what is legal, and knows by itself what the fold should say."""

    def __init__(self) -> None:
        self.pen = Pen()
        self.life = Life.RESTING
        self.inc = 0
        self.turn = 0
        self.open = ""
        self.asks: list[str] = []
        self.queued: list[str] = []
        self.made = 0
        self.cost = 0.0
        self.fates: dict[str, Fate] = {}
        self.reason = ""
        self.pen.note("created", born="b")

    def note(self, kind: str, **data: Any) -> None:
        self.pen.note(kind, **({"inc": self.inc} if self.inc else {}), **data)

    def new_id(self) -> str:
        self.made += 1
        return f"p{self.made}"

    def end(self, how: How, cost: float = 0.0) -> None:
        if self.open:
            self.note("turn-ended", turn=self.turn, how=how, cost_usd=cost)
            self.fates[self.open] = Fate({"interrupted": "cancelled"}.get(how, how))
            self.cost += cost
            self.open, self.asks = "", []

    def leave(self, to: Life) -> None:
        self.note("exited", next=to, reason="crash-loop" if to is Life.FAILED else "", until=9.0, died=1.0)
        self.life, self.asks = to, []

    def act(self, action: str, pick: int, cost: float) -> None:
        """Do `action` where a supervisor would; `pick` chooses among its ways."""
        up, down = self.life is Life.UP, self.life not in UP_LIVES
        match action:
            case "arrive":
                self.queued.append(self.new_id())
            case "give" if up and self.queued and not self.open:
                self.open, self.turn = self.queued.pop(0), self.turn + 1
                self.fates[self.open] = Fate.SENT
                self.note("prompt-given", id=self.open, turn=self.turn)
            case "accepted" if up and self.open:
                self.note("prompt-sent", id=self.open)
                self.note("prompt-accepted", id=self.open)
                self.fates[self.open] = Fate.ACCEPTED
            case "ask" if up and self.open:
                self.asks.append(f"a{len(self.pen.events)}")
                self.note("asked", ask=self.asks[-1], tool="Bash", input={"command": "ls"})
            case "answer" if self.asks:
                ask = self.asks.pop(pick % len(self.asks))
                self.note("answered" if pick % 2 else "ask-gone", ask=ask, by="somebody")
            case "end" if up and self.open:
                self.end(list(How)[pick % 3], cost)
            case "die" if not down:
                self.leave((Life.BACKOFF, Life.FAILED)[pick % 2])
                if self.open and pick % 3:
                    self.end(How.LOST, cost)
                elif self.open:
                    self.note("turn-lost", turn=self.turn)
                    self.fates[self.open] = Fate.UNCERTAIN
            case "settle" if down and self.open:
                self.end(How.LOST)
            case "stop" if down:
                self.end(How.LOST)
                self.note("stopped")
                self.life = Life.STOPPED
            case "stop":
                self.end(How.INTERRUPTED, cost)
                self.leave((Life.STOPPED, Life.RESTING)[pick % 2])
            case "start" if down:
                self.note("started", forget=bool(pick % 2))
                self.life = Life.RESTING
            case "spawn" if self.life in (Life.RESTING, Life.BACKOFF):
                self.inc += 1
                self.life = Life.UP if pick % 2 else Life.STARTING
                self.note("spawned", pid=100 + self.inc, backend="claude", ready=bool(pick % 2))
            case "ready" if self.life is Life.STARTING:
                self.note("ready")
                self.life = Life.UP
            case "fail" if self.life in (Life.RESTING, Life.BACKOFF):
                self.note("failed", reason=list(Reason)[pick % len(Reason)], text="why")
                self.life = Life.FAILED
            case "cancel" if self.queued:
                self.fates[id := self.queued.pop(pick % len(self.queued))] = Fate.CANCELLED
                self.note("prompt-cancelled", id=id)
            case "cut":
                self.fates[id := self.new_id()] = Fate.LOST
                self.note("prompt-cut", id=id, text="cut off")
            case "verb":
                key = self.new_id() if pick % 2 else ""
                if key:
                    self.fates[key] = Fate.FAILED if pick % 3 else Fate.DONE
                self.note("verb-done", key=key, verb="stop", ok=not pick % 3, order=f"{pick}.ctl.x")
            case "note":
                self.note(("text", "tool", "tool-result", "retry", "note", "out-written", "odd")[pick % 7], text="x")
            case _:
                pass

    def status(self) -> Status:
        words = {Life.FAILED: Status.FAILED, Life.STOPPED: Status.STOPPED, Life.BACKOFF: Status.BACKOFF}
        if self.life in words:
            return words[self.life]
        if self.asks:
            return Status.BLOCKED
        if self.life is Life.STARTING or (self.inc == 0 and self.queued):
            return Status.STARTING
        return Status.RUNNING if self.open or self.queued else Status.AWAIT


COMMON = ["arrive", "give", "end", "spawn", "ready", "ask", "answer", "accepted"]
RARE = ["die", "settle", "stop", "start", "fail", "cancel", "cut", "verb", "note"]
ACTIONS = st.tuples(st.sampled_from(COMMON * 2 + RARE), st.integers(0, 41), st.integers(0, 400).map(lambda n: n / 4))


@QUICK
@given(st.lists(ACTIONS, max_size=60))
def test_a_legal_supervisor_is_never_refused_and_the_fold_knows_all(actions: list[tuple[str, int, float]]) -> None:
    driver = Driver()
    state = driver.pen.fold
    ended: dict[str, Fate] = {}
    for action, pick, cost in [("spawn", 1, 0.0), *actions] if len(actions) % 2 else actions:
        spent = state.spent.usd
        driver.act(action, pick, cost)
        assert state.illegal == 0, driver.pen.events[-3:]
        assert_legal(state)
        assert status_of(state, Waiting(queued=len(driver.queued)), "stream") is driver.status()
        assert (state.life, state.inc, state.turn_open) == (driver.life, driver.inc, bool(driver.open))
        assert set(state.asks) == set(driver.asks)
        assert state.turn == driver.turn == sum(1 for e in driver.pen.events if e.kind == "prompt-given")
        assert state.spent.usd == driver.cost >= spent
        assert {id: receipt.fate for id, receipt in state.receipts.items()} == driver.fates
        assert ended.items() <= driver.fates.items(), "a final fate changed"
        ended = {id: fate for id, fate in driver.fates.items() if fate in FINAL}
    assert set(driver.fates) - set(ended) == ({driver.open} if driver.open else set())
    assert fold(driver.pen.events) == state == fold(driver.pen.events, "b")
    assert len(state.deaths) <= 50
    assert state.restarts == sum(1 for e in driver.pen.events if e.kind == "exited" and e.data["next"] == "backoff")


def test_who_takes_over_reads_from_behind_the_last_end_that_the_cli_told() -> None:
    """A turn that ended without a word of the CLI moves nothing; a compaction is settled like a turn."""
    pen = at(Life.UP)
    pen.note("turn-ended", inc=2, turn=1, how="done", raw_end=500)
    assert pen.fold.turn_raw == 500
    pen.note("prompt-given", turn=2, id="p2", withheld=True)
    pen.note("turn-ended", turn=2, how="interrupted")
    assert pen.fold.turn_raw == 500
    pen.note("compacted", inc=2, ok=True, raw_end=700)
    assert pen.fold.turn_raw == 700
    pen.note("exited", inc=2, next="resting")
    pen.note("spawned", inc=3, pid=13)
    assert pen.fold.turn_raw == 0


@pytest.mark.parametrize(("rc", "total"), [(0, 0.75), (1, 0.75), (143, 0.75), (137, 0.0), (None, 0.0)])
def test_the_total_of_a_cli_that_was_killed_is_not_gone_on_from(rc: int | None, total: float) -> None:
    told: list[tuple[str, dict[str, object]]] = [
        ("created", {"born": "b"}),
        ("spawned", {"inc": 1}),
        ("ready", {"inc": 1}),
        ("prompt-given", {"id": "p", "turn": 1, "inc": 1}),
        ("turn-ended", {"turn": 1, "how": "done", "inc": 1, "cost_usd": 0.25, "total_usd": 0.75}),
        ("exited", {"inc": 1, "rc": rc, "next": "resting"}),
    ]
    state = fold([Event("2026-01-01T00:00:00.000Z", n, kind, data) for n, (kind, data) in enumerate(told, 1)])
    assert state.life is Life.RESTING
    assert (state.spent.usd, state.total_usd) == (0.25, total)
