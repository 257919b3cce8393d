"""Readers of `wait`, many at once: threads of a process of their own, each of which reads again until it gets a word.

Usage: python -m tests.mount.waiters FILE COUNT. Says `parked` once each has read once, then a word for each that got
one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.living import DEADLINE, Tree, wait_for


@attrs.frozen
class Readers:
    """The process; what it said is in a file, so that nobody has to listen."""

    process: subprocess.Popen[bytes]
    said: Path

    def words(self) -> list[str]:
        """What was read so far."""
        return self.said.read_text().splitlines()[1:]


@contextlib.contextmanager
def parked(tree: Tree, agent: Path, count: int) -> Iterator[Readers]:
    """So many readers, all of whom have begun; ended with the body, if they did not end by themselves."""
    said = tree.home.parent / f"waiters-{agent.name}"
    argv = [sys.executable, "-m", "tests.mount.waiters", str(agent / "wait"), str(count)]
    with said.open("wb") as file:
        process = subprocess.Popen(argv, cwd=Path(__file__).parents[2], stdout=file)
    with process:
        try:
            wait_for(lambda: said.read_text().startswith("parked\n"), f"{count} readers wait")
            yield Readers(process, said)
        finally:
            process.kill()
            process.wait(DEADLINE)
            said.unlink()


def _main(path: str, count: int) -> None:
    begun = threading.Barrier(count + 1)

    def read() -> None:
        fd = os.open(path, os.O_RDONLY)
        word = os.pread(fd, 100, 0)
        begun.wait()
        while not word:
            word = os.pread(fd, 100, 0)
        os.write(1, word)

    threads = [threading.Thread(target=read) for _ in range(count)]
    for thread in threads:
        thread.start()
    begun.wait()
    os.write(1, b"parked\n")
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
