"""The daemons themselves (guarantee 9, facts section 12): one a HOME, clean ends, dead parts that show."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.living import DEADLINE, Tree, ground, living, wait_for
from tests.mount.clients import BUSY, ECHO, answers, ask, events, fate, ids, put, refused, waits_in_kernel, word
from zoefs.contract.home import HEARTBEAT_STALE
from zoefs.disk.process import lives, stat_fields

PROMPTLY = 8.0
"""Seconds within which a daemon that was told to go is gone; without that it would be never."""
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENODEV, errno.EIO, errno.ESTALE)


def run(tree: Tree, *words: str) -> subprocess.CompletedProcess[str]:
    """A program of ours in the foreground, which must end by itself."""
    modules = {"zoefs": "zoefs.cli.main", "zoefs-supervisor": "supervisor.main"}
    return subprocess.run(
        [sys.executable, "-m", modules[words[0]], *words[1:]],
        env=tree.env,
        text=True,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )


def parts(tree: Tree) -> dict[str, str]:
    """`health`: the word of each part."""
    lines = (tree.mount / "health").read_text().splitlines()
    return {line.split()[0]: line.split()[1] for line in lines}


# -- one a HOME ------------------------------------------------------------------------------------------------------


def test_a_second_mount_daemon_is_refused(tree: Tree, base: Path) -> None:
    other = base / "other"
    for mount in (other, tree.mount):
        done = run(tree, "zoefs", "mount", "--mount", str(mount))
        assert done.returncode == 4
        assert len(done.stderr.splitlines()) == 1
    assert not other.is_mount()
    assert parts(tree)["mount"] == "ok"


def test_a_second_supervisor_is_refused(tree: Tree) -> None:
    agent = tree.make("r1", ECHO)
    done = run(tree, "zoefs-supervisor", "run")
    assert done.returncode == 4
    assert str(tree.part("supervisor").mark.pid) in done.stderr
    assert parts(tree)["supervisor"] == "ok"
    assert ask(tree, agent, b"x") == b"x"


def test_several_homes_at_once(tree: Tree, base: Path) -> None:
    (base / "second").mkdir()
    with living(base / "second") as second:
        agents = [each.make("same", ECHO) for each in (tree, second)]
        for each, agent, text in ((tree, agents[0], b"one"), (second, agents[1], b"two")):
            put(agent / "inbox/k1", text)
            assert each.ended("same", "k1") == ("done", text)
        second.make("only", ECHO)
        assert "only" not in os.listdir(tree.mount / "agents")
        second.down()
        assert ask(tree, agents[0], b"still") == b"still"
        second.up()
        assert second.receipt("same", "k1")[1] == b"two"


@pytest.mark.parametrize("place", ["home", "home/mnt", "home/agents/r1", "."])
def test_mount_and_home_may_not_contain_each_other(base: Path, place: str) -> None:
    tree = ground(base)
    run(tree, "zoefs", "init")
    for words in (("mount",), ("up", "--without", "supervisor")):
        done = run(tree, "zoefs", *words, "--mount", str((base / place).resolve()))
        assert done.returncode in (2, 4)
        assert "zoefs:" in done.stderr
    assert not tree.processes()
    assert not (base / place).is_mount()
    assert os.listdir(tree.home / "agents") == []


def test_a_mount_point_that_is_not_empty_hides_nothing(base: Path) -> None:
    tree = ground(base)
    tree.mount.mkdir()
    (tree.mount / "precious").write_text("x")
    done = run(tree, "zoefs", "up")
    assert done.returncode == 4
    assert "not empty" in done.stderr
    assert (tree.mount / "precious").read_text() == "x"
    assert not tree.processes()


# -- going -----------------------------------------------------------------------------------------------------------

CLIENT = """
import os, select, sys
what, path = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
os.read(fd, 1 << 16)
poller = select.poll()
poller.register(fd, select.POLLIN)
print("ready", flush=True)
while True:
    if what == "poll":
        poller.poll()
    os.lseek(fd, 0, os.SEEK_SET)
    os.read(fd, 1 << 16)
