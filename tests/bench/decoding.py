"""What the supervisor makes of a CLI's lines, against a bare loop over the same lines that parses and writes each.

Ours: read, decoded, noted in the journal and folded, by the very functions that the supervisor runs. The lines are a
working turn's: a piece of text, a tool call, its result, again and again; or the bits of one long piece.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from supervisor import hearing, starts
from supervisor.agent import Agent
from supervisor.hub import Hub
from tests.bench.measure import Figures
from zoefs.contract.home import Home
from zoefs.contract.spec import Spec
from zoefs.contract.words import AgentName
from zoefs.disk.journal import Writer
from zoefs.disk.process import Mark

BEGIN = [{"type": "system", "subtype": "init", "session_id": "S", "capabilities": ["msg_lifecycle_v1"]}]


def work(n: int) -> Iterator[dict[str, Any]]:
    """`n` lines that are an event each, of the sizes that the real CLI prints."""
    for at in range(n // 3):
        id, common = f"toolu_{at}", {"parent_tool_use_id": None, "session_id": "S", "uuid": f"{at:036}"}
        said = {"type": "text", "text": f"Now I look at file {at}. " * 6}
        used = {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": f"sed -n {at},+9p file"}}
        gave = {"type": "tool_result", "tool_use_id": id, "content": "line of a file\n" * 20, "is_error": False}
        usage = {"input_tokens": 100, "output_tokens": 10}
        for block in (said, used):
            yield {"type": "assistant", "message": {"id": f"m{at}", "content": [block], "usage": usage}, **common}
        yield {"type": "user", "message": {"role": "user", "content": [gave]}, **common}


def bits(n: int) -> Iterator[dict[str, Any]]:
    """`n` bits of one piece."""
    for at in range(n):
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"word {at} "}}
        yield {
            "type": "stream_event",
            "event": delta,
            "parent_tool_use_id": None,
            "session_id": "S",
            "uuid": f"{at:036}",
        }


def write_lines(path: Path, lines: Iterator[dict[str, Any]]) -> int:
    """The lines as the CLI would have printed them; how many."""
    encoded = [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in (*BEGIN, *lines)]
    path.write_bytes(b"".join(encoded))
    return len(encoded)


@contextmanager
def listening(home: Home, raw: Path) -> Iterator[Agent]:
    """An agent in the middle of a turn whose CLI printed `raw`, and nothing of it noted yet."""
    agent = home.agent(AgentName("bench"))
    for path in (*home.directories, *agent.directories):
        path.mkdir(exist_ok=True)
    agent.born.write_text("b\n")
    with suppress(FileNotFoundError):
        home.journal(agent.name).unlink()
    os.replace(raw, agent.raw(1))
    hub = Hub(home, "boot", {}, None)  # type: ignore[arg-type]  # no task is started
    desk = Agent(agent, hub)
    desk.spec = Spec(backend="claude")
    desk.journal = Writer(home.journal(agent.name), 0)
    desk.note(("created", {"name": "bench", "born": "b"}))
    starts.note_spawned(desk, 1, Mark(0, 0), adopted=False)
    desk.note(("ready", {"inc": 1}), ("prompt-given", {"id": "k", "turn": 1, "inc": 1, "order": "o"}))
    starts.run(desk, 1, Mark(0, 0), starts.make_codec(desk, 1, "", resume=False))
    try:
        yield desk
    finally:
        desk.forget()


def ours(shop: Path, lines: Iterator[dict[str, Any]]) -> Figures:
    """Lines a second."""
    raw = shop / "raw"
    count = write_lines(raw, lines)
    with listening(Home(shop / "home"), raw) as desk:
        assert desk.running is not None
        start = time.process_time()
        trio.run(hearing.drain, desk, desk.running)
        spent = time.process_time() - start
        assert desk.running.offset == desk.home.raw(1).stat().st_size
    return {"rate": count / spent}


def bare(shop: Path, lines: Iterator[dict[str, Any]]) -> Figures:
    """Lines a second of a loop that parses and writes, and knows nothing."""
    raw = shop / "raw"
    count = write_lines(raw, lines)
    start = time.process_time()
    with raw.open("rb") as source, (shop / "copy").open("wb", buffering=0) as copy:
        for line in source:
            json.loads(line)
            copy.write(line)
    spent = time.process_time() - start
    return {"rate": count / spent}
