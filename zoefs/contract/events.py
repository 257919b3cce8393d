"""One line of a journal: `v t seq kind` and whatever else the kind carries.

Rules. A journal is append-only JSON Lines. Unknown kinds and fields survive a round trip. A line that is not
whole (no newline, no JSON object, a field of the wrong type) is skipped, never guessed at. `seq` grows by one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeGuard

import attrs

VERSION = 1


class Kind(StrEnum):
    """The event kinds of an agent's journal that the fold understands, and those it only carries."""

    CREATED = "created"
    SESSION = "session"
    STARTED = "started"
    SPAWNED = "spawned"
    READY = "ready"
    EXITED = "exited"
    STOPPED = "stopped"
    FAILED = "failed"
    RETIRED = "retired"
    PROMPT_GIVEN = "prompt-given"
    PROMPT_SENT = "prompt-sent"
    PROMPT_ACCEPTED = "prompt-accepted"
    PROMPT_CANCELLED = "prompt-cancelled"
    PROMPT_CUT = "prompt-cut"
    TURN_ENDED = "turn-ended"
    TURN_LOST = "turn-lost"
    STDIN_BEGUN = "stdin-begun"
    STDIN_DONE = "stdin-done"
    ASKED = "asked"
    ANSWERED = "answered"
    ASK_GONE = "ask-gone"
    VERB_BEGUN = "verb-begun"
    VERB_DONE = "verb-done"
    OUT_WRITTEN = "out-written"
    COMPACTED = "compacted"
    CAPABLE = "capable"
    TEXT = "text"
    DELTA = "delta"
    TOOL = "tool"
    TOOL_RESULT = "tool-result"
    RETRY = "retry"
    UNKNOWN = "unknown"
    GAP = "gap"
    NOTE = "note"


@attrs.frozen
class Event:
    """One journal line. `t` is UTC as ISO 8601 with milliseconds; `data` holds every other field."""

    t: str
    seq: int
    kind: str
    data: Mapping[str, Any] = attrs.field(factory=dict)
    v: int = VERSION

    def encode(self) -> bytes:
        """The line, with its newline. Lone surrogates are escaped, so it is always valid UTF-8."""
        head = {"v": self.v, "t": self.t, "seq": self.seq, "kind": self.kind}
        rest = {key: value for key, value in self.data.items() if key not in head}
        return json.dumps({**head, **rest}, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"

    def text(self, key: str, default: str = "") -> str:
        """The field as text; `default` where it is absent or of another type."""
        value = self.data.get(key, default)
        return value if isinstance(value, str) else default

    def number(self, key: str, default: int = 0) -> int:
        """The field as a whole number; `default` where it is absent or of another type."""
        value = self.data.get(key, default)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def amount(self, key: str) -> float:
        """The field as a finite number that is not negative; 0.0 where it is absent or anything else."""
        value = self.data.get(key, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 0.0
        try:
            amount = float(value)
        except OverflowError:
            return 0.0
        return amount if math.isfinite(amount) and amount >= 0 else 0.0

    def offset(self, key: str) -> int | None:
        """The field as a count of bytes; None where it is absent or no such count."""
        value = self.data.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_HEAD = ("v", "t", "seq", "kind")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def decode_line(line: bytes) -> Event | None:
    """The event on one line, or None where the line is torn or is no event."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    v, t, seq, kind = (value.get(key) for key in _HEAD)
    if not (_is_whole(v) and isinstance(t, str) and _is_whole(seq) and isinstance(kind, str)):
        return None
    return Event(t=t, seq=seq, kind=kind, v=v, data={k: x for k, x in value.items() if k not in _HEAD})


def decode_lines(data: bytes) -> tuple[list[Event], int]:
    """The events of all whole lines of `data`, and how many bytes those lines take (torn tail excluded)."""
    end = data.rfind(b"\n") + 1
    lines: Iterable[bytes] = data[:end].split(b"\n")
    return [event for line in lines if line and (event := decode_line(line)) is not None], end


def utc(seconds: float) -> str:
    """`seconds` since 1970 as the `t` of an event."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(t: str) -> float:
    """Seconds since 1970 of an event's `t`; 0.0 where it is no time."""
    try:
        time = datetime.fromisoformat(t)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
