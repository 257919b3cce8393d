"""claude: Claude Code over `claude -p` stream-json (source: facts of 2.1.332 and 2.1.197, transcripts in tests/data).

Theory. We choose the session id. A prompt carries our own uuid, and the CLI never runs one uuid twice, not even in
a later process: so after a crash the turn is continued by resuming (which reruns a turn that was cut) and sending
the same uuid again (which is absorbed, or runs if it never arrived). How a turn ended is said by `terminal_reason`,
then `is_error`, never by `subtype`. One prompt is given at a time, so a `result` ends the open turn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from supervisor.backends.codec import (
    Accepted,
    Asked,
    AskGone,
    Death,
    Decoded,
    Ready,
    Retry,
    SessionChanged,
    Setup,
    Text,
    Tool,
    ToolResult,
    TurnEnd,
    Unreadable,
)
from zoefs.contract.words import How, Reason

_PERMISSION = {"": "default", "ask": "default", "allow": "bypassPermissions", "deny": "dontAsk"}
_ENDED = {"completed": How.DONE, "aborted_streaming": How.INTERRUPTED, "aborted_tools": How.INTERRUPTED}
_SYNTHETIC = "<synthetic>"


class ClaudeCodec:
    """See module. State: what the open turn said, and the cost that this process reported so far."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._said: list[str] = []
        self._delta = ""
        self._cost = 0.0
        self._running = False
        self._open = ""
        self._absorbed = False
        self._replies = b""

    def argv(self) -> list[str]:
        """The command line; every flag each time, since resuming restores only some of them."""
        spec = self._setup.spec
        words = [self._setup.binary, "-p", "--input-format", "stream-json", "--output-format", "stream-json"]
        words += ["--verbose", "--include-partial-messages", "--permission-prompt-tool", "stdio"]
        words += ["--resume" if self._setup.resume else "--session-id", self._setup.session]
        words += ["--permission-mode", _PERMISSION.get(spec.permission, spec.permission)]
        words += ["--model", spec.model] if spec.model else []
        words += ["--append-system-prompt", spec.prompt] if spec.prompt else []
        return words + list(spec.args)

    def environment(self) -> Mapping[str, str]:
        """Updates and telemetry off, state lines on, and the rerun of a cut turn where one is to be continued."""
        quiet = (
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "DISABLE_AUTOUPDATER",
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
            "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS",
        )
        rerun = ("CLAUDE_CODE_RESUME_INTERRUPTED_TURN",) if self._setup.continuing else ()
        return dict.fromkeys((*quiet, *rerun), "1")

    def hello(self) -> bytes:
        """The handshake request; nothing is printed before it."""
        return _line({"type": "control_request", "request_id": "init", "request": {"subtype": "initialize"}})

    def prompt(self, message: str, text: str) -> bytes:
        """One user message under `message`, a uuid."""
        self.expect(message)
        return _line({"type": "user", "uuid": message, "message": {"role": "user", "content": text}})

    def expect(self, message: str) -> None:
        """The open turn is this message's: it was written by us or by a supervisor before us."""
        self._open = message

    def interrupt(self) -> bytes:
        """Cut the running turn; harmless when none runs."""
        return _line({"type": "control_request", "request_id": "interrupt", "request": {"subtype": "interrupt"}})

    def answer(self, ask: str, input: Any, allow: bool, why: str) -> bytes:
        """Allow sends the input back unchanged; deny tells the model why and the turn goes on."""
        body: dict[str, Any] = (
            {"behavior": "allow", "updatedInput": input}
            if allow
            else {"behavior": "deny", "message": why or "denied", "interrupt": False}
        )
        return _line(
            {"type": "control_response", "response": {"subtype": "success", "request_id": ask, "response": body}}
        )

    def take(self) -> bytes:
        """Refusals of requests that we do not serve."""
        replies, self._replies = self._replies, b""
        return replies

    def partial(self) -> str:
        """Everything the model said in the open turn, a finished piece a paragraph."""
        return "\n\n".join([*self._said, *([self._delta] if self._delta else [])])

    def decode(self, line: bytes) -> list[Decoded]:
        """One line of stdout. Unknown types are nothing; what is no JSON object is Unreadable."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return [Unreadable(line[:400].decode(errors="replace"))] if line.strip() else []
        if not isinstance(value, dict):
            return [Unreadable(line[:400].decode(errors="replace"))]
        try:
            return self._decode(value)
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            return [Unreadable(line[:400].decode(errors="replace"))]

    def _decode(self, value: dict[str, Any]) -> list[Decoded]:
        main = value.get("parent_tool_use_id") is None
        match value.get("type"):
            case "control_response":
                return self._control_response(value["response"])
            case "system":
                return self._system(value)
            case "command_lifecycle":
                return self._lifecycle(value)
            case "stream_event" if main:
                delta = value["event"].get("delta") or {}
                if value["event"].get("type") == "message_start":
                    self._delta = ""
                if delta.get("type") == "text_delta":
                    self._delta += str(delta["text"])
                return []
            case "assistant":
                return self._assistant(value["message"], main)
            case "user":
                return self._tool_results(value["message"].get("content"))
            case "control_request":
                return self._control_request(value["request_id"], value["request"])
            case "control_cancel_request":
                return [AskGone(value["request_id"])]
            case "result":
                return self._result(value)
            case _:
                return []

    def _control_response(self, response: dict[str, Any]) -> list[Decoded]:
        if response.get("request_id") == "init":
            told = response.get("response") or {}
            return [Ready(version=str(told.get("claude_code_version", "")))]
        return []

    def _system(self, value: dict[str, Any]) -> list[Decoded]:
        match value.get("subtype"):
            case "init":
                told = value.get("session_id")
                if isinstance(told, str) and told and told != self._setup.session:
                    return [SessionChanged(told)]
                return []
            case "session_state_changed":
                self._running = value.get("state") != "idle"
                if not self._running and self._absorbed:
                    return [self._end(How.DONE, None)]
                return []
            case "api_retry":
                status, attempt, delay = (value.get(key) or 0 for key in ("error_status", "attempt", "retry_delay_ms"))
                return [Retry(int(status), int(attempt), int(delay))]
            case _:
                return []

    def _lifecycle(self, value: dict[str, Any]) -> list[Decoded]:
        """`completed` of the open turn before its `result`: an earlier process finished that uuid, or it runs on."""
        message = str(value.get("command_uuid", ""))
        match value.get("state"):
            case "queued" | "started":
                return [Accepted(message)]
            case "completed" if message == self._open:
                if self._running:
                    self._absorbed = True
                    return []
                return [self._end(How.DONE, None)]
            case _:
                return []

    def _assistant(self, message: dict[str, Any], main: bool) -> list[Decoded]:
        if message.get("model") == _SYNTHETIC:
            return []
        found: list[Decoded] = []
        for block in message.get("content") or ():
            match block.get("type"):
                case "text" if main:
                    text = str(block["text"])
                    self._said.append(text)
                    self._delta = ""
                    found.append(Text(text))
                case "tool_use":
                    found.append(Tool(block["id"], block["name"], block.get("input")))
                case _:
                    pass
        return found

    def _tool_results(self, content: Any) -> list[Decoded]:
        if not isinstance(content, list):
            return []
        return [
            ToolResult(block["tool_use_id"], block.get("is_error") is not True, _plain(block.get("content")))
            for block in content
            if block.get("type") == "tool_result"
        ]

    def _control_request(self, id: str, request: dict[str, Any]) -> list[Decoded]:
        if request.get("subtype") == "can_use_tool":
            return [Asked(id, str(request.get("tool_name", "")), request.get("input"))]
        error = {"subtype": "error", "request_id": id, "error": "not supported"}
        self._replies += _line({"type": "control_response", "response": error})
        return []

    def _result(self, value: dict[str, Any]) -> list[Decoded]:
        terminal = value.get("terminal_reason")
        if terminal is None and value.get("is_error") and not value.get("num_turns"):
            return []
        error = bool(value.get("is_error"))
        how = _ENDED.get(str(terminal), How.FAILED if terminal or error else How.DONE)
        if how is How.DONE and error:
            how = How.FAILED
        text = value.get("result")
        if how is not How.DONE or not isinstance(text, str):
            text = self.partial()
        reason = "" if how is How.DONE else _why(value, str(terminal or "error"))
        return [self._end(how, text, reason, value)]

    def _end(self, how: How, text: str | None, reason: str = "", value: dict[str, Any] | None = None) -> TurnEnd:
        told = value or {}
        cost = self._spent(told)
        usage = told.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        tokens_in = sum(
            _whole(usage.get(key)) for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        )
        self._said, self._delta, self._absorbed, self._open = [], "", False, ""
        return TurnEnd(how, text, reason, cost, tokens_in, _whole(usage.get("output_tokens")))

    def _spent(self, value: dict[str, Any]) -> float:
        """USD of this turn: what it says since the last result, else the growth of this process's total."""
        since = value.get("model_usage_since_last_result")
        total = _amount(value.get("total_cost_usd"))
        growth, self._cost = max(0.0, total - self._cost), max(total, self._cost)
        if isinstance(since, dict):
            return sum(_amount(model.get("costUSD")) for model in since.values() if isinstance(model, dict))
        return growth

    def death(self, rc: int, last_words: str) -> Death:
        """The stderr lines that ask for another way of starting, or that say it is of no use."""
        if "Session ID" in last_words and "is already in use" in last_words:
            return Death(resume=True)
        if "No conversation found" in last_words:
            return Death(resume=False)
        if rc == 1 and (line := _config_error(last_words)):
            return Death(Reason.CONFIG, line)
        return Death()


def _amount(value: Any) -> float:
    """A finite number that is not negative; 0.0 for anything else: a wrong figure must not keep a turn open."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        return float(value) if math.isfinite(value) and value >= 0 else 0.0
    except OverflowError:
        return 0.0


def _whole(value: Any) -> int:
    return int(_amount(value))


def _config_error(last_words: str) -> str:
    marks = ("Invalid session ID", "unknown option", "cannot be used with root/sudo", "error: option")
    return next((line for line in last_words.splitlines() if any(mark in line for mark in marks)), "")


def _why(value: dict[str, Any], terminal: str) -> str:
    text = value.get("result") if terminal == "api_error" else None
    errors = value.get("errors")
    if isinstance(text, str) and text:
        return text
    if terminal.startswith("aborted"):
        return "interrupted"
    return f"{terminal}: {'; '.join(map(str, errors))}" if isinstance(errors, list) and errors else terminal


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
