"""The verbs of `ctl`, one line at a time. A line is begun (`pending`), then settled with what it led to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, assert_never

from supervisor import endings, starts, steering, turns
from supervisor.decide import Line
from supervisor.desk import INTERRUPT_ANSWER, Desk, Note
from supervisor.running import Running
from zoefs.contract.asks import Ask, Verdict, read_answers
from zoefs.contract.events import Kind
from zoefs.contract.home import PROMPTS, Order, OrderKind
from zoefs.contract.lifecycle import Life
from zoefs.contract.refusal import Refusal
from zoefs.contract.verbs import parse_ctl, split_ask
from zoefs.contract.words import How, Reason, Verb
from zoefs.disk.files import read


def lines_of(desk: Desk, new: list[Order]) -> Iterator[Line]:
    """The first line of each order of `ctl`, oldest first, that is neither done nor under way."""
    for order in sorted({*desk.ctl_orders, *(o for o in new if o.kind is OrderKind.CTL)}):
        if (line := line_of(desk, order)) is not None:
            yield line


def line_of(desk: Desk, order: Order) -> Line | None:
    """The first line of this order that is neither done nor under way. An order that is done is taken away."""
    if order.name in desk.fold.orders_done:
        (desk.home.taken / order.name).unlink(missing_ok=True)
        desk.ctl_orders = [other for other in desk.ctl_orders if other != order]
        return None
    data = read(desk.home.new / order.name)
    data = read(desk.home.taken / order.name) if data is None else data
    if data is None:
        return None
    try:
        commands = parse_ctl(data)
    except Refusal:
        commands = []
    if not commands:  # written before a power cut, and its bytes did not last
        desk.claim(order)
        text = f"verbs accepted as {order.name} were lost with their bytes"
        desk.note((Kind.VERB_DONE, {"order": order.name, "ok": False, "text": text}))
        return None
    n = desk.fold.lines_done.get(order.name, 0)
    if n < len(commands) and not any(line.order == order for line in desk.pending):
        return Line(order, n, len(commands), commands[n])
    return None


def holds(desk: Desk, order: Order) -> bool:
    """Whether this order is the text of a steer whose line is not done yet: it is its line's to move."""
    return order.kind is OrderKind.STEER and any(
        other.stamp == order.stamp and other.name not in desk.fold.orders_done for other in desk.ctl_orders
    )


def take_up(desk: Desk) -> None:
    """Go on with the lines that an earlier supervisor began with this CLI, which may have told of them, even if it has
    died since."""
    running = desk.running
    if running is None:
        return
    begun = [order for order in desk.ctl_orders if order.name in desk.fold.begun]
    steering.take_up(desk, running, [line for order in begun if (line := line_of(desk, order)) is not None])


async def obey(desk: Desk, line: Line) -> None:
    desk.claim(line.order)
    if line.order not in desk.ctl_orders:
        desk.ctl_orders.append(line.order)
    verb = line.command.verb
    begun = desk.fold.begun.get(line.order.name)
    if verb is Verb.INTERRUPT and begun is not None and (not desk.fold.turn_open or begun[1] != desk.fold.turn):
        desk.note(*desk.settled([line]))  # begun before a crash; the turn it meant has ended
        return
    match verb:
        case Verb.START:
            start(desk, line)
        case Verb.STOP | Verb.KILL | Verb.RESTART:
            await stop(desk, line)
        case Verb.INTERRUPT:
            await interrupt(desk, line)
        case Verb.ALLOW | Verb.ALLOW_ALWAYS | Verb.DENY:
            answer(desk, line)
        case Verb.STEER:
            await steering.steer(desk, line)
        case Verb.COMPACT:
            steering.compact(desk, line)
        case Verb.RESET_BUDGET:
            desk.note(*desk.settled([line], ok=False, text=f"{verb}: {desk.backend.agent} cannot"))
        case _:
            assert_never(verb)


def started_anew(desk: Desk) -> Note:
    """`restart` forgets the deaths, and a session whose record is gone."""
    fields: dict[str, Any] = {"forget": True}
    if desk.fold.reason == Reason.CONTEXT_LOST:
        desk.home.session.unlink(missing_ok=True)
        fields["renew"] = True
    return Kind.STARTED, fields


def start(desk: Desk, line: Line) -> None:
    if desk.fold.life in (Life.STARTING, Life.UP):
        desk.note(*desk.settled([line]))
        return
    notes: list[Note] = [] if desk.fold.life is Life.RESTING else [(Kind.STARTED, {})]
    _let_work(desk, line, notes)


