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
