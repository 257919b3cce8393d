"""A shorter way from one request to the next: pyfuse3 takes its lock and its wait from its attribute `trio`.

Theory. For each request pyfuse3 takes an uncontended trio.Lock and waits for its descriptor; both are checkpoints,
and each costs a trip through the scheduler and epoll. The stand-in takes a free lock at once, and asks the kernel
first whether a request is there already. After BURST requests in a row it waits the ordinary way, so that no other
task starves. pyfuse3's own asyncio layer replaces the same attribute, but it is documented nowhere: pyfuse3 is pinned
to the release this was read in, and `install` refuses any other.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyfuse3
import trio

PINNED = "3.5.0"
BURST = 64


class EagerLock:
    """trio.Lock without the checkpoint of the uncontended case, and not fair: a free lock goes to who asks first.

    One waiter is woken when the lock is given up, and none more before that one has run: a task that serves request
    after request without pause takes the lock back each time, and the woken one takes it as soon as it pauses.
    """

    def __init__(self) -> None:
        self._held = False
        self._waking = False
        self._lot = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        while self._held:
            try:
                await self._lot.park()
            finally:
                self._waking = False
        self._held = True

    async def __aexit__(self, *_: object) -> None:
        self._held = False
        if self._lot and not self._waking:
            self._waking = True
            self._lot.unpark()


def eager_wait(wait: Callable[[int], Any]) -> Callable[[int], Any]:
    """`wait_readable` that returns at once, BURST times in a row at most, where the descriptor is readable now."""
    polls: dict[int, select.poll] = {}
    in_a_row = 0

    async def wait_readable(fd: int) -> None:
        nonlocal in_a_row
        poll = polls.get(fd)
        if poll is None:
            poll = polls[fd] = select.poll()
            poll.register(fd, select.POLLIN)
        if in_a_row < BURST and poll.poll(0):
            in_a_row += 1
            return
        in_a_row = 0
        await wait(fd)

    return wait_readable


def install(found: str) -> bool:
    """Put the stand-in in place; False, and nothing done, where `found`, pyfuse3's version, is not the pinned one."""
    if found != PINNED:
        return False
    low = trio.lowlevel
    lowlevel = SimpleNamespace(
        wait_readable=eager_wait(low.wait_readable),
        current_task=low.current_task,
        current_trio_token=low.current_trio_token,
        notify_closing=low.notify_closing,
    )
    pyfuse3.trio = SimpleNamespace(  # type: ignore[attr-defined]
        Lock=EagerLock,
        lowlevel=lowlevel,
        open_nursery=trio.open_nursery,
        ClosedResourceError=trio.ClosedResourceError,
    )
    return True
