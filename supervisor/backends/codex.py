"""codex: Codex over `codex app-server` (source: facts of 0.171.0, transcripts in tests/data).

Theory. Newline JSON-RPC in both directions. The thread's id is the session: the CLI tells it, and it is stored before
the first prompt. A prompt carries our own id; the CLI writes prompt and id to its record before it tells that the
prompt is an item of its turn, and never runs a cut turn again. So after a crash the list of turns settles what became
of the open turn: our id is absent, then the prompt never arrived and is given again; or its turn completed, then here
is the answer; or it was cut, then it is lost. Our requests have ids that say what they ask, so that whoever reads the
same lines again, after a supervisor's death, understands them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from supervisor.backends.codec import (
    MALFORMED,
    Accepted,
    Asked,
    AskGone,
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
    Unable,
    Unknown,
    Unserved,
    encode_line,
    understood,
    whole,
)
from zoefs.contract.asks import Ask, Question, Verdict
from zoefs.contract.words import How, Reason

_PERMISSION = {
    "": "untrusted/danger-full-access",
    "ask": "untrusted/danger-full-access",
    "allow": "never/danger-full-access",
    "deny": "never/read-only",
}
"""Approval policy and sandbox. `ask`: a command that is not known to be harmless is asked, and then runs as the user
would run it, as with claude."""
_CAPABILITIES = {"experimentalApi": True, "requestAttestation": False}
"""Without the first, what a cut tool left running cannot be ended."""
_SANDBOX = "workspace-write"
"""The sandbox of a policy that is named alone."""
_HOWS = {"completed": How.DONE, "interrupted": How.INTERRUPTED, "failed": How.FAILED}
_APPROVALS = {"item/commandExecution/requestApproval": "command", "item/fileChange/requestApproval": "change"}
_QUESTIONS = "item/tool/requestUserInput"
_TALK = frozenset({"userMessage", "agentMessage", "reasoning", "plan", "hookPrompt", "contextCompaction"})
"""Items that are no tools."""
_IGNORED = frozenset(
    "warning configWarning deprecationNotice remoteControl/status/changed account/rateLimits/updated account/updated "
    "thread/started thread/status/changed thread/goal/cleared thread/goal/updated thread/name/updated thread/closed "
    "turn/diff/updated turn/plan/updated item/reasoning/textDelta item/reasoning/summaryTextDelta "
    "item/reasoning/summaryPartAdded item/commandExecution/outputDelta item/fileChange/outputDelta "
    "item/fileChange/patchUpdated item/plan/delta model/rerouted skills/changed mcpServer/startupStatus/updated "
    "item/commandExecution/terminalInteraction item/mcpToolCall/progress serverRequest/resolved thread/compacted "
    "thread/settings/updated thread/readState/changed".split()
)
_PAGE = 20
"""How many of the newest turns are looked through for the open one."""


class CodexCodec:
    """See module. State: the thread, the turn that runs, what it said and spent, and the asks that are open."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._thread = setup.session
        self._turn = ""
        self._open = ""
        self._said: list[str] = []
        self._delta: list[str] = []
        self._spent: tuple[int, ...] = (0, 0, 0)
        self._total: tuple[int, ...] = (0, 0, 0)
        self._counted = not setup.session and not setup.fork
        self._model = setup.spec.model or setup.model
        self._version = ""
        self._step = ""
        self._stepped = self._told_thread = self._looked = False
        self._asks: dict[int, str] = {}
        self._steers: dict[str, str] = {}
        self._changes: dict[str, Any] = {}
        self._compacting = False
        self._interrupting = False
        self._interrupts = 0
        self._running = False
        self._unknown: set[str] = set()
        self._replies = b""

    # -- what is written ----------------------------------------------------------------------------------------

    def argv(self) -> list[str]:
        """The command line; what the agent is told goes with the thread."""
        return [self._setup.binary, "app-server", *self._setup.spec.args]

    def environment(self) -> Mapping[str, str]:
        """A quiet stderr."""
        return {"RUST_LOG": "error"}

    def hello(self) -> bytes:
        """The first request; thread and, where a turn is open, its look-up follow by `take`."""
        client = {"name": "zoefs", "title": "zoefs", "version": "0"}
        return _request("init", "initialize", {"clientInfo": client, "capabilities": _CAPABILITIES})

    def prompt(self, message: str, text: str) -> bytes:
        """One turn under `message`."""
        self.expect(message)
        given = {"threadId": self._thread, "clientUserMessageId": message, "input": _input(text)}
        return _request(f"prompt:{message}", "turn/start", given)

    def expect(self, message: str) -> None:
        """The open turn is this message's: it was written by us or by a supervisor before us."""
        self._open = message
        self._interrupting = False

    def interrupt(self) -> bytes:
        """Cut the running turn; one that has not told its start yet would go on, so it is cut as soon as it does."""
        if not self._running:
            self._interrupting = bool(self._open or self._compacting)
            return b""
        self._interrupts += 1
        given = {"threadId": self._thread, "turnId": self._turn}
        return _request(f"interrupt:{self._interrupts}", "turn/interrupt", given)

    def answer(self, ask: Ask, verdict: Verdict) -> bytes:
        """Codex has no place for a reason in a refusal, so it is said into the running turn."""
        rpc = whole(ask.detail)
        self._asks.pop(rpc, None)
        if ask.questions:
            answers = {key: {"answers": list(picked)} for key, picked in verdict.answers.items()}
            return encode_line({"id": rpc, "result": {"answers": answers}}) + self._tell_why(verdict)
        decision: Any = "decline"
        if verdict.allow:
            decision = ask.rule if verdict.always else "accept"
        return self._tell_why(verdict) + encode_line({"id": rpc, "result": {"decision": decision}})

    def _tell_why(self, verdict: Verdict) -> bytes:
        if verdict.allow or not verdict.why or not self._turn:
            return b""
        return self._steer_line("why", "", f"The request was denied: {verdict.why}")

    def steer(self, id: str, message: str, text: str) -> bytes:
        """Into the turn that runs; empty where none has told its id yet."""
        if not self._turn:
            return b""
        self.expect_steer(id, message, text)
        return self._steer_line(f"steer:{message}", message, text)

    def _steer_line(self, id: str, message: str, text: str) -> bytes:
        given: dict[str, Any] = {"threadId": self._thread, "expectedTurnId": self._turn, "input": _input(text)}
        return _request(id, "turn/steer", given | ({"clientUserMessageId": message} if message else {}))

    def expect_steer(self, id: str, message: str, text: str) -> bytes:
        """It counts once its text is told as an item: one that was only taken is lost where the turn is cut. One that
        the turn's end finds untold was not taken."""
        self._steers[message] = id
        return b""

    def compact(self, message: str) -> bytes:
        """The CLI's own command: a turn without a prompt."""
        self._compacting = True
        return _request("compact", "thread/compact/start", {"threadId": self._thread})

    def expect_compact(self, message: str) -> bytes:
        """Asked twice, it would begin again."""
        self._compacting = True
        return b""

    def take(self) -> bytes:
        """Refusals of requests that we do not serve, the next step of the handshake, an interrupt that waited."""
        lines, self._replies = self._replies, b""
        step, self._step = "" if self._setup.up else self._step, ""
        self._stepped = self._stepped or bool(step)
        match step:
            case "start":
                lines += encode_line({"method": "initialized"})
                lines += _request("thread", "thread/start", self._terms())
            case "resume":
                lines += encode_line({"method": "initialized"})
                given = {**self._terms(), "threadId": self._thread, "excludeTurns": True}
                lines += _request("thread", "thread/resume", given)
            case "fork":
                lines += encode_line({"method": "initialized"})
                given = {**self._terms(), "threadId": self._setup.fork, "excludeTurns": True}
                lines += _request("thread", "thread/fork", given)
            case "turns":
                given = {"threadId": self._thread, "limit": _PAGE, "itemsView": "full"}
                lines += _request("turns", "thread/turns/list", given)
        if self._interrupting and self._running:
            self._interrupting = False
            lines += self.interrupt()
        return lines

    def _terms(self) -> dict[str, Any]:
        """What holds for the thread from now on, told at each start; instructions are heard at its beginning only."""
        spec = self._setup.spec
        policy, _, sandbox = _PERMISSION.get(spec.permission, spec.permission).partition("/")
        terms: dict[str, Any] = {"cwd": self._setup.cwd, "approvalPolicy": policy, "sandbox": sandbox or _SANDBOX}
        terms |= {"model": spec.model} if spec.model else {}
        terms |= {"developerInstructions": spec.prompt} if spec.prompt else {}
        return terms

    # -- what is read -------------------------------------------------------------------------------------------

    def partial(self) -> str:
        """Everything the model said in the open turn, a finished piece a paragraph."""
        delta = "".join(self._delta)
        return "\n\n".join([*self._said, *([delta] if delta else [])])

    def decode(self, line: bytes) -> list[Decoded]:
        """One line of stdout. A method that we do not know is told once."""
        return understood(line, self._decode)

    def _decode(self, value: dict[str, Any]) -> list[Decoded]:
        if "method" not in value:
            return self._reply(value)
        params = value.get("params") or {}
        if "id" in value:
            return self._served(value["id"], value["method"], params)
        return self._told(value["method"], params)

    def _reply(self, value: dict[str, Any]) -> list[Decoded]:
        kind, _, rest = str(value["id"]).partition(":")
        error = value.get("error")
        why = str(error.get("message", error)) if isinstance(error, dict) else ""
        result = value.get("result") or {}
        match kind:
            case "init":
                agent = str(result.get("userAgent", ""))
                self._version = agent.partition("/")[2].partition(" ")[0] or self._version
                if not self._stepped and not self._told_thread:
                    self._step = self._first_step()
                return []
            case "thread":
                return self._thread_reply(result, why)
            case "turns":
                return self._turns_reply(result)
            case "prompt" if self._written(rest) and why:
                return self._end(How.FAILED, self.partial(), why)
            case "prompt" if self._written(rest):
                self._turn = str(result["turn"]["id"])
                return []
            case "steer" if why and rest in self._steers:
                return [Steered(self._steers.pop(rest), False, why)]
            case "compact" if why and self._compacting:
                self._compacting = False
                return [Compacted(False, why)]
            case _:
                return []

    def _written(self, message: str) -> bool:
        """Whether an answer to a prompt is one to the open turn's. Who reads it again need not look that up."""
        if self._step == "turns":
            self._step = ""
        return message == self._open

    def _first_step(self) -> str:
        if self._thread:
            return "resume"
        return "fork" if self._setup.fork else "start"

    def _thread_reply(self, result: dict[str, Any], why: str) -> list[Decoded]:
        """A thread that was never written has no record: with nothing in it, it is replaced and nobody need know."""
        if self._told_thread:
            return []
        self._step = ""
        if why:
            gone = "no rollout found" in why or "is empty" in why
            if gone and self._thread and not self._setup.lasting and not self._setup.fork:
                self._thread, self._step, self._counted = "", "start", True
                return []
            if gone and self._setup.fork and not self._thread:
                return [Unable(f"fork: codex has no record to copy: {why}", Reason.CONFIG)]
            wrong = ("configuration", "unknown variant", "Invalid request")
            config = Reason.CONFIG if any(mark in why for mark in wrong) else None
            return [Unable(f"codex: {why}", Reason.CONTEXT_LOST if gone else config)]
        self._told_thread = True
        self._thread = str(result["thread"]["id"])
        self._model = str(result.get("model") or self._model)
        found: list[Decoded] = [SessionChanged(self._thread)] if self._thread != self._setup.session else []
        if self._open and self._thread == self._setup.session:
            self._step = "turns"
            return found
        return [*found, Ready(self._version, self._model)]

    def _turns_reply(self, result: dict[str, Any]) -> list[Decoded]:
        """What became of the open turn in the process before; see module."""
        if self._looked:
            return []
        self._step, self._looked = "", True
        found: list[Decoded] = [Ready(self._version, self._model)]
        for turn in result.get("data") or ():
            items = turn.get("items") or []
            if not any(item.get("clientId") == self._open for item in items):
                continue
            said = [str(item["text"]) for item in items if item.get("type") == "agentMessage"]
            match turn.get("status"):
                case "inProgress":  # in this very process: it was told to it while we looked
                    return found
                case "completed":
                    return [*found, *self._end(How.DONE, said[-1] if said else "")]
                case "failed":
                    reason = str((turn.get("error") or {}).get("message", "failed"))
                    return [*found, *self._end(How.FAILED, "\n\n".join(said), reason)]
            why = "it was cut, and codex does not go on with a cut turn"
            return [*found, *self._end(How.LOST, "\n\n".join(said), why)]
        return found

    def _told(self, method: str, params: dict[str, Any]) -> list[Decoded]:
        if params.get("threadId", self._thread) != self._thread:
            return []
        match method:
            case "turn/started":
                self._turn, self._running = str(params["turn"]["id"]), True
                return []
            case "turn/completed":
                return self._completed(params["turn"])
            case "item/started":
                return self._item_started(params["item"])
            case "item/completed":
                return self._item_completed(params["item"])
            case "item/agentMessage/delta":
                text = str(params["delta"])
                self._delta.append(text)
                return [Delta(text)]
            case "thread/tokenUsage/updated":
                self._count(params)
                return []
            case "serverRequest/resolved":
                ask = self._asks.pop(params["requestId"], "")
                return [AskGone(ask)] if ask else []
            case "error" if params.get("willRetry"):
                info = params["error"].get("codexErrorInfo")  # a word, or one key with an object
                details = list(info.values()) if isinstance(info, dict) else []
                status = next((whole(x.get("httpStatusCode")) for x in details if isinstance(x, dict)), 0)
                return [Retry(status, 0, 0)]
            case "error":
                return []  # the failed turn tells it again
            case _:
                if method in _IGNORED or method in self._unknown or len(self._unknown) >= 100:
                    return []
                self._unknown.add(method)
                return [Unknown(str(method), json.dumps(params)[:400])]

    def _item_started(self, item: dict[str, Any]) -> list[Decoded]:
        kind = str(item["type"])
        if kind == "agentMessage":  # a sample that a steer cut short is dropped
            self._delta = []
        if kind == "fileChange":
            self._changes[str(item["id"])] = item.get("changes")
        if kind == "userMessage":
            return self._heard(item.get("clientId"))
        if kind in _TALK:
            return []
        left = {key: value for key, value in item.items() if key not in ("type", "id", "status") and value is not None}
        return [Tool(str(item["id"]), kind, left)]

    def _heard(self, message: Any) -> list[Decoded]:
        """A text of ours is in the record from here on."""
        if message in self._steers:
            return [Steered(self._steers.pop(message), True)]
        return [Accepted(message)] if message and message == self._open else []

    def _item_completed(self, item: dict[str, Any]) -> list[Decoded]:
        kind = str(item["type"])
        if kind == "agentMessage":
            text = str(item["text"])
            self._said.append(text)
            self._delta = []
            return [Text(text)]
        if kind in _TALK:
            return []
        ok = item.get("status", "completed") == "completed" and not item.get("exitCode")
        output = item.get("aggregatedOutput")
        if not isinstance(output, str):
            output = "" if item.get("error") is None else json.dumps(item["error"])
        return [ToolResult(str(item["id"]), ok, output or str(item.get("status", "")))]

    def _count(self, params: dict[str, Any]) -> None:
        """The thread's total grows with each model call; a resume, a fork or a compaction tells first what it was."""
        usage = params["tokenUsage"]
        keys = ("inputTokens", "cachedInputTokens", "outputTokens")
        total, last = (tuple(whole(usage[part].get(key)) for key in keys) for part in ("total", "last"))
        ours = params.get("turnId") == self._turn
        if ours and self._turn:
            before = total if self._compacting else tuple(a - b for a, b in zip(total, last, strict=True))
            base = self._total if self._counted else before
            self._spent = tuple(s + max(0, a - b) for s, a, b in zip(self._spent, total, base, strict=True))
        self._total, self._counted = total, True

    def _completed(self, turn: dict[str, Any]) -> list[Decoded]:
        if self._turn and turn["id"] != self._turn:
            return []
        how = _HOWS.get(str(turn.get("status")), How.FAILED)
        error = turn.get("error")
        reason = str(error.get("message", error)) if isinstance(error, dict) else ""
        if not self._open:
            self._turn, self._running = "", False
            if not self._compacting:
                return []
            self._compacting = self._interrupting = False
            spent, self._spent, self._said = self._spending(), (0, 0, 0), []
            return [Compacted(how is How.DONE, reason or ("" if how is How.DONE else how), spent)]
        if how is How.INTERRUPTED:  # else what a cut tool had started would go on behind the next turn
            self._replies += _request("clean", "thread/backgroundTerminals/clean", {"threadId": self._thread})
        items = turn.get("items") or []
        said = [str(item["text"]) for item in items if item.get("type") == "agentMessage"]
        text = said[-1] if how is How.DONE and said else self.partial()
        reason = reason or {How.DONE: "", How.INTERRUPTED: "interrupted"}.get(how, str(turn.get("status")))
        return self._end(how, text, reason)

    def _spending(self) -> Spent:
        tokens_in, cached, tokens_out = self._spent
        return Spent(None, tokens_in, cached, tokens_out, self._model)

    def _end(self, how: How, text: str, reason: str = "") -> list[Decoded]:
        missed: list[Decoded] = [
            Steered(id, False, "the turn ended before it was taken") for id in self._steers.values()
        ]
        gone: list[Decoded] = [AskGone(id) for id in self._asks.values()]
        spent, self._asks = self._spending(), {}
        self._turn = self._open = ""
        self._said, self._delta, self._spent, self._steers = [], [], (0, 0, 0), {}
        self._running = self._interrupting = False
        return [*gone, *missed, TurnEnd(how, text, reason, spent)]

    # -- what the CLI asks of us --------------------------------------------------------------------------------

    def _served(self, rpc: Any, method: Any, params: Any) -> list[Decoded]:
        """Every request is answered: what is none of ours, or cannot be understood, is refused."""
        try:
            asked = self._asked(rpc, method, params) if type(rpc) is int else []
        except MALFORMED:
            asked = []
        if not asked:
            self._replies += encode_line({"id": rpc, "error": {"code": -32601, "message": "not supported"}})
            return [Unserved(str(method)[:100])]
        self._asks[rpc] = f"{self._setup.inc}-{rpc}"
        return asked

    def _asked(self, rpc: int, method: str, params: dict[str, Any]) -> list[Decoded]:
        id = f"{self._setup.inc}-{rpc}"
        if method in _APPROVALS:
            rules = [one for one in params.get("availableDecisions") or () if isinstance(one, dict)]
            rule = rules[0] if rules else "acceptForSession"
            input = {key: params[key] for key in ("command", "cwd", "reason", "grantRoot") if params.get(key)}
            if _APPROVALS[method] == "change":
                input["changes"] = self._changes.get(str(params.get("itemId")))
            tool = "commandExecution" if _APPROVALS[method] == "command" else "fileChange"
            return [Asked(Ask(id, tool, input, rule=rule, detail=rpc))]
        if method == _QUESTIONS:
            questions = tuple(
                Question(
                    str(one["id"]),
                    str(one["question"]),
                    tuple(str(option["label"]) for option in one.get("options") or ()),
                )
                for one in params["questions"]
            )
            return [Asked(Ask(id, "requestUserInput", params["questions"], questions=questions, detail=rpc))]
        return []

    def death(self, rc: int, last_words: str) -> Death:
        """Words of stderr that say that another start is of no use."""
        marks = ("CODEX_HOME", "error: unexpected argument", "error: invalid value", "error loading config")
        line = next((line for line in last_words.splitlines() if any(mark in line for mark in marks)), "")
        return Death(Reason.CONFIG, line.strip()) if rc not in (0, None) and rc < 128 and line else Death()


def _request(id: str, method: str, params: dict[str, Any]) -> bytes:
    return encode_line({"method": method, "id": id, "params": params})


def _input(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
