"""A turn from prompt to answer: claim, note, send; then answer, conversation, and one write that ends it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supervisor import starts, steering
from supervisor.answers import Answer, add_to_chat, as_file, length, write_answer
from supervisor.backends import codec as told
from supervisor.decide import Bytes, Line
from supervisor.desk import PIPE_BUF, Desk, Note
from supervisor.pricing import price
from supervisor.running import Running
from zoefs.contract.events import Kind, utc
from zoefs.contract.home import PROMPTS, STEER_QUEUED, Order, OrderKind, parse_stage
from zoefs.contract.lifecycle import Life
from zoefs.contract.words import How, Verb
from zoefs.disk.files import names, read, size

KEPT_ORDERS = 1000
PRUNE_EVERY = 64


async def give(desk: Desk, order: Order) -> None:
    """Claim a prompt, note it for good, and send it on its way."""
    stream = desk.backend.transport == "stream"
    if not stream and (obstacle := starts.find_obstacle(desk)) is not None:
        desk.note((Kind.FAILED, obstacle))
        return
    if not desk.claim(order) or order.id in desk.fold.ids:
        return
    turn, inc = desk.fold.turn + 1, desk.fold.inc if stream else desk.fold.inc + 1
    path = desk.home.taken / order.name
    fields: dict[str, Any] = {
        "id": order.id,
        "turn": turn,
        "inc": inc,
        "order": order.name,
        "bytes": size(path),
        "boot": desk.hub.boot,
    }
    if order.kind is OrderKind.RECOVERED:
        fields["note"] = "recovered"
    if order.kind is OrderKind.STEER:
        fields["note"] = STEER_QUEUED
    home, end, now = desk.home, desk.fold.chat_end, utc(time.time())

    def show() -> None:
        fields["chat_end"] = add_to_chat(home, end, f"[{turn}] prompt {order.id} {now}", path)

    await desk.note_lasting((Kind.PROMPT_GIVEN, fields), before=show)
    if stream:
        await write_prompt(desk)
    else:
        await starts.spawn(desk)


def find_given(desk: Desk) -> Bytes:
    """See that the open turn's prompt stands where it was claimed to; a power cut may leave it where it came from.

    The note of a prompt lasts longer than the renames before it.
    """
    if (desk.home.taken / desk.fold.given_order).exists():
        return Bytes.THERE
    for order in desk.orders_in(desk.home.new):
        if order.kind in PROMPTS and order.id == desk.fold.given:
            os.rename(desk.home.new / order.name, desk.home.taken / desk.fold.given_order)
            return Bytes.THERE
    stages = (parse_stage(name) for name in names(desk.home.tmp))
    coming = any(stage is not None and stage.order.id == desk.fold.given for stage in stages)
    return Bytes.COMING if coming else Bytes.GONE


async def write_prompt(desk: Desk) -> None:
    """Put the open turn's prompt on the CLI's stdin; a long line is noted begun and done."""
    running = desk.running
    assert running is not None
    text = (read(desk.home.taken / desk.fold.given_order) or b"").decode(errors="replace")
    line = running.codec.prompt(desk.message_id(desk.fold.given), text)
    long = len(line) > PIPE_BUF
    if long:
        await desk.note_lasting((Kind.STDIN_BEGUN, {"inc": running.inc, "bytes": len(line), "id": desk.fold.given}))
    running.sent = running.working = True
    desk.put(running, line, begun=long)


def note_gone(desk: Desk, order: Order, cut: bool) -> None:
    if cut:
        text = f"prompt {order.id} was cut off when the mount died, and was not sent"
        desk.note((Kind.PROMPT_CUT, {"id": order.id, "text": text, "note": "cut"}))
        os.rename(desk.home.cut / order.name, desk.home.taken / order.name)
    else:
        desk.note((Kind.PROMPT_CANCELLED, {"id": order.id}))
        (desk.home.cancelled / order.name).unlink(missing_ok=True)


def take_out(desk: Desk, order: Order) -> None:
    """Note it first: done again after a crash, it says the same."""
    by = "agent" if order.kind is OrderKind.ANSWER else "client"
    file = f"orders/taken/{order.name}"
    desk.note((Kind.OUT_WRITTEN, {"order": order.name, "by": by, "turn": desk.fold.turn, "file": file}))
    desk.claim(order)


def partial(desk: Desk) -> Answer:
    """What the open turn has said so far: the file with stdout of a turn process, else what was decoded."""
    if desk.backend.transport == "turn":
        inc = desk.fold.given_inc
        return desk.home.raw(inc) if inc and inc <= desk.fold.inc else b""
    if desk.running is not None:
        return as_file(desk.running.codec.partial())
    return read(desk.home.turn(desk.fold.turn)) or b""


async def turn_told(desk: Desk, running: Running, end: told.TurnEnd, raw_end: int) -> None:
    if not desk.fold.turn_open:
        desk.note((Kind.NOTE, {"inc": running.inc, "raw_end": raw_end, "text": "a result without a turn"}))
        return
    if end.text is None:
        data = read(desk.home.turn(desk.fold.turn)) or b""
    else:
        data = as_file(end.text)
    then = steering.goes_on(desk, end.goes_on, running.inc) if end.goes_on else []
    running.interrupting, desk.starved = 0.0, 0
    running.working = running.sent = bool(then)
    also = [line for line in desk.pending if line.command.verb is Verb.INTERRUPT]
    fields = {"inc": running.inc, "raw_end": raw_end, **price(end.spent).encode()}
    said = "took longer than turn_timeout" if running.timed_out else end.reason
    reason = f"turn {desk.fold.turn}: {said}" if said else ""
    running.timed_out = False
    await end_turn(desk, end.how, data, reason, also, then, fields)


async def end_turn(
    desk: Desk,
    how: How,
    answer: Answer,
    reason: str,
    also: list[Line] | None = None,
    then: list[Note] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> None:
    """End the open turn: answer, conversation, then one write with the end, what follows, and verbs settled."""
    for order in desk.orders_in(desk.home.new):
        if order.kind in (OrderKind.OUT, OrderKind.ANSWER):
            take_out(desk, order)
    turn, home, end = desk.fold.turn, desk.home, desk.fold.chat_end
    own = home.path / desk.fold.own_answer if desk.fold.own_answer else None
    whole = answer if own is None else own
    told_how = f"{how}: {reason}" if reason else str(how)
    notes: dict[str, Any] = {"turn": turn, "id": desk.fold.given, "how": how, "bytes": length(whole)}
    notes |= {"text": reason, "note": reason} if reason else {}
    notes |= dict(fields or {})

    def before() -> None:
        write_answer(home, turn, whole)
        at = add_to_chat(home, end, f"[{turn}] answer {told_how}", answer)
        notes["chat_end"] = at if own is None else add_to_chat(home, at, f"[{turn}] out", own)

    settled = desk.settled(list(also or []))
    await desk.note_lasting((Kind.TURN_ENDED, notes), *(then or []), *settled, before=before)
    prune(desk)


async def lose(desk: Desk) -> None:
    """End a turn that no process is to go on with."""
    why = "it was cut and cannot be continued exactly once"
    if desk.fold.life is Life.FAILED and not desk.fold.given_inc <= desk.fold.inc:
        why = f"it was not run: {desk.fold.error}"
    await end_turn(desk, How.LOST, partial(desk), f"turn {desk.fold.turn}: {why}")


def prune(desk: Desk) -> None:
    """Keep the bytes of the newest KEPT_ORDERS orders that ended; now and then, since it costs a long listing."""
    if desk.fold.turn % PRUNE_EVERY:
        return
    kept = desk.orders_in(desk.home.taken)
    current = {desk.fold.given_order, Path(desk.fold.out).name}
    for order in kept[: max(0, len(kept) - KEPT_ORDERS)]:
        if order.name not in current and order.kind is not OrderKind.CTL:
            (desk.home.taken / order.name).unlink(missing_ok=True)
