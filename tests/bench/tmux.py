"""What everyone else does: `tmux send-keys`, then `tmux capture-pane` in a tight loop until the answer is there.

The tmux server is private (its own socket, no configuration) and ended by its own kill-server.
"""

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.disk import microseconds
from tests.bench.measure import Figures
from tests.bench.noop_agent import PREFIX, AgentLog, lines_argv
from tests.bench.workshop import PATIENCE, BenchError, temporary


class Tmux:
    def __init__(self, home: Path, program: Path) -> None:
        self.command = ["tmux", "-S", str(home / "socket"), "-f", "/dev/null"]
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("TMUX")} | {"TERM": "xterm"}
        self.log = AgentLog(home / "log")
        self.names = itertools.count(1)
        self.run("new-session", "-d", "-s", "bench", "-x", "80", "-y", "24", *lines_argv(program, self.log.path))

    def run(self, *words: str) -> str:
        argv = [*self.command, *words]
        return subprocess.run(
            argv, stdout=subprocess.PIPE, text=True, env=self.env, timeout=PATIENCE, check=True
        ).stdout

    def turn(self) -> Figures:
        """In µs: `prompt`, from before send-keys to the answer seen; `wake`, from the agent's answer to it seen."""
        text = f"prompt-{next(self.names):06}"
        start = time.monotonic_ns()
        self.run("send-keys", "-t", "bench", text, "Enter")
        while PREFIX + text not in self.run("capture-pane", "-p", "-t", "bench").splitlines():
            if time.monotonic_ns() - start > PATIENCE * 1e9:
                raise BenchError(f"{text} was not answered on the screen")
        end = time.monotonic_ns()
        return {"prompt": microseconds(start, end), "wake": microseconds(self.log.next().answered, end)}


@contextmanager
def tmux(program: Path) -> Iterator[Tmux]:
    """`program` is the compiled c_agent."""
    with temporary() as home:
        server = None
        try:
            server = Tmux(home, program)
            yield server
        finally:
            subprocess.run(["tmux", "-S", str(home / "socket"), "kill-server"], check=False, stderr=subprocess.DEVNULL)
