"""What a backend must be: bytes to write, bytes read turned into facts. No I/O, no clock.

`decode` never raises on what a CLI prints. What the codec itself wants written (a refusal of a request it does not
serve) is given by `take`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from zoefs.contract.spec import Spec
from zoefs.contract.words import How, Reason


@attrs.frozen
class Setup:
    """What a codec is made from, for one incarnation. `resume`: the CLI has a record of this session."""

    name: str
    session: str
    spec: Spec
    binary: str
    resume: bool = False
    continuing: bool = False
    turn: int = 0


@attrs.frozen
class Ready:
    """The handshake is finished."""

    version: str = ""


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
class Asked:
    """The CLI waits for an answer."""

    ask: str
    tool: str
    input: Any


@attrs.frozen
class AskGone:
    """An ask died unanswered."""

    ask: str


@attrs.frozen
class TurnEnd:
    """The turn is over. `text`: the whole answer, None where the CLI says that it gave it before.

    `cost_usd` and tokens are this turn's own. `reason`: why, for a turn that is not `done`.
    """

    how: How
    text: str | None
    reason: str = ""
    cost_usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0


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


Decoded = Ready | SessionChanged | Accepted | Text | Tool | ToolResult | Asked | AskGone | TurnEnd | Retry | Unreadable


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

    def answer(self, ask: str, input: Any, allow: bool, why: str) -> bytes:
        """Answer a pending ask."""

    def decode(self, line: bytes) -> list[Decoded]:
        """One line of stdout, without its newline."""

    def take(self) -> bytes:
        """What decoding asked to be written."""

    def partial(self) -> str:
        """What the open turn has said so far."""

    def death(self, rc: int, last_words: str) -> Death:
        """What an exit code and the end of stderr mean."""
