"""The bare two-process Python chain: the writes, fsyncs, renames and inotify waits of a prompt's way, without FUSE.

Process A (this one, in the place of client and mount) stages the prompt, fsyncs it, renames it to a name that carries
its length, fsyncs the directory, renames it into orders/new, and waits by inotify on the journal; process B is
chain_keep.py; the agent is c_agent.c, long-lived behind a FIFO (stream) or spawned a turn under a keeper (exec).
"""

import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.chain_keep import Files
from tests.bench.disk import INotify, flags, microseconds, move, put, wait
from tests.bench.measure import Figures
from tests.bench.noop_agent import PREFIX, AgentLog, lines_argv, turn_argv
from tests.bench.workshop import BenchError, child, python, temporary


class Chain:
    def __init__(self, files: Files, log: AgentLog, prefix: bytes) -> None:
        self.files, self.log, self.prefix = files, log, prefix
        self.journal = files.journal.open("rb")
        self.watch = INotify()
        self.watch.add_watch(files.journal, flags.MODIFY)
        self.names = itertools.count(1)

    def turn(self) -> Figures:
        """One prompt and its answer, in µs: `prompt`, from before the stage to the answer read and compared; `wake`,
        from the agent's answer line to A woken by the journal line that ends the turn."""
        name = f"p{next(self.names):06}"
        text = f"a prompt of the bench, {name}\n".encode()
        start = time.monotonic_ns()
        self.send(name, text)
        woken, number = self.ended(f"{name}.{len(text)}")
        answer = self.files.turn(number).read_bytes()
        end = time.monotonic_ns()
        if answer != self.prefix + text:
            raise BenchError(f"the chain answered {answer!r} to {text!r}")
        stamp = self.log.next()
        return {"prompt": microseconds(start, end), "wake": microseconds(stamp.answered, woken)}

    def send(self, name: str, text: bytes) -> None:
        staged = self.files.orders("tmp") / name
        named = staged.with_name(f"{name}.{len(text)}")
        put(staged, text)
        move(staged, named)
        os.rename(named, self.files.orders("new") / named.name)

    def ended(self, name: str) -> tuple[int, int]:
        """When we woke to the line that ends this prompt's turn, and the turn's number."""
        while True:
            woken = wait(self.watch)
            for line in self.journal.read().splitlines():
                event = json.loads(line)
                if event["kind"] == "turn-ended" and event["prompt"] == name:
                    return woken, event["turn"]


@contextmanager
def chain(program: Path, *, stream: bool) -> Iterator[Chain]:
    """`program` is the compiled c_agent."""
    with temporary() as home:
        files, log = Files(home), AgentLog(home / "log")
        agent = lines_argv(program, log.path) if stream else turn_argv(program, log.path)
        with child(python("chain_keep", str(home), "stream" if stream else "exec", *agent), ready=True):
            yield Chain(files, log, PREFIX.encode() if stream else b"")
