"""The served tree on one screen. `help`, the manual and every lookup come from these tables.

`mode` is the file's permission bits; a directory has x. `listed` is False for what readdir hides. `wakes` says what
makes a handle readable again under poll(2): a counter of the agent's view, or `growth` of the file; empty is always
readable. `attr_seconds` is how long the kernel may keep the attributes: long only where a change is pushed or cannot
happen. `through` says how a directory of HOME is shown through.
"""

from __future__ import annotations

import functools
import stat
import textwrap
from collections.abc import Container
from enum import StrEnum

import attrs

from zoefs.contract.home import SHARED
from zoefs.contract.verbs import VERBS
from zoefs.contract.words import FINAL, SETTLED, Fate, Status

LONG = 300.0


class Through(StrEnum):
    """How a directory of HOME is shown through: to change, to look at, or to make symlinks in and nothing else."""

    CHANGING = "changing"
    LOOKING = "looking"
    LINKS = "links"


@attrs.frozen
class FileRow:
    """One served name. Directories end in no slash; `index` numbers it within its table, from 1."""

    name: str
    mode: int
    doc: str
    listed: bool = True
    wakes: str = ""
    attr_seconds: float = 0.0
    through: Through | None = None
    index: int = 0


def _numbered(*rows: FileRow) -> dict[str, FileRow]:
    return {row.name: attrs.evolve(row, index=n) for n, row in enumerate(rows, 1)}


ROOT: dict[str, FileRow] = _numbered(
    FileRow("help", 0o444, "this text, printed from the table that serves the tree", attr_seconds=LONG),
    FileRow("health", 0o444, "one line a part: ok, absent or degraded, since when, why"),
    FileRow("agents", 0o755, "one directory an agent: mkdir makes it, rmdir retires it; and list", attr_seconds=LONG),
    FileRow("metrics", 0o444, "agents, turns, cost, requests and refusals in numbers, for Prometheus"),
    *(FileRow(name, 0o700, f"HOME/{name}: ordinary files", through=Through.CHANGING) for name in SHARED),
    FileRow("hosts", 0o700, "HOME/hosts: symlinks to the mounts of other machines", through=Through.LINKS),
    FileRow("log", 0o700, "HOME/log: the event log, to read", through=Through.LOOKING),
)
"""The root's entries."""
DIRECTORIES = frozenset({"agents", *(row.name for row in ROOT.values() if row.through)})

LIST = FileRow(
    "list",
    0o444,
    "one line an agent: name status turn queued backend cost_usd since cwd",
)

FILES: dict[str, FileRow] = _numbered(
    FileRow("in", 0o200, "a prompt: what one open to its last close wrote, 1 byte to 16 MiB", attr_seconds=LONG),
    FileRow(
        "inbox",
        0o700,
        "write inbox/ID, or inbox/.k and mv it to inbox/ID: a prompt; read it: receipt and answer",
    ),
    FileRow("out", 0o600, "the answer of the last ended turn, whole, until somebody writes it", wakes="outs"),
    FileRow(
        "status",
        0o444,
        "one word, see below",
        wakes="statuses",
        attr_seconds=LONG,
    ),
    FileRow(
        "wait",
        0o444,
        "the status word once the agent is settled, else nothing after 0.8 s; ls does not list it",
        listed=False,
        wakes="settlings",
        attr_seconds=LONG,
    ),
    FileRow("ctl", 0o200, "verbs, one a line, see below; `#KEY verb` has a receipt in inbox/KEY", attr_seconds=LONG),
    FileRow("spec", 0o600, "what it is, in TOML; writable until its first start, and while stopped or failed"),
    FileRow("session", 0o444, "the CLI's session id"),
    FileRow("stat", 0o444, "key: value lines: status reason turn queued session cost tokens and more"),
    FileRow("error", 0o444, "the last refusal or failure: its time and a sentence"),
    FileRow("events", 0o444, "the agent's journal, JSON Lines", wakes="growth"),
    FileRow("chat", 0o444, "the conversation for people", wakes="growth"),
    FileRow("ask", 0o444, "what the CLI is asking, and the lines to copy into ctl"),
)
"""The files of `agents/NAME/`."""

BY_INDEX: dict[int, FileRow] = {row.index: row for row in FILES.values()}
ROOT_BY_INDEX: dict[int, FileRow] = {row.index: row for row in ROOT.values()}


_WIDTH = 110
_LOOP = 'echo \'fix it\' > in; while w=$(cat wait) && [ -z "$w" ]; do :; done; [ "$w" = await ] && cat out'


@functools.cache
def help_text() -> str:
    """The text of `help`: every file with its mode, and the words that are read and written there."""
    settled = " ".join(word for word in Status if word in SETTLED)
    final = " ".join(fate for fate in Fate if fate in FINAL)
    return "".join(
        line + "\n"
        for line in (
            "zoefs: every agent is a directory; everything one can do to it is a read or a write.",
            "Of any word below and many more: zoefs help WORD. The manual begins at: zoefs help",
            "",
            *(_line(row, DIRECTORIES) for row in ROOT.values()),
            "",
            _line(attrs.evolve(LIST, name=f"agents/{LIST.name}"), DIRECTORIES),
            "agents/NAME/",
            *(_line(attrs.evolve(row, name=f"  {row.name}"), {"  inbox"}) for row in FILES.values()),
            "",
            *_entry("status says:", 22, f"{' '.join(Status)}: the first that holds. Settled is: {settled}"),
            *_entry("inbox/ID says:", 22, f"{' '.join(Fate)}. Final are: {final}"),
            "",
            "ctl takes:",
            *(line for row in VERBS.values() for line in _entry(f"  {row.usage}", 22, row.doc)),
            "",
            "One prompt and its answer, in any shell, for one client an agent:",
            f"  {_LOOP}",
            "Several clients on one agent write inbox/ID, each its own, and read the answer back from it.",
        )
    )


def _line(row: FileRow, directories: Container[str]) -> str:
    """One file: name, mode as ls(1) shows it, what it is."""
    kind = stat.S_IFDIR if row.name in directories else stat.S_IFREG
    return f"{row.name:<12} {stat.filemode(kind | row.mode)}  {row.doc}"


def _entry(head: str, indent: int, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{head:<{indent}}", subsequent_indent=" " * indent)
