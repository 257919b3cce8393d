"""Guarantees 6 and 7: looking changes nothing and never waits; poll(2) tells of change; sizes are true."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.living import DEADLINE, Tree, wait_for
from tests.mount.clients import BUSY, ECHO, ORDERS, ask, busy, fate, fresh, gated, put, said, waits_in_kernel, word
from zoefs.contract.words import LONGEST_STATUS, WAIT_SECONDS

QUIET = 150
"""Milliseconds without change after which a file counts as quiet."""
PROMPTLY = 3.0
"""Seconds within which a signalled process is gone; without that it would be a minute, or never."""

Poll = Callable[[int, float], bool]


def by_poll(fd: int, seconds: float) -> bool:
    """Whether the descriptor is, or becomes, readable: poll(2)."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def by_select(fd: int, seconds: float) -> bool:
    """The same by select(2)."""
    return bool(select.select([fd], [], [], seconds)[0])


def by_epoll(fd: int, seconds: float) -> bool:
    """The same by epoll(7), level-triggered."""
    with select.epoll() as poller:
        poller.register(fd, select.EPOLLIN)
        return bool(poller.poll(seconds))


@contextlib.contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of a file."""
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def read_all(fd: int, grows: bool) -> bytes:
    """What is new to this descriptor: all of it from the start, or what was added behind its offset."""
    if not grows:
        return os.pread(fd, 1 << 20, 0)
    found = b""
    while more := os.read(fd, 1 << 16):
        found += more
    return found


FILES = {"status": False, "wait": False, "out": False, "events": True, "chat": True}
"""The files that tell of change, and whether they grow."""


@pytest.mark.parametrize("poll", [by_poll, by_select, by_epoll])
@pytest.mark.parametrize("name", FILES)
def test_poll_tells_of_change(shared: Tree, base: Path, name: str, poll: Poll) -> None:
    """Not readable after reading; readable again once a turn ended; and the same descriptor reads it."""
    agent = fresh(shared, gated(base / "gate"))
    (base / "gate").unlink()
    assert ask(shared, agent, b"one\n") == b"one\n"
    (base / "gate").touch()
    with opened(agent / name) as fd:
        old = read_all(fd, FILES[name])
        assert old
        assert not poll(fd, 0)
        assert not poll(fd, QUIET / 1000)
        put(agent / "in", b"two\n")
        if name == "status":
            assert poll(fd, DEADLINE)
            assert read_all(fd, False) == b"running\n"
            assert not poll(fd, QUIET / 1000)
        if name in ("wait", "out"):
            assert not poll(fd, QUIET / 1000)
        (base / "gate").unlink()
        assert poll(fd, DEADLINE)
        new = read_all(fd, FILES[name])
        assert shared.settle(agent.name) == "await"
        new = new + read_all(fd, True) if FILES[name] else new
        assert not poll(fd, 0)
        assert (old + new if FILES[name] else new) == (agent / name).read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_a_fresh_descriptor_is_readable(shared: Tree, name: str) -> None:
    """It has returned nothing yet, and there is something: who polls first must not sleep over it."""
    agent = fresh(shared)
    ask(shared, agent, b"one\n")
    with opened(agent / name) as fd:
        assert by_poll(fd, 0)
        assert read_all(fd, FILES[name])
        assert not by_poll(fd, 0)


def test_the_first_read_of_a_descriptor_is_of_now(shared: Tree) -> None:
    """Opened before the prompt, read after the turn: `out` is current before `status` says await."""
    agent = fresh(shared)
    ask(shared, agent, b"old\n")
    script = 'exec 3< out 4< status; echo new > in; while w=$(cat wait) && [ -z "$w" ]; do :; done; cat <&3; cat <&4'
    assert shared.shell(f"cd {agent.name}; {script}").stdout == "new\nawait\n"


@pytest.mark.parametrize("name", FILES)
def test_a_poller_is_woken(shared: Tree, name: str) -> None:
    """It sleeps in poll(2) before the change, and no other event of the agent wakes it."""
    agent, woken = fresh(shared, ORDERS), threading.Event()
    ask(shared, agent, b"t1 done 0\n")
    with opened(agent / name) as fd:
        read_all(fd, FILES[name])

        def sleep() -> None:
            if by_poll(fd, DEADLINE):
                woken.set()

        thread = threading.Thread(target=sleep)
        thread.start()
        assert not woken.wait(QUIET / 1000)
        put(agent / "in", b"t2 done 0\n")
        assert woken.wait(DEADLINE / 2)
        thread.join()


def test_status_is_not_readable_again_while_the_word_is_the_same(shared: Tree) -> None:
    """Readable when the content differs from what this handle last returned: a queued prompt changes no word."""
    agent = busy(shared)
    with opened(agent / "status") as fd:
        assert os.pread(fd, 100, 0) == b"running\n"
        put(agent / "inbox/k1", b"queued")
        put(agent / "inbox/k2", b"queued")
        os.unlink(agent / "inbox/k2")
        assert not by_poll(fd, QUIET / 1000)
        assert os.pread(fd, 100, 0) == b"running\n"


def test_chat_is_not_readable_again_before_it_grew(shared: Tree) -> None:
    agent = fresh(shared)
    ask(shared, agent, b"one\n")
    with opened(agent / "chat") as fd, opened(agent / "events") as journal:
        read_all(fd, True)
        read_all(journal, True)
        (agent / "ctl").write_text("stop\n")
        assert shared.settle(agent.name) == "stopped"
        assert by_poll(journal, DEADLINE)
        assert not by_poll(fd, QUIET / 1000)
        assert read_all(fd, True) == b""


def test_writing_out_wakes_its_readers(shared: Tree) -> None:
    agent = fresh(shared)
    with opened(agent / "out") as fd:
        assert os.pread(fd, 100, 0) == b""
        assert not by_poll(fd, 0)
        (agent / "out").write_text("by hand\n")
        assert by_poll(fd, 0)
        assert os.pread(fd, 100, 0) == b"by hand\n"
        wait_for(lambda: "out-written" in (agent / "events").read_text(), "the supervisor noted it")
        assert not by_poll(fd, QUIET / 1000)


def test_a_held_descriptor_reads_what_is_now(shared: Tree) -> None:
    """Programs keep one descriptor and read it at offset 0."""
    agent = fresh(shared, ORDERS)
    with contextlib.ExitStack() as stack:
        names = ("status", "out", "stat", "error", "session", "events", "chat", "wait", "spec", "ask")
        held = {name: stack.enter_context(opened(agent / name)) for name in names}
        listed = stack.enter_context(opened(shared.mount / "agents/list"))
        for number, how in enumerate(("done", "half", "done"), 1):
            answer = f"{'answer' if how == 'done' else how} t{number}\n".encode()
            assert ask(shared, agent, f"t{number} {how} 0\n".encode()) == answer
            for name, fd in held.items():
                assert os.pread(fd, 1 << 20, 0) == (agent / name).read_bytes(), name
            assert os.pread(held["out"], 100, 0) == answer
            assert f"turn: {number}\n".encode() in os.pread(held["stat"], 10_000, 0)
            assert f"{agent.name}\tawait\t{number}\t".encode() in os.pread(listed, 1 << 20, 0)


def test_a_new_prompt_wakes_a_descriptor_that_slept_through_none(shared: Tree) -> None:
    """Poll by poll through many turns: a client that reads after each wake-up sees every turn's answer."""
    agent = fresh(shared, ORDERS)
    with opened(agent / "out") as fd:
        os.pread(fd, 100, 0)
        for n in range(20):
            put(agent / "in", f"t{n} done 0\n".encode())
            while os.pread(fd, 100, 0) != f"answer t{n}\n".encode():
                assert by_poll(fd, DEADLINE), n


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------

