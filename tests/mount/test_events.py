"""`events` over rotations: whoever follows the journal of an agent misses nothing, however he follows it."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.upkeep import QUIET_SECONDS
from tests.e2e.reading import agent_home, check_journal, journal
from tests.e2e.reading import events as all_events
from tests.living import Tree, living, wait_for
from tests.mount.clients import ask, fresh, put, refused
from zoefs.contract.lifecycle import fold
from zoefs.disk.segments import older

ROTATE = 4000
SIZES = {"ZOEFS_ROTATE_BYTES": str(ROTATE), "ZOEFS_SNAPSHOT_BYTES": "1500"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Tree]:
    """A living tree whose journals are ended every few turns."""
    base = Path(tempfile.mkdtemp(prefix="zoefs-", dir=os.environ.get("ZOEFS_TEST_DIR")))
    try:
        with living(base, SIZES) as found:
            yield found
    finally:
        shutil.rmtree(base)


def work(tree: Tree, agent: Path, turns: int) -> None:
    """Some turns, one after another."""
    for n in range(turns):
        assert ask(tree, agent, f"{n}\n".encode()) == f"{n}\n".encode()


def until_rotated(tree: Tree, agent: Path, more_than: int) -> None:
    """Turns until there are more than so many older segments."""
    for n in range(200):
        if len(older(journal(tree, agent.name))) > more_than:
            return
        ask(tree, agent, f"r{n}\n".encode())
    raise AssertionError("its journal never went on in a new segment")


def seqs(data: bytes) -> list[int]:
    """The seq of each line."""
    return [json.loads(line)["seq"] for line in data.splitlines()]


def everything(tree: Tree, agent: Path, since: bytes = b"") -> list[int]:
    """The seq of every event so far, or since the first of these lines."""
    found = [event.seq for event in all_events(tree, agent.name)]
    return found[found.index(seqs(since)[0]) :] if since else found


def current(tree: Tree, agent: Path) -> bytes:
    """The bytes of the current segment."""
    return journal(tree, agent.name).read_bytes()


def test_segments_end_between_turns_and_seq_goes_on(shared: Tree) -> None:
    agent = fresh(shared)
    until_rotated(shared, agent, 2)
    check_journal(shared, agent.name)
    kept = [
        path for path in journal(shared, agent.name).parent.iterdir() if path.name.startswith(f"{agent.name}.jsonl.")
    ]
    for path in kept:
        kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
        assert kinds.count("prompt-given") == kinds.count("turn-ended"), "a turn lies in two segments"
        assert ROTATE < path.stat().st_size < 3 * ROTATE
    assert shared.receipt(agent.name, os.listdir(agent / "inbox")[0])[0]["receipt"] == "done"


def test_a_fresh_descriptor_shows_the_current_segment(shared: Tree) -> None:
    agent = fresh(shared)
    until_rotated(shared, agent, 1)
    found = current(shared, agent)
    assert (agent / "events").read_bytes() == found
    assert (agent / "events").stat().st_size == len(found) < 2 * ROTATE
    assert seqs(found) == everything(shared, agent)[-len(seqs(found)) :]
    assert shared.shell(f"cat {agent.name}/events; tail -n 1 {agent.name}/events").stdout.encode() == (
        found + found.splitlines(keepends=True)[-1]
    )


@pytest.mark.parametrize("size", [7, 1000, 1 << 16])
def test_a_descriptor_reads_on_into_the_segments_that_follow(shared: Tree, size: int) -> None:
    agent = fresh(shared)
    seen = b""
    fd = os.open(agent / "events", os.O_RDONLY)
    try:
        for rotations in range(3):
            until_rotated(shared, agent, 2 * rotations)
            if rotations == 1:
                seen += os.read(fd, size)  # it stands in the middle of a segment that is over
                until_rotated(shared, agent, 2 * rotations + 1)
            while more := os.read(fd, size):
                seen += more
            assert seqs(seen) == everything(shared, agent, seen)
            assert os.pread(fd, 50, len(seen)) == b""
    finally:
        os.close(fd)


def test_what_was_passed_can_be_read_again(shared: Tree) -> None:
    agent = fresh(shared)
    ask(shared, agent, b"one\n")
    fd = os.open(agent / "events", os.O_RDONLY)
    try:
        seen = os.read(fd, 1 << 16)
        assert seqs(seen)[0] == 1
        for rotations in range(3):
            until_rotated(shared, agent, rotations)
            while more := os.read(fd, 1 << 16):
                seen += more
        for at in (1, 100, ROTATE, len(seen) // 2, len(seen) - 10):
            assert (found := os.pread(fd, 300, at)) == seen[at : at + len(found)]
            assert found
        first = older(journal(shared, agent.name))[0]
        (journal(shared, agent.name).parent / f"{agent.name}.jsonl.{first:012d}").rename(shared.home / "moved")
        with refused(116):
            os.pread(fd, 300, 1)
        (shared.home / "moved").rename(journal(shared, agent.name).parent / f"{agent.name}.jsonl.{first:012d}")
        assert os.pread(fd, 1 << 20, 0) == current(shared, agent)
    finally:
        os.close(fd)


def test_a_read_at_the_beginning_begins_anew(shared: Tree) -> None:
    agent = fresh(shared)
    fresh_fd, read_fd, part_fd = (os.open(agent / "events", os.O_RDONLY) for _ in range(3))
    try:
        ask(shared, agent, b"one\n")
        assert os.pread(part_fd, 10, 0) == current(shared, agent)[:10]
        assert os.pread(read_fd, 1 << 20, 0) == current(shared, agent)
        until_rotated(shared, agent, 0)
        found = current(shared, agent)
        assert os.pread(fresh_fd, 1 << 20, 0) == found
        assert os.pread(part_fd, 1 << 20, 0) == found
        assert os.pread(read_fd, 1 << 20, 0) == found
        for fd in (fresh_fd, read_fd, part_fd):
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            assert not poller.poll(0)
        ask(shared, agent, b"more\n")
        for fd in (fresh_fd, read_fd, part_fd):
            assert os.pread(fd, 1 << 20, 0) == current(shared, agent)
    finally:
        for fd in (fresh_fd, read_fd, part_fd):
            os.close(fd)


def test_poll_and_read_follow_over_rotations(shared: Tree) -> None:
    """It reads only when poll(2) says so, and sleeps in poll(2) in between."""
    agent = fresh(shared)
    until_rotated(shared, agent, 0)
    done, seen, wakes = threading.Event(), bytearray(), [0]

    def follow() -> None:
        fd = os.open(agent / "events", os.O_RDONLY)
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        try:
            while not done.is_set():
                if poller.poll(200):
                    wakes[0] += 1
                    seen.extend(os.read(fd, 1 << 16))
        finally:
            os.close(fd)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        wait_for(lambda: seen, "it reads")
        until_rotated(shared, agent, 4)
        last = everything(shared, agent)
        wait_for(lambda: seqs(bytes(seen))[-1] == last[-1], "it has read all")
    finally:
        done.set()
        thread.join()
    assert seqs(bytes(seen)) == last[-len(seqs(bytes(seen))) :]
    assert wakes[0] >= 5
    fd = os.open(agent / "events", os.O_RDONLY)
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        while os.read(fd, 1 << 16):
            pass
        assert not poller.poll(100), "readable with nothing to read"
    finally:
        os.close(fd)


def test_tail_f_goes_on_with_the_new_segment(shared: Tree) -> None:
    """It finds the file shorter and reads it from its beginning; it had time to see the end of the one before."""
    agent = fresh(shared)
    out = shared.home.parent / f"tail.{agent.name}"
    with out.open("wb") as file:
        ask(shared, agent, b"one\n")
        process = subprocess.Popen(
            ["tail", "-f", "-s", "0.05", "-c", "+1", agent / "events"], stdout=file, stderr=subprocess.PIPE
        )
    try:
        for rotations in range(2):
            while len(current(shared, agent)) <= ROTATE:
                ask(shared, agent, b"more\n")
            time.sleep(QUIET_SECONDS)
            work(shared, agent, 1)
            assert len(older(journal(shared, agent.name))) == rotations + 1
            wait_for(lambda: seqs(whole_lines(out)) == everything(shared, agent), "tail has it all, once")
    finally:
        process.kill()
        _, said = process.communicate()
    assert said.count(b"truncated") == 2


def whole_lines(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]


def test_an_agent_made_again_goes_on_with_the_seq(shared: Tree) -> None:
    agent = fresh(shared)
    until_rotated(shared, agent, 1)
    home, name = agent_home(shared, agent.name), agent.name
    wait_for(home.snapshot.exists, "its fold is kept")
    (agent / "ctl").write_text("stop\n")
    assert shared.settle(name) == "stopped"
    last = everything(shared, agent)[-1]
    agent.rmdir()
    assert not home.path.exists()
    shared.make(name, (shared.agent(fresh(shared).name) / "spec").read_text())
    assert shared.stat(name)["turn"] == "0"
    put(agent / "inbox/first", b"again\n")
    assert shared.ended(name, "first") == ("done", b"again\n")
    assert shared.stat(name)["turn"] == "1"
    found = all_events(shared, name)
    assert [event.seq for event in found] == list(range(1, found[-1].seq + 1))
    assert found[-1].seq > last
    until_rotated(shared, agent, 3)
    assert fold(all_events(shared, name)).turn == int(shared.stat(name)["turn"])


def test_a_mount_that_starts_anew_says_the_same(tree: Tree) -> None:
    """With a fold kept and without, and with older segments: what is shown is what was shown."""
    tree.down()
    small = Tree(tree.home, tree.mount, tree.env | SIZES)
    small.up()
    agent = fresh(small)
    until_rotated(small, agent, 2)
    work(small, agent, 2)
    home = agent_home(small, agent.name)
    wait_for(home.snapshot.exists, "its fold is kept")
    before = shown(small, agent)
    for kept in (True, False):
        for part in ("mount", "supervisor"):
            small.kill(part)
        if not kept:
            home.snapshot.unlink()
        small.up()
        wait_for(lambda: shown(small, agent) == before, "it says the same")
    work(small, agent, 1)
    check_journal(small, agent.name)


def shown(tree: Tree, agent: Path) -> dict[str, Any]:
    """What the mount says of an agent, and of each of its prompts."""
    receipts = {id: (agent / "inbox" / id).read_bytes() for id in os.listdir(agent / "inbox")}
    stat = {key: value for key, value in tree.stat(agent.name).items() if key != "supervisor"}
    return {**receipts, **stat, "out": (agent / "out").read_bytes(), "chat": (agent / "chat").read_bytes()}


def test_the_mounts_own_journal_begins_new_segments_too(shared: Tree) -> None:
    agent = fresh(shared)
    path = shared.home / "log" / "zoefs.jsonl"
    for n in range(60):
        with refused(22):
            (agent / "ctl").write_text(f"nonsense{n}\n")
    assert len(older(path)) >= 1
    said = (agent / "error").read_text()
    assert "nonsense59" in said
    shared.kill("mount")
    shared.up()
    assert (agent / "error").read_text() == said
    lines = [line for first in older(path) for line in Path(f"{path}.{first:012d}").read_bytes().splitlines()]
    found = [json.loads(line)["seq"] for line in (*lines, *path.read_bytes().splitlines())]
    assert found == list(range(1, len(found) + 1))
