"""The loop: find the agents, keep each in a task of its own, beat the heart, reap, and go when told.

Everything an agent's task knows comes from its directory and its journal, so a task that fails on an error is
begun anew from there, as after a crash. One that has nothing to do ends, and what it knows stays; a wake begins it
again. So of many agents, those at rest cost memory and nothing else.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping

import trio

import zoefs
from supervisor.agent import Agent, Gone
from supervisor.hub import FULL, READS_AT_ONCE, Hub, complain
from supervisor.process import become_subreaper, keeper_lives, reap
from supervisor.watch import Watch
from zoefs.contract.home import HEARTBEAT_SECONDS, Home
from zoefs.contract.words import AgentName, is_agent_name
from zoefs.disk.files import names, read_text
from zoefs.disk.journal import Sizes, Writer, recent
from zoefs.disk.lock import beat, take
from zoefs.disk.process import boot_id, raise_descriptor_limit

SWEEP_SECONDS, BLIND_SECONDS = 5.0, 0.5
RETRY_SECONDS = 1.0
AT_ONCE = 100


async def run(home: Home, env: Mapping[str, str]) -> None:
    """Supervise HOME until SIGTERM (agents go on) or SIGUSR1 (agents end first). Raises lock.Held.

    The heart beats, and `zoefs up` calls it ready, only once it listens to signals and keeps every agent.
    """
    lock = take(home.supervisor_lock, zoefs.__version__)
    os.utime(lock, (0, 0))
    become_subreaper()
    files = raise_descriptor_limit()
    seq = max((event.seq for event in recent(home.supervisor_log)), default=0)
    log = Writer(home.supervisor_log, seq, limit=Sizes.of(env).log)
    log.append(("supervisor-started", {"pid": os.getpid()}))
    going = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    with trio.open_signal_receiver(*going) as signals:
        async with trio.open_nursery() as nursery:
            hub = Hub(home, boot_id(), dict(env), nursery, files=files)
            watch = Watch(home, lambda name: _wake(hub, watch, name), lambda name: _hear(hub, name))
            hub.rouse = lambda name: nursery.start_soon(_keep, hub, watch, name)
            nursery.start_soon(_children)
            nursery.start_soon(watch.run)
            find(hub, watch)
            nursery.start_soon(_take_in, hub)
            nursery.start_soon(_heart, lock, hub)
            nursery.start_soon(_sweep, hub, watch)
            nursery.start_soon(_sweep_blind, hub, watch)
            why = await _told_to_go(hub, signals)
            log.append(("supervisor-stopped", {"why": why}))
            nursery.cancel_scope.cancel()
    watch.close()
    log.close()
    os.utime(lock, (0, 0))
    os.close(lock)


def find(hub: Hub, watch: Watch) -> None:
    """Know every agent that is on disk. Each is read when it is woken, or in its turn."""
    for name in names(hub.home.agents):
        if name not in hub.agents and is_agent_name(name) and _meet(hub, watch, name) and hub.took_in:
            hub.agents[name].wake()


def _meet(hub: Hub, watch: Watch, name: str) -> bool:
    """Know the agent of this name, if there is one."""
    home = hub.home.agent(AgentName(name))
    born = read_text(home.born)  # before it is watched: should another take its place, that is seen when it is read
    if not born:
        return False
    agent = Agent(home, hub)
    agent.born, agent.rests = born, True
    hub.agents[name] = agent
    hub.unread.add(name)
    watch.add(home)
    return True


async def _take_in(hub: Hub) -> None:
    """Have the agents that were there at the start read, some at a time: one that is needed sooner is woken sooner."""

    async def take(rest: Iterator[str]) -> None:
        for name in rest:
            if name in hub.unread:
                hub.agents[name].wake()
            while name in hub.unread:
                await hub.readings.park()

    while hub.unread:
        async with trio.open_nursery() as nursery:
            rest = iter(sorted(hub.unread))
            for _ in range(READS_AT_ONCE):
                nursery.start_soon(take, rest)
    hub.took_in = True
    gc.freeze()  # what is known of agents lives long: the collector need not go through it again and again


def _hear(hub: Hub, name: str) -> None:
    if name in hub.agents:
        hub.agents[name].hear()


def _wake(hub: Hub, watch: Watch, name: str) -> None:
    """An agent is new, or something of it changed."""
    if name in hub.agents or (is_agent_name(name) and _meet(hub, watch, name)):
        hub.agents[name].wake()


async def _keep(hub: Hub, watch: Watch, name: str) -> None:
    """The task of an agent, from a wake to its rest."""
    agent = hub.agents[name]
    while True:
        try:
            await agent.keep()
            return
        except Gone:
            break
        except Exception as error:
            _complain(hub, f"{name}: {error if isinstance(error, OSError) else traceback.format_exc()}", error)
            agent.forget()
            _give_way(hub, name)
            hub.failing.add(name)
            await trio.sleep(RETRY_SECONDS)
        except BaseException:
            agent.forget()
            raise
    agent.forget()
    _give_way(hub, name)
    hub.failing.discard(name)
    del hub.agents[name]
    watch.drop(name)
    _wake(hub, watch, name)


def _give_way(hub: Hub, name: str) -> None:
    """It holds no place of those that start, nor one in their line."""
    hub.started(name)
    hub.leave(name)


def _complain(hub: Hub, text: str, error: Exception) -> None:
    """Many agents fail at once for want of descriptors: that is one sentence."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        hub.complain_of_limit()
    else:
        complain(text)


