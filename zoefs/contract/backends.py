"""What clients may expect of each backend: one row each. How it is driven is `supervisor/backends/`.

A row that is missing here does not exist: spec, help, manual and tests read the names from this table.
"""

from __future__ import annotations

import attrs

from zoefs.contract.words import OnLost, Verb

_ALWAYS = frozenset({Verb.START, Verb.STOP, Verb.RESTART, Verb.INTERRUPT, Verb.KILL, Verb.STEER})
_ASKS = frozenset({Verb.ALLOW, Verb.ALLOW_ALWAYS, Verb.DENY})


@attrs.frozen
class Backend:
    """One kind of CLI. `transport`: `stream` (one long-lived process) or `turn` (one process a turn).

    `chooses`: zoefs chooses the session id, before the CLI starts; else the CLI tells it in its handshake. `looks_up`:
    after a crash it can tell whether a prompt had reached it. `without`: keys of the spec that mean nothing to it.
    `versions`: those that its tests run with, oldest first; empty where the program is the user's own.
    """

    name: str
    transport: str
    on_lost: OnLost
    verbs: frozenset[Verb]
    fidelity: str
    doc: str
    chooses: bool = True
    looks_up: bool = False
    without: frozenset[str] = frozenset()
    versions: tuple[str, ...] = ()

    @property
    def agent(self) -> str:
        """One agent of this kind, in a sentence."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name} agent"


BACKENDS: dict[str, Backend] = {
    row.name: row
    for row in (
        Backend(
            name="claude",
            transport="stream",
            on_lost=OnLost.CONTINUE,
            verbs=_ALWAYS | _ASKS | {Verb.COMPACT},
            fidelity="protocol",
            doc="Claude Code, driven over stream-json. The session id is chosen by zoefs and kept for life.",
            without=frozenset({"argv"}),
            versions=("2.1.197", "2.1.332"),
        ),
        Backend(
            name="codex",
            transport="stream",
            on_lost=OnLost.HOLD,
            verbs=_ALWAYS | _ASKS | {Verb.COMPACT},
            fidelity="protocol",
            doc="Codex, driven over `codex app-server`. The session id is the thread's, told by the CLI and kept.",
            chooses=False,
            looks_up=True,
            without=frozenset({"argv"}),
            versions=("0.171.0",),
        ),
        Backend(
            name="exec",
            transport="turn",
            on_lost=OnLost.HOLD,
            verbs=_ALWAYS,
            fidelity="protocol",
            doc="Any program: one process a turn, the prompt on its stdin, the answer on its stdout, exit 0 is done.",
            without=frozenset({"model", "prompt", "permission", "ask_timeout", "ask_default", "fork"}),
        ),
    )
}


def is_tested(backend: str, version: str) -> bool:
    """Whether this version of a CLI is one that the tests run with; true where there is none to compare."""
    row = BACKENDS.get(backend)
    return row is None or not version or not row.versions or version in row.versions
