"""The reference for "close() returned to bytes at the CLI": create + fsync + rename + fsync of the directory, then
the bytes given to a no-op agent, by a FIFO (stream) or by the spawn of `sh` and the agent (exec)."""

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.disk import microseconds, move, put
from tests.bench.measure import Figures
from tests.bench.noop_agent import AgentLog, keeper, lines_argv, listening, turn_argv
from tests.bench.workshop import PATIENCE, temporary


class Handover:
    def __init__(self, home: Path, program: Path, fifo: int | None) -> None:
        self.home, self.program, self.fifo = home, program, fifo
        self.log = AgentLog(home / "log")
        self.names = itertools.count(1)

    def turn(self) -> Figures:
        """One prompt on its way, in µs: `handover`, from before the create to the agent having read the bytes."""
        name = f"p{next(self.names):06}"
        text = f"a prompt of the bench, {name}\n".encode()
        start = time.monotonic_ns()
        put(self.home / "tmp" / name, text)
        move(self.home / "tmp" / name, self.home / "new" / name)
        if self.fifo is not None:
            os.write(self.fifo, text)
        else:
            self.spawn(self.home / "new" / name)
        return {"handover": microseconds(start, self.log.next().arrived)}

    def spawn(self, taken: Path) -> None:
        agent = turn_argv(self.program, self.log.path)
        argv = keeper(self.home / "pid", taken, self.home / "raw", self.home / "exit", agent)
        subprocess.run(argv, timeout=PATIENCE, check=True)


@contextmanager
def handover(program: Path, *, stream: bool) -> Iterator[Handover]:
    """`program` is the compiled c_agent."""
    with ExitStack() as stack:
        home = stack.enter_context(temporary())
        (home / "tmp").mkdir()
        (home / "new").mkdir()
        agent = lines_argv(program, home / "log")
        fifo = stack.enter_context(listening(home / "stdin", home / "raw", agent)) if stream else None
        yield Handover(home, program, fifo)
