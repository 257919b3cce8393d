"""The codex codec: its handshake with a scripted peer, and what no transcript shows."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from supervisor.backends import codec as told
from supervisor.backends.codec import (
    Accepted,
    Asked,
    AskGone,
    Compacted,
    Decoded,
    Ready,
    Retry,
    SessionChanged,
    Spent,
    Steered,
    TurnEnd,
    Unable,
    Unreadable,
    Unserved,
)
from supervisor.backends.codex import CodexCodec
from tests.unit.recordings import make, play, recording
from zoefs.contract.asks import Verdict
from zoefs.contract.spec import Spec
from zoefs.contract.words import How, Reason

Line = dict[str, Any]
APPROVAL = "item/commandExecution/requestApproval"


def codec(**more: Any) -> CodexCodec:
    made = make("codex", **{"session": "", **more})
    assert isinstance(made, CodexCodec)
    return made


def hear(made: CodexCodec, *values: Line) -> list[Decoded]:
    return [event for value in values for event in made.decode(json.dumps(value).encode())]


def note(method: str, **params: Any) -> Line:
    return {"method": method, "params": {"threadId": "T", **params}}


def read(data: bytes) -> list[Line]:
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def usage(turn: str, total: int, last: int) -> Line:
    parts = {"total": {"inputTokens": total, "outputTokens": 0}, "last": {"inputTokens": last, "outputTokens": 0}}
    return note("thread/tokenUsage/updated", turnId=turn, tokenUsage=parts)


def started(made: CodexCodec | None = None, message: str = "m") -> CodexCodec:
    """A codec of thread T whose turn U runs, of this message."""
    made = made or codec(session="T")
    made.prompt(message, "text")
    hear(made, {"id": f"prompt:{message}", "result": {"turn": {"id": "U"}}}, note("turn/started", turn={"id": "U"}))
    return made


def ended(status: str = "completed", text: str = "", **more: Any) -> Line:
    items = [{"type": "agentMessage", "text": text}] if text else []
    return note("turn/completed", turn={"id": "U", "status": status, "items": items, **more})


# -- the handshake ----------------------------------------------------------------------------------------------------


@attrs.define
class Peer:
    """What the CLI answers to the requests of a handshake, by the facts of 0.171.0."""

    threads: dict[str, list[Line]] = attrs.Factory(dict)
    broken: str = ""
    lost: str = ""
    initialized: bool = False
    heard: list[Line] = attrs.Factory(list)

    def answer(self, request: Line) -> list[Line]:
        self.heard.append(request)
        method, params = request["method"], request.get("params", {})
        if "id" not in request:
            assert method == "initialized"
            return []
        reply: Line = {"id": request["id"]}
        if method == "initialize":
            if self.initialized:
                return [reply | self._error("Already initialized")]
            self.initialized = True
            assert params["clientInfo"]["name"]
            return [reply | {"result": {"userAgent": "zoefs/0.171.0 (Debian; x86_64) unknown (zoefs; 0)"}}]
        if not self.initialized:
            return [reply | self._error("Not initialized")]
        if self.broken:
            return [reply | self._error(self.broken)]
        match method:
            case "thread/start":
                assert params["cwd"]
                assert params["approvalPolicy"]
                self.threads.setdefault("new", [])
                return [reply | self._thread("new"), note("thread/started")]
            case "thread/fork":
                if params["threadId"] not in self.threads:
                    return [reply | self._error(f"no rollout found for thread id {params['threadId']}")]
                self.threads["fork"] = list(self.threads[params["threadId"]])
                return [reply | self._thread("fork"), note("thread/started")]
            case "thread/resume":
                assert params["excludeTurns"] is True
                if self.lost:
                    return [reply | self._error(self.lost)]
                if params["threadId"] not in self.threads:
                    return [reply | self._error(f"no rollout found for thread id {params['threadId']}")]
                status = {"method": "thread/status/changed", "params": {"threadId": params["threadId"]}}
                return [status, reply | self._thread(params["threadId"])]
            case "thread/turns/list":
                assert params["itemsView"] == "full"
                return [reply | {"result": {"data": self.threads[params["threadId"]], "nextCursor": None}}]
            case _:
                return [reply | self._error(f"Invalid request: unknown variant `{method}`")]

    def _thread(self, id: str) -> Line:
        return {"result": {"thread": {"id": id, "turns": []}, "model": "gpt-5.5", "approvalPolicy": "untrusted"}}

    def _error(self, message: str) -> Line:
        return {"error": {"code": -32600, "message": message}}


def shake(made: CodexCodec, peer: Peer, data: bytes | None = None) -> list[Decoded]:
    """Until neither has more to say."""
    found: list[Decoded] = []
    data = made.hello() if data is None else data
    while data:
        lines = [answer for request in read(data) for answer in peer.answer(request)]
        found += hear(made, *lines)
        data = made.take()
    return found


def methods(peer: Peer) -> list[str]:
    return [request["method"] for request in peer.heard]


def turn(message: str, status: str, *said: str, error: Any = None) -> Line:
    items = [{"type": "userMessage", "clientId": message}, *({"type": "agentMessage", "text": text} for text in said)]
    return {"id": f"turn of {message}", "status": status, "items": items, "error": error}


READY = Ready("0.171.0", "gpt-5.5")


def test_a_new_session() -> None:
    peer = Peer()
    assert shake(codec(), peer) == [SessionChanged("new"), READY]
    assert methods(peer) == ["initialize", "initialized", "thread/start"]


def test_a_session_that_is_resumed() -> None:
    peer = Peer({"T": []})
    assert shake(codec(session="T", resume=True), peer) == [READY]
    assert methods(peer) == ["initialize", "initialized", "thread/resume"]


@pytest.mark.parametrize("why", ["no rollout found for thread id T", "failed to read thread: /w/rollout is empty"])
def test_a_session_without_a_record(why: str) -> None:
    """Where nothing of it is lost it is replaced, else it is told."""
    peer = Peer(lost=why)
    assert shake(codec(session="T"), peer)[:2] == [SessionChanged("new"), READY]
    peer.initialized = False
    (unable,) = shake(codec(session="T", lasting=True), peer)
    assert unable == Unable(f"codex: {why}", Reason.CONTEXT_LOST)


def test_a_fork_and_one_of_nothing() -> None:
    peer = Peer({"P": []})
    assert shake(codec(fork="P"), peer) == [SessionChanged("fork"), READY]
    (unable,) = shake(codec(fork="P"), Peer())
    assert isinstance(unable, Unable)
    assert unable.reason is Reason.CONFIG
    own = Peer({"T": []})
    assert shake(codec(session="T", fork="P"), own) == [READY], "its own thread, once it has one"


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("thread T already has an active writer", None),
        ("failed to load configuration: unknown provider", Reason.CONFIG),
        ("something new", None),
    ],
)
def test_a_handshake_that_fails(why: str, reason: Reason | None) -> None:
    """A writer that still lives is waited for; a configuration is not."""
    for made in (codec(), codec(session="T", lasting=True), codec(session="T")):
        assert shake(made, Peer({"T": []}, broken=why)) == [Unable(f"codex: {why}", reason)]


def test_the_open_turn_is_looked_up_and_given_again_where_it_is_absent() -> None:
    peer = Peer({"T": [turn("other", "completed", "x"), {"id": "U", "status": "interrupted", "items": []}]})
    made = codec(session="T")
    made.expect("m")
    assert shake(made, peer) == [READY]
    assert methods(peer)[-1] == "thread/turns/list"
    assert made.take() == b""
    assert TurnEnd not in [type(e) for e in hear(made, {"id": "turns", "result": {"data": []}})]


@pytest.mark.parametrize(
    ("listed", "how", "text", "reason"),
    [
        (turn("m", "completed", "preamble", "answer"), How.DONE, "answer", ""),
        (turn("m", "completed"), How.DONE, "", ""),
        (turn("m", "interrupted"), How.LOST, "", "it was cut"),
        (turn("m", "interrupted", "a", "b"), How.LOST, "a\n\nb", "it was cut"),
        (turn("m", "failed", error={"message": "no such model"}), How.FAILED, "", "no such model"),
        (turn("m", "failed"), How.FAILED, "", "failed"),
        (turn("m", "news"), How.LOST, "", "it was cut"),
    ],
)
def test_the_open_turn_is_looked_up_and_ends_as_it_is_listed(listed: Line, how: How, text: str, reason: str) -> None:
    made = codec(session="T")
    made.expect("m")
    ready, end = shake(made, Peer({"T": [turn("newer", "completed"), listed]}))
    assert ready == READY
    assert isinstance(end, TurnEnd)
    assert (end.how, end.text) == (how, text)
    assert end.reason.startswith(reason)


def test_a_steered_prompt_is_found_by_its_own_item() -> None:
    listed = turn("first", "completed", "x")
    listed["items"].insert(1, {"type": "userMessage", "clientId": "m"})
    made = codec(session="T")
    made.expect("m")
    assert [type(event) for event in shake(made, Peer({"T": [listed]}))] == [Ready, TurnEnd]


def test_a_turn_that_runs_in_this_process_is_not_ended_by_a_look_at_it() -> None:
    """An adopter may ask before the answer to the prompt is there, and is then answered behind it."""
    made = codec(session="T")
    made.expect("m")
    assert shake(made, Peer({"T": [turn("m", "inProgress", "so far")]})) == [READY]
    assert [type(e) for e in hear(started(made), ended(text="all"))] == [TurnEnd]


@pytest.mark.parametrize("setup", [{}, {"session": "T"}, {"fork": "T"}])
@pytest.mark.parametrize("expected", ["", "m"])
def test_a_supervisor_that_dies_in_the_handshake(setup: dict[str, str], expected: str) -> None:
    """Whenever that is: who comes after it says hello again, and it is ready once."""
    for lived in range(8):
        peer = Peer({"T": [turn("m", "completed", "answer")]})
        raw: list[Line] = []
        first = codec(**setup)
        if expected and "session" in setup:
            first.expect(expected)
        data, events = first.hello(), []
        while data and len(raw) < lived:
            lines = [answer for request in read(data) for answer in peer.answer(request)]
            raw += lines
            for line in lines[: max(0, lived - len(raw) + len(lines))]:
                events += hear(first, line)
            data = first.take()
        if [event for event in events if isinstance(event, Ready)]:
            continue
        session = next((e.session for e in events if isinstance(e, SessionChanged)), setup.get("session", ""))
        second = codec(**{**setup, "session": session})
        if expected and "session" in setup:
            second.expect(expected)
        again = hear(second, *raw) + shake(second, peer, second.take() + second.hello())
        assert len([event for event in again if isinstance(event, Ready)]) == 1, lived
        assert len([event for event in again if isinstance(event, TurnEnd)]) == bool(expected and "session" in setup)
        assert second.prompt("n", "x")
        assert read(second.prompt("n", "x"))[0]["params"]["threadId"] in peer.threads


def test_an_adopter_of_a_first_turn_does_not_look_it_up() -> None:
    """Handshake and turn are read again from the first line; the turn runs on in the process that is read."""
    for scenario in ("init-hello", "resume-after-kill", "cut-midtool"):
        one = recording(f"codex-app-server-0.171.0-{scenario}")
        (message,) = [call.message for call in one.calls]
        made = codec(session=one.told, resume=True, continuing=True)
        made.expect(message)
        for line in one.lines[:12]:
            made.decode(line)
        assert made.take() == b""


# -- a turn -----------------------------------------------------------------------------------------------------------


def test_an_interrupt_waits_until_the_turn_has_told_its_start() -> None:
    """Codex refuses one before, and the turn would go on."""
    made = codec(session="T")
    assert made.interrupt() == b"", "there is no turn"
    made.prompt("m", "text")
    assert made.interrupt() == b""
    hear(made, {"id": "prompt:m", "result": {"turn": {"id": "U"}}})
    assert made.take() == b""
    hear(made, note("turn/started", turn={"id": "U"}))
    (sent,) = read(made.take())
    assert (sent["method"], sent["params"]) == ("turn/interrupt", {"threadId": "T", "turnId": "U"})
    assert made.take() == b""


def test_an_interrupt_that_waited_is_not_for_the_next_turn() -> None:
    made = codec(session="T")
    made.prompt("m", "text")
    made.interrupt()
    hear(made, {"id": "prompt:m", "error": {"code": -32602, "message": "too large"}})
    started(made, "n")
    assert made.take() == b""


def test_what_a_cut_tool_started_is_ended_too() -> None:
    made = started()
    hear(made, ended("interrupted"))
    (sent,) = read(made.take())
    assert sent["method"] == "thread/backgroundTerminals/clean"


def test_a_prompt_that_is_refused_ends_its_turn() -> None:
    made = codec(session="T")
    made.prompt("m", "text")
    why = "Input exceeds the maximum length of 1048576 characters."
    assert hear(made, {"id": "prompt:other", "error": {"code": -32602, "message": why}}) == []
    (end,) = hear(made, {"id": "prompt:m", "error": {"code": -32602, "message": why}})
    assert isinstance(end, TurnEnd)
    assert (end.how, end.reason) == (How.FAILED, why)


def test_what_is_told_of_another_thread_means_nothing() -> None:
    made = started()
    other = [dict(line, params={**line["params"], "threadId": "X"}) for line in (ended(), usage("U", 9, 9))]
    assert hear(made, *other) == []
    (end,) = hear(made, ended())
    assert isinstance(end, TurnEnd)
    assert end.spent == Spent(None)


def test_the_end_of_a_turn_that_is_not_ours_ends_nothing() -> None:
    made = started()
    assert hear(made, note("turn/completed", turn={"id": "V", "status": "completed", "items": []})) == []


def test_what_was_being_said_when_a_steer_came_is_dropped() -> None:
    made = started()
    hear(
        made, note("item/started", item={"type": "agentMessage", "id": "1"}), note("item/agentMessage/delta", delta="a")
    )
    assert made.partial() == "a"
    hear(
        made, note("item/started", item={"type": "agentMessage", "id": "2"}), note("item/agentMessage/delta", delta="b")
    )
    assert made.partial() == "b"


def test_tokens_are_the_growth_of_the_total() -> None:
    made = started()
    hear(made, usage("U", 150, 50), usage("U", 150, 50), usage("U", 220, 70), usage("V", 900, 680))
    (end,) = hear(made, ended())
    assert isinstance(end, TurnEnd)
    assert end.spent.tokens_in == 120
    started(made, "n")
    hear(made, usage("U", 1000, 100))
    (end,) = hear(made, ended())
    assert isinstance(end, TurnEnd)
    assert end.spent.tokens_in == 100


@pytest.mark.parametrize(
    ("info", "status"),
    [
        ("internalServerError", 0),
        ({"httpConnectionFailed": {"httpStatusCode": 503}}, 503),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, 0),
        ({"news": None}, 0),
        (None, 0),
        ({}, 0),
    ],
)
def test_a_retry_is_told_whatever_its_reason_looks_like(info: Any, status: int) -> None:
    error = note("error", error={"message": "m", "codexErrorInfo": info}, willRetry=True)
    assert hear(started(), error) == [Retry(status, 0, 0)]
    assert hear(started(), {**error, "params": {**error["params"], "willRetry": False}}) == []


def test_what_experimental_ways_tell_is_no_news() -> None:
    assert hear(started(), note("thread/readState/changed", unread=True)) == []


# -- steers -----------------------------------------------------------------------------------------------------------


def heard(message: str) -> Line:
    return note("item/started", item={"type": "userMessage", "id": "i", "clientId": message})


def test_a_steer_counts_once_its_text_is_an_item() -> None:
    made = started()
    (sent,) = read(made.steer("s", "n", "more"))
    assert sent["method"] == "turn/steer"
    assert sent["params"]["expectedTurnId"] == "U"
    assert hear(made, {"id": "steer:n", "result": {"turnId": "U"}}) == [], "taken is not yet given"
    assert hear(made, heard("n")) == [Steered("s", True)]
    assert hear(made, heard("n")) == []


def test_a_steer_that_was_taken_and_then_cut_was_not_given() -> None:
    """Codex loses it silently: nothing in the history, no item, no error."""
    for adopter in (False, True):
        made = started()
        assert (made.expect_steer if adopter else made.steer)("s", "n", "more") is not None
        hear(made, {"id": "steer:n", "result": {"turnId": "U"}})
        missed, end = hear(made, ended("interrupted"))
        assert isinstance(missed, Steered)
        assert not missed.ok
        assert isinstance(end, TurnEnd)


def test_a_steer_that_is_refused() -> None:
    made = started()
    made.steer("s", "n", "more")
    why = "expected active turn id `V` but found `U`"
    assert hear(made, {"id": "steer:n", "error": {"code": -32600, "message": why}}) == [Steered("s", False, why)]
    assert [type(event) for event in hear(made, ended())] == [TurnEnd]


def test_there_is_no_steer_before_a_turn_has_an_id() -> None:
    made = codec(session="T")
    assert made.steer("s", "n", "more") == b""
    made.prompt("m", "text")
    assert made.steer("s", "n", "more") == b""


# -- compaction -------------------------------------------------------------------------------------------------------


def compacting(adopter: bool = False) -> CodexCodec:
    made = codec(session="T")
    assert (made.expect_compact if adopter else made.compact)("c") == (b"" if adopter else made.compact("c"))
    return made


def test_a_compaction_is_a_turn_without_a_prompt() -> None:
    made = compacting(adopter=True)
    quiet = [{"id": "compact", "result": {}}, note("turn/started", turn={"id": "U"})]
    quiet += [usage("U", 500, 100), usage("U", 640, 140), usage("U", 640, 9000)]
    assert hear(made, *quiet) == []
    assert hear(made, ended()) == [Compacted(True, "", Spent(None, 140))]
    assert [type(event) for event in hear(started(made), heard("m"), ended())] == [Accepted, TurnEnd]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"id": "compact", "error": {"code": -32600, "message": "no"}}, "no"),
        (ended("failed", error={"message": "model said no"}), "model said no"),
        (ended("interrupted"), "interrupted"),
    ],
)
def test_a_compaction_that_fails(line: Line, why: str) -> None:
    made = compacting()
    if "method" in line:
        hear(made, note("turn/started", turn={"id": "U"}))
    (failed,) = hear(made, line)
    assert isinstance(failed, Compacted)
    assert (failed.ok, failed.text) == (False, why)
    assert read(made.compact("d"))[0]["method"] == "thread/compact/start"


# -- what the CLI asks ------------------------------------------------------------------------------------------------


def approval(rpc: Any = 3, **params: Any) -> Line:
    return {**note(APPROVAL, command="touch x", cwd="/w", **params), "id": rpc}


def test_an_ask_that_was_answered_is_not_told_gone() -> None:
    made = started()
    (asked,) = hear(made, approval())
    assert isinstance(asked, Asked)
    assert asked.ask.id == "1-3"
    made.answer(asked.ask, Verdict(True))
    assert hear(made, note("serverRequest/resolved", requestId=3)) == []


@pytest.mark.parametrize("status", ["interrupted", "completed", "failed"])
def test_an_ask_that_nobody_answered_is_gone_before_its_turn_ends(status: str) -> None:
    made = started()
    hear(made, approval())
    gone, end = hear(made, ended(status))
    assert gone == AskGone("1-3")
    assert isinstance(end, TurnEnd)
    assert hear(made, note("serverRequest/resolved", requestId=3)) == []


def test_an_ask_resolved_by_codex_itself_is_gone() -> None:
    made = started()
    hear(made, approval())
    assert hear(made, note("serverRequest/resolved", requestId=4)) == []
    assert hear(made, note("serverRequest/resolved", requestId=3)) == [AskGone("1-3")]


def test_a_reason_to_deny_is_said_into_the_turn() -> None:
    made = started()
    (asked,) = hear(made, approval())
    assert isinstance(asked, Asked)
    steer, answer = read(made.answer(asked.ask, Verdict(False, why="not there")))
    assert steer["method"] == "turn/steer"
    assert "clientUserMessageId" not in steer["params"]
    assert "not there" in steer["params"]["input"][0]["text"]
    assert answer == {"id": 3, "result": {"decision": "decline"}}
    assert hear(made, {"id": "why", "result": {"turnId": "U"}}) == []


def test_always_takes_the_rule_that_codex_offers() -> None:
    made = started()
    offered = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "x"]}}
    for offers, decision in (
        ([offered], offered),
        (["accept", "cancel"], "acceptForSession"),
        (None, "acceptForSession"),
    ):
        (asked,) = hear(made, approval(availableDecisions=offers))
        assert isinstance(asked, Asked)
        assert read(made.answer(asked.ask, Verdict(True, always=True))) == [{"id": 3, "result": {"decision": decision}}]


@pytest.mark.parametrize(
    "request_",
    [
        {"method": "item/tool/call", "id": 5, "params": {}},
        {"method": "mcpServer/elicitation/request", "id": "text", "params": {}},
        {"method": "execCommandApproval", "id": 0, "params": None},
        {"method": "item/permissions/requestApproval", "id": 7, "params": {}},
        approval(rpc="text"),
        approval(rpc=1.5),
        approval(rpc=None),
        {"method": "item/tool/requestUserInput", "id": 8, "params": {"threadId": "T"}},
        {"method": "item/tool/requestUserInput", "id": 9, "params": {"questions": [{}]}},
        {"method": APPROVAL, "id": 6, "params": 3},
        {"method": 4, "id": 4},
    ],
)
def test_every_other_request_is_refused(request_: Line) -> None:
    made = started()
    (event,) = hear(made, request_)
    assert isinstance(event, Unserved)
    (reply,) = read(made.take())
    assert reply == {"id": request_["id"], "error": {"code": -32601, "message": "not supported"}}
    assert [type(event) for event in hear(made, ended())] == [TurnEnd]


def test_what_is_no_message_of_codex_is_unreadable() -> None:
    strange: list[Any] = [{}, {"jsonrpc": "2.0"}, {"type": "result"}, [], 3, "method", None]
    for value in strange:
        assert [type(event) for event in codec().decode(json.dumps(value).encode())] == [Unreadable]


# -- how it is started ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permission", "policy", "sandbox"),
    [
        ("", "untrusted", "danger-full-access"),
        ("ask", "untrusted", "danger-full-access"),
        ("allow", "never", "danger-full-access"),
        ("deny", "never", "read-only"),
        ("on-request", "on-request", "workspace-write"),
        ("on-request/read-only", "on-request", "read-only"),
    ],
)
def test_the_terms_are_told_at_each_start(permission: str, policy: str, sandbox: str) -> None:
    spec = Spec(backend="codex", permission=permission, model="gpt-5.5", prompt="be brief")
    for setup in ({}, {"session": "T"}, {"fork": "T"}):
        peer = Peer({"T": []})
        shake(codec(spec=spec, **setup), peer)
        given = peer.heard[-1]["params"]
        assert (given["approvalPolicy"], given["sandbox"], given["cwd"]) == (policy, sandbox, "/w")
        assert (given["model"], given["developerInstructions"]) == ("gpt-5.5", "be brief")


def test_command_line() -> None:
    assert codec(spec=Spec(backend="codex", args=("-c", "x=1"))).argv() == ["/bin/codex", "app-server", "-c", "x=1"]
    assert codec().environment() == {"RUST_LOG": "error"}


@pytest.mark.parametrize(
    ("rc", "words", "reason"),
    [
        (1, 'Error: CODEX_HOME points to "/w", but that path does not exist\n', Reason.CONFIG),
        (2, "error: unexpected argument '--x' found\n", Reason.CONFIG),
        (0, "CODEX_HOME", None),
        (137, "CODEX_HOME", None),
        (101, "thread panicked", None),
    ],
)
def test_last_words(rc: int, words: str, reason: Reason | None) -> None:
    assert codec().death(rc, words).reason is reason


def test_a_tool_that_outlives_its_turn_ends_after_it() -> None:
    events = [event for _, event in play(recording("codex-app-server-0.171.0-yield")).events]
    assert [type(event) for event in events[-2:]] == [TurnEnd, told.ToolResult]
