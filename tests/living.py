"""A living tree for tests: HOME, MOUNT and both daemons, and the promise that nothing of it is left behind.

Everything is named by pid and start time or by this HOME in a process's environment; nothing is ended by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from zoefs.contract.events import Kind, decode_lines
from zoefs.contract.fields import strange
from zoefs.contract.home import Home
from zoefs.disk.lock import Holder, holder
from zoefs.disk.process import environment, lives, stat_fields

DEADLINE = 60.0
"""Seconds until a wait of a test gives up: an upper bound for a noisy machine, never an expectation."""


def wait_for(look: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Return once `look()` is true; AssertionError naming `what` after `deadline` seconds."""
    end = time.monotonic() + deadline
    while not look():
        assert time.monotonic() < end, f"not within {deadline} s: {what}"
        time.sleep(0.01)


@attrs.frozen
class Tree:
    """One HOME served at one MOUNT. `env` is what a client's shell has."""

    home: Path
    mount: Path
    env: dict[str, str]

    # -- the programs -------------------------------------------------------------------------------------------

    def zoefs(self, *words: str, check: bool = True, **kwargs: object) -> subprocess.CompletedProcess[str]:
        """Run the command line; with `check`, its failure fails the test and shows what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "zoefs.cli.main", *words],
            env=self.env,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=2 * DEADLINE,
            **kwargs,  # type: ignore[call-overload]
        )
        assert not check or done.returncode == 0, f"zoefs {words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done  # type: ignore[no-any-return]

    def up(self) -> None:
        """Start what does not run; return when both are ready."""
        self.zoefs("up")

    def down(self) -> None:
        """End everything."""
        self.zoefs("down")

    def part(self, name: str) -> Holder:
        """Who serves as `mount` or `supervisor`."""
        home = Home(self.home)
        return holder(home.mount_lock if name == "mount" else home.supervisor_lock)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Signal `mount` or `supervisor`, and for SIGKILL wait until it is gone."""
        mark = self.part(name).mark
        if lives(mark):
            os.kill(mark.pid, number)
        if number == signal.SIGKILL:
            wait_for(lambda: not lives(mark), f"{name} is gone")

    # -- the files ----------------------------------------------------------------------------------------------

    def agent(self, name: str) -> Path:
        """The directory of an agent in MOUNT."""
        return self.mount / "agents" / name

    def make(self, name: str, spec: str) -> Path:
        """Make an agent with this spec; returns its directory."""
        path = self.agent(name)
        path.mkdir()
        (path / "spec").write_text(spec)
        return path

    def status(self, name: str) -> str:
        """The status word."""
        return (self.agent(name) / "status").read_text().strip()

    def stat(self, name: str) -> dict[str, str]:
        """The lines of `stat`."""
        lines = (self.agent(name) / "stat").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def settle(self, name: str, deadline: float = DEADLINE) -> str:
        """Read `wait` until it answers; the word."""
        end = time.monotonic() + deadline
        while not (word := (self.agent(name) / "wait").read_text().strip()):
            assert time.monotonic() < end, f"{name} did not settle within {deadline} s"
        return word

    def receipt(self, name: str, id: str) -> tuple[dict[str, str], bytes]:
        """The receipt lines of `inbox/ID` and the answer behind them."""
        head, _, answer = (self.agent(name) / "inbox" / id).read_bytes().partition(b"\n\n")
        lines = head.decode().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}, answer

    def ended(self, name: str, id: str, deadline: float = DEADLINE) -> tuple[str, bytes]:
        """Wait for the final fate of a prompt; the fate and the answer."""
        final = {"done", "failed", "lost", "cancelled"}
        wait_for(lambda: self.receipt(name, id)[0]["receipt"] in final, f"{name}/inbox/{id} ends", deadline)
        head, answer = self.receipt(name, id)
        return head["receipt"], answer

    def shell(self, script: str, shell: str = "bash", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a script in MOUNT/agents, errors being the shell's own business."""
        done = subprocess.run(
            [shell, "-c", script],
            cwd=self.mount / "agents",
            env=self.env,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=10 * DEADLINE,
        )
        assert not check or done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    # -- nothing is left ----------------------------------------------------------------------------------------

    def processes(self) -> list[tuple[int, list[str]]]:
        """Every process that runs with this HOME in its environment, this one excepted: pid and command line."""
        found = []
        for name in os.listdir("/proc"):
            if (
                name.isdecimal()
                and int(name) != os.getpid()
                and environment(int(name)).get("ZOEFS_HOME") == str(self.home)
            ):
                with contextlib.suppress(OSError):
                    if stat_fields(int(name))[:1] not in ([], ["Z"]):
                        line = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                        found.append((int(name), [word.decode(errors="replace") for word in line]))
        return found

    def mounted(self) -> bool:
        """Whether something is mounted at MOUNT, dead or alive."""
        return any(line.split()[1] == str(self.mount) for line in Path("/proc/mounts").read_text().splitlines())

    def strange_events(self) -> list[str]:
        """What stands in the journals of agents and the table of fields does not tell: `NAME SEQ KIND: what`."""
        found = []
        for journal in sorted((self.home / "log" / "agents").glob("*.jsonl*")):
            events, _ = decode_lines(journal.read_bytes())
            for event in events:
                if event.kind in Kind.__members__.values():
                    told = strange(Kind(event.kind), event.data)
                    found += [f"{journal.name} {event.seq} {event.kind}: {what}" for what in told]
        return found

    def fifos(self) -> list[Path]:
        """FIFOs left in HOME."""
        return [path for path in self.home.rglob("*") if path.is_fifo()]


def ground(base: Path, extra: dict[str, str] | None = None) -> Tree:
    """A tree that is not up yet, below `base`."""
    home, mount = base / "home", base / "mnt"
    kept = {
        key: os.environ[key]
        for key in ("PATH", "HOME", "LANG", "TMPDIR", "ZOEFS_CLAUDE", "ZOEFS_CODEX")
        if key in os.environ
    }
    env = {**kept, "PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '/usr/bin:/bin')}"}
    env |= {"ZOEFS_HOME": str(home), "ZOEFS_MOUNT": str(mount), **(extra or {})}
    return Tree(home, mount, env)


@contextlib.contextmanager
def living(base: Path, extra: dict[str, str] | None = None, parts: Sequence[str] = ()) -> Iterator[Tree]:
    """A tree that is up; afterwards it is down and nothing of it is left, or the test fails."""
    assert os.path.exists("/dev/fuse"), "no /dev/fuse: these tests need a machine that can mount FUSE file systems"
    tree = ground(base, extra)
    try:
        tree.up()
        yield tree
    finally:
        done = tree.zoefs("down", check=False)
        with contextlib.suppress(AssertionError):  # the unmounting helper of a killed daemon takes a moment to go
            wait_for(lambda: not tree.processes(), "everything is gone", 5.0)
        left = tree.processes()
        for pid, _ in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        mounted = tree.mounted()
        if mounted:
            subprocess.run(["fusermount3", "-uz", str(tree.mount)], check=False)
        errors = "".join(path.read_text() for path in (tree.home / "log").glob("*.err"))
        assert done.returncode == 0, f"zoefs down: {done.stdout}{done.stderr}"
        assert not left, f"left running: {left}"
        assert not mounted, "left mounted"
        assert not tree.fifos(), f"left: {tree.fifos()}"
        assert not (strangers := tree.strange_events()), strangers[:20]
        assert "Traceback" not in errors, errors
