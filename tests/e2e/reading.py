"""What the tests of crashes look at: an agent's journal as facts, and the processes below its keeper.

The journal is read from HOME, not through the mount: it must be right whoever is dead at the moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.living import Tree, wait_for
from zoefs.contract.events import Event
from zoefs.contract.home import AgentHome, Home
from zoefs.contract.words import AgentName
from zoefs.disk.journal import Tail
from zoefs.disk.process import start_time


def agent_home(tree: Tree, name: str) -> AgentHome:
    """The directory of an agent in HOME."""
    return Home(tree.home).agent(AgentName(name))


def journal(tree: Tree, name: str) -> Path:
    """The path of the journal's current segment."""
    return Home(tree.home).journal(AgentName(name))


def events(tree: Tree, name: str, kind: str = "") -> list[Event]:
    """The events of an agent from all segments, or those of one kind; none where there is no journal yet."""
    return [event for event in Tail(journal(tree, name)).read() if kind in ("", event.kind)]


def ends(tree: Tree, name: str, id: str) -> list[str]:
    """How the turns of this prompt ended: `how` of each of its `turn-ended` events."""
    return [event.text("how") for event in events(tree, name, "turn-ended") if event.text("id") == id]


def story(tree: Tree, name: str, id: str) -> str:
    """What the journal tells of one prompt, and where its order is: for the message of a failure."""
    found = [event for event in events(tree, name) if id in (event.text("id"), event.text("order").partition(".")[0])]
    turns = {event.number("turn") for event in found} - {0}
    told = [event for event in events(tree, name) if event in found or event.number("turn") in turns]
    orders = [str(path) for path in agent_home(tree, name).orders.rglob(f"*{id}*")]
    return "\n".join([f"{id} of {name}:", *(event.encode().decode().strip() for event in told), *orders])


def check_journal(tree: Tree, name: str) -> None:
    """The seq of a journal begins with 1 and has no gap; each turn was given once and ended once."""
    found = events(tree, name)
    assert [event.seq for event in found] == list(range(1, len(found) + 1)), f"{name}: seq has a gap"
    for kind in ("prompt-given", "turn-ended"):
        turns = [event.number("turn") for event in found if event.kind == kind]
        assert turns == list(range(1, len(turns) + 1)), f"{name}: turns of {kind}: {turns}"
    given = [event.text("id") for event in found if event.kind == "prompt-given"]
    assert len(given) == len(set(given)), f"{name}: a prompt was given twice: {given}"


def until_event(tree: Tree, name: str, kind: str, more_than: int = 0) -> None:
    """Wait until the journal holds more than so many events of this kind."""
    wait_for(lambda: len(events(tree, name, kind)) > more_than, f"{name}: {kind}")


def mounts(tree: Tree) -> int:
    """How many file systems are mounted at MOUNT: dead ones can lie under or over the living one."""
    return sum(line.split()[1] == str(tree.mount) for line in Path("/proc/mounts").read_text().splitlines())


def alive(pid: int) -> bool:
    """Whether a process of this pid runs; a zombie does not."""
    return start_time(pid) != 0


def children(pid: int) -> list[int]:
    """The children of a process now."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def below(pid: int) -> list[int]:
    """Every process below `pid` now."""
    return [one for child in children(pid) for one in (child, *below(child))]


def keeper_of(tree: Tree, name: str) -> int:
    """The pid of the keeper, once there is one."""
    wait_for(lambda: tree.stat(name)["pid"], f"{name} has a keeper")
    return int(tree.stat(name)["pid"])


def cli_of(tree: Tree, name: str) -> int:
    """The pid of the CLI: the keeper's only child."""
    keeper = keeper_of(tree, name)
    wait_for(lambda: children(keeper), f"{name} has a CLI")
    return children(keeper)[0]


def kill(pid: int) -> None:
    """SIGKILL one process of the tree under test; one that has ended is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
