"""A mount that has not read every agent yet: nobody waits for another's journal, and nothing wrong is told."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
import trio

from tests.crowd import lay, past
from zoefs.contract.home import Home, OrderKind
from zoefs.contract.words import WAIT_SECONDS, AgentName, Status
from zoefs.disk.journal import Sizes
from zoefs.disk.layout import ensure
from zoefs.mount.inodes import AGENTS_INODE, LIST_INODE, ROOT_INODE
from zoefs.mount.service import Service
from zoefs.mount.stage import Staged
from zoefs.mount.tree import ROOT

NAMES = tuple(f"a{n}" for n in range(5))
METRICS = ROOT_INODE + ROOT["metrics"].index
HEALTH = ROOT_INODE + ROOT["health"].index


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home")
    ensure(found)
    made = past(2)
    for name in NAMES:
        lay(found, name, made)
    return found


def begun(home: Home) -> Service:
    service = Service(home, Sizes())
    service.agents.load()
    return service


async def text(service: Service, inode: int) -> str:
    """What a file holds that is opened now."""
    handle = await service.open(inode, os.O_RDONLY, os.getpid())
    return (await handle.read(0, 1 << 20)).decode()


async def look(service: Service, name: str, file: str) -> int:
    """What the kernel does before it opens: the file's inode."""
    directory = service.lookup(AGENTS_INODE, name).inode  # type: ignore[union-attr]
    await service.agents.ready(directory)
    return service.lookup(directory, file).inode  # type: ignore[union-attr]


async def test_a_look_at_one_reads_no_other(home: Home) -> None:
    service = begun(home)
    assert [view.name for view in service.agents.by_name() if view.is_read] == []
    assert [name for name, _ in service.listing(AGENTS_INODE)] == [".", "..", "list", *NAMES]
    assert await text(service, await look(service, "a3", "status")) == "stopped\n"
    assert [view.name for view in service.agents.by_name() if view.is_read] == ["a3"]


async def test_what_tells_of_all_waits_for_all(home: Home, autojump_clock: trio.testing.MockClock) -> None:
    service = begun(home)

    assert "; agents still to be read: 5\n" in await text(service, HEALTH)
    service.attributes(METRICS)  # measured now, and not kept for those who read it when all are read
    told: list[str] = []

    async def read(inode: int) -> None:
        told.append(await text(service, inode))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, LIST_INODE)
        nursery.start_soon(read, METRICS)
        await trio.testing.wait_all_tasks_blocked()
        assert told == []
        for view in service.agents.by_name():
            service.agents.read(view)
        nursery.start_soon(service.agents.read_rest)
    table, metrics = sorted(told, key=lambda one: "HELP" in one)
    assert [line.split("\t")[:3] for line in table.splitlines()[1:]] == [[name, "stopped", "2"] for name in NAMES]
    assert re.search(r'^zoefs_agents\{status="stopped"\} +5$', metrics, re.M)
    assert "read" not in await text(service, HEALTH)
    assert service.attributes(LIST_INODE).size == len(table)


async def test_nobody_waits_long_for_all(home: Home, autojump_clock: trio.testing.MockClock) -> None:
    """A handler that sleeps cannot be interrupted: only as long as a read of `wait`, then it is to be asked again."""
    service = begun(home)
    for inode in (LIST_INODE, METRICS):
        began = trio.current_time()
        with pytest.raises(BlockingIOError):
            await text(service, inode)
        assert trio.current_time() - began == pytest.approx(WAIT_SECONDS)


async def test_who_waits_for_all_is_told_that_the_mount_goes(home: Home) -> None:
    service = begun(home)

    async def read() -> None:
        with pytest.raises(OSError, match="the mount is going") as caught:
            await service.open(LIST_INODE, os.O_RDONLY, os.getpid())
        assert caught.value.errno == errno.ESHUTDOWN

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        service.close()


