"""Many agents, a few of them alive: all are there, each says what is true of it, and those at rest cost little.

At full size (`make soak`) 1,000 agents, 100 of them live; else 60, 10 of them live.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.crowd import lay, past
from tests.e2e.fake_cli import Fake
from tests.living import Tree, ground, living, wait_for
from zoefs.contract.home import Home
from zoefs.disk.files import read
from zoefs.disk.layout import ensure

pytestmark = pytest.mark.soak

PER_LIVE = 4
"""Descriptors that the supervisor may hold for an agent that runs: its journal, its pidfd, its stdin, and one more."""
FIXED = 40
"""Those that a daemon may hold however many agents there are."""
LONG = 300.0


@attrs.frozen
class Crowd:
    """A tree with many agents. `live`: those of the small CLI; `others` are stopped, or `resting`."""

    tree: Tree
    live: tuple[str, ...]
    stopped: tuple[str, ...]
    resting: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return sorted((*self.live, *self.stopped, *self.resting))

    def table(self) -> dict[str, list[str]]:
        """agents/list in one read: the cells of each line but the cwd, by name. While agents are read it is EAGAIN."""
        deadline = time.monotonic() + LONG
        while True:
            try:
                return cells((self.tree.mount / "agents" / "list").read_bytes())
            except BlockingIOError:
                assert time.monotonic() < deadline, "the mount does not come to the end of its agents"

    def descriptors(self, part: str) -> int:
        return len(os.listdir(f"/proc/{self.tree.part(part).mark.pid}/fd"))


def cells(table: bytes) -> dict[str, list[str]]:
    """The cells of each line but name and cwd, by name. The last line is whole, no name is there twice."""
    assert table.endswith(b"\n")
    header, *lines = [line.split("\t") for line in table.decode().splitlines()]
    assert header == ["name", "status", "turn", "queued", "backend", "cost_usd", "since", "cwd"]
    assert all(len(line) == len(header) for line in lines)
    assert [line[0] for line in lines] == sorted({line[0] for line in lines})
    return {line[0]: line[1:-1] for line in lines}


@pytest.fixture
def crowd(base: Path, soak: bool) -> Iterator[Crowd]:
    """Laid down on disk, then served: half of the stopped ones without a kept fold, some in several segments."""
    few, many = (100, 900) if soak else (10, 50)
    fake = Fake(base / "fake")
    home = Home(ground(base).home)
    ensure(home)
    live = tuple(f"live{n:03d}" for n in range(few))
    others = tuple(f"old{n:03d}" for n in range(many))
    stopped, resting = others[: many - many // 10], others[many - many // 10 :]
    plain, long, at_rest = past(3), past(20, rotate=8_000), past(2, stopped=False)
    for n, name in enumerate(stopped):
        lay(home, name, long if n % 5 == 0 else plain, kept=n % 2 == 0)
    for name in resting:
        lay(home, name, at_rest)
    for name in live:
        lay(home, name, past(0, stopped=False), spec=b'backend = "claude"\n')
    with living(base, fake.env) as tree:
        yield Crowd(tree, live, stopped, resting)


def says_what_is_true(crowd: Crowd, live_turns: int) -> None:
    """The table, and the files of each agent, at rest."""
    table = crowd.table()
    assert list(table) == crowd.names
    turns = {name: 20 if n % 5 == 0 else 3 for n, name in enumerate(crowd.stopped)}
    for name in crowd.names:
        status, turn, queued, *_ = table[name]
        agent = crowd.tree.agent(name)
        assert (agent / "status").read_text() == f"{status}\n"
        assert queued == "0"
        if name in crowd.stopped:
            assert (status, int(turn)) == ("stopped", turns[name])
        else:
            assert (status, int(turn)) == ("await", 2 if name in crowd.resting else live_turns)
        said = "fake: p\n" if name in crowd.live else "done\n"
        assert (agent / "out").read_text() == (said if turn != "0" else "")


def test_all_are_there_and_each_of_the_live_ones_answers(crowd: Crowd) -> None:
    tree = crowd.tree
    assert sorted(os.listdir(tree.mount / "agents")) == sorted(["list", *crowd.names])
    says_what_is_true(crowd, 0)
    assert (tree.mount / "health").read_text().startswith("mount ok")

    tables: list[bytes] = []
    told = threading.Event()

    def watch() -> None:
        """Read the table all the while, a piece at a time: each is of one moment."""
        while not told.is_set():
            with open(tree.mount / "agents" / "list", "rb", buffering=0) as file:
                tables.append(b"".join(iter(lambda: file.read(1000), b"")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for name in crowd.live:
            (tree.agent(name) / "inbox" / "k1").write_text("p")
        for name in crowd.live:
            assert tree.ended(name, "k1", LONG) == ("done", b"fake: p\n")
    finally:
        told.set()
        watcher.join()
    wait_for(lambda: {crowd.table()[name][0] for name in crowd.live} == {"await"}, "they are done", LONG)
    seen = [cells(table) for table in tables]
    assert all(list(table) == crowd.names for table in seen)
    assert all(table[name][:2] == seen[0][name][:2] for table in seen for name in (*crowd.stopped, *crowd.resting))
    turns = [sum(int(table[name][1]) for name in crowd.live) for table in seen]
    assert turns == sorted(turns), "a table of a later moment tells of no earlier one"
    says_what_is_true(crowd, 1)

    assert crowd.descriptors("mount") <= FIXED
    assert crowd.descriptors("supervisor") <= FIXED + PER_LIVE * len(crowd.live)
    before = crowd.table()
    tree.kill("mount")
    tree.kill("supervisor")
    tree.up()
    assert crowd.table() == before
    says_what_is_true(crowd, 1)
    for name in (*crowd.live[:3], *crowd.resting[:3]):
        (tree.agent(name) / "inbox" / "k2").write_text("p")
        assert tree.ended(name, "k2", LONG)[0] == "done"


def test_an_agent_at_rest_holds_no_descriptor_and_is_still_heard(crowd: Crowd) -> None:
    tree = crowd.tree

    def settled() -> bool:
        return crowd.descriptors("supervisor") <= FIXED

    wait_for(settled, "the supervisor holds nothing of those at rest", LONG)
    name = crowd.stopped[0]
    (tree.agent(name) / "ctl").write_text("start\n")
    assert tree.settle(name) == "await"
    (tree.agent(name) / "in").write_text("hello")
    wait_for(lambda: (tree.agent(name) / "out").read_text() == "hello", "it works", LONG)
    tree.settle(name)
    (tree.agent(name) / "ctl").write_text("stop\n")
    wait_for(lambda: tree.status(name) == "stopped", "it is stopped", LONG)
    os.rmdir(tree.agent(name))
    wait_for(lambda: b'"retired"' in (read(Home(tree.home).journal(name)) or b""), "it is retired", LONG)  # type: ignore[arg-type]
    assert name not in crowd.table()
    wait_for(settled, "the supervisor let go of it", LONG)


def test_what_nothing_told_of_is_found_and_all_can_be_retired(crowd: Crowd) -> None:
    tree = crowd.tree
    tree.kill("supervisor")
    for name in crowd.resting[:2]:
        (tree.agent(name) / "inbox" / "k2").write_text("p")
    tree.up()
    for name in crowd.resting[:2]:
        assert tree.ended(name, "k2", LONG) == ("done", b"p")
    for name in crowd.stopped:
        os.rmdir(tree.agent(name))
    assert list(crowd.table()) == sorted((*crowd.live, *crowd.resting))
    wait_for(lambda: crowd.descriptors("supervisor") <= FIXED, "the supervisor let go of them", LONG)
    for name in crowd.stopped[:3]:
        tree.agent(name).mkdir()
        assert tree.status(name) == "await"
