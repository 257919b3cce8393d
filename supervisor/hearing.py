"""What a CLI says becomes notes: decoded line by line, each noted once, whoever read it before."""

from __future__ import annotations

import time
from typing import Any, assert_never

import trio

from supervisor import steering, turns
from supervisor.backends import codec as told
from supervisor.desk import Desk, Note
from supervisor.running import Running
from zoefs.contract.events import Kind
from zoefs.disk.files import replace

BATCH = 1 << 18
"""Bytes of stdout after which notes are written and the others get their turn."""
LOOK = 1 << 22
"""Bytes of stdout that one look listens to."""
TEXT_MAX = 1 << 18
"""Characters of one piece that a `text` event holds; the raw file and the answer have all of it."""


async def drain(desk: Desk, running: Running) -> bool:
    """Decode what the CLI wrote; note it, and end the turn where it ended. Whether there was more than deltas.

    What is noted is written batch by batch, and the others get their turn between two batches: a CLI may have said
    more than memory should hold. After LOOK bytes the rest is left for the next look: a CLI that talks faster than it
    is heard must still be stopped. What was there when the process was taken over, or died, is all heard.
    """
    seen = desk.fold.raw_end if desk.fold.raw_inc == running.inc else 0
    if desk.backend.transport == "turn":
        return True
    batch, begin = _Batch(desk, running), running.offset
    for line, end in running.lines():
        decoded = running.codec.decode(line)
        if end > seen:
            for event in decoded:  # only with the last of them all of the line is noted
                await batch.take(event, end if event is decoded[-1] else end - len(line) - 1)
        if batch.bytes > BATCH:
            batch.write()
            await trio.lowlevel.checkpoint()
            if end - begin > LOOK and end > running.known and not running.ended:
                desk.wake()
                break
        batch.bytes += len(line)
    batch.write()
    if reply := running.codec.take():
        desk.put(running, reply)
    return batch.eventful


class _Batch:
    """Notes of one reading that are not written yet. `bytes`: how much was decoded since the last were."""

    def __init__(self, desk: Desk, running: Running) -> None:
        self._desk = desk
        self._running = running
        self._notes: list[Note] = []
        self.bytes = 0
        self.eventful = False

    def write(self) -> None:
        """Write what there is, and what the model has been saying for a while."""
        notes, self._notes, self.bytes = self._notes, [], 0
        self._desk.note(*notes)

    async def take(self, event: told.Decoded, end: int) -> None:
        """Take one event in, decoded from a line that ends at `end`."""
        desk, running = self._desk, self._running
        if isinstance(event, told.Delta):
            if (text := running.coalesce(event.text, time.monotonic())) is not None:
                base = {"inc": running.inc, "raw_end": end, "turn": desk.fold.turn}
                self._notes.append((Kind.DELTA, {**base, "text": text}))
            return
        self.eventful = True
        if isinstance(event, told.Text | told.TurnEnd) or (isinstance(event, told.Steered) and event.ok):
            running.said_whole()  # what was being said when a steer was taken is dropped
        if isinstance(event, told.TurnEnd | told.Steered | told.Compacted | told.AskGone):
            self.write()  # what it is about may be among what is not written yet
        match event:
            case told.TurnEnd():
                await turns.turn_told(desk, running, event, end)
            case told.Steered(id=id, ok=ok, text=text):
                steering.steered(desk, id, ok, text)
            case told.Compacted():
                steering.compacted(desk, running, event, end)
            case told.Unable():
                running.unable = event
            case told.SessionChanged(session=session):
                if session != desk.fold.session:
                    await trio.to_thread.run_sync(replace, desk.home.session, session.encode() + b"\n")
                    fields = {"id": session, "old": desk.fold.session, "how": "reported"}
                    self._notes.append((Kind.SESSION, {"inc": running.inc, "raw_end": end, **fields}))
            case _:
                if (note := as_note(desk, event, running, end)) is not None:
                    self._notes.append(note)


def as_note(desk: Desk, event: told.Decoded, running: Running, end: int) -> Note | None:
    base: dict[str, Any] = {"inc": running.inc, "raw_end": end}
    turn = {**base, "turn": desk.fold.turn}
    match event:
        case told.Ready(version=version, model=model):
            desk.hub.started(desk.home.name)
            return Kind.READY, {**base, "version": version, "model": model}
        case told.Accepted(message=message):
            known = desk.fold.turn_open and message == desk.message_id(desk.fold.given)
            running.sent = running.sent or known
            if not known or running.accepted == message:
                return None
            running.accepted = message
            return Kind.PROMPT_ACCEPTED, {**turn, "id": desk.fold.given}
        case told.Text(text=text):
            cut = {"cut": len(text) - TEXT_MAX} if len(text) > TEXT_MAX else {}
            return Kind.TEXT, {**turn, "text": text[:TEXT_MAX], **cut}
        case told.Tool(id=id, name=name, input=input):
            return Kind.TOOL, {**turn, "tool_id": id, "tool": name, "input": input}
        case told.ToolResult(id=id, ok=ok, text=text):
            return Kind.TOOL_RESULT, {**turn, "tool_id": id, "ok": ok, "text": text[:4000]}
        case told.Asked(ask=ask):
            fields: dict[str, Any] = {"ask": ask.id, "tool": ask.tool, "input": ask.input}
            fields |= {"questions": [question.encode() for question in ask.questions]} if ask.questions else {}
            fields |= {"rule": ask.rule} if ask.rule is not None else {}
            fields |= {"detail": ask.detail} if ask.detail is not None else {}
            return Kind.ASKED, {**turn, **fields}
        case told.AskGone(ask=ask):
            return (Kind.ASK_GONE, {**turn, "ask": ask}) if ask in desk.fold.asks else None
        case told.Retry(status=status, attempt=attempt, delay_ms=delay):
            return Kind.RETRY, {**turn, "status": status, "attempt": attempt, "delay_ms": delay}
        case told.Unreadable(line=text):
            return Kind.NOTE, {**base, "text": f"unreadable line: {text}"}
        case told.Capable(words=words, version=version):
            return Kind.CAPABLE, {**base, "words": list(words), **({"version": version} if version else {})}
        case told.Unknown(type=type, line=text):
            return Kind.UNKNOWN, {**base, "type": type, "line": text}
        case told.Unserved(what=what):
            return Kind.NOTE, {**base, "text": f"refused a request of the CLI: {what}"}
        case told.TurnEnd() | told.Delta() | told.Steered() | told.Compacted() | told.Unable() | told.SessionChanged():
            raise AssertionError("no plain note")
        case _:
            assert_never(event)
