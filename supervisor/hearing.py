"""What a CLI says becomes notes: decoded line by line, each noted once, whoever read it before."""

from __future__ import annotations

from typing import Any, assert_never

from supervisor import turns
from supervisor.backends import codec as told
from supervisor.desk import Desk, Note
from supervisor.running import Running
from zoefs.contract.events import Kind
from zoefs.disk.files import replace


async def drain(desk: Desk, running: Running) -> None:
    """Decode what the CLI wrote; note it, and end the turn where it ended."""
    notes: list[Note] = []
    seen = desk.fold.raw_end if desk.fold.raw_inc == running.inc else 0
    if desk.backend.transport == "turn":
        return
    for line, end in running.lines():
        for event in running.codec.decode(line):
            if end <= seen:
                continue
            if isinstance(event, told.TurnEnd):
                desk.note(*notes)
                notes = []
                await turns.turn_told(desk, running, event, end)
            elif (note := as_note(desk, event, running, end)) is not None:
                notes.append(note)
    desk.note(*notes)
    if reply := running.codec.take():
        running.put(reply)


def as_note(desk: Desk, event: told.Decoded, running: Running, end: int) -> Note | None:
    base: dict[str, Any] = {"inc": running.inc, "raw_end": end}
    turn = {**base, "turn": desk.fold.turn}
    match event:
        case told.Ready(version=version):
            desk.hub.started(desk.home.name)
            return Kind.READY, {**base, "version": version}
        case told.SessionChanged(session=session):
            if session == desk.fold.session:
                return None
            replace(desk.home.session, session.encode() + b"\n")
            return Kind.SESSION, {**base, "id": session, "old": desk.fold.session, "how": "reported"}
        case told.Accepted(message=message):
            known = desk.fold.turn_open and message == desk.message_id(desk.fold.given)
            running.sent = running.sent or known
            return (Kind.PROMPT_ACCEPTED, {**turn, "id": desk.fold.given}) if known else None
        case told.Text(text=text):
            return Kind.TEXT, {**turn, "text": text}
        case told.Tool(id=id, name=name, input=input):
            return Kind.TOOL, {**turn, "tool_id": id, "tool": name, "input": input}
        case told.ToolResult(id=id, ok=ok, text=text):
            return Kind.TOOL_RESULT, {**turn, "tool_id": id, "ok": ok, "text": text[:4000]}
        case told.Asked(ask=ask, tool=tool, input=input):
            return Kind.ASKED, {**turn, "ask": ask, "tool": tool, "input": input}
        case told.AskGone(ask=ask):
            return Kind.ASK_GONE, {**turn, "ask": ask}
        case told.Retry(status=status, attempt=attempt, delay_ms=delay):
            return Kind.RETRY, {**turn, "status": status, "attempt": attempt, "delay_ms": delay}
        case told.Unreadable(line=text):
            return Kind.NOTE, {**base, "text": f"unreadable line: {text}"}
        case told.TurnEnd():
            raise AssertionError("a turn end is no plain note")
        case _:
            assert_never(event)
