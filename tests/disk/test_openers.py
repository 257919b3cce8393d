"""For which agent a process acts: by its environment, its ancestors, its keeper; and who is no agent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.living import wait_for
from zoefs.contract.home import Home
from zoefs.contract.words import AgentName
from zoefs.disk.openers import INVISIBLE, ORPHAN, Found, Openers
from zoefs.disk.process import environment, mark_of, stat_fields

Started = Callable[[str, dict[str, str]], int]
NOBODY = 2**22 + 1
"""Above the kernel's greatest pid."""
HOME = Path("/some/home")
AGENT = {"ZOEFS_AGENT": "r1", "ZOEFS_HOME": str(HOME)}


def child_of(pid: int) -> int:
    """Its one child, once it has it."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_for(children.read_text, f"{pid} has a child")
    return int(children.read_text())


def agent(pid: int) -> str:
    """The agent that a process was found to act for; empty where it is a person's."""
    found = Openers(Home(HOME)).find(pid)
    return found.agent if found else ""


def test_an_agent_is_known_by_its_environment(started: Started) -> None:
    pid = started("echo $$; exec sleep 60", AGENT)
    assert agent(pid) == "r1"
    assert Openers(Home(Path("/other/home"))).find(pid) is None


@pytest.mark.parametrize("env", [{}, {"ZOEFS_AGENT": "r1"}, {"ZOEFS_HOME": str(HOME)}, {**AGENT, "ZOEFS_AGENT": ""}])
def test_half_of_it_is_nobody(started: Started, env: dict[str, str]) -> None:
    assert agent(started("echo $$; exec sleep 60", env)) == ""


def test_who_left_its_session_and_its_parents_is_still_the_agent(started: Started, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    pid = started(f"setsid sh -c 'sleep 60 >/dev/null 2>&1 & echo $! >{note}'; cat {note}", AGENT)
    _, parent, _, session, *_ = stat_fields(pid)
    assert session not in (str(os.getsid(0)), str(pid))
    assert agent(int(parent)) == ""
    assert agent(pid) == "r1"


def test_who_scrubbed_its_environment_is_known_by_its_ancestor(started: Started) -> None:
    pid = started("env -i sh -c 'sh -c \"echo \\$\\$; exec sleep 60\"; :'; :", AGENT)
    assert "ZOEFS_AGENT" not in environment(pid)
    assert agent(pid) == "r1"


@pytest.mark.parametrize("pid", [0, -1, NOBODY])
def test_who_cannot_be_seen_is_an_agent_that_nobody_knows(pid: int) -> None:
    assert Openers(Home(HOME)).find(pid) == INVISIBLE
    assert INVISIBLE.agent == ""


def test_the_first_process_is_no_agent() -> None:
    assert Openers(Home(HOME)).find(1) is None


def test_we_run_for_no_agent() -> None:
    assert Openers(Home(HOME)).find(os.getpid()) is None


def test_a_keeper_is_known_by_its_start_mark(started: Started, tmp_path: Path) -> None:
    home = Home(tmp_path)
    path = home.agent(AgentName("r1")).path
    path.mkdir(parents=True)
    (tmp_path / "keeper.sh").write_text("echo $$; sleep 60 >/dev/null; :\n")
    command = f"sh {tmp_path}/keeper.sh {path} 1 boot /; :"
    pid = started(command, {})
    assert Openers(home).find(pid) is None
    (path / "pid").write_text(f"{pid} 1 1 boot\n")
    assert Openers(home).find(pid) == Found("r1", "keeper")
    child = child_of(pid)
    assert Openers(home).find(child) == Found("r1", "keeper")
    os.kill(child, signal.SIGKILL)


def test_what_is_below_the_supervisor_and_no_keeper_was_left_by_some_agent(started: Started, tmp_path: Path) -> None:
    home = Home(tmp_path)
    pid = started("echo $$; sleep 60 >/dev/null; :", {})
    child = child_of(pid)
    assert Openers(home).find(child) is None
    mark = mark_of(pid)
    home.supervisor_lock.write_text(f"{mark.pid}\n{mark.start}\n{mark.boot}\n")
    openers = Openers(home)
    assert openers.find(child) == ORPHAN
    assert openers.find(pid) is None
    os.kill(child, signal.SIGKILL)


def test_who_was_found_is_remembered_and_looked_for_once(started: Started) -> None:
    openers = Openers(Home(HOME))
    pid = started("echo $$; exec sleep 60", AGENT)
    assert openers.remembered(pid) == (False, None)
    found = openers.find(pid)
    assert openers.remembered(pid) == (True, found)
    assert openers.remembered(0) == openers.remembered(NOBODY) == (False, None)
    assert openers.find(os.getpid()) is None
    assert openers.remembered(os.getpid()) == (True, None)
