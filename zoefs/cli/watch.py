"""Waiting without polling hard: poll(2) on the `status` of agents, and a slow second look.

poll(2) tells when a status differs from what its handle last gave. It says nothing of a receipt or of a verb that is
pending, and over sshfs, or on a plain directory, it says `readable` always: hence the second look, and the brakes.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import attrs

from zoefs.cli.fail import Failure
from zoefs.cli.tree import PATIENCE, Tree
from zoefs.contract.verbs import parse_ctl
from zoefs.contract.words import SETTLED, Exit, Status, Verb

AGAIN = 0.25
"""Seconds between two looks where poll(2) tells of nothing."""


@attrs.frozen
class Look:
    """What `stat` said of an agent at one moment. `pending`: an accepted verb holds it back."""

    status: str
    pending: bool
    supervised: bool

    def is_at(self, words: frozenset[str]) -> bool:
        """Whether the status is one of `words`; a settled word counts only once every accepted verb is carried out."""
        return self.status in words and not (self.pending and self.status in SETTLED)


def look(tree: Tree, name: str) -> Look:
    """One look at an agent. Raises Failure where there is none."""
    lines = [line.partition(": ") for line in tree.text(tree.agent(name) / "stat", name).splitlines()]
    stat = {key: value for key, _, value in lines}
    verbs = [parse_ctl(value.encode())[0].verb for key, _, value in lines if key == "pending"]
    status = stat.get("status", "")
    held = [verb for verb in verbs if not (verb is Verb.STEER and status == Status.BLOCKED)]
    return Look(status, bool(held), stat.get("supervisor") != "absent")


def absent(tree: Tree) -> Failure:
    """What is said when nobody is there to do the work waited for."""
    return Failure(Exit.NOT_RUNNING, f"no supervisor works behind {tree.mount}; run: zoefs up")


class Deadline:
    """A time in the future, or never."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float) -> float:
        """Seconds until then, at most `most`."""
        return most if self._end is None else max(0.0, min(most, self._end - time.monotonic()))

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self._end is not None and time.monotonic() >= self._end


class Watch:
    """The `status` files of some agents, held open for poll(2)."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._fds: dict[str, int] = {}

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for fd in self._fds.values():
            os.close(fd)

    def pause(self, seen: Mapping[str, str], seconds: float) -> None:
        """Return once the status of an agent in `seen` may differ from the word there, at the latest after `seconds`.

        Raises Failure where the mount or one of the agents is gone.
        """
        gone = [name for name in self._fds if name not in seen]
        for name in gone:
            os.close(self._fds.pop(name))
        one = next(iter(seen)) if len(seen) == 1 else ""
        self._tree.do(lambda: self._pause(seen, seconds), one, seconds + PATIENCE)

    def _pause(self, seen: Mapping[str, str], seconds: float) -> None:
        fresh = [self._open(name) != word for name, word in seen.items() if name not in self._fds]
        if any(fresh):
            return
        names = {self._fds[name]: name for name in seen}
        poll = select.poll()
        for fd in names:
            poll.register(fd, select.POLLIN)
        start = time.monotonic()
        ready = [names[fd] for fd, _ in poll.poll(seconds * 1000)]
        changed = [self._open(name) != seen[name] for name in ready]
        if ready and not any(changed):
            time.sleep(max(0.0, min(AGAIN, seconds) - (time.monotonic() - start)))

    def _open(self, name: str) -> str:
        """Open the status anew and give its word: a new handle tells only of what comes after."""
        path: Path = self._tree.agent(name) / "status"
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if name in self._fds:
            os.close(self._fds[name])
        self._fds[name] = fd
        return os.read(fd, 64).decode(errors="replace").strip()