async def test_one_that_cannot_be_read_holds_up_nobody(home: Home, autojump_clock: trio.testing.MockClock) -> None:
    journal = home.journal(AgentName("a1"))
    kept = journal.read_bytes()
    journal.unlink()
    journal.mkdir()
    service = begun(home)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.agents.read_rest)
        await service.agents.whole.wait()
        table = await text(service, LIST_INODE)
        assert [line.split("\t")[0] for line in table.splitlines()[1:]] == ["a0", "a2", "a3", "a4"]
        with pytest.raises(OSError, match=r"."):
            await look(service, "a1", "status")
        health = await text(service, HEALTH)
        assert health.startswith("mount degraded")
        assert "; cannot be read: a1\n" in health
        journal.rmdir()
        journal.write_bytes(kept)
    assert len((await text(service, LIST_INODE)).splitlines()) == 6


async def test_what_a_dead_mount_left_of_a_prompt_is_settled_at_the_first_look(home: Home) -> None:
    staged = Staged(home.agent(AgentName("a2")), OrderKind.PROMPT, "k1")
    staged.add(b"once")
    staged.close()
    service = begun(home)
    assert not os.listdir(home.agent(AgentName("a2")).new)
    inode = await look(service, "a2", "inbox")
    assert service.lookup(inode, "k1").size  # type: ignore[union-attr]
    assert len(os.listdir(home.agent(AgentName("a2")).new)) == 1


async def test_what_is_noted_while_it_is_read_is_taken_in(home: Home) -> None:
    service = begun(home)
    view = service.agents.views["a0"]
    found = view.read_history()
    with home.journal(view.name).open("ab") as file:
        file.write(b'{"v":1,"t":"2026-11-30T00:00:00.000Z","seq":%d,"kind":"started"}\n' % (found[1].fold.seq + 1))
    view.read_in(found)
    assert view.status is Status.AWAIT


async def test_names_that_differ_in_case_only_are_refused_whoever_was_read(home: Home) -> None:
    service = begun(home)
    lay(home, "Big", past(0))
    service = begun(home)
    for name in ("A1", "a1", "big", "BIG", "Big"):
        with pytest.raises(Exception, match="exists") as caught:
            await service.mkdir(AGENTS_INODE, name, os.getpid())
        assert caught.value.errno == errno.EEXIST  # type: ignore[attr-defined]
    await service.rmdir(AGENTS_INODE, "Big", os.getpid())
    await service.mkdir(AGENTS_INODE, "big", os.getpid())
    assert [view.name for view in service.agents.by_name()] == sorted([*NAMES, "big"])
    assert await text(service, await look(service, "big", "status")) == "await\n"


async def test_a_line_of_the_table_is_made_anew_where_its_agent_changed(home: Home) -> None:
    service = begun(home)
    await service.agents.read_rest()
    await text(service, LIST_INODE)
    before = {view.name: view.row for view in service.agents.by_name()}
    view = service.agents.views["a4"]
    with home.journal(view.name).open("ab") as file:
        file.write(b'{"v":1,"t":"2026-11-30T00:00:00.000Z","seq":%d,"kind":"started"}\n' % (view.fold.seq + 1))
    await service.agents.look_at_all()
    assert "a4\tawait\t2\t0\t" in await text(service, LIST_INODE)
    assert all(view.row is before[view.name] for view in service.agents.by_name() if view.name != "a4")


async def test_a_sweep_sees_lines_taken_back_and_other_files(home: Home) -> None:
    service = begun(home)
    await service.agents.read_rest()
    view = service.agents.views["a0"]
    path = home.journal(view.name)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'{"v"')])
    await service.agents.look_at_all()
    assert view.word == b"await\n"
    os.rename(path, path.with_suffix(".old"))
    path.write_bytes(whole)
    await service.agents.look_at_all()
    assert view.word == b"stopped\n"


async def test_a_listing_is_of_the_moment_of_its_opendir(home: Home) -> None:
    service = begun(home)
    entries = list(service.listing(AGENTS_INODE))
    await service.rmdir(AGENTS_INODE, "a1", os.getpid())
    await service.mkdir(AGENTS_INODE, "a1", os.getpid())
    await service.mkdir(AGENTS_INODE, "b", os.getpid())
    assert [name for name, _ in entries] == [".", "..", "list", *NAMES]
    with pytest.raises(OSError, match="retired"):
        dict(entries)["a1"]()
    assert dict(entries)["a2"]().inode  # type: ignore[union-attr]
