"""What to do next for one agent: a pure function of one look. No clock, no randomness, no I/O.

Rules, in order; the first that applies is the act, and after each act the agent is looked at again.
What clients took back or lost is noted first. Then a dead CLI is buried, since all else depends on how its turn
ended. An ending that is under way goes on; only `kill` overtakes it. Verbs come before prompts. A prompt is given
only when no turn is open, and to a stream CLI only when it is up.
"""

from __future__ import annotations

from enum import Enum

import attrs

from zoefs.contract.home import Order
from zoefs.contract.lifecycle import Life
from zoefs.contract.verbs import Command
from zoefs.contract.words import OnLost, Verb

NO_ROOM_SECONDS = 1.0
"""How often to look whether a full disk has room again."""
COMING_SECONDS = 1.0
"""How often to look whether a mount settled the bytes of the open turn's prompt: it may take them away."""


@attrs.frozen
class Line:
    """One line of a ctl order: number `n` of `of`, from 0."""

    order: Order
    n: int
    of: int
    command: Command


class Bytes(Enum):
    """Where the open turn's prompt is. `COMING`: in `orders/tmp`, where a mount will settle it."""

    THERE = "there"
    COMING = "coming"
    GONE = "gone"


@attrs.frozen
class View:
    """What one look found. Times are seconds since 1970; `ending` is the deadline of an ending under way, else 0.

    `slot`: a CLI may be started now. `room`: the disk can keep what a turn will say. `looks_up`: a later process can
    tell whether the open turn's prompt had arrived. `ask_due`: when the oldest ask is answered for want of an answer.
    `compacting`: it is shortening its history. `unable`: its handshake failed.
    `starved`: the disk was full under its output, so that what it said of the open turn may be lost.
    `doubtful`: an earlier supervisor may have given this process the open turn's prompt, and did not note it.
    `hurry`: a line behind `line` ends the process that starts.
    """

    life: Life
    transport: str
    on_lost: OnLost
    now: float
    turn_open: bool = False
    alive: bool = False
    started: bool = False
    same_boot: bool = True
    sent: bool = False
    stdin_torn: bool = False
    looks_up: bool = False
    ask_due: float = 0.0
    compacting: bool = False
    unable: bool = False
    starved: bool = False
    doubtful: bool = False
    hurry: bool = False
    prompt: Bytes = Bytes.THERE
    ending: float = 0.0
    deadline: float = 0.0
    until: float = 0.0
    slot: bool = True
    room: bool = True
    rest: bool = False
    wanted: bool = False
    line: Line | None = None
    prompts: tuple[Order, ...] = ()
    outs: tuple[Order, ...] = ()
    cancelled: tuple[Order, ...] = ()
    cut: tuple[Order, ...] = ()


class Do(Enum):
    """The acts that name nothing but the agent."""

    BURY = "take note of the death of its process"
    ESCALATE = "take the next step of the ending under way"
    REST = "end its process because the supervisor goes"
    REPLACE = "end a process whose stdin was left in mid-line, or whose output the disk did not take"
    SPAWN = "start its CLI"
    WRITE = "write the open turn's prompt"
    TIME_OUT = "interrupt a turn that took too long"
    LOSE = "end the open turn as lost"
    ANSWER = "answer an ask that nobody answered in time"
    ABANDON = "end a process whose handshake failed"


@attrs.frozen
class Obey:
    """Carry out one line of `ctl`."""

    line: Line


@attrs.frozen
class Give:
    """Claim a prompt and open its turn."""

    order: Order


@attrs.frozen
class TakeOut:
    """Note text that somebody wrote to `out`."""

    order: Order


@attrs.frozen
class NoteGone:
    """Note a prompt that was cancelled by its client, or (`cut`) lost with the mount."""

    order: Order
    cut: bool


Act = Do | Obey | Give | TakeOut | NoteGone


def decide(view: View) -> Act | None:
    """The next act, or None where there is nothing to do before something changes or `wake_at` passes."""
    if view.cancelled:
        return NoteGone(view.cancelled[0], cut=False)
    if view.cut:
        return NoteGone(view.cut[0], cut=True)
    if view.outs:
        return TakeOut(view.outs[0])
    if view.life in (Life.STARTING, Life.UP):
        return _with_process(view)
    return _without_process(view)