POLLER = """
import os, select, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
poller = select.poll()
fd = os.open(sys.argv[1], os.O_RDONLY)
os.read(fd, 1 << 20)
poller.register(fd, select.POLLIN)
print("ready", flush=True)
print(poller.poll(60_000), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_poller_can_be_interrupted(shared: Tree, number: signal.Signals) -> None:
    agent = busy(shared)
    with subprocess.Popen([sys.executable, "-c", POLLER, agent / "out"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_for(lambda: waits_in_kernel(process), "it polls")
        begin = time.monotonic()
        process.send_signal(number)
        assert process.wait(DEADLINE) == -number
        assert time.monotonic() - begin < PROMPTLY
        assert process.stdout.read() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_reader_of_wait_can_be_interrupted(shared: Tree, number: signal.Signals) -> None:
    agent = busy(shared)
    with subprocess.Popen(["cat", agent / "wait"], stdout=subprocess.DEVNULL, restore_signals=True) as process:
        wait_for(lambda: waits_in_kernel(process), "it reads")
        begin = time.monotonic()
        process.send_signal(number)
        assert process.wait(DEADLINE) == -number
        assert time.monotonic() - begin < PROMPTLY


def test_ctrl_c_ends_the_loop_of_the_manual(shared: Tree) -> None:
    """SIGINT goes to the whole foreground group, as at a terminal."""
    agent = busy(shared)
    loop = 'while w=$(cat wait) && [ -z "$w" ]; do :; done; echo "$w"'
    with subprocess.Popen(
        ["bash", "-c", loop], cwd=agent, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_for(lambda: waits_in_kernel(process), "it waits")
        begin = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(DEADLINE) == -signal.SIGINT
        assert time.monotonic() - begin < PROMPTLY
        assert process.stdout is not None
        assert process.stdout.read() == ""


# -- wait ------------------------------------------------------------------------------------------------------------


def test_wait_answers_at_once_or_after_a_while(shared: Tree) -> None:
    agent = busy(shared)
    begin = time.monotonic()
    assert (agent / "wait").read_bytes() == b""
    assert time.monotonic() - begin >= WAIT_SECONDS * 0.9
    (agent / "ctl").write_text("stop\n")
    assert shared.settle(agent.name) == "stopped"
    begin = time.monotonic()
    for _ in range(20):
        assert (agent / "wait").read_bytes() == b"stopped\n"
    assert time.monotonic() - begin < 20 * WAIT_SECONDS / 2


def test_wait_without_blocking(shared: Tree) -> None:
    agent = busy(shared)
    begin = time.monotonic()
    for _ in range(20):
        with opened(agent / "wait", os.O_RDONLY | os.O_NONBLOCK) as fd:
            assert os.read(fd, 100) == b""
    assert time.monotonic() - begin < 20 * WAIT_SECONDS / 2
    (agent / "ctl").write_text("stop\n")
    shared.settle(agent.name)
    with opened(agent / "wait", os.O_RDONLY | os.O_NONBLOCK) as fd:
        assert os.read(fd, 100) == b"stopped\n"


def test_wait_is_there_and_not_listed(shared: Tree) -> None:
    agent = fresh(shared)
    assert "wait" not in os.listdir(agent)
    assert "wait" not in shared.shell(f"ls -aR {agent.name}; find {agent.name}; echo {agent.name}/*").stdout
    assert os.stat(agent / "wait").st_size == LONGEST_STATUS
    assert shared.shell(f"cat {agent.name}/wait; head -n 1 {agent.name}/wait").stdout == "await\nawait\n"


def test_many_waiting_readers_hinder_nobody(shared: Tree) -> None:
    """More than the library's default of tasks, at which the mount would freeze for all."""
    agent, other, heard = busy(shared), fresh(shared), []

    def wait() -> None:
        heard.append(shared.settle(agent.name))

    threads = [threading.Thread(target=wait) for _ in range(150)]
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    for _ in range(20):
        assert shared.shell(f"cat {agent.name}/status {other.name}/status").stdout == "running\nawait\n"
    assert time.monotonic() - begin < 20 * WAIT_SECONDS
    assert ask(shared, other, b"meanwhile") == b"meanwhile"
    assert heard == []
    (agent / "ctl").write_text("interrupt\n")
    for thread in threads:
        thread.join()
    assert heard == ["await"] * 150


