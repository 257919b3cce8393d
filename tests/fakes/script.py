"""What a fake model answers, whatever its wire: a pure function of the directives inside the prompt.

The history that the CLI sends is the fake's only memory.

    [[say:TEXT]]              the final text; else `echo#<number of user texts>: <prompt>` and the last tool result
    [[slow:S]]                the final text is streamed over S seconds
    [[hang]]                  in place of the final text: the first event, then nothing
    [[bash:CMD]]              a call of the CLI's own shell tool; several are called one a request
    [[tool:NAME:JSON]]        a call of any tool; JSON is the input object
    [[error:STATUS]]          that HTTP status on every try
    [[error1:STATUS]]         that HTTP status on the first try only
    [[errmodel:STATUS:MODEL]] that HTTP status for one model only
    [[usage:IN,OUT]]          the token numbers (else 100,10)

Rules:
- Errors come first, then the tool calls in their order, then the final text.
- The current prompt is the last real user text of the request; the dialect tells which texts a CLI put there.
- A tool call is made only if the request lists tools, and while fewer tool results than tool directives follow the
  current prompt.
- TEXT and CMD end at the first `]]`; JSON may hold any. Of a directive that makes sense once, the first counts.
- A directive that cannot be read is a BadDirective: a test must not pass because its script was misspelt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

Body = Mapping[str, Any]
Event = dict[str, Any]

MOST_PIECES = 10

_HEAD = re.compile(r"\[\[(say|slow|hang|bash|tool|error|error1|errmodel|usage)(:|(?=\]\]))")


class BadDirective(Exception):
    """A directive of a known name whose argument cannot be read."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """The directives of one prompt. `slow_s` is in seconds, `usage` is tokens in and out."""

    tools: tuple[ToolCall, ...] = ()
    say: str | None = None
    slow_s: float = 0.0
    hang: bool = False
    error: int | None = None
    error_once: int | None = None
    error_model: tuple[int, str] | None = None
    usage: tuple[int, int] = (100, 10)


@dataclass(frozen=True, slots=True)
class Failure:
    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says: `text`, then `call` if there is one. `hang`: it begins and says nothing."""

    model: str
    text: str
    usage: tuple[int, int]
    call: ToolCall | None = None
    slow_s: float = 0.0
    hang: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """One block that the user's side sent: a real user text, or a tool's result."""

    is_text: bool
    text: str


class Dialect(Protocol):
    """One wire protocol, as a module of pure functions. `serial` makes the ids of one answer unique."""

    def blocks(self, body: Body) -> list[Block]:
        """What the user's side sent, in order."""

    def shell(self, command: str) -> ToolCall:
        """The call that [[bash:CMD]] stands for."""

    def events(self, reply: Answer, serial: str) -> Iterator[tuple[float, Event]]:
        """The stream of an answer: each event with the seconds to pause before it."""

    def message(self, reply: Answer, serial: str) -> Event:
        """The same answer as one JSON object, for a request that does not stream."""

    def error(self, failure: Failure) -> Event:
        """The JSON body of an error answer."""


def texts(blocks: Sequence[Block]) -> list[str]:
    """Every real user text, in order."""
    return [block.text for block in blocks if block.is_text]


def attempt_key(blocks: Sequence[Block]) -> tuple[int, str]:
    """What [[error1]] counts by: the same for every try of one prompt, whatever tool results came since."""
    found = texts(blocks)
    return len(found), found[-1] if found else ""


def answer(dialect: Dialect, body: Body, first_try: bool = True) -> Answer | Failure:
    """The answer to a model request. Raises BadDirective."""
    blocks = dialect.blocks(body)
    said = texts(blocks)
    prompt = said[-1] if said else ""
    model = str(body.get("model", ""))
    script = parse(prompt, dialect.shell)

    failures = [
        script.error,
        script.error_once if first_try else None,
        script.error_model[0] if script.error_model and script.error_model[1] == model else None,
    ]
    for status in failures:
        if status is not None:
            return Failure(status, f"fake {status}")

    results = _results_after_last_text(blocks)
    if body.get("tools") and len(results) < len(script.tools):
        call = script.tools[len(results)]
        return Answer(model, f"calling {call.name}", script.usage, call)
    text = script.say
    if text is None:
        text = f"echo#{len(said)}: {prompt}" + (f" | tool_result={results[-1]!r}" if results else "")
    return Answer(model, text, script.usage, None, script.slow_s, script.hang)


def parse(prompt: str, shell: Callable[[str], ToolCall]) -> Script:
    """The directives in a prompt. Raises BadDirective."""
    tools: list[ToolCall] = []
    once: dict[str, Any] = {}
    for name, argument in _directives(prompt):
        match name:
            case "bash":
                tools.append(shell(argument))
            case "tool":
                tool, _, text = argument.partition(":")
                tools.append(ToolCall(tool, json.loads(text)))
            case _:
                field, read = _ONCE[name]
                try:
                    once.setdefault(field, read(argument))
                except ValueError:
                    _bad(name, argument)
    return Script(tools=tuple(tools), **once)


def pieces(text: str) -> list[str]:
    """The text in at most MOST_PIECES pieces, as a stream sends it."""
    size = max(1, -(-len(text) // MOST_PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _results_after_last_text(blocks: Sequence[Block]) -> list[str]:
    results: list[str] = []
    for block in blocks:
        if block.is_text:
            results.clear()
        else:
            results.append(block.text)
    return results


def _directives(prompt: str) -> Iterator[tuple[str, str]]:
    at = 0
    while head := _HEAD.search(prompt, at):
        name, start = head[1], head.end()
        end = _end_of_tool(prompt, start) if name == "tool" else prompt.find("]]", start)
        if end < 0 or not prompt.startswith("]]", end):
            _bad(name, prompt[start:])
        yield name, prompt[start:end]
        at = end + 2


def _end_of_tool(prompt: str, start: int) -> int:
    colon = prompt.find(":", start)
    try:
        value, end = json.JSONDecoder().raw_decode(prompt, colon + 1)
    except ValueError:
        _bad("tool", prompt[start:])
    return end if colon > start and isinstance(value, dict) else -1


def _status(argument: str) -> int:
    status = int(argument)
    if not 400 <= status <= 599:
        raise ValueError(argument)
    return status


def _status_and_model(argument: str) -> tuple[int, str]:
    status, model = argument.split(":", 1)
    return _status(status), model


def _usage(argument: str) -> tuple[int, int]:
    tokens_in, tokens_out = argument.split(",")
    return int(tokens_in), int(tokens_out)


def _seconds(argument: str) -> float:
    seconds = float(argument)
    if not 0 <= seconds <= 3600:
        raise ValueError(argument)
    return seconds


def _nothing(argument: str) -> bool:
    if argument:
        raise ValueError(argument)
    return True


_ONCE: dict[str, tuple[str, Callable[[str], object]]] = {
    "say": ("say", str),
    "slow": ("slow_s", _seconds),
    "hang": ("hang", _nothing),
    "error": ("error", _status),
    "error1": ("error_once", _status),
    "errmodel": ("error_model", _status_and_model),
    "usage": ("usage", _usage),
}


def _bad(name: str, argument: str) -> NoReturn:
    raise BadDirective(f"the directive [[{name}]] cannot be read: {argument[:80]!r}")
