"""Who is woken: an agent whose directory changed, one that is new, one that went; and nobody else."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from supervisor import keep
from supervisor.hub import STARTS_AT_ONCE, Hub
from supervisor.watch import Watch
from tests.crowd import lay, past
from zoefs.contract.home import Home
from zoefs.contract.words import AgentName
from zoefs.disk.layout import ensure


@attrs.frozen
class Ground:
    home: Home
    watch: Watch
    woken: list[str]
    heard: list[str]
    lost: list[bool]

    async def told(self) -> None:
        """Return when all that happened was delivered: a change of our own is seen last."""
        mark = uuid.uuid4().hex
        (self.home.agents / mark).mkdir()
        with trio.fail_after(60):
            while mark not in self.woken:
                await trio.sleep(0.005)
        self.woken.remove(mark)


@pytest.fixture
async def ground(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Ground]:
    home, woken, heard, lost = Home(tmp_path / "home"), list[str](), list[str](), list[bool]()
    ensure(home)
    watch = Watch(home, woken.append, heard.append, lambda: lost.append(True))
    for name in ("a", "b", "c"):
        watch.add(lay(home, name, past(0)))
    nursery.start_soon(watch.run)
    found = Ground(home, watch, woken, heard, lost)
    await found.told()
    woken.clear()
    yield found
    nursery.cancel_scope.cancel()
    watch.close()


async def test_an_order_wakes_its_agent_and_no_other(ground: Ground) -> None:
    agent = ground.home.agent(AgentName("b"))
    for path in (agent.new, agent.cancelled, agent.cut):
        (path / "x").touch()
        await ground.told()
        assert set(ground.woken) == {"b"}
        ground.woken.clear()
    agent.raw(1).touch()
    agent.raw(1).write_text("a line\n")
    await ground.told()
    assert (set(ground.heard), ground.woken) == ({"b"}, [])
    assert (ground.watch.blind, ground.watch.deaf) == (set(), False)


async def test_who_comes_and_who_goes_is_named(ground: Ground) -> None:
    lay(ground.home, ".d.temp", past(0))
    os.rename(ground.home.agents / ".d.temp", ground.home.agents / "d")
    await ground.told()
    assert "d" in ground.woken
    assert not {"a", "b", "c"} & set(ground.woken)
    ground.woken.clear()
    os.rename(ground.home.agents / "a", ground.home.retired / "a.born")
    await ground.told()
    assert set(ground.woken) == {"a"}
    ground.watch.drop("a")
    ground.woken.clear()
    (ground.home.retired / "a.born" / "orders" / "new" / "x").touch()
    await ground.told()
    assert ground.woken == []


@attrs.define
class Sleeper:
    """As much of an agent as a hub needs."""

    woken: int = 0

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
def hub(tmp_path: Path, nursery: trio.Nursery) -> Hub:
    """A hub of nine agents, the first of which hold all places."""
    hub = Hub(Home(tmp_path), "boot", {}, nursery)
    hub.agents.update({f"a{n}": Sleeper() for n in range(9)})  # type: ignore[misc]
    for n in range(STARTS_AT_ONCE):
        assert hub.may_start(f"a{n}")
        hub.starts(f"a{n}")
    assert not hub.may_start("a8")
    return hub


def woken(hub: Hub) -> dict[str, int]:
    """How often each was."""
    return {name: agent.woken for name, agent in hub.agents.items() if agent.woken}  # type: ignore[attr-defined]


async def test_the_end_of_a_start_wakes_the_first_in_line_alone(hub: Hub) -> None:
    for name in ("a7", "gone", "a5", "a8", "a7"):
        hub.queue(name)
    hub.started("a5")  # it has no place
    assert woken(hub) == {}
    hub.started("a0")
    assert woken(hub) == {"a7": 1}
    assert hub.may_start("a7")
    assert not hub.may_start("a8"), "the place is kept for who was called"
    hub.starts("a7")
    hub.started("a1")
    hub.starts("a5")
    assert woken(hub) == {"a7": 1, "a5": 1}
    hub.started("a7")
    hub.started("a5")
    assert woken(hub) == {"a7": 1, "a5": 1, "a8": 1}
    assert hub.may_start("a4"), "there are places, and nobody is in line"


async def test_who_was_called_and_needs_no_place_passes_it_on(hub: Hub) -> None:
    """It was stopped meanwhile, say, or retired, or cannot be read."""
    for name in ("a5", "a6", "a7"):
        hub.queue(name)
    hub.started("a0")
    hub.passes("a6")  # it is not its turn
    assert woken(hub) == {"a5": 1}
    hub.passes("a5")
    hub.passes("a5")
    assert woken(hub) == {"a5": 1, "a6": 1}
    del hub.agents["a7"]
    hub.passes("a6")
    assert not hub.line
    assert hub.may_start("a8")


async def test_as_many_looks_as_agents_however_long_the_line(hub: Hub) -> None:
    for n in range(9, 500):
        hub.agents[f"a{n}"] = Sleeper()  # type: ignore[assignment]
        hub.queue(f"a{n}")
    ending, order = [f"a{n}" for n in range(STARTS_AT_ONCE)], []
    while ending:
        hub.started(ending.pop(0))
        for name in sorted(hub.called):
            hub.starts(name)
            ending.append(name)
            order.append(name)
    assert order == [f"a{n}" for n in range(9, 500)]
    assert set(woken(hub).values()) == {1}


async def test_one_made_anew_before_it_was_read_is_watched(tmp_path: Path, nursery: trio.Nursery) -> None:
    """The watch that was laid when the name was found is on the directory that was retired."""
    home, woken = Home(tmp_path / "home"), list[str]()
    ensure(home)
    retired = lay(home, "a", past(0))
    hub = Hub(home, "boot", {}, nursery)

    def wake(name: str) -> None:
        woken.append(name)
        keep.wake(hub, watch, name)

    watch = Watch(home, wake, lambda name: None, lambda: None)
    hub.rouse = lambda name: nursery.start_soon(keep.keep, hub, watch, name)
    keep.find(hub, watch)
    os.rename(retired.path, home.retired / "a")
    made = lay(home, "a", past(0, stopped=True))
    nursery.start_soon(watch.run)
    hub.agents["a"].wake()
    with trio.fail_after(60):
        while not (hub.agents["a"].rests and hub.agents["a"].met == made.born.read_text().strip()):  # type: ignore[attr-defined]
            await trio.sleep(0.005)
        woken.clear()
        (made.new / "x").touch()
        while "a" not in woken:
            await trio.sleep(0.005)
    nursery.cancel_scope.cancel()
    watch.close()