def _with_process(view: View) -> Act | None:
    if not view.alive:
        return Do.BURY
    if view.ending:
        if view.line is not None and view.line.command.verb is Verb.KILL:
            return Obey(view.line)
        return Do.ESCALATE if view.now >= view.ending else None
    if view.rest:
        return Do.REST
    if view.unable:
        return Do.ABANDON
    if view.stdin_torn or _is_mute(view):
        return Do.REPLACE
    if view.line is not None and not _must_wait(view, view.line):
        return Obey(view.line)
    if view.deadline and view.now >= view.deadline:
        return Do.TIME_OUT
    if view.ask_due and view.now >= view.ask_due:
        return Do.ANSWER
    if view.life is Life.STARTING or view.transport == "turn":
        return None
    if view.turn_open and not view.sent:
        return Do.REPLACE if view.doubtful and view.looks_up else _with_bytes(view, Do.WRITE)
    if view.turn_open or view.compacting:
        return None
    return Give(view.prompts[0]) if view.prompts and view.line is None and view.room else None


def _is_mute(view: View) -> bool:
    """What it said of the open turn is not to be had; another process can tell, once there is room for its words."""
    return view.starved and view.room and view.turn_open and view.transport == "stream"


def _must_wait(view: View, line: Line) -> bool:
    """What is said to the CLI can only be said once it listens: an interrupt of a turn that it is taking up again, an
    order to shorten its history. Nobody waits for that where the process is to end anyway."""
    if view.life is not Life.STARTING or view.hurry:
        return False
    return line.command.verb is Verb.COMPACT or (line.command.verb is Verb.INTERRUPT and view.turn_open)


def _without_process(view: View) -> Act | None:
    if view.line is not None and view.line.command.verb is Verb.COMPACT and view.life is Life.RESTING:
        return Do.SPAWN if view.slot and view.room and not view.rest else None
    if view.line is not None:
        return Obey(view.line)
    if view.life in (Life.FAILED, Life.STOPPED):
        return Do.LOSE if view.turn_open else None
    if view.turn_open and view.life is Life.RESTING:
        if view.transport == "turn":
            if view.started or not view.same_boot:
                return Do.LOSE
            return None if view.rest or not view.room else _with_bytes(view, Do.SPAWN)
        if view.on_lost is OnLost.HOLD and not view.looks_up:
            return Do.LOSE
    if view.rest or not view.slot or not view.room:
        return None
    if view.life is Life.BACKOFF:
        return Do.SPAWN if view.now >= view.until else None
    if view.transport == "stream":
        return Do.SPAWN if view.turn_open or view.wanted or view.prompts else None
    return Give(view.prompts[0]) if view.prompts else None


def _with_bytes(view: View, act: Do) -> Do | None:
    """The act, once the prompt's bytes are there; a prompt that a power cut took is lost."""
    match view.prompt:
        case Bytes.THERE:
            return act
        case Bytes.COMING:
            return None
        case Bytes.GONE:
            return Do.LOSE


def stands(view: View) -> bool:
    """Whether a start is all that is to be done, and a place for it all that is missing."""
    return not view.slot and decide(view) is None and decide(attrs.evolve(view, slot=True)) is Do.SPAWN


def waits(view: View) -> bool:
    """Whether something is to be done for which there may be no room."""
    return bool(view.turn_open or view.prompts or view.line or view.wanted or view.life is Life.BACKOFF)


def wake_at(view: View) -> float:
    """When, at the latest, to look again though nothing was heard; 0 is never. Never in the past: `decide` acted."""
    if view.life in (Life.STARTING, Life.UP):
        times = [view.ending] if view.ending else [view.deadline, view.ask_due]
    elif view.life is Life.BACKOFF and not view.rest:
        times = [view.until]
    else:
        times = []
    if not view.room and waits(view):
        times.append(view.now + NO_ROOM_SECONDS)
    if view.turn_open and view.prompt is Bytes.COMING:
        times.append(view.now + COMING_SECONDS)
    return min((t for t in times if t > view.now), default=0.0)
