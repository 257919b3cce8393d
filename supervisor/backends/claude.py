"""claude: Claude Code over `claude -p` stream-json (source: facts of 2.1.332 and 2.1.197, transcripts in tests/data).

Theory. We choose the session id. A prompt carries our own uuid, and the CLI never runs one uuid twice, not even in
a later process: so after a crash the turn is continued by resuming (which reruns a turn that was cut) and sending
the same uuid again (which is absorbed, or runs if it never arrived). How a turn ended is said by `terminal_reason`,
then `is_error`, never by `subtype`. One prompt is given at a time, so a `result` ends the open turn. A steer is one
more user message: told `completed` before the `result`, it became part of the turn; still queued at the `result`, it
is what the CLI runs next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from supervisor.backends.codec import (
    Accepted,
    Asked,
    AskGone,
    Capable,
    Compacted,
    Death,
    Decoded,
    Delta,
    Ready,
    Retry,
    SessionChanged,
    Setup,
    Spent,
    Steered,
    Text,
    Tool,
    ToolResult,
    TurnEnd,
    Unknown,
    Unserved,
    amount,
    encode_line,
    understood,
    whole,
)
from zoefs.contract.asks import Ask, Question, Verdict
from zoefs.contract.words import How, Reason

_PERMISSION = {"": "default", "ask": "default", "allow": "bypassPermissions", "deny": "dontAsk"}
_ENDED = {"completed": How.DONE, "aborted_streaming": How.INTERRUPTED, "aborted_tools": How.INTERRUPTED}
_SYNTHETIC = "<synthetic>"
_STEERABLE = "msg_lifecycle_v1"
"""The capability without which nobody learns what became of a second message."""
_USAGE = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_USAGE_OF_MODEL = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
_IGNORED = frozenset({"keep_alive", "rate_limit_event", "tool_progress", "auth_status", "tool_use_summary"})
_IGNORED_SYSTEM_TYPES = frozenset(
    f"system/{word}" for word in "status model_fallback permission_denied hook_started".split()
)


class ClaudeCodec:
    """See module. State: what the open turn said, the steers that are under way (message to id), and the cost that
    this process reported so far."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._said: list[str] = []
        self._delta: list[str] = []
        self._steers: dict[str, str] = {}
        self._compacting = self._refusal = ""
        self._shortened = False
        self._words: tuple[str, ...] = setup.words
        self._unknown: set[str] = set()
        self._cost = setup.usd
        self._version = ""
        self._running = self._ready = False
        self._open = ""
        self._absorbed = False
        self._replies = b""
        self._forks = bool(setup.fork) and not setup.resume

    def argv(self) -> list[str]:
        """The command line; every flag each time, since resuming restores only some of them."""
        spec = self._setup.spec
        words = [self._setup.binary, "-p", "--input-format", "stream-json", "--output-format", "stream-json"]
        words += ["--verbose", "--include-partial-messages", "--permission-prompt-tool", "stdio"]
        if self._forks:
            words += ["--resume", self._setup.fork, "--fork-session", "--session-id", self._setup.session]
        else:
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
        return encode_line({"type": "control_request", "request_id": "init", "request": {"subtype": "initialize"}})

    def prompt(self, message: str, text: str) -> bytes:
        """One user message under `message`, a uuid."""
        self.expect(message)
        return _user(message, text)

    def expect(self, message: str) -> None:
        """The open turn is this message's: it was written by us or by a supervisor before us."""
        self._open = message

    def interrupt(self) -> bytes:
        """Cut the running turn; harmless when none runs. A steer that was not taken runs next."""
        return encode_line({"type": "control_request", "request_id": "interrupt", "request": {"subtype": "interrupt"}})

    def answer(self, ask: Ask, verdict: Verdict) -> bytes:
        """Allow sends the input back, with answers where it asked; deny tells the model why and the turn goes on."""
        body: dict[str, Any] = {"behavior": "deny", "message": verdict.why or "denied", "interrupt": False}
        if verdict.allow:
            body = {"behavior": "allow", "updatedInput": ask.input}
            if verdict.answers and isinstance(ask.input, dict):
                told = {key: ", ".join(picked) for key, picked in verdict.answers.items()}
                body["updatedInput"] = {**ask.input, "answers": told}
            if verdict.always and isinstance(ask.rule, list):
                body["updatedPermissions"] = ask.rule
        return encode_line(
            {"type": "control_response", "response": {"subtype": "success", "request_id": ask.id, "response": body}}
        )

    def steer(self, id: str, message: str, text: str) -> bytes:
        """One more user message, where the CLI tells what becomes of it."""
        return self.expect_steer(id, message, text) if _STEERABLE in self._words else b""

    def expect_steer(self, id: str, message: str, text: str) -> bytes:
        """The same message again is not run again."""
        self._steers[message] = id
        return _user(message, text)

    def compact(self, message: str) -> bytes:
        """The CLI's own command, as a message."""
        return self.expect_compact(message)

    def expect_compact(self, message: str) -> bytes:
        """The same message again is not run again."""
        self._compacting, self._refusal, self._shortened = message, "", False
        return _user(message, "/compact")

    def take(self) -> bytes:
        """Refusals of requests that we do not serve."""
        replies, self._replies = self._replies, b""
        return replies

    def partial(self) -> str:
        """Everything the model said in the open turn, a finished piece a paragraph."""
        delta = "".join(self._delta)
        return "\n\n".join([*self._said, *([delta] if delta else [])])

    def decode(self, line: bytes) -> list[Decoded]:
        """One line of stdout. A type that we do not know is told once."""
        return understood(line, self._decode)

    def _decode(self, value: dict[str, Any]) -> list[Decoded]:
        main = value.get("parent_tool_use_id") is None
        match value.get("type"):
            case "control_response":
                return self._control_response(value["response"])
            case "system":
                return self._system(value)
            case "command_lifecycle":
                return self._lifecycle(value)
            case "stream_event":
                return self._stream(value["event"]) if main else []
            case "assistant":
                return self._assistant(value["message"], main)
            case "user":
                return self._tool_results(value["message"].get("content"))
            case "control_request":
                return self._control_request(_id(value["request_id"]), value["request"])
            case "control_cancel_request":
                return [AskGone(_id(value["request_id"]))]
            case "result":
                return self._result(value)
            case type:
                return self._not_known(str(type), value, _IGNORED)

    def _not_known(self, type: str, value: dict[str, Any], ignored: frozenset[str]) -> list[Decoded]:
        """Told once a process: what a newer CLI says must be seen, and must not fill the journal."""
        if type in ignored or type in self._unknown or len(self._unknown) >= 100:
            return []
        self._unknown.add(type)
        return [Unknown(type, json.dumps(value)[:400])]

    def _stream(self, event: dict[str, Any]) -> list[Decoded]:
        if event.get("type") == "message_start":
            self._delta = []
        delta = event.get("delta") or {}
        if delta.get("type") != "text_delta":
            return []
        text = str(delta["text"])
        self._delta.append(text)
        return [Delta(text)]

    def _control_response(self, response: dict[str, Any]) -> list[Decoded]:
        if response.get("request_id") == "init" and not self._ready:
            self._ready = True
            told = response.get("response") or {}
            self._version = str(told.get("claude_code_version", ""))
            return [Ready(version=self._version)]
        return []

    def _system(self, value: dict[str, Any]) -> list[Decoded]:
        match value.get("subtype"):
            case "init":
                return self._init(value)
            case "session_state_changed":
                self._running = value.get("state") != "idle"
                if not self._running and self._absorbed:
                    return [self._end(How.DONE, None)]
                return []
            case "compact_boundary":
                self._shortened = bool(self._compacting)
                return []
            case "api_retry":
                return [Retry(*(whole(value.get(key)) for key in ("error_status", "attempt", "retry_delay_ms")))]
            case subtype:
                return self._not_known(f"system/{subtype}", value, _IGNORED_SYSTEM_TYPES)

    def _init(self, value: dict[str, Any]) -> list[Decoded]:
        found: list[Decoded] = []
        session, words = value.get("session_id"), value.get("capabilities")
        if isinstance(session, str) and session and session != self._setup.session:
            found.append(SessionChanged(session))
        told = tuple(sorted(str(word) for word in words)) if isinstance(words, list) else ()
        version = "" if self._version else str(value.get("claude_code_version", ""))
        if told != self._words or version:
            self._words, self._version = told, self._version or version
            found.append(Capable(told, version))
        return found

    def _lifecycle(self, value: dict[str, Any]) -> list[Decoded]:
        """`completed` of the open turn before its `result`: an earlier process finished that uuid, or it runs on."""
        message, state = str(value.get("command_uuid", "")), value.get("state")
        if message in self._steers and state in ("completed", "cancelled"):
            ok = state == "completed"
            return [Steered(self._steers.pop(message), ok, "" if ok else "the turn was interrupted")]
        match state:
            case "queued" | "started":
                return [Accepted(message)] if message == self._open else []
            case "completed" if message and message == self._compacting:
                self._compacting = ""
                return [Compacted(True)]
            case "completed" if message == self._open:
                if self._running:
                    self._absorbed = True
                    return []
                return [self._end(How.DONE, None)]
            case _:
                return []

    def _assistant(self, message: dict[str, Any], main: bool) -> list[Decoded]:
        if message.get("model") == _SYNTHETIC:
            self._refusal = _plain(message.get("content")) if self._compacting else ""
            return []
        found: list[Decoded] = []
        for block in message.get("content") or ():
            match block.get("type"):
                case "text" if main:
                    text = str(block["text"])
                    self._said.append(text)
                    self._delta = []
                    found.append(Text(text))
                case "tool_use":
                    found.append(Tool(_id(block["id"]), str(block["name"]), block.get("input")))
                case _:
                    pass
        return found

    def _tool_results(self, content: Any) -> list[Decoded]:
        if not isinstance(content, list):
            return []
        return [
            ToolResult(_id(block["tool_use_id"]), block.get("is_error") is not True, _plain(block.get("content")))
            for block in content
            if block.get("type") == "tool_result"
        ]

    def _control_request(self, id: str, request: dict[str, Any]) -> list[Decoded]:
        if request.get("subtype") == "can_use_tool":
            rules = _rules(request.get("permission_suggestions"))
            tool, input = str(request.get("tool_name", "")), request.get("input")
            questions = _questions(input) if tool == "AskUserQuestion" else ()
            return [Asked(Ask(id, tool, input, questions=questions, rule=rules or None))]
        error = {"subtype": "error", "request_id": id, "error": "not supported"}
        self._replies += encode_line({"type": "control_response", "response": error})
        return [Unserved(str(request.get("subtype")))]

    def _result(self, value: dict[str, Any]) -> list[Decoded]:
        terminal = value.get("terminal_reason")
        if terminal is None and value.get("is_error") and not value.get("num_turns"):
            return []
        error = bool(value.get("is_error"))
        how = _ENDED.get(str(terminal), How.FAILED if terminal or error else How.DONE)
        if how is How.DONE and error:
            how = How.FAILED
        reason = "" if how is How.DONE else _why(value, str(terminal or "error"))
        if self._compacting and not self._open:
            done = how is How.DONE and self._shortened
            self._compacting, self._shortened = "", False
            return [Compacted(done, "" if done else reason or self._refusal or "it says nothing", self._spent(value))]
        text = value.get("result")
        if how is not How.DONE or not isinstance(text, str):
            text = self.partial()
        within = value.get("user_message_uuids")
        taken = [message for message in self._steers if isinstance(within, list) and message in within]
        found: list[Decoded] = [Steered(self._steers.pop(message), True) for message in taken]
        return [*found, self._end(how, text, reason, value)]

    def _end(self, how: How, text: str | None, reason: str = "", value: dict[str, Any] | None = None) -> TurnEnd:
        spent = self._spent(value or {})
        self._said, self._delta, self._absorbed, self._open = [], [], False, ""
        goes_on = ""
        if self._steers:  # what is queued still runs next, oldest first
            self._open = next(iter(self._steers))
            goes_on = self._steers.pop(self._open)
        return TurnEnd(how, text, reason, spent, goes_on)

    def _spent(self, value: dict[str, Any]) -> Spent:
        """What this turn cost, in USD and tokens: what it says since the last result, else the growth of the total."""
        usage, since = value.get("usage"), value.get("model_usage_since_last_result")
        total = amount(value["total_cost_usd"]) if "total_cost_usd" in value else None
        usd = max(0.0, total - self._cost) if total is not None else 0.0
        self._cost = self._cost if total is None else total
        told, keys = [usage], _USAGE
        if isinstance(since, dict):  # of `usage`, a turn that was cut and a compaction have nothing
            told, keys = list(since.values()), _USAGE_OF_MODEL
            usd = sum((amount(model.get("costUSD")) for model in told if isinstance(model, dict)), 0.0)
        fresh, written, cached, out = (
            sum(whole(part.get(key)) for part in told if isinstance(part, dict)) for key in keys
        )
        return Spent(usd, fresh + written + cached, cached, out, total=total)

    def death(self, rc: int, last_words: str) -> Death:
        """The stderr lines that ask for another way of starting, or that say it is of no use."""
        if "Session ID" in last_words and "is already in use" in last_words:
            return Death(resume=True)
        if "No conversation found" in last_words:
            if self._forks:
                return Death(Reason.CONFIG, f"fork: claude has no record of session {self._setup.fork} to copy")
            return Death(resume=False)
        if rc == 1 and (line := _config_error(last_words)):
            return Death(Reason.CONFIG, line)
        return Death()


def _user(message: str, text: str) -> bytes:
    return encode_line({"type": "user", "uuid": message, "message": {"role": "user", "content": text}})


def _id(value: Any) -> str:
    """An id that is no text could not be answered as it was asked."""
    if not isinstance(value, str):
        raise TypeError("an id that is no text")
    return value


def _rules(suggestions: Any) -> list[Any]:
    """Of what the CLI suggests, the rules for others like this ask: a change of mode would grant more than that."""
    rules = suggestions if isinstance(suggestions, list) else []
    return [rule for rule in rules if isinstance(rule, dict) and rule.get("type") in ("addRules", "addDirectories")]


def _questions(input: Any) -> tuple[Question, ...]:
    """What AskUserQuestion asks; the CLI knows each question by its text."""
    asked = input.get("questions") if isinstance(input, dict) else None
    found = []
    for one in asked if isinstance(asked, list) else ():
        if isinstance(one, dict) and isinstance(one.get("question"), str):
            options = one.get("options")
            labels = [str(option.get("label", "")) for option in options] if isinstance(options, list) else []
            found.append(Question(one["question"], one["question"], tuple(labels), one.get("multiSelect") is True))
    return tuple(found)


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
