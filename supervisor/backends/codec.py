"""What a backend must be: bytes to write, bytes read turned into facts. No I/O, no clock.

`decode` never raises on what a CLI prints. What the codec itself wants written (a refusal of a request it does not
serve) is given by `take`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs

from zoefs.contract.asks import Ask, Verdict
from zoefs.contract.spec import Spec
from zoefs.contract.words import How, Reason


@attrs.frozen
class Setup:
    """What a codec is made from, for one incarnation, numbered `inc`.

    `session` is empty before the CLI told one. `resume`: the CLI is believed to have a record of it. `fork`: the
    session to begin from a copy of, while this agent's own has no record. `lasting`: a turn of this session has ended,
    so that a session without a record is a loss. `continuing`: a cut turn is to be gone on with. `model`: the one that
    an earlier handshake told. `up`: this incarnation's handshake is over: another supervisor finished it. `usd`: the
    running total that the CLI told last and goes on from. `words`: what this incarnation said that it can.
    """

    name: str
    session: str
    spec: Spec
    binary: str
    inc: int = 1
    resume: bool = False
    fork: str = ""
    lasting: bool = False
    continuing: bool = False
    turn: int = 0
    cwd: str = ""
    model: str = ""
    up: bool = False
    usd: float = 0.0
    words: tuple[str, ...] = ()


@attrs.frozen
class Ready:
    """The handshake is finished. `model`: the one that is used, where the CLI tells it."""

    version: str = ""
    model: str = ""


@attrs.frozen
class SessionChanged:
    """The CLI goes by another session id from now on."""

    session: str


@attrs.frozen
class Accepted:
    """The CLI took the prompt `message`."""

    message: str


@attrs.frozen
class Text:
    """A finished piece of what the model says in this turn."""

    text: str


@attrs.frozen
class Tool:
    """The model calls a tool; `input` is a JSON value."""

    id: str
    name: str
    input: Any


@attrs.frozen
class ToolResult:
    """A tool call ended."""

    id: str
    ok: bool
    text: str


@attrs.frozen
class Delta:
    """A bit more of the piece that the model is saying; the whole piece follows as Text."""

    text: str


@attrs.frozen
class Asked:
    """The CLI waits for an answer."""

    ask: Ask


@attrs.frozen
class AskGone:
    """An ask died unanswered."""

    ask: str


@attrs.frozen
class Spent:
    """What something cost. `usd` is None where the CLI tells tokens only. `tokens_in` includes `tokens_cached`.

    `total`: the running total in USD that it told with it, None where it told none.
    """

    usd: float | None = 0.0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    model: str = ""
    total: float | None = None


@attrs.frozen
class TurnEnd:
    """The turn is over. `text`: the whole answer, None where the CLI says that it gave it before.

    `spent` is this turn's own. `reason`: why, for a turn that is not `done`. `goes_on`: the id of a steer that came
    too late for this turn and that the CLI takes up now as a turn of its own; empty where there is none.
    """

    how: How
    text: str | None
    reason: str = ""
    spent: Spent = Spent()
    goes_on: str = ""


@attrs.frozen
class Steered:
    """What became of a steer: it is part of the running turn, or (`ok` false) it is not, and why."""

    id: str
    ok: bool
    text: str = ""


@attrs.frozen
class Compacted:
    """The CLI shortened its history, or (`ok` false) did not, and why."""

    ok: bool
    text: str = ""
    spent: Spent = Spent()


@attrs.frozen
class Unable:
    """The handshake failed. `reason`: why nobody need try again, CONTEXT_LOST where the CLI has no record of a session
    that it should have; None where it may go well the next time."""

    text: str
    reason: Reason | None = None


@attrs.frozen
class Capable:
    """What this CLI says it can, in its own words, and its version, where no handshake tells it."""

    words: tuple[str, ...]
    version: str = ""


@attrs.frozen
class Unknown:
    """A message of a type that this version of zoefs does not know; `line` is its beginning."""

    type: str
    line: str


@attrs.frozen
class Unserved:
    """The CLI asked something of us that is not served, and was told so."""

    what: str


@attrs.frozen
class Retry:
    """The CLI tries its model again."""

    status: int
    attempt: int
    delay_ms: int


@attrs.frozen
class Unreadable:
    """A line that is no message of this CLI."""

    line: str


Decoded = (
    Ready
    | SessionChanged
    | Unable
    | Capable
    | Accepted
    | Text
    | Delta
    | Tool
    | ToolResult
    | Asked
    | AskGone
    | Steered
    | Compacted
    | TurnEnd
    | Retry
    | Unserved
    | Unknown
    | Unreadable
)


@attrs.frozen
class Death:
    """What the last words of a dead CLI mean. `resume` is set where the next start must (not) resume."""

    reason: Reason | None = None
    text: str = ""
    resume: bool | None = None


class Codec(Protocol):
    """One incarnation of one kind of CLI."""

    def argv(self) -> list[str]:
        """The command line."""

    def environment(self) -> Mapping[str, str]:
        """What the CLI's environment needs besides the spec's."""

    def hello(self) -> bytes:
        """Written at start; the answer ends in Ready."""

    def prompt(self, message: str, text: str) -> bytes:
        """One prompt under our own id."""

    def expect(self, message: str) -> None:
        """The open turn is that of this message, written earlier."""

    def interrupt(self) -> bytes:
        """End the running turn."""

    def answer(self, ask: Ask, verdict: Verdict) -> bytes:
        """Answer a pending ask."""

    def steer(self, id: str, message: str, text: str) -> bytes:
        """Say something into the running turn; what becomes of it is told as Steered `id`. Empty where it cannot."""

    def expect_steer(self, id: str, message: str, text: str) -> bytes:
        """This steer may have been written earlier; what is to be written so that it is for certain."""

    def compact(self, message: str) -> bytes:
        """Have the history shortened; it ends in Compacted. Only between turns. Empty where it cannot."""

    def expect_compact(self, message: str) -> bytes:
        """As `compact`, where that may have been written earlier."""

    def decode(self, line: bytes) -> list[Decoded]:
        """One line of stdout, without its newline."""

    def take(self) -> bytes:
        """What is to be written now, after all that was decoded: the next step of a handshake, or a refusal."""

    def partial(self) -> str:
        """What the open turn has said so far."""

    def death(self, rc: int, last_words: str) -> Death:
        """What an exit code and the end of stderr mean."""


MALFORMED = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""What code raises that meets values of another shape than it was told of."""


def understood(line: bytes, decode: Callable[[dict[str, Any]], list[Decoded]]) -> list[Decoded]:
    """What `decode` makes of the JSON object on a line. Unreadable where there is none, or one of no shape we know; an
    empty line is nothing. Never raises."""
    try:
        value = json.loads(line)
        if isinstance(value, dict):
            return decode(value)
    except MALFORMED:
        if not line.strip():
            return []
    return [Unreadable(line[:400].decode(errors="replace"))]


def encode_line(value: Mapping[str, Any]) -> bytes:
    """One JSON object as a line for stdin: ASCII only, so that nothing in it can be taken for the end of a line."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def amount(value: Any) -> float:
    """A finite number that is not negative; 0.0 for anything else: a wrong figure must not keep a turn open."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        return float(value) if math.isfinite(value) and value >= 0 else 0.0
    except OverflowError:
        return 0.0


def whole(value: Any) -> int:
    """As `amount`, without what follows the point."""
    return int(amount(value))
