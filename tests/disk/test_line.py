"""Who stands in line for a start: first come, first started, whatever becomes of those ahead; and no look in vain.

The agents are the supervisor's own, in a HOME without a mount; each time the task of one begins is counted. Their CLI
cannot be run since its environment is too long: a start takes a place, ends badly at once, and leaves no process.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio

from supervisor.hub import STARTS_AT_ONCE, Hub
from supervisor.keep import _keep, find
from supervisor.watch import Watch
from tests.crowd import lay, past
from zoefs.contract.home import Home
from zoefs.contract.words import AgentName
from zoefs.disk.files import read
from zoefs.disk.layout import ensure

BUSY = [f"busy{n}" for n in range(STARTS_AT_ONCE)]


@attrs.frozen
class World:
    hub: Hub
    watch: Watch
    begun: list[str]

    def ask(self, name: str, kind: str = "prompt", text: str = "p", n: int = 1) -> None:
        (self.hub.home.agent(AgentName(name)).new / f"{n:016x}.{kind}.k{n}").write_text(text)

    async def look(self, name: str) -> None:
        """Wake it, and return once all are at rest."""
        self.hub.agents[name].wake()
        await self.rest()

    async def rest(self) -> None:
        with trio.fail_after(60):
            while not all(agent.rests for agent in self.hub.agents.values()):
                await trio.sleep(0.005)

    def failures(self) -> set[str]:
        """Those whose start failed."""
        return {n for n in self.hub.agents if b'"failed"' in (read(self.hub.home.journal(AgentName(n))) or b"")}


@pytest.fixture
async def world(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[World]:
    """Agents a00 to a39, at rest, while as many others start as may."""
    home, begun = Home(tmp_path / "home"), list[str]()
    ensure(home)
    cli = tmp_path / "claude"
    cli.write_text("#!/bin/sh\nexit 1\n")
    cli.chmod(0o755)
    for n in range(40):
        lay(home, f"a{n:02d}", past(0, stopped=False), spec=b'backend = "claude"\n')
    hub = Hub(home, "boot", {"ZOEFS_CLAUDE": str(cli), "HOME": str(tmp_path), "LANG": "x" * 200_000}, nursery)
    watch = Watch(home, lambda name: None, lambda name: None)

    def rouse(name: str) -> None:
        begun.append(name)
        nursery.start_soon(_keep, hub, watch, name)

    hub.rouse = rouse
    find(hub, watch)
    found = World(hub, watch, begun)
    for name in hub.agents:
        await found.look(name)
    hub.took_in = True
    hub.starting.update(BUSY)
    begun.clear()
    yield found
    nursery.cancel_scope.cancel()
    watch.close()


async def test_each_is_woken_once_and_in_its_turn(world: World) -> None:
    names = list(world.hub.agents)[::-1]
    for name in names:
        world.ask(name)
        await world.look(name)
    assert world.failures() == set()
    world.hub.started(BUSY[0])
    await world.rest()
    assert world.failures() == set(names)
    assert world.begun == names * 2, "each is woken to stand in line, and once more to start"


@pytest.mark.parametrize("end", ["stopped", "failed", "retired", "error", "nothing to do"])
async def test_the_next_starts_whatever_becomes_of_the_first(world: World, end: str) -> None:
    for name in ("a00", "a01", "a02"):
        world.ask(name)
        await world.look(name)
    agent = world.hub.home.agent(AgentName("a00"))
    match end:
        case "stopped":
            world.ask("a00", "ctl", "stop\n", 2)
        case "failed":
            agent.spec.write_text('backend = "claude"\ncwd = "/nowhere"\n')
        case "retired":
            os.rename(agent.path, world.hub.home.retired / "a00.born")
        case "error":
            os.rename(agent.new, agent.path / "orders" / "aside")
            agent.new.write_text("no directory\n")
        case "nothing to do":
            os.rename(next(agent.new.iterdir()), agent.taken / "gone")
    world.hub.started(BUSY[0])
    with trio.fail_after(60):
        while not {"a01", "a02"} <= world.failures():
            await trio.sleep(0.005)
    assert world.begun.count("a01") == world.begun.count("a02") == 2


async def test_who_comes_later_does_not_overtake(world: World) -> None:
    world.ask("a00")
    await world.look("a00")
    world.hub.started(BUSY[0])
    assert world.hub.may_start("a00")
    assert not world.hub.may_start("a01"), "the place is for the one that was called"
    await world.rest()
    assert world.failures() == {"a00"}
    assert world.hub.may_start("a01")


async def test_a_verb_leaves_it_where_it_stands(world: World) -> None:
    for name in ("a00", "a01"):
        world.ask(name)
        await world.look(name)
    world.ask("a00", "ctl", "start\n", 2)
    await world.look("a00")
    assert list(world.hub.line) == ["a00", "a01"]
