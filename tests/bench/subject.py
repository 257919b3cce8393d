"""The seam: what the benches need of the thing they measure, and zoefs as it is driven from outside, by its CLI."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tests.bench.workshop import PATIENCE, BenchError, detach, temporary


class Subject(Protocol):
    def up(self) -> None:
        """Start mount daemon and supervisor; return when they are ready."""

    def down(self) -> None:
        """End both; nothing is left mounted or running."""

    def spawn(self, name: str, settings: Sequence[str]) -> Path:
        """An agent made with these spec settings (KEY=TOML): its directory in the mount."""

    def mount_pid(self) -> int: ...

    def supervisor_pid(self) -> int: ...


class Zoefs:
    """zoefs on a HOME and a MOUNT of its own. `env` is added to what the programs inherit."""

    def __init__(self, command: Sequence[str], home: Path, mount: Path, env: Mapping[str, str] | None = None) -> None:
        self.command, self.home, self.mount = list(command), home, mount
        outside = {key: value for key, value in os.environ.items() if not key.startswith("ZOEFS_")}
        self.env = outside | {"ZOEFS_HOME": str(home), "ZOEFS_MOUNT": str(mount)} | dict(env or {})
        self.said = home.with_name(home.name + ".said")  # not a pipe: the daemons may keep it open

    def run(self, *words: str) -> None:
        with self.said.open("w") as out:
            argv = [*self.command, *words]
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env, timeout=3 * PATIENCE, check=False
            )
        if done.returncode:
            raise BenchError(f"{' '.join(argv)}: exit {done.returncode}: {self.said.read_text()[-500:].strip()}")

    def up(self) -> None:
        self.run("up", "--without", "conductor,bonfire")

    def spawn(self, name: str, settings: Sequence[str]) -> Path:
        self.run("spawn", name, *(word for setting in settings for word in ("--set", setting)))
        return self.mount / "agents" / name

    def mount_pid(self) -> int:
        return self.owner("mount")

    def supervisor_pid(self) -> int:
        return self.owner("supervisor")

    def owner(self, part: str) -> int:
        """The first word of the part's lock file."""
        return int((self.home / f"{part}.lock").read_text().split()[0])

    def down(self) -> None:
        """`zoefs down`; whatever of the two it leaves behind is killed by pid and reported as an error."""
        with ExitStack() as stack:
            pidfds = self.pidfds(stack)
            stack.callback(detach, self.mount)
            try:
                self.run("down")
            finally:
                left = [part for part, pidfd in pidfds.items() if not ended(pidfd)]
                for part in left:
                    signal.pidfd_send_signal(pidfds[part], signal.SIGKILL)
            if left:
                raise BenchError(f"`zoefs down` left {' and '.join(left)} running")

    def pidfds(self, stack: ExitStack) -> dict[str, int]:
        found = {}
        for part in ("mount", "supervisor"):
            try:
                found[part] = os.pidfd_open(self.owner(part))
            except (OSError, ValueError, IndexError):  # never started, or gone already
                continue
            stack.callback(os.close, found[part])
        return found


def ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], PATIENCE)[0])


def find_zoefs() -> list[str] | None:
    """ZOEFS_BENCH_COMMAND, else the `zoefs` beside this Python; None where there is none."""
    named = os.environ.get("ZOEFS_BENCH_COMMAND")
    if named:
        return named.split()
    beside = Path(sys.executable).with_name("zoefs")
    return [str(beside)] if beside.exists() else None


@contextmanager
def installed(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[Zoefs]:
    """A HOME and a MOUNT, nothing started yet."""
    with temporary() as directory:
        mount = directory / "mount"
        mount.mkdir()
        yield Zoefs(command, directory / "home", mount, env)


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[Zoefs]:
    with installed(command, env) as zoefs:
        try:
            zoefs.up()
            yield zoefs
        finally:
            zoefs.down()