"""


@contextlib.contextmanager
def waiting_clients(agent: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that wait in every way there is, each inside its wait."""
    lines = [
        [sys.executable, "-c", CLIENT, "poll", str(agent / "out")],
        [sys.executable, "-c", CLIENT, "poll", str(agent / "status")],
        *[[sys.executable, "-c", CLIENT, "read", str(agent / "wait")] for _ in range(5)],
        ["sh", "-c", f"echo ready; while :; do w=$(cat {agent}/wait) || exit 3; done"],
    ]
    with contextlib.ExitStack() as stack:
        pipe = subprocess.PIPE
        processes = [stack.enter_context(subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True)) for line in lines]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                wait_for(lambda: waits_in_kernel(process), "it waits")  # noqa: B023
            yield processes
        finally:
            for process in processes:
                process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_mount_goes_while_clients_wait(tree: Tree, number: signal.Signals) -> None:
    """Waiters, pollers and open files do not hold it up; every client is told; nothing stays mounted or is lost."""
    agent = tree.make("r1", BUSY)
    put(agent / "inbox/first", b"go")
    wait_for(lambda: fate(agent, "first") == "sent", "it works")
    held = [os.open(agent / name, os.O_RDONLY) for name in ("out", "events", "stat", "inbox")]
    prompts = {name: os.open(agent / "inbox" / name, os.O_WRONLY | os.O_CREAT) for name in ("flushed", "short", "cut")}
    with waiting_clients(agent) as processes:
        for name, data in (("flushed", b"x" * 5000), ("short", b"one short write"), ("cut", b"x" * 5000)):
            os.write(prompts[name], data)
        os.fsync(prompts["flushed"])
        mark, begin = tree.part("mount").mark, time.monotonic()
        os.kill(mark.pid, number)
        wait_for(lambda: not lives(mark), "the daemon ends")
        assert time.monotonic() - begin < PROMPTLY
        for process in processes:
            assert process.wait(DEADLINE) not in (0, -signal.SIGKILL)
    for fd in prompts.values():
        with refused(*GONE):
            os.write(fd, b"more")
    for fd in (*prompts.values(), *held):
        with contextlib.suppress(OSError):
            os.close(fd)
    if number != signal.SIGKILL:  # then libfuse's helper unmounts it, mostly; `up` does where that failed
        assert not tree.mounted()
        assert os.listdir(tree.mount) == []
    tree.up()
    assert tree.receipt("r1", "flushed")[0]["receipt"] == tree.receipt("r1", "short")[0]["receipt"] == "queued"
    assert tree.ended("r1", "cut") == ("lost", b"")
    assert "cut" in (agent / "error").read_text()
    (agent / "ctl").write_text("stop\n")
    assert tree.settle("r1") == "stopped"
    (agent / "spec").write_text(ECHO)
    (agent / "ctl").write_text("start\n")
    assert tree.ended("r1", "flushed") == ("done", b"x" * 5000)
    assert tree.ended("r1", "short") == ("done", b"one short write")
    assert "recovered" in tree.receipt("r1", "short")[0]["note"]
    assert "cut" not in [event.get("id") for event in events(agent) if event["kind"] == "prompt-given"]


def test_up_clears_what_a_killed_daemon_left(tree: Tree) -> None:
    """Also where the helper that would have unmounted it was killed before."""
    agent = tree.make("r1", ECHO)
    assert ask(tree, agent, b"kept") == b"kept"
    helpers = [pid for pid, words in tree.processes() if "fusermount3" in words[0]]
    assert helpers
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: all(stat_fields(pid)[:1] in ([], ["Z"]) for pid in helpers), "the helper is gone")
    tree.kill("mount")
    assert tree.mounted()
    with refused(errno.ENOTCONN, errno.ECONNABORTED):
        os.listdir(tree.mount)
    tree.up()
    assert (agent / "out").read_bytes() == b"kept"
    assert ask(tree, agent, b"next") == b"next"
    assert answers(tree, agent) == [b"kept", b"next"]


