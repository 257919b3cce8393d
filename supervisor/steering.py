"""What is said to a CLI besides prompts: a steer into the running turn, and the order to shorten its history.

Theory. A steer has an id, its line's key or one made for it, and its text is kept as an order beside the prompts, so
that it can become one. Said into the running turn, it is settled when the CLI tells that it took it. What the CLI did
not take, or cannot, is renamed into `orders/new`: a prompt like any other, under the same id, so that a CLI that knows
the id already does not run it twice.
"""

from __future__ import annotations

import os
import time
from typing import Any

import trio

from supervisor.answers import add_to_chat
from supervisor.backends import codec as told
from supervisor.decide import Line
from supervisor.desk import Desk, Note
from supervisor.pricing import price
from supervisor.running import Running
from zoefs.contract.events import Kind, utc
from zoefs.contract.home import STEER_LATE, Order, OrderKind
from zoefs.contract.words import OrderId, Verb
from zoefs.disk.files import replace, size

COMPACT_SECONDS = 600.0
"""How long a CLI may take to shorten its history; then its process is replaced."""


def steer_order(line: Line) -> Order:
    """The order that a steer is kept as: it goes by its key, and keeps its place among the prompts."""
    id = line.command.key or f"steer-{line.order.stamp}-{line.n}"
    return Order(line.order.stamp, OrderKind.STEER, OrderId(id))


async def steer(desk: Desk, line: Line) -> None:
    """Say it into the running turn, or queue it."""
    order, text = steer_order(line), line.command.argument
    if not (desk.home.new / order.name).exists():
        await trio.to_thread.run_sync(replace, desk.home.taken / order.name, text.encode())
    running = desk.running
    if running is None or running.ended or not desk.fold.turn_open or not running.working:
        queue(desk, line)
        return
    said = running.codec.steer(order.id, desk.message_id(order.id), text)
    if not said:
        queue(desk, line)
        return
    shown: dict[str, Any] = {}
    if line.order.name not in desk.fold.begun:
        at = f"[{desk.fold.turn}] steer {order.id} {utc(time.time())}"
        shown["chat_end"] = add_to_chat(desk.home, desk.fold.chat_end, at, text.encode())
    desk.begin(line, **shown)
    desk.put(running, said)


def take_up(desk: Desk, running: Running, lines: list[Line]) -> None:
    """An earlier supervisor began these lines, and may have said them to the CLI that runs."""
    for line in lines:
        if line.command.verb is Verb.STEER:
            order = steer_order(line)
            desk.pending.append(line)
            desk.put(running, running.codec.expect_steer(order.id, desk.message_id(order.id), line.command.argument))
        elif line.command.verb is Verb.COMPACT:
            desk.pending.append(line)
            running.compacting = time.time() + COMPACT_SECONDS
            desk.put(running, running.codec.expect_compact(desk.message_id(line.order.name)))


def queue(desk: Desk, line: Line) -> None:
    """Make a prompt of a steer. Done again after a crash, it finds the prompt in its place."""
    order = steer_order(line)
    new, taken = desk.home.new / order.name, desk.home.taken / order.name
    if taken.exists() and order.id not in desk.fold.ids:
        os.rename(taken, new)
    fields: dict[str, Any] = {"queued": order.name, "bytes": size(new)}
    settled = desk.settled([line], text="queued as a prompt", receipt=False)
    desk.note(*((kind, {**noted, **fields}) for kind, noted in settled))


def steers(desk: Desk) -> list[Line]:
    """The steers that the CLI was told and has not spoken of."""
    return [line for line in desk.pending if line.command.verb is Verb.STEER]


def steered(desk: Desk, id: str, ok: bool, text: str) -> None:
    """The CLI told what became of a steer."""
    for line in steers(desk):
        if steer_order(line).id != id:
            continue
        if ok:
            settled = desk.settled([line], text=f"said into turn {desk.fold.turn}")
            desk.note(*((kind, {**noted, "steer": id}) for kind, noted in settled))
        else:
            queue(desk, line)


def let_go(desk: Desk) -> None:
    """The CLI died. A steer that it said nothing of becomes a prompt; an order to shorten its history failed."""
    for line in steers(desk):
        queue(desk, line)
    lines = [line for line in desk.pending if line.command.verb is Verb.COMPACT]
    desk.note(*desk.settled(lines, ok=False, text="the CLI ended before it was done"))


def goes_on(desk: Desk, id: str, inc: int) -> list[Note]:
    """The CLI takes up a steer, which came too late for its turn, as a turn of its own: the notes that say so."""
    notes: list[Note] = []
    for line in steers(desk):
        order = steer_order(line)
        if order.id == id:
            turn = desk.fold.turn + 1
            fields = {"id": id, "turn": turn, "inc": inc, "order": order.name, "boot": desk.hub.boot}
            fields["bytes"] = size(desk.home.taken / order.name)
            fields["note"] = f"{STEER_LATE} {desk.fold.turn}"
            notes = desk.settled([line], text=f"became turn {turn}", receipt=False)
            notes += [(Kind.PROMPT_GIVEN, fields), (Kind.PROMPT_ACCEPTED, {"id": id, "inc": inc, "turn": turn})]
    return notes


def compact(desk: Desk, line: Line) -> None:
    """Have the CLI shorten its history; prompts wait meanwhile. Told so in a turn, codex would cut it."""
    running = desk.running
    if desk.fold.turn_open:
        desk.note(*desk.settled([line], ok=False, text=f"turn {desk.fold.turn} began before it; compact after it"))
        return
    if running is None or running.ended:
        desk.note(*desk.settled([line], ok=False, text="its CLI is not running; start it first"))
        return
    desk.begin(line)
    running.compacting = time.time() + COMPACT_SECONDS
    desk.put(running, running.codec.compact(desk.message_id(line.order.name)))


def compacted(desk: Desk, running: Running, event: told.Compacted, raw_end: int) -> None:
    """The CLI told that it did, or why not."""
    running.compacting = 0.0
    lines = [line for line in desk.pending if line.command.verb is Verb.COMPACT]
    fields = {"inc": running.inc, "raw_end": raw_end, "ok": event.ok, **price(event.spent).encode()}
    fields |= {"text": event.text} if event.text else {}
    desk.note((Kind.COMPACTED, fields), *desk.settled(lines, ok=event.ok, text=event.text))
