"""Agents laid down in HOME as both daemons would have left them, many at once: what tests and benches of scale begin
from.

A past is made once and written for each agent under its own born word. It is a journal in the segments in which the
supervisor leaves one, the fold kept at its end, and for each turn its prompt and its answer.
"""

from __future__ import annotations

import os

import attrs

from zoefs.contract.events import Event, utc
from zoefs.contract.home import AgentHome, Home, segment_of
from zoefs.contract.lifecycle import Fold
from zoefs.contract.snapshot import Place, Snapshot, encode
from zoefs.contract.words import AgentName
from zoefs.disk.journal import Sizes

SPEC = b'backend = "exec"\nargv = ["cat"]\n'
BEGAN = 1_790_000_000.0
_BORN = b"0" * 32
_SAID = b"--- a prompt and its answer\n"
_EVENT = 400
"""About how many bytes an event of a turn takes, as a CLI of some talk leaves them."""


@attrs.frozen
class Past:
    """See module. `segments`: the first seq and the bytes of each, the current one last. `orders`: those of its turns,
    oldest first."""

    segments: tuple[tuple[int, bytes], ...]
    kept: bytes
    orders: tuple[str, ...]


def _turn(turn: int, size: int) -> tuple[str, list[tuple[str, dict[str, object]]]]:
    """The order of one turn, and its events, of `size` bytes in all at least."""
    id = f"in-{1_790_000_000_000_000_000 + turn * 1_000_003:016x}"
    order, inc = f"{id[3:]}.prompt.{id}", {"inc": turn}
    said = "what it thinks of it. " * 14
    steps = range(max(0, size // _EVENT - 3))
    talk = [("text", {**inc, "turn": turn, "text": f"step {n}: {said}", "raw_end": n * _EVENT}) for n in steps]
    ended = {"how": "done", "bytes": 5, "tokens_in": 900, "tokens_out": 90, "chat_end": turn * len(_SAID)}
    return order, [
        ("prompt-given", {**inc, "id": id, "turn": turn, "order": order, "bytes": 6, "boot": "b"}),
        ("spawned", {**inc, "pid": 1000 + turn, "backend": "exec", "ready": True}),
        *talk,
        ("exited", {**inc, "rc": 0, "next": "resting"}),
        ("turn-ended", {**inc, "turn": turn, "id": id, **ended}),
    ]


def past(turns: int, turn_bytes: int = 1600, stopped: bool = True, rotate: int = Sizes().rotate) -> Past:
    """So many turns of so many bytes of journal each; `stopped` at the end, or at rest."""
    fold, segments, orders = Fold(), [(1, bytearray())], []

    def note(kind: str, fields: dict[str, object]) -> None:
        event = Event(utc(BEGAN + fold.seq), fold.seq + 1, kind, fields)
        fold.feed(event)
        segments[-1][1].extend(event.encode())

    note("created", {"name": "a", "born": _BORN.decode()})
    for turn in range(1, turns + 1):
        if len(segments[-1][1]) > rotate:
            segments.append((fold.seq + 1, bytearray()))
        order, events = _turn(turn, turn_bytes)
        orders.append(order)
        for kind, fields in events:
            note(kind, fields)
    if stopped:
        note("stopped", {"by": "stop"})
    first, current = segments[-1]
    kept = encode(Snapshot(Place(first, len(current), fold.seq), fold))
    return Past(tuple((first, bytes(data)) for first, data in segments), kept, tuple(orders))


def lay(home: Home, name: str, past: Past, spec: bytes = SPEC, kept: bool = True) -> AgentHome:
    """Write one agent with this past; `kept`: with its fold."""
    agent = home.agent(AgentName(name))
    born = os.urandom(16).hex().encode()
    for path in agent.directories:
        os.mkdir(path, 0o700)
    texts = {agent.spec: spec, agent.born: born + b"\n", agent.lock: b"", agent.chat: _SAID * len(past.orders)}
    journal = home.journal(agent.name)
    *older, (_, current) = past.segments
    texts |= {segment_of(journal, first): data for first, data in older} | {journal: current}
    texts |= {agent.snapshot: past.kept} if kept else {}
    for turn, order in enumerate(past.orders, 1):
        texts |= {agent.turn(turn): b"done\n", agent.taken / order: b"do it\n"}
    for path, data in texts.items():
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(fd, data.replace(_BORN, born) if path in (journal, agent.snapshot) or path.suffix != "" else data)
        os.close(fd)
    return agent
