"""The lock of a program: one holder, released by the kernel, told by its text."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from tests.disk.test_files import FORK
from zoefs.contract.home import HEARTBEAT_STALE
from zoefs.disk.lock import Held, beat, holder, take, try_lock
from zoefs.disk.process import lives, mark_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "supervisor.lock"


@pytest.fixture
def other(path: Path) -> Iterator[ForkProcess]:
    """Another process that holds the lock and sleeps."""
    here, there = FORK.Pipe(duplex=False)

    def hold() -> None:
        take(path, "/mnt")
        there.send(True)
        time.sleep(60)

    child = FORK.Process(target=hold)
    child.start()
    assert here.poll(10)
    assert here.recv()
    yield child
    child.kill()
    child.join(5)
    here.close()
    there.close()


def test_the_holder_is_told_by_the_text(path: Path) -> None:
    fd = take(path, "/mnt")
    mine = mark_of(os.getpid())
    assert path.read_text().split() == [str(mine.pid), str(mine.start), mine.boot, "/mnt"]
    found = holder(path)
    assert (found.mark, found.alive, found.words) == (mine, True, ("/mnt",))
    assert abs(found.beat - time.time()) < 5
    assert not os.get_inheritable(fd)
    assert path.stat().st_mode & 0o777 == 0o600
    os.close(fd)


def test_a_shorter_text_leaves_nothing_of_a_longer_one(path: Path) -> None:
    path.write_text("1234567 7654321 /a/very/long/mountpoint and more words\n")
    os.close(take(path))
    assert holder(path).words == ()


def test_a_second_taker_is_told_who_holds(path: Path, other: ForkProcess) -> None:
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    for _ in range(2):
        with pytest.raises(Held) as caught:
            take(path, "/elsewhere")
        assert caught.value.mark.pid == other.pid
        assert str(path) in str(caught.value)
        assert str(other.pid) in str(caught.value)
        assert try_lock(path) is None
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before, "a refused taker disturbed the holder"


def test_a_second_taker_in_the_same_process_is_refused(path: Path) -> None:
    fd = take(path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Held):
        take(path)
    assert try_lock(path) is None
    assert len(os.listdir("/proc/self/fd")) == before, "a refused taker leaves no descriptor open"
    os.close(fd)
    os.close(take(path))


def test_the_kernel_releases_the_lock_of_the_killed(path: Path, other: ForkProcess) -> None:
    assert holder(path).alive
    other.kill()
    other.join(5)
    dead = holder(path)
    assert (dead.mark.pid, dead.alive, dead.words) == (other.pid, False, ("/mnt",))
    assert dead.health(time.time()) == "absent"
    fd = take(path)
    assert holder(path).mark.pid == os.getpid()
    os.close(fd)


def test_a_lock_is_free_when_its_descriptor_is_closed(path: Path) -> None:
    fd = try_lock(path)
    assert fd is not None
    assert path.read_bytes() == b""
    assert try_lock(path) is None
    os.close(fd)
    os.close(take(path))


def test_health_is_the_heartbeat_of_a_living_holder(path: Path, other: ForkProcess) -> None:
    found = holder(path)
    assert found.health(found.beat) == "ok"
    assert found.health(found.beat + HEARTBEAT_STALE) == "ok"
    assert found.health(found.beat + HEARTBEAT_STALE + 0.1) == "degraded"


def test_a_beat_renews_the_health(path: Path) -> None:
    fd = take(path)
    os.utime(path, (0, 0))
    assert holder(path).health(time.time()) == "degraded"
    text = path.read_bytes()
    beat(fd)
    assert holder(path).health(time.time()) == "ok"
    assert path.read_bytes() == text
    os.close(fd)


@pytest.mark.parametrize(
    "text",
    [None, "", "\n", "12", "x y", "12 y /mnt", "0 0", "-1 5", "1 1", "\ud800".encode("utf-8", "replace").decode()],
)
def test_a_text_that_names_nobody_is_absent(path: Path, text: str | None) -> None:
    if text is not None:
        path.write_text(text)
    found = holder(path)
    assert not found.alive
    assert found.health(time.time()) == "absent"


def test_a_directory_that_is_not_there_is_absent(path: Path) -> None:
    assert not holder(path / "no" / "lock").alive


def test_of_twenty_at_once_one_wins(path: Path) -> None:
    here, there = FORK.Pipe(duplex=False)
    barrier = FORK.Barrier(20)

    def race() -> None:
        barrier.wait(10)
        try:
            take(path)
            there.send((os.getpid(), True))
            barrier.wait(10)
        except Held:
            there.send((os.getpid(), False))
            barrier.wait(10)

    children = [FORK.Process(target=race) for _ in range(20)]
    for child in children:
        child.start()
    results: dict[int, bool] = dict(here.recv() for _ in children if here.poll(10))
    for child in children:
        child.join(10)
        assert child.exitcode == 0
        child.close()
    here.close()
    there.close()
    assert len(results) == 20
    [winner] = [pid for pid, won in results.items() if won]
    assert holder(path).mark.pid == winner
    assert not lives(holder(path).mark)
