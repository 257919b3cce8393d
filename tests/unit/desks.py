"""One agent's record without an agent: a Desk in a HOME of its own, whose CLI is a FIFO that the test reads."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from supervisor.backends import CODECS, Codec, Setup
from supervisor.decide import Line
from supervisor.desk import Desk
from supervisor.hub import Hub
from supervisor.running import Running
from zoefs.contract.events import Event, utc
from zoefs.contract.home import Home, Order, OrderKind
from zoefs.contract.spec import Spec
from zoefs.contract.verbs import Command
from zoefs.contract.words import AgentName, OrderId, Stamp, Verb
from zoefs.disk.journal import Tail, Writer
from zoefs.disk.process import Mark


class Bench:
    """An agent that is up, in its first turn where `turn`; `backend` is what its CLI is."""

    def __init__(self, path: Path, backend: str = "codex", turn: bool = True) -> None:
        home = Home(path)
        self.agent = home.agent(AgentName("a"))
        for directory in (*home.directories, *self.agent.directories):
            directory.mkdir(parents=True, exist_ok=True)
        self.started: list[str] = []
        hub = SimpleNamespace(home=home, boot="boot", env={}, nursery=None, started=self.started.append)
        self.desk = Desk(self.agent, cast(Hub, hub))
        self.desk.born, self.desk.spec = "b1", Spec(backend=backend)
        self.desk.journal = Writer(home.journal(self.agent.name), 0)
        self._tail = Tail(home.journal(self.agent.name))
        self.desk.note(("created", {"born": "b1"}), ("session", {"id": "T"}), ("spawned", {"inc": 1, "pid": 1}))
        self.desk.note(("ready", {"inc": 1}))
        self.codec: Codec = CODECS[backend](Setup("a", "T", self.desk.spec, f"/bin/{backend}", cwd="/w"))
        self.running = Running(self.agent, 1, Mark(1, 1), None, self.codec)
        self.desk.running = self.running
        os.mkfifo(self.agent.stdin)
        self._stdin = os.open(self.agent.stdin, os.O_RDONLY | os.O_NONBLOCK)
        if turn:
            self.open_turn()
        self.told()

    def open_turn(self) -> None:
        """A prompt was given, taken and is worked on, under an id that the codec knows."""
        self.desk.note(("prompt-given", {"inc": 1, "turn": self.desk.fold.turn + 1, "id": "p1", "order": "x"}))
        self.desk.note(("prompt-sent", {"inc": 1, "id": "p1"}))
        self.running.sent = self.running.working = True
        message = self.desk.message_id("p1")
        self.codec.prompt(message, "text")
        self.hear({"id": f"prompt:{message}", "result": {"turn": {"id": "U"}}})
        self.hear({"method": "turn/started", "params": {"turn": {"id": "U"}}})
        self.hear({"type": "system", "subtype": "init", "session_id": "T", "capabilities": ["msg_lifecycle_v1"]})

    def hear(self, value: Any) -> list[Any]:
        """What the codec makes of one line of the CLI."""
        return list(self.codec.decode(json.dumps(value).encode()))

    def asked(self, id: str = "1-3", seconds: float = 0.0, **more: Any) -> None:
        """The CLI asks, and asked so many seconds ago."""
        self.desk.note(("asked", {"inc": 1, "turn": 1, "ask": id, "tool": "t", "input": {}, "detail": 3, **more}))
        if seconds:
            ask = self.desk.fold.asks[id]
            self.desk.fold.asks[id] = type(ask)(ask.id, ask.tool, ask.input, utc(time.time() - seconds))

    def line(self, verb: Verb, argument: str = "", key: str = "", stamp: int = 9) -> Line:
        """A line of ctl that was claimed."""
        order = Order(Stamp(f"{stamp:016x}"), OrderKind.CTL, OrderId(f"ctl{stamp}"))
        line = Line(order, 0, 1, Command(verb, argument, key))
        (self.agent.taken / order.name).write_text(line.command.encode() + "\n")
        return line

    def written(self) -> list[Any]:
        """What was put on the CLI's stdin since the last look, line by line."""
        self.running.pump()
        try:
            data = os.read(self._stdin, 1 << 16)
        except BlockingIOError:
            return []
        assert data == b"" or data.endswith(b"\n")
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def told(self) -> list[Event]:
        """What the journal was told since the last look, as it stands on disk."""
        return self._tail.read()

    def orders(self) -> list[str]:
        """The prompts that wait."""
        return sorted(path.name for path in self.agent.new.iterdir())

    def close(self) -> None:
        assert self.desk.journal is not None
        self.desk.journal.close()
        for fd in (self._stdin, self.running._fifo):
            if fd is not None:
                os.close(fd)
