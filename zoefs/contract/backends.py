"""What clients may expect of each backend: one row each. How it is driven is `supervisor/backends/`.

A row that is missing here does not exist: spec, help, manual and tests read the names from this table.
"""

from __future__ import annotations

import attrs

from zoefs.contract.words import OnLost, Verb

_ALWAYS = frozenset({Verb.START, Verb.STOP, Verb.RESTART, Verb.INTERRUPT, Verb.KILL})


@attrs.frozen
class Backend:
    """One kind of CLI. `transport`: `stream` (one long-lived process) or `turn` (one process a turn)."""

    name: str
    transport: str
    on_lost: OnLost
    verbs: frozenset[Verb]
    fidelity: str
    doc: str


BACKENDS: dict[str, Backend] = {
    row.name: row
    for row in (
        Backend(
            name="claude",
            transport="stream",
            on_lost=OnLost.CONTINUE,
            verbs=_ALWAYS | {Verb.ALLOW, Verb.DENY},
            fidelity="protocol",
            doc="Claude Code, driven over stream-json. The session id is chosen by zoefs and kept for life.",
        ),
        Backend(
            name="exec",
            transport="turn",
            on_lost=OnLost.HOLD,
            verbs=_ALWAYS,
            fidelity="protocol",
            doc="Any program: one process a turn, the prompt on its stdin, the answer on its stdout, exit 0 is done.",
        ),
    )
}
