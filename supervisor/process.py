"""The only forker. Starts a CLI under its keeper, tells whether it lives, ends it with everything it started.

Theory. A keeper (keeper.sh) holds the agent's lock by a descriptor that it inherited, so "the lock is held" and "a
keeper lives" are the same fact from the fork on, whoever asks. Its start mark is written before the CLI starts: no
mark and a free lock mean that the CLI never ran. Processes are named by pid and start time, and signalled through
pidfds. The supervisor is a child subreaper, so what a dead CLI leaves behind becomes our child; after an adoption,
when orphans went elsewhere, they are found by ZOEFS_AGENT in their environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from zoefs.contract.home import AgentHome
from zoefs.disk.files import read_text
from zoefs.disk.lock import try_lock
from zoefs.disk.process import Mark, environment, lives, start_time

_KEEPER = Path(__file__).with_name("keeper.sh")
_STDIN, _FIFO, _LOCK = 7, 8, 9
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphans of our descendants become our children (prctl(2)). Raises OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap() -> None:
    """Collect every child that has ended: keepers and orphans alike."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@attrs.frozen
class StartMark:
    """What a keeper wrote before it started the CLI: itself, and which incarnation."""

    keeper: Mark
    inc: int


def start_mark(agent: AgentHome) -> StartMark | None:
    """The mark of the newest keeper of an agent; None where none got that far."""
    words = read_text(agent.pid).split()
    try:
        return StartMark(Mark(int(words[0]), int(words[1]), words[3]), int(words[2]))
    except (IndexError, ValueError):
        return None


def exit_code(agent: AgentHome, inc: int) -> int | None:
    """The shell exit code of an incarnation; None where its keeper did not write one."""
    text = read_text(agent.exit(inc))
    return int(text) if text.isdecimal() else None


def open_pidfd(mark: Mark) -> int | None:
    """A descriptor for that very process, readable once it has ended; None where it has ended.

    Raises OSError where this process can open no more.
    """
    if mark.pid <= 0:
        return None
    try:
        fd = os.pidfd_open(mark.pid)
    except ProcessLookupError:
        return None
    if not lives(mark):
        os.close(fd)
        return None
    return fd


def send(pidfd: int, number: signal.Signals) -> None:
    """Signal a process by its pidfd; one that has ended is no error."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def start(
    agent: AgentHome,
    inc: int,
    lock: int,
    boot: str,
    cwd: Path,
    argv: Sequence[str],
    env: Mapping[str, str],
    prompt: Path | None,
    files: int = 0,
) -> Mark:
    """Start a CLI under a new keeper; returns the keeper's mark.

    `lock` is a descriptor that holds the agent's lock; the keeper keeps it, the caller closes its own. `prompt` is
    the file to be the CLI's stdin (transport `turn`); None makes a FIFO (transport `stream`). `files`: how many it may
    have open at once, -1 for any number; 0 leaves it what we may. Raises OSError.
    """
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as undone:

        def opened(path: Path, flags: int) -> int:
            fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, fd)
            return fd

        agent.pid.unlink(missing_ok=True)
        opened(agent.pid, os.O_WRONLY | os.O_CREAT)  # the keeper writes both, with the umask of its CLI
        os.write(opened(agent.exit(inc), os.O_WRONLY | os.O_CREAT), b"    \n")
        given: list[tuple[int, int]] = []
        if prompt is None:
            agent.stdin.unlink(missing_ok=True)
            undone.callback(agent.stdin.unlink, missing_ok=True)
            os.mkfifo(agent.stdin, 0o600)
            given.append((opened(agent.stdin, os.O_RDWR), _FIFO))
            given.append((opened(agent.stdin, os.O_RDONLY), _STDIN))
        else:
            given.append((opened(prompt, os.O_RDONLY), _STDIN))
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        given += [
            (opened(Path(os.devnull), os.O_RDONLY), 0),
            (opened(agent.raw(inc), append), 1),
            (opened(agent.err(inc), append), 2),
            (lock, _LOCK),
        ]
        # Sources are first moved above every target, so that no target overwrites a source still needed.
        actions: list[tuple[object, ...]] = []
        for source, target in given:
            high = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _LOCK + 1)
            stack.callback(os.close, high)
            actions.append((os.POSIX_SPAWN_DUP2, high, target))
        words = list(argv)
        if "=" in words[0]:  # env would take it for NAME=value
            words = ["/bin/sh", "-c", 'exec "$@"', "sh", *words]
        limit = "unlimited" if files < 0 else str(files or "")
        pid = os.posix_spawn(
            "/bin/sh",
            ["sh", str(_KEEPER), str(agent.path), str(inc), boot, str(cwd), limit, *words],
            dict(env),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGQUIT],
        )
        undone.pop_all()
    return Mark(pid, start_time(pid), boot)


def keeper_lives(agent: AgentHome) -> bool:
    """Whether a keeper of this agent lives: the kernel's word, by the lock.

    Where none was ever started the lock is left alone: somebody may be about to retire the agent.
    """
    if not agent.pid.exists():
        return False
    fd = try_lock(agent.lock)
    if fd is None:
        return True
    os.close(fd)
    return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{task}/children").read_text()
                found += map(int, text.split())
    return found


def descendants(pid: int) -> list[int]:
    """Every process below `pid` now, parents first."""
    found: list[int] = []
    todo = [pid]
    while todo:
        below = _children(todo.pop())
        found += below
        todo += below
    return found


def _belongs(pid: int, agent: AgentHome) -> bool:
    """By its environment, or, where that was scrubbed, by standard descriptors that lead into the agent's directory."""
    env = environment(pid)
    if env.get("ZOEFS_AGENT") == agent.name and env.get("ZOEFS_HOME") == str(agent.path.parent.parent):
        return True
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(f"{agent.path}/"):
                return True
    return False