def test_the_mount_dies_and_comes_back_under_a_turn(tree: Tree, base: Path) -> None:
    """The agent does not notice: its turn ends, and its answer is there when the tree is."""
    gate = base / "gate"
    gate.touch()
    agent = tree.make("r1", f'backend = "exec"\nargv = ["sh", "-c", "while [ -e {gate} ]; do sleep 0.05; done; cat"]\n')
    put(agent / "inbox/k1", b"answer")
    wait_for(lambda: fate(agent, "k1") == "sent", "it works")
    tree.kill("mount")
    gate.unlink()
    answer = tree.home / "agents/r1/turns/1"
    wait_for(answer.exists, "the turn ends without a mount")
    tree.up()
    assert tree.ended("r1", "k1") == ("done", b"answer")
    assert tree.stat("r1")["turn"] == "1"


# -- dead parts show -------------------------------------------------------------------------------------------------


def test_without_a_supervisor_prompts_queue_and_it_shows(tree: Tree) -> None:
    agent = tree.make("r1", ECHO)
    assert (parts(tree)["mount"], parts(tree)["supervisor"], tree.stat("r1")["supervisor"]) == ("ok", "ok", "ok")
    tree.kill("supervisor")
    assert (parts(tree)["supervisor"], tree.stat("r1")["supervisor"]) == ("absent", "absent")
    assert word(agent) == "await"
    for n in range(5):
        put(agent / "inbox" / f"k{n}", b"%d" % n)
    tree.shell("echo 5 > r1/in")
    assert (word(agent), tree.stat("r1")["queued"]) == ("running", "6")
    assert [fate(agent, id) for id in ids(agent)] == ["queued"] * 6
    assert (agent / "wait").read_text() == ""
    assert tree.zoefs("wait", "r1", check=False).returncode == 6
    tree.up()
    assert answers(tree, agent) == [b"0", b"1", b"2", b"3", b"4", b"5\n"]
    assert (parts(tree)["supervisor"], tree.stat("r1")["supervisor"]) == ("ok", "ok")


def test_an_agent_made_without_a_supervisor_is_found_later(tree: Tree) -> None:
    tree.kill("supervisor")
    agent = tree.make("r1", ECHO)
    put(agent / "in", b"x")
    tree.up()
    assert answers(tree, agent) == [b"x"]


def test_a_stopped_supervisor_is_degraded(tree: Tree) -> None:
    """It holds its lock and does not work: a heartbeat tells, not only a lock."""
    agent = tree.make("r1", ECHO)
    mark = tree.part("supervisor").mark
    os.kill(mark.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: parts(tree)["supervisor"] == "degraded", "it shows", HEARTBEAT_STALE + DEADLINE)
        assert tree.stat("r1")["supervisor"] == "absent"
        put(agent / "in", b"x")
        assert word(agent) == "running"
    finally:
        os.kill(mark.pid, signal.SIGCONT)
    wait_for(lambda: parts(tree)["supervisor"] == "ok", "it shows")
    assert tree.stat("r1")["supervisor"] == "ok"
    assert answers(tree, agent) == [b"x"]


def test_the_mount_notices_what_others_note(tree: Tree) -> None:
    """A journal that grew while nobody looked is told to a poller and a waiting read alike, turn after turn."""
    agents = [tree.make(f"r{n}", ECHO) for n in range(8)]
    for n in range(5):
        for agent in agents:
            put(agent / "inbox" / f"k{n}", b"%d" % n)
        for agent in agents:
            assert tree.ended(agent.name, f"k{n}") == ("done", b"%d" % n)


def test_the_mount_is_its_owners_and_obeys_modes(tree: Tree) -> None:
    (line,) = [line for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == str(tree.mount)]
    _, _, kind, options, *_ = line.split()
    assert kind == "fuse.zoefs"
    assert {"default_permissions", "nosuid", "nodev", f"user_id={os.getuid()}"} <= set(options.split(","))
    assert "allow_other" not in options
    assert (tree.home.stat().st_mode & 0o777, tree.mount.stat().st_uid) == (0o700, os.getuid())
    agent = tree.make("r1", ECHO)
    ask(tree, agent, b"x")
    assert not [path for path in tree.home.rglob("*") if path.lstat().st_mode & 0o077 and "work/" not in str(path)]
