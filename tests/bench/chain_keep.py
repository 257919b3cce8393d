"""Process B of the bare chain, in the supervisor's place: claims an order, notes it, gives it to the agent, and when
the answer is there writes the turn, the chat and the journal. The steps on disk are those of the supervisor; there is
no fold, no codec, no check.

Call: chain_keep HOME stream|exec AGENT-ARGV...   prints "ready"; ends when its stdin does.
"""

import itertools
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs

from tests.bench.disk import INotify, append, flags, replace, wait
from tests.bench.noop_agent import keeper, listening

LIFELINE = 0  # our stdin


@attrs.frozen
class Files:
    """HOME of the chain; the journal's reader is process A."""

    home: Path

    def __attrs_post_init__(self) -> None:
        for name in ("orders/tmp", "orders/new", "orders/taken", "turns", "exit"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        for path in (self.journal, self.raw, self.chat):
            path.touch()

    @property
    def journal(self) -> Path:
        return self.home / "journal"

    @property
    def raw(self) -> Path:
        return self.home / "raw"

    @property
    def chat(self) -> Path:
        return self.home / "chat"

    def orders(self, state: str) -> Path:
        return self.home / "orders" / state

    def turn(self, number: int) -> Path:
        return self.home / "turns" / str(number)


class Keep:
    def __init__(self, files: Files, agent: list[str], fifo: int | None) -> None:
        self.files, self.agent, self.fifo = files, agent, fifo
        self.orders, self.answers = INotify(), INotify()
        self.orders.add_watch(files.orders("new"), flags.MOVED_TO)
        self.answers.add_watch(files.raw, flags.MODIFY)
        self.journal = os.open(files.journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.chat = os.open(files.chat, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.raw = files.raw.open("rb")
        self.seq = itertools.count(1)

    def run(self) -> None:
        turn = itertools.count(1)
        while True:
            wait(self.orders, LIFELINE)
            for name in sorted(os.listdir(self.files.orders("new"))):
                self.work(name, next(turn))

    def work(self, name: str, turn: int) -> None:
        taken = self.files.orders("taken") / name
        os.rename(self.files.orders("new") / name, taken)
        self.note("prompt-given", prompt=name, turn=turn)
        answer = b"".join(self.by_process(taken, turn) if self.fifo is None else self.by_fifo(self.fifo, taken))
        replace(self.files.turn(turn), answer)
        append(self.chat, b"> " + name.encode() + b"\n" + answer)
        self.note("turn-ended", prompt=name, turn=turn, reason="done")

    def note(self, kind: str, **fields: object) -> None:
        line = {"v": 1, "seq": next(self.seq), "kind": kind, **fields}
        append(self.journal, json.dumps(line).encode() + b"\n", sync=True)

    def by_fifo(self, fifo: int, taken: Path) -> Iterator[bytes]:
        os.write(fifo, taken.read_bytes())
        got = b""
        while not got.endswith(b"\n"):
            wait(self.answers, LIFELINE)
            got = self.raw.read()
            yield got

    def by_process(self, taken: Path, turn: int) -> Iterator[bytes]:
        home = self.files.home
        process = subprocess.Popen(keeper(home / "pid", taken, self.files.raw, home / "exit" / str(turn), self.agent))
        pidfd = os.pidfd_open(process.pid)
        try:
            select.select([pidfd, LIFELINE], [], [])
        finally:
            os.close(pidfd)
        if process.wait():
            raise SystemExit(f"the keeper ended with {process.returncode}")
        yield self.raw.read()


def main(home: str, transport: str, *agent: str) -> None:
    files = Files(Path(home))
    with ExitStack() as stack:
        fifo = None
        if transport == "stream":
            fifo = stack.enter_context(listening(files.home / "stdin", files.raw, list(agent)))
        keep = Keep(files, list(agent), fifo)
        print("ready", flush=True)
        keep.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
