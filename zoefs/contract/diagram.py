"""The state diagrams of the manual, drawn from what the code itself decides by: TRANSITIONS, and `status_of`.

Rules. Nothing here is a second list of states or edges: a new row of TRANSITIONS, or another answer of `status_of`,
is another picture. The texts are for a terminal; `mermaid` is for whatever draws that language.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zoefs.contract.events import Event, Kind
from zoefs.contract.lifecycle import TRANSITIONS, Fold, Life, Waiting, status_of
from zoefs.contract.words import Status

_ANYWHERE = frozenset(Life)


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells as columns of a terminal, two spaces between them."""
    rows = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "".join(line + "\n" for line in lines)


def edges() -> str:
    """From which life (rows) which event leads to which (columns); what leads there from everywhere is the last row."""
    rows = [["from \\ to", *Life]]
    for source in Life:
        here = [row for row in TRANSITIONS if source in row.sources != _ANYWHERE]
        rows.append([source, *(_kinds(row.kind for row in here if row.to is to) for to in Life)])
    everywhere = [row for row in TRANSITIONS if row.sources == _ANYWHERE]
    rows.append(["(any)", *(_kinds(row.kind for row in everywhere if row.to is to) for to in Life)])
    return aligned(rows)


def _kinds(kinds: Iterable[Kind]) -> str:
    return ",".join(dict.fromkeys(kinds)) or "."


def reasons() -> str:
    """Every row of TRANSITIONS: the event, where it leads, and why it is written."""
    return aligned([row.kind, f"-> {row.to}", row.why] for row in TRANSITIONS)


def statuses() -> str:
    """The word of `status` for each life: with nothing to do, with a prompt to do, and while the CLI asks.

    Only an agent at rest may never have had a process (incarnation 0).
    """
    rows = [["life", "nothing to do", "prompt to do", "it asks"]]
    for life in Life:
        incarnations = (0, 1) if life is Life.RESTING else (1,)
        prompt = {_word(life, transport, inc) for transport in ("stream", "turn") for inc in incarnations}
        rows.append(
            [life, status_of(Fold(life=life, inc=1)), "/".join(s for s in Status if s in prompt), _asking(life)]
        )
    return aligned(rows)


def _word(life: Life, transport: str, inc: int) -> Status:
    """The status with a prompt that waits."""
    return status_of(Fold(life=life, inc=inc), Waiting(queued=1), transport)


def _asking(life: Life) -> str:
    """The status once an `asked` came in a turn; `-` where the fold takes none."""
    fold = Fold(life=life, inc=1, turn=1, turn_open=True)
    fold.feed(Event(t="", seq=1, kind=Kind.ASKED, data={"inc": 1, "ask": "a"}))
    return status_of(fold) if fold.asks else "-"


def mermaid() -> str:
    """TRANSITIONS as a state diagram, an arrow for each pair of lives."""
    arrows: dict[tuple[Life, Life], list[Kind]] = {}
    for row in TRANSITIONS:
        for source in sorted(row.sources, key=list(Life).index):
            if row.sources != _ANYWHERE:
                arrows.setdefault((source, row.to), []).append(row.kind)
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {row.to}: {row.kind}" for row in TRANSITIONS if row.sources == _ANYWHERE]
    lines += [f"    {source} --> {to}: {', '.join(kinds)}" for (source, to), kinds in arrows.items()]
    return "".join(line + "\n" for line in lines)
