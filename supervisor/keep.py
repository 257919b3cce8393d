"""The loop: find the agents, keep each in a task of its own, beat the heart, reap, and go when told.

Everything an agent's task knows comes from its directory and its journal, so a task that fails on an error is
begun anew from there, as after a crash.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import AsyncIterator, Mapping

import trio

import zoefs
from supervisor.agent import Agent, Gone
from supervisor.hub import FULL, Hub, complain
from supervisor.process import become_subreaper, reap
from supervisor.watch import Watch
from zoefs.contract.home import HEARTBEAT_SECONDS, Home
from zoefs.contract.words import AgentName, is_agent_name
from zoefs.disk.files import names
from zoefs.disk.journal import Sizes, Writer, recent
from zoefs.disk.lock import beat, take
from zoefs.disk.process import boot_id, raise_descriptor_limit

SWEEP_SECONDS = 5.0
RETRY_SECONDS = 1.0


async def run(home: Home, env: Mapping[str, str]) -> None:
    """Supervise HOME until SIGTERM (agents go on) or SIGUSR1 (agents end first). Raises lock.Held.

    The heart beats, and `zoefs up` calls it ready, only once it listens to signals and keeps every agent.
    """
    lock = take(home.supervisor_lock, zoefs.__version__)
    os.utime(lock, (0, 0))
    become_subreaper()
    raise_descriptor_limit()
    seq = max((event.seq for event in recent(home.supervisor_log)), default=0)
    log = Writer(home.supervisor_log, seq, limit=Sizes.of(env).log)
    log.append(("supervisor-started", {"pid": os.getpid()}))
    going = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    with trio.open_signal_receiver(*going) as signals:
        async with trio.open_nursery() as nursery:
            hub = Hub(home, boot_id(), dict(env), nursery)
            watch = Watch(home, lambda name: _wake(hub, watch, name), lambda name: _hear(hub, name))
            nursery.start_soon(_children)
            nursery.start_soon(watch.run)
            find(hub, watch)
            nursery.start_soon(_heart, lock, hub)
            nursery.start_soon(_sweep, hub, watch)
            why = await _told_to_go(hub, signals)
            log.append(("supervisor-stopped", {"why": why}))
            nursery.cancel_scope.cancel()
    watch.close()
    log.close()
    os.utime(lock, (0, 0))
    os.close(lock)


def find(hub: Hub, watch: Watch) -> None:
    """Begin to keep every agent that is on disk and not kept yet."""
    for name in names(hub.home.agents):
        if is_agent_name(name) and name not in hub.agents and hub.home.agent(AgentName(name)).born.exists():
            agent = Agent(hub.home.agent(AgentName(name)), hub)
            hub.agents[name] = agent
            watch.add(agent.home)
            hub.nursery.start_soon(_keep, hub, watch, name, agent)


def _hear(hub: Hub, name: str) -> None:
    if name in hub.agents:
        hub.agents[name].hear()


def _wake(hub: Hub, watch: Watch, name: str | None) -> None:
    if name is None:
        find(hub, watch)
        for agent in hub.agents.values():
            agent.wake()
    elif name in hub.agents:
        hub.agents[name].wake()


async def _keep(hub: Hub, watch: Watch, name: str, agent: Agent) -> None:
    while True:
        try:
            await agent.keep()
        except Gone:
            break
        except Exception as error:
            text = f"{name}: {error}" if isinstance(error, OSError) else f"{name}: {traceback.format_exc()}"
            complain(text)
            agent.forget()
            hub.started(name)
            await trio.sleep(RETRY_SECONDS)
        finally:
            agent.forget()
            hub.started(name)
    del hub.agents[name]
    watch.drop(name)
    find(hub, watch)


async def _heart(lock: int, hub: Hub) -> None:
    """Beat; and have every agent look while the disk is full: a CLI whose words it does not take says nothing."""
    while True:
        beat(lock)
        if hub.space() < FULL:
            for agent in hub.agents.values():
                agent.wake()
        await trio.sleep(HEARTBEAT_SECONDS)


async def _children() -> None:
    with trio.open_signal_receiver(signal.SIGCHLD) as signals:
        reap()
        async for _ in signals:
            reap()


async def _sweep(hub: Hub, watch: Watch) -> None:
    while True:
        await trio.sleep(SWEEP_SECONDS)
        _wake(hub, watch, None)


async def _told_to_go(hub: Hub, signals: AsyncIterator[int]) -> str:
    """Wait for the signal to go; for SIGUSR1, also until no CLI of ours runs."""
    async for number in signals:
        if number != signal.SIGUSR1:
            return "told to go; agents go on"
        hub.resting = True
        for agent in hub.agents.values():
            agent.wake()
        while any(agent.running is not None for agent in hub.agents.values()):
            await trio.sleep(0.02)
        return "told to go; agents ended"
    raise AssertionError("the signal receiver ended")