# -- looking ---------------------------------------------------------------------------------------------------------


def fingerprint(path: Path) -> dict[str, str]:
    """Every name below `path` with its mode, and the digest of its content."""
    found = {}
    for file in sorted(path.rglob("*")):
        mode = file.lstat().st_mode
        content = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
        found[str(file)] = f"{mode:o} {content}"
    return found


def populate(tree: Tree) -> dict[str, Path]:
    """Agents in every state that lasts."""
    spec = {"new": ECHO, "done": ECHO, "half": ORDERS, "stopped": ECHO, "running": BUSY, "failed": ECHO}
    agents = {name: tree.make(name, text) for name, text in spec.items()}
    ask(tree, agents["done"], b"hello\n")
    ask(tree, agents["half"], b"h half 0\n")
    ask(tree, agents["stopped"], b"hello\n")
    (agents["stopped"] / "ctl").write_text("stop\n")
    assert tree.settle("stopped") == "stopped"
    put(agents["running"] / "inbox/first", b"go")
    wait_for(lambda: fate(agents["running"], "first") == "sent", "it runs")
    put(agents["running"] / "inbox/second", b"waits")
    put(agents["running"] / "inbox/.draft", b"draft")
    (agents["failed"] / "spec").write_text('backend = "exec"\nargv = ["/no/such/program"]\n')
    put(agents["failed"] / "in", b"x")
    assert tree.settle("failed") == "failed"
    wait_for(lambda: said(tree, agents["running"]) == b"begun\n", "it has begun")
    return agents


