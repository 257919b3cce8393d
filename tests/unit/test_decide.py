"""`decide` is total over what can be seen, and never acts against the rules; a small world checks that it gets home."""

from __future__ import annotations

import itertools

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
        case Do.LOSE:
            assert view.turn_open
            assert not process or view.prompt is Bytes.GONE
        case None:
            at = wake_at(view)
            assert at == 0.0 or at > view.now, "it would spin"
            assert not view.ending or not process or view.ending > view.now
        case _:
            pass


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.KILL, Verb.RESTART])
@pytest.mark.parametrize("life", list(Life))
def test_stop_is_heard_in_every_state(verb: Verb, life: Life) -> None:
    """Field lesson: stop during backoff, during spawn, in failure: nothing may starve it."""
    for transport, turn_open, rest, slot in itertools.product(
        ("stream", "turn"), (False, True), (False, True), (False, True)
    ):
        view = attrs.evolve(
            BASE,
            life=life,
            transport=transport,
            turn_open=turn_open,
            rest=rest,
            slot=slot,
            alive=True,
            line=line(verb),
            started=True,
        )
        act = decide(view)
        assert act == Obey(line(verb)) or (rest and act is Do.REST), (view, act)
