"""Who is woken: an agent whose directory changed, one that is new, one that went; and nobody else."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from supervisor.hub import STARTS_AT_ONCE, Hub
from supervisor.keep import SWEEP_SECONDS, _sweep
from supervisor.watch import Watch
from tests.crowd import lay, past
from zoefs.contract.home import Home
from zoefs.contract.words import AgentName
from zoefs.disk.layout import ensure

QUEUED = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


@attrs.frozen
class Ground:
    home: Home
    watch: Watch
    woken: list[str]
    heard: list[str]

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
    home, woken, heard = Home(tmp_path / "home"), list[str](), list[str]()
    ensure(home)
    watch = Watch(home, woken.append, heard.append)
    for name in ("a", "b", "c"):
        watch.add(lay(home, name, past(0)))
    nursery.start_soon(watch.run)
    found = Ground(home, watch, woken, heard)
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


async def test_the_end_of_a_start_wakes_the_next_in_line_and_no_other(tmp_path: Path, nursery: trio.Nursery) -> None:
    hub = Hub(Home(tmp_path), "boot", {}, nursery)
    agents = {f"a{n}": Sleeper() for n in range(9)}
    hub.agents.update(agents)  # type: ignore[arg-type]
    for n in range(STARTS_AT_ONCE):
        assert hub.may_start(f"a{n}")
        hub.begin(f"a{n}")
    assert not hub.may_start("a8")
    for name in ("a8", "a7", "a8", "a6"):
        hub.stand(name)
    assert [name for name, agent in agents.items() if agent.woken] == []
    hub.started("a0")
    hub.started("a5")
    assert [name for name, agent in agents.items() if agent.woken] == ["a8"], "one place is one call"
    assert [name for name in agents if hub.may_start(name)] == ["a1", "a2", "a8"]
    hub.leave("a8")
    assert agents["a7"].woken == 1, "what was for another is passed on"
    hub.begin("a7")
    hub.leave("a3")
    hub.started("a1")
    assert {name: agent.woken for name, agent in agents.items() if agent.woken} == {"a8": 1, "a7": 1, "a6": 1}
    assert list(hub.line) == ["a6"]


@attrs.define
class Looked(Sleeper):
    """One that counts the looks at it, and sees to `then` at each."""

    looks: int = 0
    then: Callable[[], None] = lambda: None

    def glance(self) -> None:
        self.looks += 1
        self.then()


async def test_what_is_lost_during_a_look_at_all_is_looked_for_once_more(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    home = Home(tmp_path / "home")
    ensure(home)
    hub = Hub(home, "boot", {}, nursery)
    watch = Watch(home, lambda name: None, lambda name: None)
    agents = [Looked() for _ in range(250)]
    hub.agents.update({f"a{n}": agent for n, agent in enumerate(agents)})  # type: ignore[misc]
    first = agents[0]

    def lose() -> None:
        if first.looks == 1:
            for _ in range(50):
                watch.lost.set()

    first.then = lose
    watch.lost.set()
    nursery.start_soon(_sweep, hub, watch)
    await trio.sleep(SWEEP_SECONDS / 2)
    assert {agent.looks for agent in agents} == {2}
    await trio.sleep(SWEEP_SECONDS)
    assert {agent.looks for agent in agents} == {3}
    nursery.cancel_scope.cancel()
    watch.close()


async def test_the_kernel_says_that_it_lost_something(ground: Ground) -> None:
    first, second = (ground.home.agent(AgentName("a")).new / name for name in ("x", "y"))
    first.touch()
    for _ in range(QUEUED // 2 + 10):
        os.rename(first, second)
        os.rename(second, first)
    assert not ground.watch.lost.is_set()
    with trio.fail_after(60):
        await ground.watch.lost.wait()
    await ground.told()
