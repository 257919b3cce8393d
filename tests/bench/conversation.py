"""A prompt to an agent of ours and its answer, by files and poll(2) only, with the same figures as the bare chain's."""

import itertools
import os
import select
import time
from pathlib import Path

from tests.bench.disk import microseconds
from tests.bench.measure import Figures
from tests.bench.noop_agent import AgentLog
from tests.bench.workshop import PATIENCE, BenchError

SETTLED = frozenset({"await", "blocked", "stopped", "failed"})


class Conversation:
    """`agent` is its directory in the mount, `log` what its no-op CLI stamps; the answer must equal the prompt."""

    def __init__(self, agent: Path, log: AgentLog) -> None:
        self.agent, self.log = agent, log
        self.names = itertools.count(1)

    def turn(self) -> Figures:
        """In µs: `handover`, from close() returned to the CLI having read the bytes; `wake`, from the CLI's answer to
        the poll that saw `await`; `prompt`, from before the open of the inbox to the answer read and compared."""
        name = f"bench-{next(self.names):06}"
        text = f"a prompt of the bench, {name}\n".encode()
        start = time.monotonic_ns()
        write_once(self.agent / "inbox" / name, text)
        closed = time.monotonic_ns()
        woken = self.settled()
        answer = (self.agent / "out").read_bytes()
        end = time.monotonic_ns()
        if answer.rstrip(b"\n") != text.rstrip(b"\n"):
            raise BenchError(f"{self.agent.name} answered {answer!r} to {text!r}")
        stamp = self.log.next()
        return {
            "handover": microseconds(closed, stamp.arrived),
            "wake": microseconds(stamp.answered, woken),
            "prompt": microseconds(start, end),
        }

    def settled(self) -> int:
        """When we woke to `await`: one handle, opened after the prompt's close; read again at 0 after each poll."""
        fd = os.open(self.agent / "status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            woken = time.monotonic_ns()
            deadline = woken + int(PATIENCE * 1e9)
            while (word := os.pread(fd, 64, 0).decode().strip()) != "await":
                if word in SETTLED:
                    raise BenchError(f"{self.agent.name} is {word}: {(self.agent / 'error').read_text().strip()}")
                ready = poller.poll(PATIENCE * 1e3)
                woken = time.monotonic_ns()
                if not ready or woken > deadline:
                    raise BenchError(f"{self.agent.name} was still {word} after {PATIENCE:g} s")
            return woken
        finally:
            os.close(fd)


def write_once(path: Path, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, text) != len(text):
            raise BenchError(f"short write to {path}")
    finally:
        os.close(fd)
