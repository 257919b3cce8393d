"""A CLI ends: by our doing, step by step, or by its own. What follows is said in one write with its death."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import trio

from supervisor import hearing, process, starts, steering, turns
from supervisor.answers import write_answer
from supervisor.backends import codec as told
from supervisor.decide import Line
from supervisor.desk import INTERRUPT_ANSWER, Desk, Ending, Note
from supervisor.restarts import Next, after_death, in_words
from zoefs.contract.events import Kind, seconds
from zoefs.contract.lifecycle import Life
from zoefs.contract.words import How, OnLost, Reason, Verb
from zoefs.disk.files import size
from zoefs.disk.process import lives

EOF_GRACE = 2.0
TERM_GRACE = 3.0
INTERRUPT_GRACE = 1.0
KILL_AGAIN = 0.2
BEGIN_GRACE = 1.0
"""Seconds that a keeper is given to start its CLI before TERM is taken for said."""


def begin(desk: Desk, why: str) -> None:
    steps = {
        "kill": ["kill"],
        "replace": ["kill"],
        "unable": ["kill"],
        "handshake": ["kill"],
        "interrupt": ["term", "kill"],
    }.get(why, ["eof", "term", "kill"] if desk.backend.transport == "stream" else ["term", "kill"])
    if why == "rest" and desk.fold.asks:
        # at the end of its stdin claude denies an ask and goes on with the turn; cut, the turn is continued
        steps = [step for step in steps if step != "eof"]
    desk.ending = Ending(why, list(steps), 0.0, time.time())
    escalate(desk)


def escalate(desk: Desk) -> None:
    ending, running = desk.ending, desk.running
    assert ending is not None
    assert running is not None
    match ending.steps[0]:
        case "eof":
            if ending.why != "rest" and desk.fold.turn_open:
                desk.put(running, running.codec.interrupt())
            running.close_stdin()
            if running.pidfd is not None:
                process.send(running.pidfd, signal.SIGUSR1)
            grace = EOF_GRACE
        case "term":
            said = process.signal_cli(desk.home, running.keeper, signal.SIGTERM)
            if not said and time.time() < ending.began + BEGIN_GRACE:
                ending.deadline = time.time() + 0.01
                return
            grace = INTERRUPT_GRACE if ending.why == "interrupt" else TERM_GRACE
        case _:
            if not process.kill_tree(desk.home, running.keeper, running.adopted) and running.pidfd is not None:
                ending.idle += 1
                if ending.idle > 5:  # a keeper that neither starts its CLI nor ends
                    process.send(running.pidfd, signal.SIGKILL)
            grace = KILL_AGAIN
    ending.deadline = time.time() + grace
    if len(ending.steps) > 1:
        del ending.steps[0]


def time_out(desk: Desk) -> None:
    """A handshake, an interrupt or a shortening that got no answer, or a turn beyond its time."""
    running = desk.running
    assert running is not None
    if desk.fold.life is Life.STARTING:
        begin(desk, "handshake")
    elif running.compacting:
        begin(desk, "replace")
    elif running.interrupting or desk.backend.transport == "turn":
        running.timed_out = running.timed_out or not running.interrupting
        running.interrupting = 0.0
        begin(desk, "interrupt")
    else:
        running.timed_out = True
        running.interrupting = time.time() + INTERRUPT_ANSWER
        desk.put(running, running.codec.interrupt())


def _begun_before(desk: Desk) -> str:
    """What an earlier supervisor was ending this process, or its turn, for; empty where it was not."""
    for verb, turn in desk.fold.begun.values():
        if verb in (Verb.STOP, Verb.KILL, Verb.RESTART):
            return verb
        if verb == Verb.INTERRUPT and desk.fold.turn_open and turn == desk.fold.turn:
            return verb
    return ""


async def bury(desk: Desk) -> None:
    """Its process is dead: end what it started, hear it out, and note death and turn in one write."""
    running = desk.running
    assert running is not None
    with trio.move_on_after(10.0):
        left = process.kill_tree(desk.home, running.keeper, running.adopted)
        while left:  # what was found stays watched until it is gone: a dying process no longer tells whose it is
            await trio.sleep(0.005)
            left = {mark for mark in left if lives(mark)}
            left |= process.kill_tree(desk.home, running.keeper, running.adopted)
    await hearing.drain(desk, running)
    steering.let_go(desk)
    rc = process.exit_code(desk.home, running.inc)
    last_words = _tail(desk.home.err(running.inc))
    death = running.codec.death(rc if rc is not None else -1, last_words)
    if death.resume is not None:
        desk.resume = death.resume
    why = desk.ending.why if desk.ending else _begun_before(desk)
    after = what_follows(desk, why, rc, last_words, death)
    desk.turned = turns_away(desk, death)
    if after.life is Life.FAILED:
        desk.resume, desk.turned = None, False
    notes: list[Note] = []
    also: list[Line] = []
    exited: dict[str, Any] = {"inc": running.inc, "rc": rc, "next": after.life, "reason": after.reason}
    exited |= {"signal": rc - 128} if rc is not None and rc > 128 else {}
    exited |= {"until": after.until, "died": time.time()} if after.life is Life.BACKOFF else {}
    exited |= {"text": after.text} if after.text else {}
    exited |= {"asked": why} if why else {}
    turn = {"inc": running.inc, "turn": desk.fold.turn}
    notes += [(Kind.ASK_GONE, {**turn, "ask": ask}) for ask in desk.fold.asks]
    notes.append((Kind.EXITED, exited))
    if after.life is Life.STOPPED:
        also = list(desk.pending)
    elif why == Verb.RESTART:
        notes.append((Kind.STARTED, {"forget": True}))
        if desk.backend.transport == "stream":
            desk.wanted = True
        else:
            also = list(desk.pending)
    elif why == "interrupt" or not desk.fold.turn_open:
        also = [line for line in desk.pending if line.command.verb is Verb.INTERRUPT]
    desk.home.stdin.unlink(missing_ok=True)
    how = fate_of_cut_turn(desk, why, rc, after)
    desk.hub.started(desk.home.name)
    if desk.fold.turn_open and how is not None:
        reason = why_ended(desk, how, why, rc, last_words, after)
        await turns.end_turn(desk, how, turns.partial(desk), reason, also, notes)
    else:
        if desk.fold.turn_open:
            await trio.to_thread.run_sync(write_answer, desk.home, desk.fold.turn, turns.partial(desk))
            notes.insert(0, (Kind.TURN_LOST, {"turn": desk.fold.turn, "inc": running.inc}))
        desk.note(*notes, *desk.settled(also))
    desk.ending = None
    running.close()
    desk.running = None


def turns_away(desk: Desk, death: told.Death) -> bool:
    """Whether it ended because its session is to be begun otherwise: resumed, or not. Where both are refused, the
    record is there and cannot be read."""
    return death.resume is not None and death.resume is not desk.running_resumed


def what_follows(desk: Desk, why: str, rc: int | None, last_words: str, death: told.Death) -> Next:
    """Where the agent stands after this exit."""
    if why in (Verb.STOP, Verb.KILL):
        return Next(Life.STOPPED)
    unable = desk.running.unable if desk.running is not None else None
    if unable is not None and unable.reason is not None:
        return Next(Life.FAILED, reason=unable.reason, text=unable.text)
    if death.reason is not None:
        return Next(Life.FAILED, reason=death.reason, text=death.text)
    if why in ("rest", Verb.RESTART, "interrupt") or desk.backend.transport == "turn":
        return Next(Life.RESTING)
    if rc == 0 and not desk.fold.turn_open and desk.fold.life is Life.UP:
        return Next(Life.RESTING)
    now = time.time()
    if desk.turned and turns_away(desk, death):
        return Next(Life.FAILED, reason=Reason.CONTEXT_LOST, text=starts.no_record(desk))
    if why == "replace" or turns_away(desk, death):
        full = "the disk was full under its output" if desk.starved == desk.fold.inc else ""
        return Next(Life.BACKOFF, until=now, text=full)
    lived = now - seconds(desk.fold.spawned_t)
    what = "did not finish its handshake" if why in ("handshake", "unable") else in_words(rc)
    line = unable.text if unable is not None else _last_line(last_words)
    if line:
        what = f"{what} ({line})"
    return after_death(desk.spec.restart, desk.home.name, desk.fold.deaths, lived, now, what)


def fate_of_cut_turn(desk: Desk, why: str, rc: int | None, after: Next) -> How | None:
    """How the open turn ends with its process; None where the next process goes on with it."""
    if why in (Verb.STOP, Verb.KILL, Verb.RESTART, "interrupt"):
        return How.INTERRUPTED
    if desk.backend.transport == "turn":
        if why or rc is None or rc > 128:
            return How.LOST
        return How.DONE if rc == 0 else How.FAILED
    goes_on = desk.on_lost is OnLost.CONTINUE or desk.backend.looks_up or why == "replace"
    if goes_on and after.life in (Life.BACKOFF, Life.RESTING):
        return None
    return How.LOST


def why_ended(desk: Desk, how: How, why: str, rc: int | None, last_words: str, after: Next) -> str:
    if how is How.DONE:
        return ""
    if desk.running is not None and desk.running.timed_out:
        return f"turn {desk.fold.turn}: took longer than turn_timeout"
    if why:
        return f"turn {desk.fold.turn}: ended by {'zoefs down' if why == 'rest' else why}"
    line = _last_line(last_words)
    return f"turn {desk.fold.turn}: the CLI {in_words(rc)}{': ' + line if line else ''}"


def _tail(path: Path, limit: int = 4096) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, size(path) - limit))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _last_line(text: str) -> str:
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "")
