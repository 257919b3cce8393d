"""What the fake Anthropic model answers: a pure function of one request body.

The "model" is scripted by directives inside the prompt, so the history that the CLI sends is the fake's only memory.

    [[say:TEXT]]              the final text; else `echo#<number of user texts>: <prompt>` and the last tool result
    [[slow:S]]                the final text is streamed over S seconds
    [[hang]]                  in place of the final text: the first event, then nothing
    [[bash:CMD]]              a call of the tool Bash; several are called one a request
    [[tool:NAME:JSON]]        a call of any tool; JSON is the input object
    [[error:STATUS]]          that HTTP status on every try
    [[error1:STATUS]]         that HTTP status on the first try only
    [[errmodel:STATUS:MODEL]] that HTTP status for one model only
    [[usage:IN,OUT]]          the token numbers (else 100,10)

Rules:
- Errors come first, then the tool calls in their order, then the final text.
- The current prompt is the last text block of role user that no CLI put there (MARKERS tell those).
- A tool call is made only if the request lists tools, and while fewer tool results than tool directives follow the
  current prompt.
- A text counts as the user gave it: without the wrapper around a text sent into a running turn, without the newline
  that the CLI puts between two texts when it merges messages.
- TEXT and CMD end at the first `]]`; JSON may hold any. Of a directive that makes sense once, the first counts.
- A directive that cannot be read is a BadDirective: a test must not pass because its script was misspelt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NoReturn

Body = Mapping[str, Any]
Event = dict[str, Any]

MARKERS = ("<system-reminder>", "<available-deferred-tools>", "<command-", "<local-command-", "[Request interrupted")
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
MOST_PIECES = 10

_STEERED = re.compile(
    r"\AThe user sent a new message while you were working:\n(.*?)\n\nThis is how Claude Code surfaces messages .*\Z",
    re.DOTALL,
)
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


def user_texts(body: Body) -> list[str]:
    """Every real user text of the request, in order; merged user messages count as separate texts."""
    return [block.text for block in _blocks(body) if block.is_text]


def attempt_key(body: Body) -> tuple[int, str]:
    """What [[error1]] counts by: the same for every try of one prompt, whatever tool results came since."""
    texts = user_texts(body)
    return len(texts), texts[-1] if texts else ""


def answer(body: Body, first_try: bool = True) -> Answer | Failure:
    """The answer to a Messages request. Raises BadDirective."""
    blocks = _blocks(body)
    texts = [block.text for block in blocks if block.is_text]
    prompt = texts[-1] if texts else ""
    model = str(body.get("model", ""))
    script = parse(prompt)

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
        text = f"echo#{len(texts)}: {prompt}" + (f" | tool_result={results[-1]!r}" if results else "")
    return Answer(model, text, script.usage, None, script.slow_s, script.hang)


def parse(prompt: str) -> Script:
    """The directives in a prompt. Raises BadDirective."""
    tools: list[ToolCall] = []
    once: dict[str, Any] = {}
    for name, argument in _directives(prompt):
        match name:
            case "bash":
                tools.append(ToolCall("Bash", {"command": argument, "description": "run it"}))
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


def events(reply: Answer, serial: str) -> Iterator[tuple[float, Event]]:
    """The stream of an answer: each event with the seconds to pause before it. `serial` makes its ids unique."""
    tokens_in, tokens_out = reply.usage
    yield 0.0, {"type": "message_start", "message": _message(reply.model, serial, [], None, tokens_in, 1)}
    if reply.hang:
        return
    pieces = list(_pieces(reply.text))
    yield 0.0, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in pieces:
        yield reply.slow_s / len(pieces), _delta(0, {"type": "text_delta", "text": piece})
    yield 0.0, {"type": "content_block_stop", "index": 0}
    if reply.call is not None:
        yield 0.0, {"type": "content_block_start", "index": 1, "content_block": _tool_use(reply.call, serial, {})}
        yield 0.0, _delta(1, {"type": "input_json_delta", "partial_json": json.dumps(reply.call.input)})
        yield 0.0, {"type": "content_block_stop", "index": 1}
    stop = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield 0.0, {"type": "message_delta", "delta": stop, "usage": {"output_tokens": tokens_out}}
    yield 0.0, {"type": "message_stop"}


def message(reply: Answer, serial: str) -> Event:
    """The same answer as one JSON object, for a request that does not stream."""
    content: list[Event] = [{"type": "text", "text": reply.text}]
    if reply.call is not None:
        content.append(_tool_use(reply.call, serial, reply.call.input))
    return _message(reply.model, serial, content, _stop_reason(reply), *reply.usage)


def error(failure: Failure) -> Event:
    """The JSON body of an error answer."""
    kind = ERROR_TYPES.get(failure.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}}


def _blocks(body: Body) -> list[Block]:
    found: list[Block] = []
    for entry in body.get("messages", ()):
        if entry["role"] != "user":
            continue
        blocks = _as_blocks(entry["content"])
        for block, following in zip_longest(blocks, blocks[1:]):
            if block["type"] == "tool_result":
                found.append(Block(False, _plain(block.get("content", ""))))
            elif block["type"] == "text" and not block["text"].startswith(MARKERS):
                at_seam = following is not None and following["type"] == "text"
                text = block["text"].removesuffix("\n") if at_seam else block["text"]
                steered = _STEERED.match(text)
                found.append(Block(True, steered[1] if steered else text))
    return found


def _as_blocks(content: str | list[Event]) -> list[Event]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _plain(content: str | list[Event]) -> str:
    return "".join(block.get("text", "") for block in _as_blocks(content))


def _results_after_last_text(blocks: list[Block]) -> list[str]:
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


def _pieces(text: str) -> Iterator[str]:
    size = max(1, -(-len(text) // MOST_PIECES))
    return (text[at : at + size] for at in range(0, len(text), size))


def _delta(index: int, delta: Event) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _tool_use(call: ToolCall, serial: str, given: dict[str, Any]) -> Event:
    return {"type": "tool_use", "id": f"toolu_{serial}", "name": call.name, "input": given}


def _stop_reason(reply: Answer) -> str:
    return "end_turn" if reply.call is None else "tool_use"


def _message(model: str, serial: str, content: list[Event], stop: str | None, tokens_in: int, tokens_out: int) -> Event:
    return {
        "id": f"msg_{serial}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens_in,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": tokens_out,
        },
    }
