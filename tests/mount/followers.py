"""A `zoefs follow` that runs, and what it printed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.living import DEADLINE, Tree, wait_for
from zoefs.contract.events import Event, decode_lines


@attrs.define
class Follower:
    """A running `zoefs follow` and what it printed so far."""

    process: subprocess.Popen[bytes]
    out: bytearray
    err: bytearray

    def said(self, *words: str) -> None:
        """Wait until all of these were printed."""
        wait_for(
            lambda: all(word.encode() in self.out for word in words),
            f"{words} in {bytes(self.out)[-300:]!r} {bytes(self.err)!r}",
        )

    def complained(self, word: str) -> None:
        """Wait until this was said on stderr."""
        wait_for(lambda: word.encode() in self.err, f"{word} in {bytes(self.err)!r}")

    def events(self) -> list[Event]:
        """What was passed on."""
        return decode_lines(bytes(self.out))[0]

    def end(self, number: int = signal.SIGINT) -> int:
        """As by Ctrl-C; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@contextlib.contextmanager
def following(tree: Tree, name: str, *words: str, mount: Path | None = None) -> Iterator[Follower]:
    """A follower, which is ended; at another mount of the tree, where one is named."""
    env = {**tree.env, "ZOEFS_MOUNT": str(mount or tree.mount)}
    argv = [sys.executable, "-m", "zoefs.cli.main", "follow", name, *words]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, env=env, **pipes) as process:  # type: ignore[call-overload]
        found = Follower(process, bytearray(), bytearray())

        def read(fd: int, into: bytearray) -> None:
            while data := os.read(fd, 1 << 16):
                into += data

        ends = ((process.stdout, found.out), (process.stderr, found.err))
        threads = [threading.Thread(target=read, args=(end.fileno(), into)) for end, into in ends]
        for thread in threads:
            thread.start()
        try:
            yield found
        finally:
            if process.poll() is None:
                process.kill()
            for thread in threads:
                thread.join(DEADLINE)


def opened(follower: Follower, agent: Path) -> bool:
    """Whether it holds `events` open."""
    return str(agent / "events") in links(follower.process.pid)


def links(pid: int) -> list[str]:
    """Where the descriptors of a process lead."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found
