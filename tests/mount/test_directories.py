"""What stat(2) and readdir(3) say of the tree's own directories and of when something changed in them."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

from tests.living import Tree, wait_for
from tests.mount.clients import ask, busy, fresh, put, word

_libc = ctypes.CDLL(None, use_errno=True)
_FORCE_SYNC, _MTIME, _MTIME_AT = 0x2000, 0x40, 112


def changed_at(path: Path) -> int:
    """The time of the last change as the daemon tells it now, whatever the kernel keeps: statx(2)."""
    found = ctypes.create_string_buffer(256)
    if _libc.statx(-100, os.fsencode(path), _FORCE_SYNC, _MTIME, found) != 0:
        raise OSError(ctypes.get_errno(), "statx")
    seconds, nanoseconds = struct.unpack_from("qI", found, _MTIME_AT)
    return int(seconds * 1_000_000_000 + nanoseconds)


def links(path: Path) -> int:
    """The links that a directory should have: its name, its `.`, and the `..` of each below it."""
    with os.scandir(path) as entries:
        return 2 + sum(entry.is_dir(follow_symlinks=False) for entry in entries)


def test_links_are_those_of_directories(shared: Tree) -> None:
    """Programs that walk a tree stop looking for directories once they have met as many as there are links."""
    for _ in range(3):
        agent = fresh(shared)
        for path in (shared.mount, shared.mount / "agents", agent, agent / "inbox"):
            assert path.stat().st_nlink == links(path), path
    agent.rmdir()
    assert (shared.mount / "agents").stat().st_nlink == links(shared.mount / "agents")


def numbers(tree: Tree, path: Path) -> dict[str, int]:
    """The inode numbers that readdir(3) tells, by name."""
    lines = (line.split() for line in tree.shell(f"ls -aif {path}").stdout.splitlines())
    return {name: int(number) for number, name in lines}


def test_a_listing_has_the_directory_itself_and_the_one_above(shared: Tree) -> None:
    agent, deep = fresh(shared), shared.mount / "context/deep/er"
    deep.mkdir(parents=True)
    for path in (shared.mount / "agents", agent, agent / "inbox", shared.mount / "log/agents", deep.parents[1], deep):
        listed = numbers(shared, path)
        assert (listed["."], listed[".."]) == (path.stat().st_ino, path.parent.stat().st_ino), path
    assert numbers(shared, shared.mount)["."] == shared.mount.stat().st_ino
    deep.rmdir()
    deep.parent.rmdir()


def test_a_rewound_listing_is_of_now(shared: Tree) -> None:
    """Who keeps a directory open, as os.listdir of a descriptor does, sees what was made and removed since."""
    agent = fresh(shared)
    for path in (shared.mount / "agents", agent / "inbox"):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            assert set(os.listdir(fd)) == set(os.listdir(path))
            another = fresh(shared)
            put(agent / "inbox/.draft", b"x")
            assert set(os.listdir(fd)) == set(os.listdir(path)) >= {another.name if path.name == "agents" else ".draft"}
            another.rmdir()
            (agent / "inbox/.draft").unlink()
            assert set(os.listdir(fd)) == set(os.listdir(path))
        finally:
            os.close(fd)


def test_the_time_of_a_directory_is_that_of_its_names(shared: Tree) -> None:
    """A turn changes no name of `agents`: else who archives it is told that it changed meanwhile."""
    agent, agents = fresh(shared), shared.mount / "agents"
    before = [changed_at(path) for path in (shared.mount, agents, agent)]
    ask(shared, agent, b"one\n")
    assert [path.stat().st_mtime_ns for path in (shared.mount, agents, agent)] == before
    assert [changed_at(path) for path in (shared.mount, agents, agent)] == before
    another = fresh(shared)
    made = agents.stat().st_mtime_ns
    assert made > before[1]
    another.rmdir()
    assert agents.stat().st_mtime_ns > made
    assert shared.mount.stat().st_mtime_ns == before[0]


def test_the_time_of_status_is_that_of_its_word(shared: Tree) -> None:
    """What stat(2) says does not depend on whether the kernel asked again."""
    agent = busy(shared)
    before = changed_at(agent / "status"), changed_at(agent / "wait")
    put(agent / "inbox/more", b"queued")
    (agent / "inbox/more").unlink()
    assert word(agent) == "running"
    assert ((agent / "status").stat().st_mtime_ns, (agent / "wait").stat().st_mtime_ns) == before
    assert (changed_at(agent / "status"), changed_at(agent / "wait")) == before
    put(agent / "ctl", b"interrupt\n")
    assert shared.settle(agent.name) == "await"
    after = (agent / "status").stat()
    assert (after.st_mtime_ns > before[0], after.st_size) == (True, len("await\n"))


def test_health_tells_since_when(shared: Tree) -> None:
    """Each part's beginning, which does not change while it lives."""
    health = (shared.mount / "health").read_text()
    first = shared.part("supervisor").beat
    wait_for(lambda: shared.part("supervisor").beat != first, "its heart beats")
    assert (shared.mount / "health").read_text() == health
    assert health.splitlines()[1].startswith("supervisor ok since 2")