def _let_work(desk: Desk, line: Line, notes: list[Note]) -> None:
    """A stream CLI is wanted, and the line settled once it is spawned. A turn agent has no process to start: what
    would stand in the way of its next turn is told now."""
    desk.read_spec()
    if desk.backend.transport == "stream":
        desk.wanted = True
        desk.pending.append(line)
        desk.note(*notes)
    elif (obstacle := starts.find_obstacle(desk)) is None:
        desk.note(*notes, *desk.settled([line]))
    else:
        desk.note(*notes, (Kind.FAILED, obstacle), *desk.settled([line], ok=False, text=obstacle["text"]))


async def stop(desk: Desk, line: Line) -> None:
    verb = line.command.verb
    if desk.running is not None and not desk.running.ended:
        desk.begin(line)
        if desk.ending is None:
            endings.begin(desk, verb)
        else:  # only `kill` overtakes an ending that is under way
            desk.ending.why, desk.ending.steps, desk.ending.deadline = verb, ["kill"], time.time()
        return
    if desk.fold.turn_open:
        await turns.end_turn(desk, How.INTERRUPTED, turns.partial(desk), f"{verb} by hand")
    if verb is Verb.RESTART:
        _let_work(desk, line, [started_anew(desk)])
    else:
        overtaken = desk.settled(list(desk.pending), ok=False, text=f"overtaken by {verb}")
        desk.wanted = False
        desk.note((Kind.STOPPED, {"by": verb}), *overtaken, *desk.settled([line]))


async def interrupt(desk: Desk, line: Line) -> None:
    f, running = desk.fold, desk.running
    if running is not None and not running.ended and running.compacting:
        desk.put(running, running.codec.interrupt())
        desk.note(*desk.settled([line], text="the shortening of its history is told to end"))
        return
    if running is not None and not running.ended and running.working and f.turn_open:
        desk.begin(line)
        if desk.backend.transport == "turn":
            endings.begin(desk, "interrupt")
        else:
            running.interrupting = time.time() + INTERRUPT_ANSWER
            desk.put(running, running.codec.interrupt())
        return
    if f.turn_open:
        await turns.end_turn(desk, How.INTERRUPTED, turns.partial(desk), "interrupted", also=[line])
        return
    earlier = [o for o in desk.orders_in(desk.home.new) if o.kind in PROMPTS and o.stamp < line.order.stamp]
    if earlier and desk.claim(earlier[0]):
        order, turn = earlier[0], f.turn + 1
        given = {"id": order.id, "turn": turn, "order": order.name, "withheld": True}
        desk.note((Kind.PROMPT_GIVEN, given))
        await turns.end_turn(desk, How.INTERRUPTED, b"", "interrupted before it was given", also=[line])
        return
    desk.note(*desk.settled([line], text="nothing to interrupt"))


def answer(desk: Desk, line: Line) -> None:
    """The first answer wins. One that does not fit any more is told so."""
    id, rest = split_ask(line.command)
    ask, running = desk.fold.asks.get(id), desk.running
    verb, by = line.command.verb, line.command.key or "client"
    if ask is None and running is not None and desk.fold.begun.get(line.order.name) == (verb, desk.fold.turn):
        fields = {"ask": id, "decision": verb, "why": rest if verb is Verb.DENY else "", "by": by}
        desk.note((Kind.ANSWERED, fields), *desk.settled([line]))  # said before a crash, and heard since
        return
    if ask is None or running is None:
        desk.note(*desk.settled([line], ok=False, text=f"no ask {id} is pending any more"))
        return
    try:
        answers = read_answers(ask, rest) if verb is Verb.ALLOW else {}
    except Refusal as refusal:
        desk.note(*desk.settled([line], ok=False, text=refusal.sentence))
        return
    why = rest if verb is Verb.DENY else ""
    verdict = Verdict(verb is not Verb.DENY, verb is Verb.ALLOW_ALWAYS, why, answers)
    _answer(desk, running, ask, verdict, by, [line])


def answer_late(desk: Desk) -> None:
    """Nobody answered the oldest ask in time: the spec's default does. A question cannot be allowed unanswered."""
    ask, running = next(iter(desk.fold.asks.values())), desk.running
    assert running is not None
    allow = desk.spec.ask_default == "allow" and not ask.questions
    why = "" if allow else f"nobody answered within {desk.spec.ask_timeout:g} s"
    _answer(desk, running, ask, Verdict(allow, why=why), "ask_timeout", [])


def _answer(desk: Desk, running: Running, ask: Ask, verdict: Verdict, by: str, lines: list[Line]) -> None:
    for line in lines:
        desk.begin(line)
    desk.put(running, running.codec.answer(ask, verdict))
    fields: dict[str, Any] = {"ask": ask.id, "decision": verdict.word, "why": verdict.why, "by": by}
    fields |= {"answers": {key: list(picked) for key, picked in verdict.answers.items()}} if verdict.answers else {}
    desk.note((Kind.ANSWERED, fields), *desk.settled(lines))