def _left_behind(agent: AgentHome, keeper: int, everywhere: bool) -> Iterator[int]:
    """Processes of the agent that the death of its CLI left: our own children, or anywhere after an adoption."""
    me = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()] if everywhere else _children(me)
    for pid in pids:
        if pid not in (me, keeper) and not _keeps(pid) and _belongs(pid, agent):
            yield pid
            yield from descendants(pid)


def signal_cli(agent: AgentHome, keeper: Mark, number: signal.Signals) -> bool:
    """Signal everything below the keeper, not the keeper, so that the exit code is still recorded.

    False, and nothing signalled, where the CLI has not begun: its process is not there, or is still the keeper's
    shell, to which a signal means nothing.
    """
    below = descendants(keeper.pid) if lives(keeper) else []
    if not below or _keeps(below[0]):
        return False
    for pid in below:
        _signal(Mark(pid, start_time(pid)), number)
    return True


def _keeps(pid: int) -> str:
    """The agent's directory that a keeper was started for; empty where the process is no keeper."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return os.fsdecode(words[2]) if len(words) > 2 and words[1].endswith(b"/" + os.fsencode(_KEEPER.name)) else ""


def is_keeper(agent: AgentHome, mark: Mark) -> bool:
    """Whether that very process runs and keeps this agent: a mark on disk is a claim, and we end what it names."""
    return lives(mark) and _keeps(mark.pid) == str(agent.path)


def kill_tree(agent: AgentHome, keeper: Mark, everywhere: bool) -> set[Mark]:
    """SIGKILL all that runs for the agent except its keeper; returns what there was."""
    below = descendants(keeper.pid) if lives(keeper) else []
    pids = {*below, *_left_behind(agent, keeper.pid, everywhere)}
    found = {Mark(pid, start) for pid in pids if (start := start_time(pid))}
    for mark in found:
        _signal(mark, signal.SIGKILL)
    return found


def _signal(mark: Mark, number: signal.Signals) -> None:
    """Signal that very process: the pidfd is opened first, then it is seen to be the one that was meant."""
    try:
        fd = os.pidfd_open(mark.pid)
    except ProcessLookupError:
        return
    try:
        if lives(mark):
            send(fd, number)
    finally:
        os.close(fd)
