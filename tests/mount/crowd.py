"""A HOME with agents in every state that lasts, and files of every kind in the directories shown through.

All of it is at rest: nothing changes by itself but what BEATS names, so what changed was changed by somebody.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from tests.e2e.fake_cli import Fake
from tests.living import Tree, living, wait_for
from tests.mount.clients import ECHO, ORDERS, exec_spec, fate, put, said, word
from zoefs.contract.home import SHARED
from zoefs.mount.tree import FILES, ROOT

BEATS = {"supervisor.lock": "its mtime is the supervisor's heartbeat"}
"""What changes in HOME by itself, and why."""
COUNTS = {"metrics": "it counts the requests of whoever looks"}
"""What changes in MOUNT by being looked at, and why; its length stays."""
FOREVER = 86_400
"""Seconds, longer than any run of the tests."""
NEEDLE = "a needle"
"""What only `context/text` holds, and a file behind the symlink of `hosts`."""


@attrs.define
class Crowd:
    """See module. `agents`: the state of each by name; `inboxes`: the names in its inbox."""

    tree: Tree
    agents: dict[str, str] = attrs.Factory(dict)
    inboxes: dict[str, set[str]] = attrs.Factory(dict)
    held: contextlib.ExitStack = attrs.Factory(contextlib.ExitStack)

    def of(self, state: str) -> Path:
        """The directory of an agent in this state."""
        return self.tree.agent(next(name for name, is_ in self.agents.items() if is_ == state))

    def words(self) -> dict[str, str]:
        """The status of each."""
        return {name: word(self.tree.agent(name)) for name in self.agents}

    def names(self) -> set[str]:
        """Every path below MOUNT, as the tables and HOME say."""
        found = {*ROOT, "agents/list"}
        for name in self.agents:
            listed = {row.name for row in FILES.values() if row.listed}
            inbox = {f"inbox/{id}" for id in self.inboxes[name]}
            found |= {f"agents/{name}", *(f"agents/{name}/{file}" for file in listed | inbox)}
        for top in (*SHARED, "hosts", "log"):
            found |= {str(path.relative_to(self.tree.home)) for path in (self.tree.home / top).rglob("*")}
        return found

    def metric(self, name: str, label: str = "") -> int:
        """A sample of `metrics`, which is at most a second old."""
        text = (self.tree.mount / "metrics").read_text()
        found = re.search(rf"^{name}{re.escape(label)} +(\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else 0

    def refusals(self) -> dict[str, str]:
        """The errors that the mount answered until now; ENOENT left out: a look for a name that is not there."""
        kind, asked = "zoefs_operations_total", '{kind="read"}'
        before = self.metric(kind, asked)
        wait_for(lambda: self.metric(kind, asked) != before, "a text made after this call")
        text = (self.tree.mount / "metrics").read_text()
        return dict(re.findall(r'zoefs_refusals_total\{errno="(\w+)"\} +(\d+)', text.replace("ENOENT", "")))


def picture(home: Path, *but: str) -> dict[str, tuple[object, ...]]:
    """Everything below HOME with mode, size, mtime, inode number, links and bytes; `but` is left out."""
    found: dict[str, tuple[object, ...]] = {}
    for path in home.rglob("*"):
        name = str(path.relative_to(home))
        if name not in but:
            is_ = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(is_.st_mode) else ""
            found[name] = (is_.st_mode, is_.st_size, is_.st_mtime_ns, is_.st_ino, is_.st_nlink, content)
    return found


# -- the states --------------------------------------------------------------------------------------------------------

Prompts = set[str]


def _new(crowd: Crowd, agent: Path) -> Prompts:
    return set()


def _one(crowd: Crowd, agent: Path) -> Prompts:
    put(agent / "inbox/one", b"t done 0\n")
    return {"one"}


def _drafts(crowd: Crowd, agent: Path) -> Prompts:
    for name in (".draft", ".big"):
        put(agent / "inbox" / name, b"draft" * len(name) * 1000)
    return {".draft", ".big"}


def _arriving(crowd: Crowd, agent: Path) -> Prompts:
    """Half a prompt, whose writer holds `inbox/half` open; not this process, whose every child would flush it."""
    script = f"exec 3> inbox/half; printf 'half a prom' >&3; exec sleep {FOREVER}"
    writer = crowd.held.enter_context(subprocess.Popen(["sh", "-c", script], cwd=agent))
    crowd.held.callback(writer.kill)
    wait_for(lambda: Path(f"/proc/{writer.pid}/comm").read_text() == "sleep\n", "half a prompt is written")
    return {"half"}


def _running(crowd: Crowd, agent: Path) -> Prompts:
    ids = {"first", "second", "third", "cancelled"}
    for id in sorted(ids):
        if id != "cancelled":
            put(agent / "inbox" / id, b"go")
    put(agent / "inbox/cancelled", b"go")
    (agent / "inbox/cancelled").unlink()
    return ids | _drafts(crowd, agent)


@attrs.frozen
class State:
    """One state: the spec, how it is brought about, the verb that ends it there, and the word it rests at."""

    spec: str
    make: Callable[[Crowd, Path], Prompts]
    word: str
    verb: str = ""


STATES = {
    "new": State(ECHO, _new, "await"),
    "done": State(ECHO, _one, "await"),
    "half": State(exec_spec("sh", "-c", "echo half; exit 3"), _one, "await"),
    "drafts": State(ORDERS, _drafts, "await"),
    "stopped": State(ECHO, _one, "stopped", "stop"),
    "failed": State(exec_spec("/no/such/program"), _one, "failed"),
    "arriving": State(ECHO, _arriving, "running"),
    "running": State(exec_spec("sh", "-c", f"echo begun; exec sleep {FOREVER}"), _running, "running"),
    "blocked": State('backend = "claude"\n', _one, "blocked"),
}


def _rests(crowd: Crowd, name: str) -> bool:
    """Whether an agent has come to rest in its state."""
    agent, state = crowd.tree.agent(name), STATES[crowd.agents[name]]
    if word(agent) != state.word:
        return False
    if crowd.agents[name] == "running":
        at_work = fate(agent, "first") == "sent" and fate(agent, "cancelled") == "cancelled"
        return at_work and said(crowd.tree, agent) == b"begun\n" and "cancelled" in (agent / "events").read_text()
    return state.word in ("running", "blocked") or bool((agent / "wait").read_bytes())


def _files(tree: Tree) -> None:
    """Ordinary files: small, big, empty, sparse, linked, and a FIFO that nobody writes to."""
    for top in ("tasks", "workflows", "context"):
        (tree.mount / top / "deep/er").mkdir(parents=True)
        (tree.mount / top / "text").write_text(f"{top}\n" * 500 + f"{NEEDLE} in a haystack\n" * (top == "context"))
        (tree.mount / top / "deep/er/empty").touch()
        (tree.mount / top / "deep/bytes").write_bytes(bytes(range(256)) * 1000)
        (tree.mount / top / "symlink").symlink_to("deep/bytes")
        os.link(tree.mount / top / "text", tree.mount / top / "deep/link")
    os.truncate(tree.mount / "context/deep/er/empty", 1_000_000)
    os.mkfifo(tree.mount / "context/fifo")
    (far := tree.home.parent / "far").mkdir()
    (far / "needle").write_text(NEEDLE)
    (tree.mount / "hosts/far").symlink_to(far)


def _locks(crowd: Crowd) -> None:
    """Somebody holds locks of both kinds on a file, here and in HOME."""
    for top in (crowd.tree.mount, crowd.tree.home):
        for lock in (fcntl.flock, fcntl.lockf):
            fd = os.open(top / "context/text", os.O_RDWR)
            crowd.held.callback(os.close, fd)
            lock(fd, fcntl.LOCK_EX)


@contextlib.contextmanager
def crowded(base: Path, count: int) -> Iterator[Crowd]:
    """A living tree with so many agents, each at rest."""
    fake = Fake(base / "cli")
    fake.be("ask")
    with living(base, fake.env) as tree:
        crowd = Crowd(tree)
        with crowd.held:
            for n in range(count):
                state = list(STATES)[n % len(STATES)]
                crowd.agents[f"{state}{n}"] = state
            for name, state in crowd.agents.items():
                crowd.inboxes[name] = STATES[state].make(crowd, tree.make(name, STATES[state].spec))
            for name, state in crowd.agents.items():
                if STATES[state].verb:
                    tree.settle(name)
                    put(tree.agent(name) / "ctl", STATES[state].verb.encode() + b"\n")
            _files(tree)
            _locks(crowd)
            for name in crowd.agents:
                wait_for(lambda name=name: _rests(crowd, name), f"{name} rests", 600)  # type: ignore[misc]
            crowd.held.callback((tree.mount / "context/fifo").unlink)
            yield crowd
