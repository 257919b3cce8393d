"""The OpenAI Responses dialect: what of a request the user gave, and how an answer looks on the wire.

Rules:
- A user text is an `input_text` of role user that codex did not put there (MARKERS tell those). Since the request for a
  summary is none either, a compaction is answered by the directives of the last prompt; such a call lists no tools.
- A tool's result counts without the lines that codex puts above the output.
- A call of a tool that takes free text (`apply_patch`) is written as [[tool:NAME:{"input": TEXT}]].
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tests.fakes.script import Answer, Block, Body, Event, Failure, ToolCall, pieces, texts

MARKERS = (
    "<environment_context>",
    "<turn_aborted>",
    "<skill>",
    "<user_shell_command>",
    "# AGENTS.md instructions",
    "You are performing a CONTEXT CHECKPOINT COMPACTION.",
    "Another language model started to solve this problem",
)
RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
FREE_TEXT_TOOLS = ("apply_patch",)
ERROR_TYPES = {
    400: ("invalid_request_error", "fake"),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "not_found"),
    429: ("requests", "rate_limit_exceeded"),
}

_ABOVE_OUTPUT = re.compile(r"\A(?:Chunk ID: .*\n)?Wall time: .*\n(?:.*\n)*?Output:\n")


def user_texts(body: Body) -> list[str]:
    """Every real user text of the request, in order."""
    return texts(blocks(body))


def blocks(body: Body) -> list[Block]:
    found: list[Block] = []
    for entry in body.get("input", ()):
        if entry["type"] in RESULTS:
            found.append(Block(False, _plain(entry["output"])))
        elif entry["type"] == "message" and entry["role"] == "user":
            given = (part["text"] for part in entry["content"] if part["type"] == "input_text")
            found.extend(Block(True, text) for text in given if not text.startswith(MARKERS))
    return found


def shell(command: str) -> ToolCall:
    return ToolCall("exec_command", {"cmd": command})


def events(reply: Answer, serial: str) -> Iterator[tuple[float, Event]]:
    yield 0.0, {"type": "response.created", "response": _response(reply, serial, "in_progress", [])}
    if reply.hang:
        return
    items = _items(reply, serial)
    for index, item in enumerate(items):
        at = {"output_index": index}
        yield 0.0, {"type": "response.output_item.added", **at, "item": _begun(item)}
        if item["type"] == "message":
            parts = pieces(reply.text)
            place = {"item_id": item["id"], **at, "content_index": 0}
            for part in parts:
                yield reply.slow_s / len(parts), {"type": "response.output_text.delta", **place, "delta": part}
        yield 0.0, {"type": "response.output_item.done", **at, "item": item}
    yield 0.0, {"type": "response.completed", "response": message(reply, serial)}


def message(reply: Answer, serial: str) -> Event:
    tokens_in, tokens_out = reply.usage
    usage = {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens_in + tokens_out,
    }
    return _response(reply, serial, "completed", _items(reply, serial)) | {"usage": usage}


def error(failure: Failure) -> Event:
    kind, code = ERROR_TYPES.get(failure.status, ("server_error", "fake"))
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": code}}


def _plain(output: str | list[Event]) -> str:
    text = output if isinstance(output, str) else "".join(part.get("text", "") for part in output)
    return _ABOVE_OUTPUT.sub("", text)


def _items(reply: Answer, serial: str) -> list[Event]:
    text = {"type": "output_text", "text": reply.text, "annotations": []}
    said = {"id": f"msg_{serial}", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    return [said] if reply.call is None else [said, _call(reply.call, serial)]


def _call(call: ToolCall, serial: str) -> Event:
    named = {"name": call.name, "call_id": f"call_{serial}", "status": "completed"}
    if call.name in FREE_TEXT_TOOLS:
        return {"id": f"ctc_{serial}", "type": "custom_tool_call", **named, "input": call.input["input"]}
    return {"id": f"fc_{serial}", "type": "function_call", **named, "arguments": json.dumps(call.input)}


def _begun(item: Event) -> Event:
    empty = {"content": [], "input": "", "arguments": ""}
    return {key: empty.get(key, value) for key, value in item.items()} | {"status": "in_progress"}


def _response(reply: Answer, serial: str, status: str, output: list[Event]) -> Event:
    return {
        "id": f"resp_{serial}",
        "object": "response",
        "created_at": 1,
        "model": reply.model,
        "status": status,
        "output": output,
    }