async def _heart(lock: int, hub: Hub) -> None:
    """Beat; and have those who run look while the disk is full: a CLI whose words it does not take says nothing."""
    while True:
        beat(lock)
        if hub.space() < FULL:
            for agent in hub.agents.values():
                if agent.running is not None:
                    agent.wake()
        await trio.sleep(HEARTBEAT_SECONDS)


async def _children() -> None:
    with trio.open_signal_receiver(signal.SIGCHLD) as signals:
        reap()
        async for _ in signals:
            reap()


async def _sweep(hub: Hub, watch: Watch) -> None:
    """Now and then, and at once where the kernel lost something, look whether something changed unheard. What is lost
    during a look is looked for by one more, however often that was."""
    while True:
        with trio.move_on_after(SWEEP_SECONDS):
            await watch.lost.wait()
        watch.lost = trio.Event()
        _find_again(hub, watch)
        await _glance(hub, list(hub.agents))


async def _sweep_blind(hub: Hub, watch: Watch) -> None:
    """The same, more often, for those that nothing tells of."""
    while True:
        await trio.sleep(BLIND_SECONDS)
        if watch.deaf:
            _find_again(hub, watch)
        await _glance(hub, list(watch.blind))


def _find_again(hub: Hub, watch: Watch) -> None:
    try:
        find(hub, watch)
    except OSError as error:
        _complain(hub, str(error), error)


async def _glance(hub: Hub, names: list[str]) -> None:
    """Some at a time, so that nobody waits for all of them."""
    for n, name in enumerate(names):
        if name in hub.agents and name not in hub.unread:
            hub.agents[name].glance()
        if n % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()


async def _told_to_go(hub: Hub, signals: AsyncIterator[int]) -> str:
    """Wait for the signal to go; for SIGUSR1, also until no CLI of ours runs."""
    async for number in signals:
        if number != signal.SIGUSR1:
            return "told to go; agents go on"
        hub.resting = True
        left = {name for name in hub.unread if keeper_lives(hub.home.agent(AgentName(name)))}
        for name, agent in hub.agents.items():
            if name in left or not agent.rests:
                agent.wake()
        while left & hub.unread or _runs(hub):
            await trio.sleep(0.02)
        return "told to go; agents ended"
    raise AssertionError("the signal receiver ended")


def _runs(hub: Hub) -> bool:
    """Whether a CLI of ours runs, also one of an agent that an error made us forget for the moment."""
    if any(agent.running is not None for agent in hub.agents.values()):
        return True
    return any(keeper_lives(hub.home.agent(AgentName(name))) for name in hub.failing)
