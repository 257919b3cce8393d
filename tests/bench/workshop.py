"""What the benches build and start: C programs, child processes, reference mounts. All of it ends with its context.

Children are started under `setpriv --pdeathsig`, so that they end even when the bench is killed.
"""

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

HERE = Path(__file__).parent
REPO = HERE.parent.parent
PATIENCE = 10.0  # seconds for a child to come up or to end


class BenchError(Exception):
    """The bench cannot measure what it is for; the sentence says why."""


@contextmanager
def temporary(under: Path | None = None) -> Iterator[Path]:
    """A directory of our own, removed at the end. It is on /tmp: set TMPDIR to measure another disk."""
    path = Path(tempfile.mkdtemp(prefix="zoefs-bench-", dir=under))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def compiled(name: str, into: Path) -> Path:
    """The program of NAME.c; libfuse3's flags for the server only."""
    flags = []
    if name == "c_server":
        query = ["pkg-config", "--cflags", "--libs", "fuse3"]
        flags = subprocess.run(query, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    program = into / name
    source = str(HERE / f"{name}.c")
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), source, *flags], check=True)
    return program


def python(module: str, *args: str) -> list[str]:
    """The argv of a sibling module as a program; run it in REPO."""
    return [sys.executable, "-m", f"tests.bench.{module}", *args]


@contextmanager
def child(argv: list[str], *, ready: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A child process, its stdin a pipe; with `ready` it must first print that word. Ended by EOF, TERM, KILL."""
    guarded = ["setpriv", "--pdeathsig", "TERM", *argv]
    pipe = subprocess.PIPE
    process = subprocess.Popen(guarded, stdin=pipe, stdout=pipe if ready else None, text=True, cwd=REPO)
    try:
        if ready:
            await_word(process, "ready")
        yield process
    finally:
        end(process)


def await_word(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
    line = process.stdout.readline().strip() if readable else ""
    if line != word:
        raise BenchError(f"{process.args!r} said {line!r} instead of {word!r}")


def end(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE)
    if process.stdout is not None:
        process.stdout.close()


# --- reference mounts


@attrs.frozen
class TreeOptions:
    """The reference tree's shape and timeouts (s); `depth=2` gives paths as long as MOUNT/agents/NAME/status."""

    dirs: int = attrs.field(default=4, converter=int)
    depth: int = attrs.field(default=2, converter=int)
    dir_attr: float = attrs.field(default=300, converter=float)
    dir_entry: float = attrs.field(default=300, converter=float)
    top_entry: float = attrs.field(default=300, converter=float)  # of `agents`, which never changes
    file_attr: float = attrs.field(default=300, converter=float)
    file_entry: float = attrs.field(default=300, converter=float)
    default_permissions: int = attrs.field(default=1, converter=int)

    @classmethod
    def parse(cls, words: Iterable[str]) -> "TreeOptions":
        """From key=value words; an unknown key or a bad number is a TypeError or ValueError."""
        return cls(**dict(word.split("=", 1) for word in words))

    def words(self) -> list[str]:
        return [f"{key}={value}" for key, value in attrs.asdict(self).items()]

    def file(self, mount: Path) -> Path:
        return mount / "agents/a0/f0" if self.depth > 1 else mount / "a0/f0"


@attrs.frozen
class Server:
    pid: int
    mount: Path


def is_mounted(path: Path) -> bool:
    """From the kernel's table: never touches the mount itself, which may be dead."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return os.fspath(path) in points


def detach(path: Path) -> None:
    if is_mounted(path):
        subprocess.run(["fusermount3", "-uz", str(path)], check=False, timeout=PATIENCE)


@contextmanager
def mounted(program: list[str], name: str, options: TreeOptions, under: Path) -> Iterator[Server]:
    """A reference server on a mount point of its own below `under`."""
    mount = under / f"mount-{name}"
    mount.mkdir()
    try:
        with child([*program, str(mount), *options.words()], ready=True) as process:
            yield Server(process.pid, mount)
    finally:
        detach(mount)
