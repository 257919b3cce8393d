"""`decide` is total over what can be seen, and never acts against the rules; a small world checks that it gets home."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.decide import (
    Act,
    Bytes,
    Do,
    Give,
    Line,
    NoteGone,
    Obey,
    TakeOut,
    View,
    decide,
    stands,
    waits,
    wake_at,
)
from zoefs.contract.home import Order, OrderKind
from zoefs.contract.lifecycle import Life
from zoefs.contract.verbs import Command
from zoefs.contract.words import OnLost, OrderId, Stamp, Verb


def order(n: int, kind: OrderKind = OrderKind.PROMPT) -> Order:
    return Order(Stamp(f"{n:016x}"), kind, OrderId(f"p{n}"))


def line(verb: Verb) -> Line:
    return Line(order(9, OrderKind.CTL), 0, 1, Command(verb))


BASE = View(life=Life.RESTING, transport="stream", on_lost=OnLost.CONTINUE, now=100.0)
UP = attrs.evolve(BASE, life=Life.UP, alive=True)
STARTING = attrs.evolve(UP, life=Life.STARTING)
TURN = attrs.evolve(UP, turn_open=True, sent=True)
P = (order(1),)

TABLE: list[tuple[str, View, Act | None]] = [
    ("nothing to do", BASE, None),
    ("a prompt starts a stream agent", attrs.evolve(BASE, prompts=P), Do.SPAWN),
    ("but not while others start", attrs.evolve(BASE, prompts=P, slot=False), None),
    ("nor while the supervisor goes", attrs.evolve(BASE, prompts=P, rest=True), None),
    ("a prompt is given to a turn agent", attrs.evolve(BASE, transport="turn", prompts=P), Give(P[0])),
    ("a stopped agent keeps its prompts", attrs.evolve(BASE, life=Life.STOPPED, prompts=P), None),
    ("a failed one too", attrs.evolve(BASE, life=Life.FAILED, prompts=P), None),
    ("a cut turn of a failed one is lost", attrs.evolve(BASE, life=Life.FAILED, turn_open=True), Do.LOSE),
    ("a cut turn is continued", attrs.evolve(BASE, turn_open=True), Do.SPAWN),
    ("or held", attrs.evolve(BASE, turn_open=True, on_lost=OnLost.HOLD), Do.LOSE),
    ("given and never started: start", attrs.evolve(BASE, transport="turn", turn_open=True), Do.SPAWN),
    ("given and died: lost", attrs.evolve(BASE, transport="turn", turn_open=True, started=True), Do.LOSE),
    ("given before a reboot: lost", attrs.evolve(BASE, transport="turn", turn_open=True, same_boot=False), Do.LOSE),
    ("backoff holds", attrs.evolve(BASE, life=Life.BACKOFF, until=101.0, prompts=P), None),
    ("until its time", attrs.evolve(BASE, life=Life.BACKOFF, until=100.0), Do.SPAWN),
    ("a dead process is buried first", attrs.evolve(BASE, life=Life.UP, line=line(Verb.STOP)), Do.BURY),
    ("starting takes no prompt", attrs.evolve(BASE, life=Life.STARTING, alive=True, prompts=P), None),
    ("up gives", attrs.evolve(BASE, life=Life.UP, alive=True, prompts=P), Give(P[0])),
    ("one at a time", attrs.evolve(BASE, life=Life.UP, alive=True, prompts=P, turn_open=True, sent=True), None),
    ("an unsent one is written", attrs.evolve(BASE, life=Life.UP, alive=True, turn_open=True), Do.WRITE),
    (
        "a prompt that codex may have is looked up",
        attrs.evolve(BASE, life=Life.UP, alive=True, turn_open=True, doubtful=True, looks_up=True),
        Do.REPLACE,
    ),
    (
        "claude is told again",
        attrs.evolve(BASE, life=Life.UP, alive=True, turn_open=True, doubtful=True),
        Do.WRITE,
    ),
    (
        "a compaction waits for the handshake",
        attrs.evolve(BASE, life=Life.STARTING, alive=True, line=line(Verb.COMPACT)),
        None,
    ),
    (
        "but not for a process that is to end",
        attrs.evolve(BASE, life=Life.STARTING, alive=True, line=line(Verb.COMPACT), hurry=True),
        Obey(line(Verb.COMPACT)),
    ),
    (
        "torn stdin is replaced",
        attrs.evolve(BASE, life=Life.UP, alive=True, turn_open=True, stdin_torn=True),
        Do.REPLACE,
    ),
    (
        "a verb goes before a prompt",
        attrs.evolve(BASE, life=Life.UP, alive=True, prompts=P, line=line(Verb.STOP)),
        Obey(line(Verb.STOP)),
    ),
    (
        "interrupt waits for a CLI that takes a turn up again",
        attrs.evolve(BASE, life=Life.STARTING, alive=True, turn_open=True, line=line(Verb.INTERRUPT)),
        None,
    ),
    ("an ending goes on", attrs.evolve(BASE, life=Life.UP, alive=True, ending=101.0, line=line(Verb.START)), None),
    ("step by step", attrs.evolve(BASE, life=Life.UP, alive=True, ending=100.0, line=line(Verb.START)), Do.ESCALATE),
    (
        "kill overtakes it",
        attrs.evolve(BASE, life=Life.UP, alive=True, ending=101.0, line=line(Verb.KILL)),
        Obey(line(Verb.KILL)),
    ),
    ("going ends processes", attrs.evolve(BASE, life=Life.UP, alive=True, rest=True), Do.REST),
    (
        "too long a turn",
        attrs.evolve(BASE, life=Life.UP, alive=True, turn_open=True, sent=True, deadline=100.0),
        Do.TIME_OUT,
    ),
    ("what was taken back is noted", attrs.evolve(BASE, cancelled=P, prompts=P), NoteGone(P[0], cut=False)),
    ("what was cut is noted", attrs.evolve(BASE, cut=P), NoteGone(P[0], cut=True)),
    ("out is taken", attrs.evolve(BASE, outs=(order(3, OrderKind.OUT),)), TakeOut(order(3, OrderKind.OUT))),
    ("a full disk takes no prompt", attrs.evolve(BASE, transport="turn", prompts=P, room=False), None),
    ("nor starts a CLI", attrs.evolve(BASE, prompts=P, room=False), None),
    ("nor gives one", attrs.evolve(BASE, life=Life.UP, alive=True, prompts=P, room=False), None),
    (
        "a prompt still in tmp is waited for",
        attrs.evolve(BASE, transport="turn", turn_open=True, prompt=Bytes.COMING),
        None,
    ),
    ("one that is gone is lost", attrs.evolve(BASE, transport="turn", turn_open=True, prompt=Bytes.GONE), Do.LOSE),
    ("start starts", attrs.evolve(BASE, wanted=True), Do.SPAWN),
    (
        "a held turn is started for where it can be looked up",
        attrs.evolve(BASE, turn_open=True, on_lost=OnLost.HOLD, looks_up=True),
        Do.SPAWN,
    ),
    (
        "but not where it is given up",
        attrs.evolve(BASE, life=Life.FAILED, turn_open=True, on_lost=OnLost.HOLD, looks_up=True),
        Do.LOSE,
    ),
    (
        "nor while others start",
        attrs.evolve(BASE, turn_open=True, on_lost=OnLost.HOLD, looks_up=True, slot=False),
        None,
    ),
    ("an ask waits", attrs.evolve(TURN, ask_due=101.0), None),
    ("until it is due", attrs.evolve(TURN, ask_due=100.0), Do.ANSWER),
    ("a verb goes before that", attrs.evolve(TURN, ask_due=99.0, line=line(Verb.ALLOW)), Obey(line(Verb.ALLOW))),
    ("and the end of a turn that took too long", attrs.evolve(TURN, ask_due=99.0, deadline=100.0), Do.TIME_OUT),
    ("an ending has no time for asks", attrs.evolve(TURN, ask_due=99.0, ending=101.0), None),
    ("a dead CLI asks nothing", attrs.evolve(TURN, alive=False, ask_due=99.0), Do.BURY),
    ("a handshake that failed is ended", attrs.evolve(STARTING, unable=True), Do.ABANDON),
    ("before verbs", attrs.evolve(STARTING, unable=True, line=line(Verb.STOP)), Do.ABANDON),
    ("once", attrs.evolve(STARTING, unable=True, ending=101.0), None),
    (
        "though kill overtakes it",
        attrs.evolve(STARTING, unable=True, ending=101.0, line=line(Verb.KILL)),
        Obey(line(Verb.KILL)),
    ),
    ("not where the supervisor goes", attrs.evolve(STARTING, unable=True, rest=True), Do.REST),
    ("nor when it died of it", attrs.evolve(STARTING, unable=True, alive=False), Do.BURY),
    ("prompts wait while history is shortened", attrs.evolve(UP, compacting=True, prompts=P), None),
    ("verbs do not", attrs.evolve(UP, compacting=True, line=line(Verb.STOP)), Obey(line(Verb.STOP))),
    ("nor for ever", attrs.evolve(UP, compacting=True, prompts=P, deadline=100.0), Do.TIME_OUT),
    ("afterwards they go", attrs.evolve(UP, prompts=P), Give(P[0])),
    ("steers are said in a turn", attrs.evolve(TURN, line=line(Verb.STEER)), Obey(line(Verb.STEER))),
    (
        "compact is asked of one that is up",
        attrs.evolve(UP, line=line(Verb.COMPACT), prompts=P),
        Obey(line(Verb.COMPACT)),
    ),
]


@pytest.mark.parametrize(("name", "view", "act"), TABLE, ids=[row[0] for row in TABLE])
def test_table(name: str, view: View, act: Act | None) -> None:
    assert decide(view) == act


@st.composite
def views(draw: st.DrawFn) -> View:
    verb = draw(st.sampled_from([None, *Verb]))
    times = st.sampled_from([0.0, 99.0, 100.0, 101.0])
    return View(
        life=draw(st.sampled_from(list(Life))),
        transport=draw(st.sampled_from(["stream", "turn"])),
        on_lost=draw(st.sampled_from(list(OnLost))),
        now=100.0,
        turn_open=draw(st.booleans()),
        alive=draw(st.booleans()),
        started=draw(st.booleans()),
        same_boot=draw(st.booleans()),
        sent=draw(st.booleans()),
        stdin_torn=draw(st.booleans()),
        looks_up=draw(st.booleans()),
        ask_due=draw(times),
        compacting=draw(st.booleans()),
        unable=draw(st.booleans()),
        slot=draw(st.booleans()),
        room=draw(st.booleans()),
        rest=draw(st.booleans()),
        wanted=draw(st.booleans()),
        prompt=draw(st.sampled_from(list(Bytes))),
        ending=draw(times),
        deadline=draw(times),
        until=draw(times),
        line=None if verb is None else line(verb),
        prompts=draw(st.sampled_from([(), (order(1),), (order(1), order(2))])),
        outs=draw(st.sampled_from([(), (order(3, OrderKind.OUT),)])),
        cancelled=draw(st.sampled_from([(), (order(4),)])),
        cut=draw(st.sampled_from([(), (order(5),)])),
    )


@settings(max_examples=2000, deadline=None)
@given(views())
def test_no_act_against_the_rules(view: View) -> None:
    act = decide(view)
    process = view.life in (Life.STARTING, Life.UP)
    match act:
        case Give():
            assert not view.turn_open
            assert act.order == view.prompts[0]
            assert view.life in (Life.UP, Life.RESTING)
            assert view.line is None
            assert view.room
            assert not (process and (view.compacting or view.unable))
        case Do.SPAWN:
            assert view.room
            assert not process
            assert view.life in (Life.RESTING, Life.BACKOFF)
            assert not view.rest
            assert view.life is not Life.BACKOFF or view.now >= view.until
        case Do.WRITE:
            assert view.life is Life.UP
            assert view.alive
            assert view.turn_open
            assert not view.sent
        case Do.BURY:
            assert process
            assert not view.alive
        case Do.ESCALATE | Do.REST | Do.REPLACE | Do.TIME_OUT:
            assert process
            assert view.alive
        case Do.ANSWER:
            assert process
            assert view.alive
            assert 0 < view.ask_due <= view.now
            assert not view.ending
            assert not view.rest
        case Do.ABANDON:
            assert process
            assert view.alive
            assert view.unable
            assert not view.ending
        case Do.LOSE:
            assert view.turn_open
            assert not process or view.prompt is Bytes.GONE
            held = view.transport == "turn" or (view.on_lost is OnLost.HOLD and not view.looks_up)
            assert process or held or view.life in (Life.FAILED, Life.STOPPED)
        case None:
            at = wake_at(view)
            assert at == 0.0 or at > view.now, "it would spin"
            assert not view.ending or not process or view.ending > view.now
            due = view.ask_due if process and view.alive and not view.ending else 0.0
            assert not 0 < due <= view.now, "an ask would wait for ever"
            assert not (process and view.alive and view.unable and not view.ending)
        case _:
            pass


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.KILL, Verb.RESTART])
@pytest.mark.parametrize("life", list(Life))
def test_stop_is_heard_in_every_state(verb: Verb, life: Life) -> None:
    """Field lesson: stop during backoff, during spawn, in failure: nothing may starve it."""
    for transport, turn_open, rest, slot, compacting, ask_due in itertools.product(
        ("stream", "turn"), (False, True), (False, True), (False, True), (False, True), (0.0, 99.0)
    ):
        view = attrs.evolve(
            BASE,
            life=life,
            transport=transport,
            turn_open=turn_open,
            rest=rest,
            slot=slot,
            compacting=compacting,
            ask_due=ask_due,
            alive=True,
            line=line(verb),
            started=True,
        )
        act = decide(view)
        assert act == Obey(line(verb)) or (rest and act is Do.REST), (view, act)


@pytest.mark.parametrize("field", ["looks_up", "compacting", "unable"])
def test_what_only_a_process_can_be_changes_nothing_without_one(field: str) -> None:
    """`compacting` and `unable` are said of a process, `looks_up` of what follows one that was lost."""
    for life, transport, turn_open in itertools.product(
        (Life.BACKOFF, Life.FAILED, Life.STOPPED), ("stream", "turn"), (False, True)
    ):
        view = attrs.evolve(BASE, life=life, transport=transport, turn_open=turn_open, until=101.0, prompts=P)
        more: dict[str, Any] = {field: True}
        assert decide(attrs.evolve(view, **more)) == decide(view)


@pytest.mark.parametrize(
    ("view", "at"),
    [
        (attrs.evolve(TURN, ask_due=105.0), 105.0),
        (attrs.evolve(TURN, ask_due=105.0, deadline=103.0), 103.0),
        (attrs.evolve(TURN, ask_due=102.0, deadline=103.0), 102.0),
        (attrs.evolve(TURN, ask_due=102.0, ending=109.0), 109.0),
        (attrs.evolve(UP, compacting=True, deadline=700.0, prompts=P), 700.0),
        (attrs.evolve(STARTING, deadline=160.0), 160.0),
        (TURN, 0.0),
    ],
)
def test_when_to_look_again(view: View, at: float) -> None:
    assert decide(view) is None
    assert wake_at(view) == at


def test_every_act_is_the_answer_to_some_view() -> None:
    """The table has a row for each act."""
    acts = {act if isinstance(act, Do) else type(act) for _, _, act in TABLE}
    assert acts == {*Do, Obey, Give, TakeOut, NoteGone, type(None)}


def test_only_who_has_something_to_do_looks_whether_there_is_room() -> None:
    """A thousand agents at rest need not look at a full disk once a second."""
    at_rest = attrs.evolve(BASE, room=False)
    assert wake_at(at_rest) == 0.0
    assert wake_at(attrs.evolve(at_rest, life=Life.STOPPED)) == 0.0
    for more in ({"prompts": P}, {"turn_open": True}, {"wanted": True}, {"life": Life.BACKOFF}):
        busy = attrs.evolve(at_rest, **more)
        assert waits(busy)
        assert wake_at(busy) > busy.now


@pytest.mark.parametrize(
    ("view", "stood"),
    [
        (attrs.evolve(BASE, prompts=P), True),
        (attrs.evolve(BASE, turn_open=True), True),
        (attrs.evolve(BASE, wanted=True), True),
        (attrs.evolve(BASE, line=line(Verb.COMPACT)), True),
        (attrs.evolve(BASE, life=Life.BACKOFF, until=100.0), True),
        (attrs.evolve(BASE, life=Life.BACKOFF, until=101.0), False),
        (attrs.evolve(BASE, prompts=P, room=False), False),
        (attrs.evolve(BASE, prompts=P, rest=True), False),
        (attrs.evolve(BASE, life=Life.STOPPED, prompts=P), False),
        (BASE, False),
    ],
)
def test_who_stands_in_line_could_start_at_once(view: View, stood: bool) -> None:
    """One that could not would hold up those behind it; one that does not stand there would never be called."""
    waiting = attrs.evolve(view, slot=False)
    assert decide(waiting) is None
    assert stands(waiting) is stood
    assert not stands(view)


def test_a_backoff_ends_in_time_while_others_start() -> None:
    """It stands in line only from then on, so nobody calls it before."""
    assert wake_at(attrs.evolve(BASE, life=Life.BACKOFF, until=101.0, slot=False)) == 101.0
    assert wake_at(attrs.evolve(BASE, life=Life.BACKOFF, until=100.0, slot=False)) == 0.0


@pytest.mark.parametrize(("life", "transport"), [(Life.UP, "stream"), (Life.BACKOFF, "stream"), (Life.RESTING, "turn")])
def test_bytes_that_are_to_come_are_looked_for(life: Life, transport: str) -> None:
    """A mount that settles what a power cut left may take them away, and no order tells of that."""
    view = attrs.evolve(BASE, life=life, transport=transport, alive=True, turn_open=True, until=200.0)
    coming = attrs.evolve(view, prompt=Bytes.COMING)
    assert decide(coming) is None
    assert coming.now < wake_at(coming) <= coming.now + 1.0


def test_an_exec_turn_whose_bytes_were_taken_away_is_lost() -> None:
    view = attrs.evolve(BASE, transport="turn", turn_open=True, prompt=Bytes.COMING)
    assert decide(view) is None
    assert wake_at(view) > view.now
    assert decide(attrs.evolve(view, prompt=Bytes.GONE)) is Do.LOSE
