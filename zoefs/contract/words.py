"""The dictionary: every word that appears in files, events and messages, once.

Nothing else may spell these words as literals where a decision hangs on them.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NewType

AgentName = NewType("AgentName", str)
OrderId = NewType("OrderId", str)
Stamp = NewType("Stamp", str)
"""16 lower-case hex digits of a nanosecond count that only grows: orders sort by it."""


class Status(StrEnum):
    """What `status` says. Declared in order of precedence: the first that holds is the status."""

    FAILED = "failed"
    STOPPED = "stopped"
    BACKOFF = "backoff"
    BLOCKED = "blocked"
    STARTING = "starting"
    RUNNING = "running"
    AWAIT = "await"


SETTLED = frozenset({Status.AWAIT, Status.BLOCKED, Status.STOPPED, Status.FAILED})
"""The words that `wait` answers at once: nothing more happens until somebody acts."""

LONGEST_STATUS = max(len(word) for word in Status) + 1


class Reason(StrEnum):
    """Why an agent is `failed`; the value of `reason` in `stat`."""

    CRASH_LOOP = "crash-loop"
    CWD_MISSING = "cwd-missing"
    AUTH = "auth"
    CONFIG = "config"
    OVER_BUDGET = "over-budget"
    CONTEXT_LOST = "context-lost"
    USAGE_LIMIT = "usage-limit"
    DISK_FULL = "disk-full"


class Fate(StrEnum):
    """What `inbox/ID` says of a prompt or of a keyed verb."""

    WRITING = "writing"
    QUEUED = "queued"
    SENT = "sent"
    ACCEPTED = "accepted"
    UNCERTAIN = "uncertain"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"


FINAL = frozenset({Fate.DONE, Fate.FAILED, Fate.LOST, Fate.CANCELLED})


class How(StrEnum):
    """How a turn ended; `last_turn` in `stat`."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    LOST = "lost"


FATE_OF_TURN = {
    How.DONE: Fate.DONE,
    How.INTERRUPTED: Fate.CANCELLED,
    How.FAILED: Fate.FAILED,
    How.LOST: Fate.LOST,
}


class Verb(StrEnum):
    """A line of `ctl` begins with one of these."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    INTERRUPT = "interrupt"
    KILL = "kill"
    ALLOW = "allow"
    ALLOW_ALWAYS = "allow-always"
    DENY = "deny"
    STEER = "steer"
    COMPACT = "compact"
    RESET_BUDGET = "reset-budget"


class OnLost(StrEnum):
    """What becomes of a turn whose CLI died: continued exactly once, or ended `lost`."""

    CONTINUE = "continue"
    HOLD = "hold"


class Exit:
    """Exit codes of the command line."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    TIMED_OUT = 5
    NOT_RUNNING = 6


PROMPT_MAX = 16 * 1024 * 1024
QUEUE_MAX = 1000
QUEUE_BYTES_MAX = 64 * 1024 * 1024
SINGLE_WRITE_MAX = 4096
"""A lone write below this many bytes is a whole prompt even when nobody flushed it (guarantee 1)."""
CTL_MAX = 128 * 1024
RECEIPTS_SHOWN = 1000
WAIT_SECONDS = 0.8

AGENT_NAME_RULE = "letters, digits, '.', '_', '-', at most 64 bytes, not beginning with '.' or '-', and not 'list'"
_AGENT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
ORDER_ID_RULE = "letters, digits, '.', '_', '-', at most 200 bytes, not beginning with '.' or '-'"
_ORDER_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def is_agent_name(text: str) -> bool:
    """Whether `text` may name an agent (AGENT_NAME_RULE)."""
    return _AGENT_NAME.fullmatch(text) is not None and text != "list"


def is_order_id(text: str) -> bool:
    """Whether `text` may name a prompt or a verb's key in `inbox/` (ORDER_ID_RULE)."""
    return _ORDER_ID.fullmatch(text) is not None
