"""What waits for an agent is found on disk whatever moves there meanwhile, and is never half forgotten."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crowd import lay, past
from zoefs.contract.home import AgentHome, Home, OrderKind
from zoefs.contract.words import AgentName, Status
from zoefs.disk.files import names
from zoefs.disk.journal import Sizes
from zoefs.disk.layout import ensure
from zoefs.mount import orders
from zoefs.mount.inodes import AGENTS_INODE
from zoefs.mount.service import Service
from zoefs.mount.stage import Staged
from zoefs.mount.view import View


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    ensure(home)
    lay(home, "a", past(turns=1, stopped=False))
    return home


@pytest.fixture
def agent(home: Home) -> AgentHome:
    return home.agent(AgentName("a"))


def queue(agent: AgentHome, id: str) -> str:
    """The name of a prompt's order, in `orders/new`."""
    staged = Staged(agent, OrderKind.PROMPT, id)
    staged.add(b"do it")
    staged.commit()
    return staged.order.name


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Whoever opens this meets ELOOP: a disk that fails for a moment."""
    kept = path.rename(path.with_name(f".{path.name}"))
    path.symlink_to(path.name)
    yield
    path.unlink()
    kept.rename(path)


def begun(home: Home) -> tuple[Service, View]:
    service = Service(home, Sizes())
    service.agents.load()
    view = service.agents.views["a"]
    service.agents.read(view)
    return service, view


@pytest.mark.parametrize(("first", "then"), [("taken", "new"), ("new", "taken"), ("new", "cancelled")])
@pytest.mark.parametrize("at", range(5))
def test_an_order_that_is_moved_while_we_look_is_found(
    home: Home, agent: AgentHome, first: str, then: str, at: int
) -> None:
    """A starting supervisor gives claims back that it never noted, a running one claims, a client cancels."""
    fold = begun(home)[1].fold
    name = queue(agent, "k1")
    (agent.new / name).rename(agent.orders / first / name)
    looks = 0

    def listed(path: Path) -> list[str]:
        nonlocal looks
        if looks == at:
            os.rename(agent.orders / first / name, agent.orders / then / name)
        looks += 1
        return names(path)

    found = orders.look(agent, fold, listed)
    assert {id for queued in found.waiting for id in queued.ids} | found.cancelled == {"k1"}
    assert looks == 5


def test_what_waits_is_not_forgotten_where_looking_anew_fails(home: Home, agent: AgentHome) -> None:
    queue(agent, "k1")
    service, view = begun(home)
    assert (view.status, view.knows("k1")) == (Status.RUNNING, True)
    lines = view.journal.read_bytes().splitlines(keepends=True)
    view.journal.write_bytes(b"".join(lines[:-1]))  # the supervisor took back lines on a full disk
    with unreadable(agent.taken):
        service.agents.catch_up("a")
        assert (view.status, view.knows("k1")) == (Status.RUNNING, True)
    service.agents.catch_up("a")
    assert (view.status, view.knows("k1")) == (Status.RUNNING, True)
    assert view.fold.turn_open


def test_an_agent_that_cannot_be_read_to_its_end_is_read_again(home: Home, agent: AgentHome) -> None:
    queue(agent, "k1")
    service = Service(home, Sizes())
    service.agents.load()
    view = service.agents.views["a"]
    found = view.read_history()
    with unreadable(view.journal if view.is_read else home.journal(agent.name)), pytest.raises(OSError, match=r"."):
        service.agents.read(view, found)
    assert not view.is_read
    assert view in service.agents.unread
    service.agents.read(view)
    view.publish()
    assert (view.status, view.is_read, service.agents.unread) == (Status.RUNNING, True, set())


async def test_an_agent_that_cannot_be_made_leaves_nothing(home: Home) -> None:
    service, _ = begun(home)
    (home.agents / "b" / "of somebody else").mkdir(parents=True)
    before = sorted(home.agents.rglob("*"))
    with pytest.raises(OSError, match="not empty"):
        await service.mkdir(AGENTS_INODE, "b", os.getpid())
    assert sorted(home.agents.rglob("*")) == before
