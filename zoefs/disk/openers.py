"""For which agent a process acts: by itself or by an ancestor, on the evidence of /proc (source: proc(5)).

Theory. A process that opens a file waits in that call while we look, so its pid stays its own. An agent's keeper is
below the supervisor, and the CLI and all that it starts below the keeper; what leaves them is given to the supervisor,
which is a subreaper and forks nothing but keepers: so whatever else is below it was left by some agent. Only who left
every ancestor, emptied its environment and outlived its supervisor is taken for a person. This guards against
accident, not against intent.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs

from zoefs.contract.home import Home
from zoefs.contract.words import AgentName, is_agent_name
from zoefs.disk.files import read, read_text
from zoefs.disk.lock import holder
from zoefs.disk.process import environment, stat_fields, ticks

REMEMBERED = 4096
"""Processes whose agent is kept in mind."""
_AGAIN = 3
"""How often the walk begins anew because an ancestor ended under it."""


@attrs.frozen
class Found:
    """A process is an agent's. `agent` is empty where it is not known whose; `evidence` says what told."""

    agent: str
    evidence: str


INVISIBLE = Found("", "invisible")
ORPHAN = Found("", "supervisor")


def by_environment(pid: int, home: Home) -> str:
    """The supervisor sets ZOEFS_AGENT and ZOEFS_HOME for all that it starts."""
    env = environment(pid)
    return env.get("ZOEFS_AGENT", "") if env.get("ZOEFS_HOME") == str(home.path) else ""


def by_keeper(pid: int, home: Home) -> str:
    """A keeper's second argument is its agent's directory, and the start mark there names it."""
    try:
        words = (read(Path(f"/proc/{pid}/cmdline")) or b"").split(b"\0")
    except OSError:
        return ""
    if len(words) < 4 or not words[1].endswith(b"/keeper.sh"):
        return ""
    path = Path(os.fsdecode(words[2]))
    if path.parent != home.agents or not is_agent_name(path.name):
        return ""
    mark = read_text(home.agent(AgentName(path.name)).pid).split()
    return path.name if mark[:1] == [str(pid)] else ""


EVIDENCE: dict[str, Callable[[int, Home], str]] = {
    "environment": by_environment,
    "keeper": by_keeper,
    # "cgroup": its row comes with the cgroups of agents; it will also find those who left every ancestor.
}
"""What tells the agent of one process, its ancestors left aside."""


class Openers:
    """Who was found, remembered by pid and start time. Safe to be used from several threads."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[tuple[int, int], Found | None] = {}

    def remembered(self, pid: int) -> tuple[bool, Found | None]:
        """Whether this very process was looked for before, and what was found. Reads one small file."""
        key = ticks(stat_fields(pid)) if pid > 0 else 0
        return ((pid, key) in self._known, self._known.get((pid, key)))

    def find(self, pid: int) -> Found | None:
        """The agent that a process acts for; None for a person's. May wait for the process it looks at."""
        for _ in range(_AGAIN):
            walked: list[tuple[int, int]] = []
            whole, found = self._walk(pid, walked)
            if not walked:
                return found
            if whole:
                self._remember(walked, found)
                return found
        return INVISIBLE

    def _walk(self, pid: int, walked: list[tuple[int, int]]) -> tuple[bool, Found | None]:
        """Up from `pid`: whether nobody vanished on the way, and what was found; `walked` is who was looked at."""
        if pid <= 0:
            return False, INVISIBLE
        supervisor = holder(self._home.supervisor_lock)
        while pid > 0:
            fields = stat_fields(pid)
            start = ticks(fields)
            if not start:
                return False, INVISIBLE
            if (pid, start) in self._known:
                return True, self._known[pid, start]
            if (pid, start) in walked:
                return False, INVISIBLE  # parents changed under us
            below, is_supervisor = bool(walked), supervisor.mark.pid == pid and supervisor.mark.start == start
            walked.append((pid, start))
            for evidence, judge in EVIDENCE.items():
                if name := judge(pid, self._home):
                    return True, Found(name, evidence)
            if is_supervisor:
                walked.pop()
                return True, ORPHAN if below else None
            pid = int(fields[1])
        return True, None

    def _remember(self, walked: list[tuple[int, int]], found: Found | None) -> None:
        if len(self._known) + len(walked) > REMEMBERED:
            self._known.clear()
        self._known.update(dict.fromkeys(walked, found))
