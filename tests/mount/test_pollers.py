"""Hundreds sleep in poll(2), select(2) and epoll(7), or read `wait`: each is woken for what it sleeps for, at its time.

None is woken for another agent, or for what it has read; who goes leaves nothing behind; the mount waits for none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from tests.living import DEADLINE, Tree, wait_for
from tests.mount.clients import BUSY, ask, busy, fresh, gated, put, refused, waits_in_kernel, word
from tests.mount.daemon import belongings
from tests.mount.waiters import parked

FILES = ("status", "wait", "out", "events", "chat")
"""What tells of change. The first is first to tell of a prompt, the second and third tell of an end only."""
WAITERS = 500
PROCESSES = 50
QUIET = 0.3
"""Seconds in which whoever is to be woken for nothing would have been."""
HOWS = ("poll", "select", "epoll")


# -- one program with many descriptors ---------------------------------------------------------------------------------


@attrs.frozen
class Sleeper:
    """Descriptors that were read to their ends, and which of them are readable now, by one of the system calls."""

    how: str
    fds: dict[int, tuple[str, str]]

    def ready(self, seconds: float) -> set[tuple[str, str]]:
        """The readable ones, by agent and file, as soon as there is one."""
        if self.how == "select":
            return {self.fds[fd] for fd in select.select(list(self.fds), [], [], seconds)[0]}
        with contextlib.closing(select.epoll()) as poller:
            asked = select.poll() if self.how == "poll" else poller
            for fd in self.fds:
                asked.register(fd, select.POLLIN)
            found = asked.poll(seconds * 1000 if self.how == "poll" else seconds)
            return {self.fds[fd] for fd, _ in found}

    def read(self) -> None:
        """Read all that is there."""
        for fd, (_, name) in self.fds.items():
            if name in ("events", "chat"):
                while os.read(fd, 1 << 16):
                    pass
            else:
                os.pread(fd, 1 << 20, 0)

    def quiet(self) -> bool:
        """Whether there is nothing more once all is read."""
        self.read()
        return not self.ready(QUIET)


@contextlib.contextmanager
def sleeping(how: str, agents: list[Path], count: int) -> Iterator[Sleeper]:
    """So many descriptors of the files that tell of change, as many of each agent."""
    fds: dict[int, tuple[str, str]] = {}
    with contextlib.ExitStack() as stack:
        while len(fds) < count:
            for agent in agents:
                for name in FILES:
                    fd = os.open(agent / name, os.O_RDONLY | os.O_NONBLOCK)
                    stack.callback(os.close, fd)
                    fds[fd] = agent.name, name
        sleeper = Sleeper(how, fds)
        sleeper.read()
        yield sleeper


@pytest.mark.parametrize("how", HOWS)
def test_many_descriptors_each_tell_of_their_own(shared: Tree, base: Path, how: str) -> None:
    gate = base / "gate"
    agents = [fresh(shared, gated(gate)), *(fresh(shared) for _ in range(9))]
    gate.unlink()
    for agent in agents:
        ask(shared, agent, b"one\n")
    gate.touch()
    mine = agents[0].name
    with sleeping(how, agents, WAITERS) as sleeper:
        assert sleeper.ready(QUIET) == set()
        put(agents[0] / "in", b"two\n")
        seen: set[tuple[str, str]] = set()
        while not {(mine, "status"), (mine, "events"), (mine, "chat")} <= seen:
            found = sleeper.ready(DEADLINE)
            assert found, f"nothing in {DEADLINE} s after {seen}"
            seen |= found
        assert seen == {(mine, "status"), (mine, "events"), (mine, "chat")}
        wait_for(lambda: sleeper.quiet(), "it works on, and says nothing more")
        gate.unlink()
        wait_for(lambda: sleeper.ready(DEADLINE) == {(mine, name) for name in FILES}, "all tell of the end")
        assert shared.settle(mine) == "await"
        sleeper.read()
        assert sleeper.ready(QUIET) == set()


def test_a_verb_that_changes_no_word_wakes_no_reader_of_status(shared: Tree) -> None:
    """An interrupt of an agent at rest is carried out, which `wait` tells of; `status` says what it said."""
    agent = fresh(shared)
    ask(shared, agent, b"one\n")
    with sleeping("poll", [agent], len(FILES)) as sleeper:
        for _ in range(3):
            put(agent / "ctl", b"interrupt\n")
            wait_for(lambda: (agent.name, "wait") in sleeper.ready(DEADLINE), "it is carried out")
            assert (agent.name, "status") not in sleeper.ready(0)
            assert (agent.name, "out") not in sleeper.ready(0)
            sleeper.read()


# -- many programs -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def pollers(base: Path, files: list[list[Path]]) -> Iterator[list[tuple[subprocess.Popen[bytes], Path]]]:
    """A process for each list of files, asleep; and the file in which it says what woke it."""
    script = Path(__file__).with_name("poller.py")
    found: list[tuple[subprocess.Popen[bytes], Path]] = []
    with contextlib.ExitStack() as stack:
        for number, paths in enumerate(files):
            said = base / f"said-{number}"
            argv = [sys.executable, "-I", "-S", str(script), HOWS[number % len(HOWS)], *map(str, paths)]
            with said.open("wb") as file:
                process = stack.enter_context(subprocess.Popen(argv, stdout=file, stderr=file, restore_signals=True))
            stack.callback(process.kill)
            found.append((process, said))
        for process, said in found:
            wait_for(lambda said=said: said.read_text() == "asleep\n", "it sleeps")  # type: ignore[misc]
            wait_for(lambda process=process: waits_in_kernel(process), "it sleeps")  # type: ignore[misc]
        yield found


def test_many_processes_are_woken_for_their_own_and_end_when_told(shared: Tree, base: Path) -> None:
    """Ten files each: of two agents for half of them, of two others for the other half."""
    agents = [fresh(shared, BUSY) for _ in range(2)] + [fresh(shared) for _ in range(2)]
    before = belongings(shared)
    halves = [[agent / name for agent in two for name in FILES] for two in (agents[:2], agents[2:])]
    with pollers(base, halves * (PROCESSES // 2)) as found:
        during = belongings(shared)
        assert during.tasks <= before.tasks + 2, "who sleeps in poll(2) is no task of the daemon"
        put(agents[0] / "inbox/first", b"go")
        woken, others = found[::2], found[1::2]
        for _, said in woken:
            wait_for(lambda said=said: len(said.read_text().splitlines()) > 1, "it was woken")  # type: ignore[misc]
            numbers = {int(number) for line in said.read_text().splitlines()[1:] for number in line.split()}
            assert numbers <= {FILES.index(name) for name in ("status", "events", "chat")}
        wait_for(lambda: (agents[0] / "chat").stat().st_size > 0, "it works")
        time.sleep(QUIET)
        assert {said.read_text() for _, said in others} == {"asleep\n"}
        assert all(process.poll() is None for process, _ in found)
        for number, (process, _) in enumerate(found):
            process.send_signal((signal.SIGINT, signal.SIGKILL, signal.SIGTERM)[number % 3])
        for number, (process, said) in enumerate(found):
            ended = process.wait(DEADLINE)
            assert ended == (-signal.SIGINT, -signal.SIGKILL, -signal.SIGTERM)[number % 3], said.read_text()
    put(agents[0] / "ctl", b"kill\n")
    assert shared.settle(agents[0].name) == "stopped"
    wait_for(lambda: belongings(shared).descriptors == before.descriptors, "nothing of them is left")
    assert belongings(shared).tasks <= before.tasks + 2


# -- wait --------------------------------------------------------------------------------------------------------------


def test_many_readers_of_wait_hinder_nobody_and_all_hear(shared: Tree) -> None:
    """Each holds one task and nothing else; all get the word, once, when it settles."""
    agent, other = busy(shared), fresh(shared)
    before = belongings(shared)
    with parked(shared, agent, WAITERS) as readers:
        wait_for(lambda: belongings(shared).tasks >= before.tasks + WAITERS, "all wait")
        listed = set(os.listdir(agent))
        for _ in range(20):
            assert shared.shell(f"ls {agent.name} > /dev/null; cat {agent.name}/status {other.name}/status").stdout == (
                "running\nawait\n"
            )
        assert ask(shared, other, b"meanwhile") == b"meanwhile"
        assert set(os.listdir(agent)) == listed
        assert readers.words() == []
        put(agent / "ctl", b"interrupt\n")
        assert readers.process.wait(DEADLINE) == 0
        assert readers.words() == ["await"] * WAITERS
    wait_for(lambda: belongings(shared).tasks <= before.tasks + 2, "no task is left")
    assert belongings(shared).descriptors == before.descriptors


def test_a_signal_ends_a_reader_of_wait_when_its_read_returns(shared: Tree) -> None:
    """Nothing interrupts a request that the daemon has; that one comes back after 0.8 s at most."""
    agent = busy(shared)
    numbers = [signal.SIGINT, signal.SIGKILL] * 10
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(
                subprocess.Popen(["cat", agent / "wait"], stdout=subprocess.DEVNULL, restore_signals=True)
            )
            for _ in numbers
        ]
        for process in readers:
            wait_for(lambda process=process: waits_in_kernel(process), "it reads")  # type: ignore[misc]
        for process, number in zip(readers, numbers, strict=True):
            process.send_signal(number)
        for process, number in zip(readers, numbers, strict=True):
            assert process.wait(DEADLINE) in (-number, 0)  # 0: its read was over before the signal came
    assert word(agent) == "running"


def test_a_poller_whose_file_fails_disturbs_no_writer(shared: Tree) -> None:
    """It is woken, and its own read says what is wrong."""
    agent = fresh(shared)
    chat = shared.home / "agents" / agent.name / "chat"
    with sleeping("poll", [agent], len(FILES)) as sleeper:
        assert sleeper.ready(0) == set()
        with ThreadPoolExecutor(1) as thread:
            woken = thread.submit(sleeper.ready, DEADLINE)
            time.sleep(QUIET)
            chat.symlink_to(chat.name)
            try:
                put(agent / "spec", BUSY.encode())
                assert (agent.name, "chat") in woken.result(DEADLINE)
                with refused(errno.ELOOP):
                    os.open(agent / "chat", os.O_RDONLY)
            finally:
                chat.unlink()


def test_retiring_wakes_everybody(shared: Tree) -> None:
    """Who sleeps for what is gone hears of it; a read of `wait` fails."""
    agent = fresh(shared)
    ask(shared, agent, b"one\n")
    put(agent / "ctl", b"stop\n")
    assert shared.settle(agent.name) == "stopped"
    with sleeping("epoll", [agent], 50) as sleeper:
        assert sleeper.ready(QUIET) == set()
        agent.rmdir()
        wait_for(lambda: len(sleeper.ready(DEADLINE)) == len(FILES), "all are woken")
        waits = [fd for fd, (_, name) in sleeper.fds.items() if name == "wait"]
        for fd in waits:
            with refused(errno.ESTALE):
                os.pread(fd, 100, 0)
