"""The served tree on one screen. `help`, the manual and every lookup come from these tables.

`mode` is the file's permission bits; a directory has x. `listed` is False for what readdir hides. `wakes` says what
makes a handle readable again under poll(2): a counter of the agent's view, or `growth` of the file; empty is always
readable. `attr_seconds` is how long the kernel may keep the attributes: long only where a change is pushed or cannot
happen. `through` says how a directory of HOME is shown through.
"""

from __future__ import annotations

from enum import StrEnum

import attrs

from zoefs.contract.home import SHARED

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
    FileRow("health", 0o444, "one line a part: mount supervisor conductor bonfire; ok, absent or degraded, since, why"),
    FileRow("agents", 0o755, "one directory an agent: mkdir makes it, rmdir retires it; and `list`", attr_seconds=LONG),
    FileRow("metrics", 0o444, "agents, turns, cost, requests and refusals in numbers, for Prometheus"),
    *(FileRow(name, 0o700, f"HOME/{name}: ordinary files", through=Through.CHANGING) for name in SHARED),
    FileRow("hosts", 0o700, "HOME/hosts: symlinks to the mounts of other machines", through=Through.LINKS),
    FileRow("log", 0o700, "HOME/log: the event log, to read", through=Through.LOOKING),
)
"""The root's entries."""

LIST = FileRow(
    "list",
    0o444,
    "a header and one tab-separated line an agent: name status turn queued backend "
    "cost_usd since cwd; a snapshot per open",
)

FILES: dict[str, FileRow] = _numbered(
    FileRow("in", 0o200, "a prompt: what one open to its last close wrote, 1 byte to 16 MiB", attr_seconds=LONG),
    FileRow(
        "inbox",
        0o700,
        "prompts under the client's own id: write inbox/ID, or stage inbox/.k and "
        "mv inbox/.k inbox/ID; reading inbox/ID gives the receipt, an empty line, and the answer",
    ),
    FileRow("out", 0o600, "the last ended turn's answer, whole, until somebody writes it", wakes="outs"),
    FileRow(
        "status",
        0o444,
        "one word: await starting running blocked backoff stopped failed",
        wakes="statuses",
        attr_seconds=LONG,
    ),
    FileRow(
        "wait",
        0o444,
        "the status word once the agent is settled (await blocked stopped failed); nothing after 0.8 s otherwise",
        listed=False,
        wakes="settlings",
        attr_seconds=LONG,
    ),
    FileRow("ctl", 0o200, "verbs, one a line: start stop restart interrupt kill allow deny", attr_seconds=LONG),
    FileRow("spec", 0o600, "what the agent is, in TOML; writable until first start and while stopped or failed"),
    FileRow("session", 0o444, "the CLI's session id"),
    FileRow("stat", 0o444, "key: value lines about the agent"),
    FileRow("error", 0o444, "the last refusal or failure: its time and a sentence"),
    FileRow("events", 0o444, "the agent's journal, JSON Lines", wakes="growth"),
    FileRow("chat", 0o444, "the conversation for people", wakes="growth"),
    FileRow("ask", 0o444, "what the CLI is asking, and the lines to copy into ctl"),
)
"""The files of `agents/NAME/`."""

BY_INDEX: dict[int, FileRow] = {row.index: row for row in FILES.values()}
ROOT_BY_INDEX: dict[int, FileRow] = {row.index: row for row in ROOT.values()}


def help_text() -> str:
    """The text of `help`."""
    lines = ["zoefs: every agent is a directory; everything one can do to it is a read or a write.", ""]
    lines += [f"{row.name:<14}{row.doc}" for row in ROOT.values()]
    lines += ["", "agents/", f"  {LIST.name:<12}{LIST.doc}"]
    lines += ["  NAME/", *(f"    {row.name:<10}{row.doc}" for row in FILES.values())]
    lines += [
        "",
        "One prompt and its answer, in any shell, for one client an agent:",
        '  echo \'fix it\' > in; while w=$(cat wait) && [ -z "$w" ]; do :; done; [ "$w" = await ] && cat out',
        "Several clients on one agent write inbox/ID, each its own, and read the answer back from it.",
    ]
    return "\n".join(lines) + "\n"
