"""The stand-in for pyfuse3's lock and wait: one holder at a time, no lost wake-up, no starving of other tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyfuse3
import pytest
import trio
import trio.testing

from zoefs.mount.fastpath import BURST, EagerLock, eager_wait, install


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


async def test_one_holder_at_a_time_and_everybody_gets_it() -> None:
    lock, inside, done = EagerLock(), 0, []

    async def work(name: int) -> None:
        nonlocal inside
        for _ in range(20):
            async with lock:
                inside += 1
                assert inside == 1
                await trio.lowlevel.checkpoint()
                inside -= 1
            await trio.lowlevel.checkpoint()
        done.append(name)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for name in range(30):
                nursery.start_soon(work, name)
    assert sorted(done) == list(range(30))


async def test_a_free_lock_is_taken_without_a_pause() -> None:
    lock, ran = EagerLock(), []

    async def other() -> None:
        ran.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(10):
            async with lock:
                pass
        assert not ran


async def test_the_lock_is_not_lost_when_a_waiter_is_cancelled() -> None:
    lock = EagerLock()
    async with trio.open_nursery() as nursery:
        await lock.__aenter__()

        async def wait() -> None:
            async with lock:
                raise AssertionError("it was cancelled before")

        scope = trio.CancelScope()

        async def cancelled() -> None:
            with scope:
                await wait()

        nursery.start_soon(cancelled)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        await lock.__aexit__()
    with trio.fail_after(5):
        async with lock:
            pass


async def test_a_waiter_is_not_forgotten_behind_a_cancelled_one() -> None:
    lock, got = EagerLock(), []

    async def want(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with lock:
                got.append(name)

    scopes = [trio.CancelScope(), trio.CancelScope()]
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await lock.__aenter__()
            for name, scope in zip("ab", scopes, strict=True):
                nursery.start_soon(want, name, scope)
                await trio.testing.wait_all_tasks_blocked()
            await lock.__aexit__()
            scopes[0].cancel()
    assert got[-1:] == ["b"]


async def test_readable_now_returns_at_once_but_only_so_often(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b"x")
    waited = 0

    async def wait(fd: int) -> None:
        nonlocal waited
        waited += 1
        await trio.lowlevel.wait_readable(fd)

    readable = eager_wait(wait)
    for _ in range(3 * (BURST + 1)):
        await readable(read)
    assert waited == 3


async def test_not_readable_waits_and_wakes(pipe: tuple[int, int]) -> None:
    read, write = pipe
    readable = eager_wait(trio.lowlevel.wait_readable)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readable, read)
            await trio.testing.wait_all_tasks_blocked()
            os.write(write, b"x")


def test_another_pyfuse3_is_left_alone() -> None:
    before = pyfuse3.trio  # type: ignore[attr-defined]
    assert install("3.5.1") is False
    assert pyfuse3.trio is before  # type: ignore[attr-defined]
