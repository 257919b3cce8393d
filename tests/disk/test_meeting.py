"""An agent is known by its name and met in a directory: what is watched is the one that is read, also where another
took its place in between."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio

from supervisor.hub import Hub
from supervisor.keep import _keep, _wake, find
from supervisor.watch import Watch
from tests.crowd import lay, past
from zoefs.contract.home import Home
from zoefs.contract.words import AgentName
from zoefs.disk.layout import ensure


@attrs.frozen
class World:
    """A supervisor of `home` that never sweeps. `begun`: whose task began, in order."""

    home: Home
    hub: Hub
    watch: Watch
    begun: list[str]

    async def rest(self) -> None:
        with trio.fail_after(60):
            while not all(agent.rests for agent in self.hub.agents.values()):
                await trio.sleep(0.005)

    async def hears(self, name: str) -> None:
        """An order in its directory wakes it: it is taken."""
        order = f"{1:016x}.out.k1"
        (self.home.agent(AgentName(name)).new / order).write_text("said")
        with trio.fail_after(60):
            while not (self.home.agent(AgentName(name)).taken / order).exists():
                await trio.sleep(0.005)
        await self.rest()


@pytest.fixture
async def world(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[World]:
    home, begun = Home(tmp_path / "home"), list[str]()
    ensure(home)
    lay(home, "a", past(0, stopped=False))
    hub = Hub(home, "boot", {}, nursery)
    watch = Watch(home, lambda name: _wake(hub, watch, name), lambda name: None)

    def rouse(name: str) -> None:
        begun.append(name)
        nursery.start_soon(_keep, hub, watch, name)

    hub.rouse = rouse
    nursery.start_soon(watch.run)
    hub.took_in = True
    yield World(home, hub, watch, begun)
    nursery.cancel_scope.cancel()
    watch.close()


async def test_one_that_took_the_place_of_another_before_it_was_read_is_watched(world: World) -> None:
    find(world.hub, world.watch)
    os.rename(world.home.agents / "a", world.home.retired / "a.born")
    lay(world.home, "a", past(0, stopped=False))
    await world.rest()
    await world.hears("a")


async def test_one_that_got_another_name_is_watched(world: World) -> None:
    find(world.hub, world.watch)
    await world.rest()
    os.rename(world.home.agents / "a", world.home.agents / "b")
    lay(world.home, "a", past(0, stopped=False))
    with trio.fail_after(60):
        while "b" not in world.hub.agents:
            await trio.sleep(0.005)
    await world.rest()
    await world.hears("b")
    await world.hears("a")


async def test_one_whose_birth_is_not_written_is_not_met(world: World) -> None:
    """A power cut may leave the file empty: it is looked at now and then, not again and again."""
    agent = world.home.agent(AgentName("a"))
    born = agent.born.read_text()
    agent.born.write_text("")
    find(world.hub, world.watch)
    for _ in range(20):
        await trio.sleep(0.005)
    assert (world.begun, world.hub.agents) == ([], {})
    agent.born.write_text(born)
    find(world.hub, world.watch)
    await world.rest()
    assert world.begun == ["a"]
    await world.hears("a")
