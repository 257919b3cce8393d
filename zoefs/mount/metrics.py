"""`metrics`: what the agents and this mount did, in Prometheus' text format (source: its exposition formats, 0.0.4).

Rules. Totals only grow in the life of a mount: those of a retired agent stay counted. The text is made anew at most
once a second, since it looks at every agent. Numbers fill a column, so that a text made between a client's stat(2)
and its read(2) is as long as that of before.
"""

from __future__ import annotations

import collections
import errno
import time
from collections.abc import Callable, Sequence

import attrs
import trio

from zoefs.contract.home import Home
from zoefs.contract.words import How, Status
from zoefs.disk.lock import holder
from zoefs.mount.view import View

FRESH_SECONDS = 1.0
WIDTH = 16

Samples = list[tuple[str, float]]
"""The label's value, empty where the family has no label, and the number."""


@attrs.define
class Totals:
    """What outlives an agent."""

    turns: collections.Counter[str] = attrs.Factory(collections.Counter)
    restarts: int = 0
    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, view: View) -> None:
        """Count what this agent did."""
        self.turns.update(view.ended)
        self.restarts += view.fold.restarts
        self.usd += view.fold.spent.usd
        self.tokens_in += view.fold.spent.tokens_in
        self.tokens_out += view.fold.spent.tokens_out


class Metrics:
    """See module. `operations`: requests by kind; `refusals`: errors answered, by errno; `retired`: of agents gone."""

    def __init__(self, home: Home) -> None:
        self.operations: collections.Counter[str] = collections.Counter()
        self.refusals: collections.Counter[int] = collections.Counter()
        self.retired = Totals()
        self._home = home
        self._text, self._made = b"", 0.0

    def text(self, views: Sequence[View], of_all: bool = True) -> bytes:
        """The text, of this second. `of_all`: these are all agents there are."""
        if self._text and time.monotonic() - self._made <= FRESH_SECONDS:
            return self._text
        seen = Seen(self, views, self.totals(views))
        text = b"".join(_family(row, seen) for row in FAMILIES.values())
        if of_all:
            self._text, self._made = text, time.monotonic()
        return text

    def totals(self, views: Sequence[View]) -> Totals:
        """Of the agents that are and of those that were."""
        found = attrs.evolve(self.retired, turns=self.retired.turns.copy())
        for view in views:
            found.add(view)
        return found

    def heartbeat(self) -> Samples:
        """No sample where there never was a supervisor."""
        beat = holder(self._home.supervisor_lock).beat
        return [("", max(0.0, time.time() - beat))] if beat else []


@attrs.frozen
class Seen:
    """What one text is made from; `totals` are those of `views` and of the agents that were."""

    metrics: Metrics
    views: Sequence[View]
    totals: Totals

    def statuses(self) -> Samples:
        """How many agents have each status."""
        counted = collections.Counter(view.status for view in self.views)
        return [(status, counted[status]) for status in Status]

    def lag(self) -> Samples:
        """0 where every journal is taken in."""
        unread = [view.unread_since() for view in self.views]
        oldest = min((since for since in unread if since), default=0.0)
        return [("", max(0.0, time.time() - oldest) if oldest else 0.0)]


@attrs.frozen
class Family:
    """One name of `metrics`; `label` is the name of its label, where it has one."""

    name: str
    kind: str
    doc: str
    look: Callable[[Seen], Samples]
    label: str = ""


def _family(row: Family, seen: Seen) -> bytes:
    lines = [f"# HELP {row.name} {row.doc}", f"# TYPE {row.name} {row.kind}"]
    for value, number in row.look(seen):
        label = f'{{{row.label}="{value}"}}' if row.label else ""
        lines.append(f"{row.name}{label} {number:{WIDTH}.10g}")
    return "".join(line + "\n" for line in lines).encode()


FAMILIES: dict[str, Family] = {
    row.name: row
    for row in (
        Family("zoefs_agents", "gauge", "Agents by status.", Seen.statuses, "status"),
        Family(
            "zoefs_queued_prompts",
            "gauge",
            "Prompts that wait.",
            lambda seen: [("", sum(len(view.prompts()) for view in seen.views))],
        ),
        Family(
            "zoefs_turns_total",
            "counter",
            "Turns ended since this mount started.",
            lambda seen: [(how, seen.totals.turns[how]) for how in How],
            "how",
        ),
        Family(
            "zoefs_restarts_total",
            "counter",
            "Restarts of CLIs that died.",
            lambda seen: [("", seen.totals.restarts)],
        ),
        Family(
            "zoefs_cost_usd_total",
            "counter",
            "Dollars spent, told or estimated.",
            lambda seen: [("", seen.totals.usd)],
        ),
        Family(
            "zoefs_tokens_total",
            "counter",
            "Tokens spent.",
            lambda seen: [("in", seen.totals.tokens_in), ("out", seen.totals.tokens_out)],
            "direction",
        ),
        Family(
            "zoefs_operations_total",
            "counter",
            "Requests to this mount.",
            lambda seen: sorted(seen.metrics.operations.items()),
            "kind",
        ),
        Family(
            "zoefs_refusals_total",
            "counter",
            "Errors that this mount answered.",
            lambda seen: [
                (errno.errorcode.get(number, str(number)), count)
                for number, count in sorted(seen.metrics.refusals.items())
            ],
            "errno",
        ),
        Family(
            "zoefs_tasks",
            "gauge",
            "Tasks of this mount: one for each request that waits, a read of `wait` above all, and a few more.",
            lambda seen: [("", trio.lowlevel.current_statistics().tasks_living)],
        ),
        Family(
            "zoefs_supervisor_heartbeat_age_seconds",
            "gauge",
            "Seconds since the supervisor's last heartbeat.",
            lambda seen: seen.metrics.heartbeat(),
        ),
        Family(
            "zoefs_event_lag_seconds",
            "gauge",
            "Seconds since the oldest write to a journal that this mount did not take in.",
            Seen.lag,
        ),
    )
}
"""The names of `metrics`; the manual has a paragraph of each."""
