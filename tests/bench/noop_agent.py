"""The Python side of c_agent.c: its argv, the log it stamps, and the keeper it is started under."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.bench.workshop import PATIENCE, BenchError, child

# As the supervisor's keeper: notes its pid, runs the CLI on the taken file, appends its stdout, notes its exit.
KEEPER = 'echo $$ >"$1"; taken=$2 raw=$3 code=$4; shift 4; "$@" <"$taken" >>"$raw"; echo $? >"$code"'
LISTEN = 'fifo=$1 raw=$2; shift 2; exec "$@" <"$fifo" >>"$raw"'
PREFIX = "re:"  # what `lines` puts before its answer


def keeper(pid: Path, taken: Path, raw: Path, code: Path, agent: list[str]) -> list[str]:
    return ["sh", "-c", KEEPER, "keeper", str(pid), str(taken), str(raw), str(code), *agent]


@contextmanager
def listening(fifo: Path, raw: Path, agent: list[str]) -> Iterator[int]:
    """A long-lived agent whose stdin is a new FIFO and whose stdout is appended to `raw`: the FIFO's writing end."""
    os.mkfifo(fifo, 0o600)
    fd = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)  # read-write: neither end waits for the other
    try:
        with child(["sh", "-c", LISTEN, "listen", str(fifo), str(raw), *agent]):
            yield fd
    finally:
        os.close(fd)


@attrs.frozen
class Stamp:
    """One turn as the agent saw it: CLOCK_MONOTONIC in ns, the prompt's length in bytes."""

    arrived: int
    answered: int
    size: int


class AgentLog:
    """Reads the stamps one by one; each turn must take its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        path.touch()

    def next(self) -> Stamp:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                line = file.readline()
            if line.endswith(b"\n"):
                self.offset += len(line)
                return Stamp(*map(int, line.split()))
            os.sched_yield()
        raise BenchError(f"the agent stamped no turn in {self.path}")


def turn_argv(program: Path, log: Path) -> list[str]:
    return [str(program), "turn", str(log)]


def lines_argv(program: Path, log: Path) -> list[str]:
    return [str(program), "lines", str(log), PREFIX]


def claude_wrapper(program: Path, log: Path, into: Path) -> Path:
    """A program that takes claude's own arguments, for ZOEFS_CLAUDE."""
    wrapper = into / "claude"
    wrapper.write_text(f'#!/bin/sh\nexec {program} claude {log} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper
