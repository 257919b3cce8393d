"""The two programs behind the tree: started detached, found by their locks, ended by pidfd. Never by name.

Rules. A started part belongs to nobody: a session of its own, no terminal, no descriptor of its caller, `/` as its
directory, its complaints appended to HOME/log. What ends a part holds its pidfd before it looks at its mark, so the
signal cannot reach a process that came later under the same pid.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from pathlib import Path

import attrs

import zoefs
from zoefs.cli.fail import Failure
from zoefs.contract.home import Home
from zoefs.contract.words import Exit
from zoefs.disk.files import read
from zoefs.disk.lock import Holder, holder
from zoefs.disk.mounts import mounts
from zoefs.disk.process import Mark, lives

_CODE = {
    "mount": "from pathlib import Path; from zoefs.mount.daemon import run; "
    "sys.exit(run(Path(sys.argv[1]), Path(sys.argv[2]), False))",
    "supervisor": "from supervisor.main import main; sys.exit(main())",
}
"""The least that starts each part: a start is counted in imports."""
DEAD = frozenset({errno.ENOTCONN, errno.ECONNABORTED})
"""What a mount answers whose daemon is dead."""


@attrs.frozen
class Started:
    """A part that we have started: our child's pid, and where in its err file its own complaints begin."""

    pid: int
    since: int


@attrs.frozen
class Part:
    """One program of a HOME."""

    name: str
    home: Home
    mount: Path

    @property
    def err(self) -> Path:
        """Where its complaints go."""
        return self.home.log / ("zoefs.err" if self.name == "mount" else f"{self.name}.err")

    @property
    def lock(self) -> Path:
        """What it holds for its life."""
        return self.home.mount_lock if self.name == "mount" else self.home.supervisor_lock

    @property
    def holder(self) -> Holder:
        """Who runs, or last ran, as this part."""
        return holder(self.lock)

    @property
    def argv(self) -> list[str]:
        """How it is started: by this Python, from where this zoefs was imported, whatever the directory."""
        root = str(Path(zoefs.__file__).resolve().parent.parent)
        code = f"import os, sys; os.chdir('/'); sys.path.insert(0, {root!r}); {_CODE[self.name]}"
        rest = (
            [str(self.home.path), str(self.mount)] if self.name == "mount" else ["run", "--home", str(self.home.path)]
        )
        return [sys.executable, "-P", "-c", code, *rest]

    def start(self) -> Started:
        """Start it. It goes on when we end."""
        err = os.open(self.err, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            actions: list[tuple[int, int] | tuple[int, int, int] | tuple[int, int, str, int, int]]
            actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
            actions += [(os.POSIX_SPAWN_DUP2, err, 1), (os.POSIX_SPAWN_DUP2, err, 2)]
            actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inherited()]
            since = os.fstat(err).st_size
            env = {**os.environ, "ZOEFS_HOME": str(self.home.path), "ZOEFS_MOUNT": str(self.mount)}
            env.pop("ZOEFS_AGENT", None)
            pid = os.posix_spawn(
                sys.executable,
                self.argv,
                env,
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE],
            )
            return Started(pid, since)
        finally:
            os.close(err)

    def complaint(self, since: int, lines: int = 5) -> str:
        """The last lines of its err file that begin at byte `since` or later."""
        data = (read(self.err) or b"")[since:]
        return "\n".join(data.decode(errors="replace").strip().splitlines()[-lines:])


def _inherited() -> list[int]:
    """Descriptors that a child would keep: those a caller left open for us and did not mark."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


def exit_code(pid: int) -> int | None:
    """How a child of ours ended (128+n for signal n); None while it runs."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if not done:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def finish(mark: Mark, number: signal.Signals, seconds: float) -> bool:
    """Send a signal to that very process and wait for its end; whether it is gone."""
    try:
        fd = os.pidfd_open(mark.pid)
    except (ProcessLookupError, ValueError):
        return True
    except OSError as error:
        raise Failure(Exit.FAILED, f"pid {mark.pid} cannot be signalled: {error.strerror}") from None
    try:
        if not lives(mark):
            return True
        signal.pidfd_send_signal(fd, number)
        return bool(select.select([fd], [], [], seconds)[0])
    except ProcessLookupError:
        return True
    except PermissionError:
        raise Failure(Exit.REFUSED, f"pid {mark.pid} is another user's") from None
    finally:
        os.close(fd)


def is_mounted(path: Path) -> bool:
    """Whether something is mounted at `path`, by the kernel's list, without touching it."""
    return any(mount.path == path for mount in mounts())


def detach(path: Path) -> bool:
    """Take away whatever is mounted at `path`, busy or stale; whether nothing is left."""
    for _ in range(3):
        if not is_mounted(path):
            return True
        try:
            pid = os.posix_spawnp(
                "fusermount3",
                ["fusermount3", "-uz", "--", str(path)],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)],
            )
        except FileNotFoundError:
            raise Failure(Exit.FAILED, f"{path} is still mounted, and there is no fusermount3 to unmount it") from None
        os.waitpid(pid, 0)
        time.sleep(0.02)
    return not is_mounted(path)
