"""What a turn leaves on disk: the answer and the conversation for people. Written before the journal says so.

`chat` is a projection: its true length stands in the journal, so what a crash left behind that length is cut off
before the next piece is added.
"""

from __future__ import annotations

import os

from zoefs.contract.home import AgentHome
from zoefs.disk.files import pwrite_all, read, replace

_SHOWN = 1 << 20


def add_to_chat(agent: AgentHome, end: int, heading: str, body: bytes) -> int:
    """Add one piece behind `end` bytes; returns the new length. Text beyond 1 MiB is named, not copied."""
    if len(body) > _SHOWN:
        body = body[:_SHOWN] + f"\n[{len(body) - _SHOWN} more bytes]".encode()
    text = body.decode(errors="replace").encode(errors="replace")
    piece = f"--- {heading}\n".encode() + text + (b"" if text.endswith(b"\n") else b"\n")
    fd = os.open(agent.chat, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_size != end:
            os.ftruncate(fd, end)
        pwrite_all(fd, piece, end)
    finally:
        os.close(fd)
    return end + len(piece)


def as_file(text: str) -> bytes:
    """A model's text as the bytes of a text file: it ends in a newline, and lone surrogates become U+FFFD."""
    data = text.encode(errors="surrogatepass").decode(errors="replace").encode()
    return data if not data or data.endswith(b"\n") else data + b"\n"


def write_answer(agent: AgentHome, turn: int, data: bytes) -> None:
    """Replace `turns/N`, lastingly."""
    replace(agent.turn(turn), data)


def own_answer(agent: AgentHome, file: str) -> bytes | None:
    """What the agent itself wrote to its `out`; `file` is relative to its directory."""
    return read(agent.path / file) if file else None
