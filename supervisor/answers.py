"""What a turn leaves on disk: the answer and the conversation for people. Written before the journal says so.

An answer is bytes, or the file that holds them: a program may say more than memory should hold. `chat` is a
projection: its true length stands in the journal, so what a crash left behind that length is cut off before the next
piece is added.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from zoefs.contract.home import AgentHome
from zoefs.disk.files import pwrite_all, replace, size, sync_dir

Answer = bytes | Path

_SHOWN = 1 << 20


def length(answer: Answer) -> int:
    """How many bytes an answer has."""
    return size(answer) if isinstance(answer, Path) else len(answer)


def _beginning(answer: Answer) -> bytes:
    if isinstance(answer, bytes):
        return answer[:_SHOWN]
    try:
        with answer.open("rb") as file:
            return file.read(_SHOWN)
    except FileNotFoundError:
        return b""


def add_to_chat(agent: AgentHome, end: int, heading: str, body: Answer) -> int:
    """Add one piece behind `end` bytes; returns the new length. Bytes beyond 1 MiB are counted, not copied."""
    text = _beginning(body).decode(errors="replace")
    if (more := length(body) - _SHOWN) > 0:
        text += f"\n[{more} more bytes]"
    piece = f"--- {heading}\n{text}".encode(errors="replace")
    piece += b"" if piece.endswith(b"\n") else b"\n"
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
    data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return data if not data or data.endswith(b"\n") else data + b"\n"


def write_answer(agent: AgentHome, turn: int, answer: Answer) -> None:
    """Replace `turns/N`, lastingly."""
    if isinstance(answer, bytes):
        replace(agent.turn(turn), answer)
        return
    temp = agent.turns / f".{turn}"
    try:
        with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            if answer.exists():
                with answer.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temp, agent.turn(turn))
    except OSError:
        temp.unlink(missing_ok=True)
        raise
    sync_dir(agent.turns)
