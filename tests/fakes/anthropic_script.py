"""The Anthropic Messages dialect: what of a request the user gave, and how an answer looks on the wire.

Rules:
- A user text is a text block of role user that no CLI put there (MARKERS tell those).
- A text counts as the user gave it: without the wrapper around a text sent into a running turn, without the newline
  that the CLI puts between two texts when it merges messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from tests.fakes.script import Answer, Block, Body, Event, Failure, ToolCall, pieces, texts

MARKERS = ("<system-reminder>", "<available-deferred-tools>", "<command-", "<local-command-", "[Request interrupted")
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}

_STEERED = re.compile(
    r"\AThe user sent a new message while you were working:\n(.*?)\n\nThis is how Claude Code surfaces messages .*\Z",
    re.DOTALL,
)


def user_texts(body: Body) -> list[str]:
    """Every real user text of the request, in order; merged user messages count as separate texts."""
    return texts(blocks(body))


def blocks(body: Body) -> list[Block]:
    found: list[Block] = []
    for entry in body.get("messages", ()):
        if entry["role"] != "user":
            continue
        parts = _as_parts(entry["content"])
        for part, following in zip_longest(parts, parts[1:]):
            if part["type"] == "tool_result":
                found.append(Block(False, _plain(part.get("content", ""))))
            elif part["type"] == "text" and not part["text"].startswith(MARKERS):
                at_seam = following is not None and following["type"] == "text"
                text = part["text"].removesuffix("\n") if at_seam else part["text"]
                steered = _STEERED.match(text)
                found.append(Block(True, steered[1] if steered else text))
    return found


def shell(command: str) -> ToolCall:
    return ToolCall("Bash", {"command": command, "description": "run it"})


def events(reply: Answer, serial: str) -> Iterator[tuple[float, Event]]:
    tokens_in, tokens_out = reply.usage
    yield 0.0, {"type": "message_start", "message": _message(reply.model, serial, [], None, tokens_in, 1)}
    if reply.hang:
        return
    parts = pieces(reply.text)
    yield 0.0, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for part in parts:
        yield reply.slow_s / len(parts), _delta(0, {"type": "text_delta", "text": part})
    yield 0.0, {"type": "content_block_stop", "index": 0}
    if reply.call is not None:
        yield 0.0, {"type": "content_block_start", "index": 1, "content_block": _tool_use(reply.call, serial, {})}
        yield 0.0, _delta(1, {"type": "input_json_delta", "partial_json": json.dumps(reply.call.input)})
        yield 0.0, {"type": "content_block_stop", "index": 1}
    stop = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield 0.0, {"type": "message_delta", "delta": stop, "usage": {"output_tokens": tokens_out}}
    yield 0.0, {"type": "message_stop"}


def message(reply: Answer, serial: str) -> Event:
    content: list[Event] = [{"type": "text", "text": reply.text}]
    if reply.call is not None:
        content.append(_tool_use(reply.call, serial, reply.call.input))
    return _message(reply.model, serial, content, _stop_reason(reply), *reply.usage)


def error(failure: Failure) -> Event:
    kind = ERROR_TYPES.get(failure.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}}


def _as_parts(content: str | list[Event]) -> list[Event]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _plain(content: str | list[Event]) -> str:
    return "".join(part.get("text", "") for part in _as_parts(content))


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
