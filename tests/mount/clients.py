"""What clients of the mount do, spelled once: agents to talk to, writes as system calls, refusals."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import attrs
import pytest

from tests.living import Tree, wait_for
from zoefs.contract.spec import encode_spec
from zoefs.disk.process import stat_fields

SHELLS = ("bash", "dash")
PROMPT_MAX = 16 * 1024 * 1024
NEVER = 600
"""Seconds that an agent sleeps when a test wants it busy until it is ended."""

_numbers = itertools.count(1)


def exec_spec(*argv: str, **more: object) -> str:
    """The spec of an exec agent."""
    return encode_spec({"backend": "exec", "argv": list(argv), **more})


ECHO = exec_spec("cat")
"""Answers every prompt with its own bytes."""
BUSY = exec_spec("sh", "-c", f"echo begun; exec sleep {NEVER}")
"""Says `begun` and then works until it is interrupted."""
ORDERS = exec_spec(
    "sh",
    "-c",
    f"""
    read -r tag how delay
    [ "$delay" = 0 ] || sleep "$delay"
    case $how in
    done) echo "answer $tag" ;;
    fail) exit 3 ;;
    half) echo "half $tag"; exit 3 ;;
    hang) echo "begun $tag"; exec sleep {NEVER} ;;
    esac
    """,
)
"""Does what its prompt `TAG done|fail|half|hang SECONDS` says after so many seconds."""


def gated(gate: Path) -> str:
    """The spec of an agent that answers each prompt with its own bytes, once the file `gate` is gone."""
    gate.touch()
    return exec_spec("sh", "-c", 'while [ -e "$0" ]; do sleep 0.05; done; exec cat', str(gate))


def fresh(tree: Tree, spec: str = ECHO) -> Path:
    """A new agent under a name of its own; its directory."""
    return tree.make(f"a{next(_numbers)}", spec)


def busy(tree: Tree, spec: str = BUSY) -> Path:
    """A new agent that works on its first prompt, `inbox/first`, and whose files are at rest."""
    agent = fresh(tree, spec)
    put(agent / "inbox/first", b"go")
    wait_for(lambda: b"first" in (agent / "chat").read_bytes() and tree.stat(agent.name)["pid"], f"{agent.name} works")
    return agent


def put(path: Path, data: bytes, flags: int = 0) -> None:
    """Open, write and close, as system calls; what fails raises the OSError of its call."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, 0o600)
    try:
        put_all(fd, data)
    finally:
        os.close(fd)


def put_all(fd: int, data: bytes) -> None:
    """Write all of `data`, however many writes it takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def noise(size: int, seed: int = 0) -> bytes:
    """`size` bytes of every value, the same ones each time."""
    return random.Random(seed + size).randbytes(size)


@contextlib.contextmanager
def refused(*numbers: int) -> Iterator[None]:
    """The body must fail with one of these errnos."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 (which errno is the next line)
        yield
    assert caught.value.errno in numbers, f"{caught.value}, not {[errno.errorcode[number] for number in numbers]}"


def attempt(call: Callable[[Path], object], path: Path, *may_fail_with: int) -> int:
    """The errno of a call that may fail, with one of these only; 0 where it went through."""
    try:
        call(path)
    except OSError as failure:
        if failure.errno not in may_fail_with:
            raise
        return failure.errno
    return 0


def error(agent: Path) -> str:
    """The sentence in `error`, without its time."""
    return (agent / "error").read_text().partition(" ")[2].strip()


def fate(agent: Path, id: str) -> str:
    """The first word of a receipt; empty where nothing was said."""
    return (agent / "inbox" / id).read_text(errors="replace").partition("\n")[0].removeprefix("receipt: ")


def ids(agent: Path) -> list[str]:
    """The prompts in `inbox/`, drafts left out."""
    return [name for name in os.listdir(agent / "inbox") if not name.startswith(".")]


def word(agent: Path) -> str:
    """The status word."""
    return (agent / "status").read_text().strip()


def answers(tree: Tree, agent: Path) -> list[bytes]:
    """Once the agent is settled: the answer of each prompt in the order of the turns; every one must be done."""
    assert tree.settle(agent.name) == "await"
    found = [tree.receipt(agent.name, id) for id in ids(agent)]
    assert {head["receipt"] for head, _ in found} <= {"done"}
    return [answer for head, answer in sorted(found, key=lambda one: int(one[0]["turn"]))]


def ask(tree: Tree, agent: Path, prompt: bytes) -> bytes:
    """Send a prompt by `in`, wait, and read `out`."""
    put(agent / "in", prompt)
    assert tree.settle(agent.name) == "await"
    return (agent / "out").read_bytes()


def events(agent: Path) -> list[dict[str, Any]]:
    """The journal."""
    return [json.loads(line) for line in (agent / "events").read_text().splitlines()]


def said(tree: Tree, agent: Path) -> bytes:
    """What the newest incarnation wrote to its standard output so far."""
    found = sorted((tree.home / "agents" / agent.name / "raw").iterdir(), key=lambda path: int(path.stem))
    return found[-1].read_bytes() if found else b""


def waits_in_kernel(process: subprocess.Popen[Any]) -> bool:
    """Whether the process sleeps in the kernel, or has ended."""
    return process.poll() is not None or stat_fields(process.pid)[:1] in (["S"], ["D"])


@attrs.define
class Clients:
    """Python processes that carry out one line at a time, so that several can be told to act at the same moment."""

    processes: list[subprocess.Popen[str]]

    def at_once(self, lines: Sequence[str]) -> list[str]:
        """Give each its line, a Python statement; what came of each: `ok` or the errno's name."""
        for process, line in zip(self.processes, lines, strict=True):
            pipe(process.stdin).write(line + "\n")
        for process in self.processes:
            pipe(process.stdin).flush()
        return [pipe(process.stdout).readline().strip() for process in self.processes]


_CLIENT = """
import errno, os, sys
from tests.mount.clients import put
for line in sys.stdin:
    try:
        exec(line)
        said = "ok"
    except OSError as error:
        said = errno.errorcode[error.errno]
    print(said, flush=True)
"""


@contextlib.contextmanager
def clients(count: int) -> Iterator[Clients]:
    """So many client processes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    root = Path(__file__).parents[2]
    with contextlib.ExitStack() as stack:
        argv = [sys.executable, "-c", _CLIENT]
        processes = [
            stack.enter_context(subprocess.Popen(argv, cwd=root, **pipes))  # type: ignore[call-overload]
            for _ in range(count)
        ]
        yield Clients(processes)
        for process in processes:
            pipe(process.stdin).close()


def pipe(end: IO[str] | None) -> IO[str]:
    """The end of a pipe that was asked for."""
    assert end is not None
    return end


def needs(*programs: str) -> None:
    """Fail where a program is missing that the test drives: what it does here would go untried."""
    missing = [program for program in programs if shutil.which(program) is None]
    assert not missing, f"not installed: {' '.join(missing)}; scripts/setup.sh VENV dev installs what the tests drive"


class Metronome:
    """Notices when this machine stood still, so that a test of promptness need not believe it was the product."""

    def __init__(self) -> None:
        self.gaps: list[tuple[float, float]] = []
        self._last = time.time()

    def tick(self, longest: float = 0.2) -> None:
        """To be called every few milliseconds."""
        now = time.time()
        if now - self._last > longest:
            self.gaps.append((self._last, now))
        self._last = now

    def stood_still(self, begin: float, end: float) -> bool:
        """Whether there was a gap between these times."""
        return any(first < end and begin < last for first, last in self.gaps)