LOOKS = {
    "ls": "ls -laR agents",
    "find": "find agents -ls",
    "grep": "grep -rs no-such-text agents; [ $? -lt 2 ]",
    "du": "du -a agents",
    "wc": "find agents -type f -exec wc -c {} +",
    "stat": "find agents -exec stat {} +",
    "cat": "find agents -type f -exec cat {} +",
    "cp": "cp -r agents COPY",
    "cp -a": "cp -a agents COPY",
    "tar": "tar cf COPY agents",
    "rsync": "rsync -a agents COPY",
    "root": "ls -lL . && cat help health && tail -n 1 agents/*/chat && head -c 3 agents/*/status",
}


def test_looking_changes_nothing_and_ends(tree: Tree, base: Path) -> None:
    agents = populate(tree)
    before = fingerprint(tree.home)
    words = {name: word(agent) for name, agent in agents.items()}
    for name, script in LOOKS.items():
        copy = base / f"copy {name}"
        done = tree.shell(f"cd ..; {script.replace('COPY', repr(str(copy)))}", check=False)
        assert (done.returncode, done.stderr) == (0, ""), name
    assert fingerprint(tree.home) == before
    assert {name: word(agent) for name, agent in agents.items()} == words
    for copied in (base / "copy cp", base / "copy cp -a"):
        for name, agent in agents.items():
            for file in ("status", "out", "spec", "stat", "chat", "events"):
                assert (copied / name / file).read_bytes() == (agent / file).read_bytes()
        assert (copied / "running/inbox/.draft").read_bytes() == b"draft"
        assert (copied / "list").read_bytes() == (tree.mount / "agents/list").read_bytes()


def test_an_open_or_a_refusal_to_read_is_no_event(shared: Tree) -> None:
    agent = fresh(shared)
    ask(shared, agent, b"one\n")
    before = (agent / "events").read_bytes()
    shared.shell(f"cd {agent.name}; cat in ctl ask error session; tail -n 3 chat; ls inbox/none", check=False)
    assert (agent / "events").read_bytes() == before
    assert word(agent) == "await"


# -- sizes -----------------------------------------------------------------------------------------------------------


def demand_true_sizes(top: Path) -> None:
    """stat(2), fstat(2) and the bytes agree for every file below `top` that does not change now."""
    for path in sorted(top.rglob("*")):
        if path.is_file():
            size = path.stat().st_size
            with opened(path) as fd:
                held = os.fstat(fd).st_size
                content = b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
            assert size == held == len(content), path


def test_sizes_are_true_in_every_state(tree: Tree) -> None:
    agents = populate(tree)
    (agents["done"] / "out").write_text("another text\n")
    with contextlib.suppress(OSError):
        (agents["done"] / "ctl").write_text("nonsense\n")
    demand_true_sizes(tree.mount / "agents")
    for name in ("help", "health"):
        assert (tree.mount / name).stat().st_size == len((tree.mount / name).read_bytes())
    out = tree.shell("wc -c < running/status; tail -c 4 running/status; tail -n 1 done/out; wc -c < done/out")
    assert out.stdout == "8\ning\nanother text\n13\n"


def test_sizes_are_true_right_after_each_change(shared: Tree) -> None:
    """The kernel may keep attributes, so each change must be pushed before whoever made it goes on."""
    agent = fresh(shared)
    for n in range(20):
        fd = os.open(agent / "in", os.O_WRONLY)
        os.write(fd, b"x" * (n + 1))
        assert (agent / "status").stat().st_size == len("running\n")
        assert (agent / "in").stat().st_size == 0
        os.close(fd)
        assert shared.settle(agent.name) == "await"
        for name, size in (("status", 6), ("out", n + 1), ("in", 0), ("ctl", 0)):
            assert (agent / name).stat().st_size == size, name
        (agent / "out").write_bytes(b"y" * n)
        assert (agent / "out").stat().st_size == (n or 1)
        (agent / "ctl").write_text("stop\n")
        assert shared.settle(agent.name) == "stopped"
        assert (agent / "status").stat().st_size == len("stopped\n")
        (agent / "spec").write_text(ECHO + "#" * n)
        assert (agent / "spec").stat().st_size == len(ECHO) + n
        (agent / "ctl").write_text("start\n")
        assert shared.settle(agent.name) == "await"
        assert (agent / "status").stat().st_size == len("await\n")
    demand_true_sizes(agent)


def test_tail_f_follows_what_grows(shared: Tree) -> None:
    agent = fresh(shared)
    with subprocess.Popen(
        ["tail", "-f", "-s", "0.05", "-c", "+1", agent / "events"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            ask(shared, agent, b"one\n")
            wanted = (agent / "events").read_text().splitlines(keepends=True)
            assert [process.stdout.readline() for _ in wanted] == wanted
            ask(shared, agent, b"two\n")
            more = (agent / "events").read_text().splitlines(keepends=True)[len(wanted) :]
            assert [process.stdout.readline() for _ in more] == more
        finally:
            process.kill()
