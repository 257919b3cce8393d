"""The fake OpenAI server: its dialect as pure tables, its endpoints over loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes import openai_script, script
from tests.fakes.openai import OpenAIFake, user_texts
from tests.fakes.openai_script import error, events, message
from tests.fakes.script import Answer, Body, Failure, ToolCall

MODEL = "fake-model"
TOOLS = [{"type": "function", "name": "exec_command"}]
ABORTED = "<turn_aborted>\nThe user interrupted the previous turn on purpose."
ABOVE = "Chunk ID: 99bdd9\nWall time: 0.0000 seconds\nProcess exited with code 0\nOriginal token count: 1\nOutput:\n"


def said(*texts: str, role: str = "user") -> dict[str, Any]:
    """One message of these parts."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def result(output: str | list[dict[str, Any]], kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": "call_1", "output": output}


def request(*items: Any, tools: list[dict[str, Any]] = TOOLS, stream: bool = True) -> dict[str, Any]:
    """A request as codex makes it; a string stands for a message of the user."""
    head = [said("be brief", role="developer"), said("<environment_context>\n  <cwd>/w</cwd>")]
    given = [said(item) if isinstance(item, str) else item for item in items]
    return {"model": MODEL, "input": [*head, *given], "tools": tools, "stream": stream}


def answer(body: Body, first_try: bool = True) -> Answer | Failure:
    return script.answer(openai_script, body, first_try)


def says(body: Body) -> str:
    reply = answer(body)
    assert isinstance(reply, Answer)
    return reply.text


HISTORIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a text": (request("hello\n"), ["hello\n"]),
    "two turns": (request("hello", said("hi", role="assistant"), "again"), ["hello", "again"]),
    "a text that looks like markup": (request("<b>bold</b>"), ["<b>bold</b>"]),
    "two parts": (request(said("a", "b")), ["a", "b"]),
    "the rules of a directory": (
        request(said("# AGENTS.md instructions for /w\n", "<environment_context>"), "a"),
        ["a"],
    ),
    "interrupted": (request("cut", said(ABORTED), "on"), ["cut", "on"]),
    "a skill that the prompt names": (request("$draw", said("<skill>\n<name>draw</name>")), ["$draw"]),
    "asked for a summary": (request("a", said("You are performing a CONTEXT CHECKPOINT COMPACTION. Be brief.")), ["a"]),
    "compacted": (request("a", said("Another language model started to solve this problem and"), "b"), ["a", "b"]),
    "tool result": (request("go", result("done")), ["go"]),
    "nothing": ({}, []),
}


@pytest.mark.parametrize(("body", "texts"), HISTORIES.values(), ids=HISTORIES)
def test_user_texts_are_what_the_user_gave(body: Body, texts: list[str]) -> None:
    assert user_texts(body) == texts


ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "echo": (request("hello"), "echo#1: hello"),
    "echo counts texts": (request("a", said(ABORTED), "b", "c"), "echo#3: c"),
    "say": (request("[[say:old]]", "x [[say:new]]"), "new"),
    "the output alone": (request("go", result(ABOVE + "hi\n")), "echo#1: go | tool_result='hi\\n'"),
    "no output": (request("go", result(ABOVE)), "echo#1: go | tool_result=''"),
    "output that looks like a head": (
        request("go", result(ABOVE + "Output:\nx")),
        "echo#1: go | tool_result='Output:\\nx'",
    ),
    "a refused command": (request("go", result("rejected by user")), "echo#1: go | tool_result='rejected by user'"),
    "a custom tool's output": (
        request("go", result([{"type": "input_text", "text": "b"}], "custom_tool_call_output")),
        "echo#1: go | tool_result='b'",
    ),
    "result of an earlier prompt": (request("go", result("a"), "on"), "echo#2: on"),
    "a compaction lists no tools": (request("[[bash:ls]]", tools=[]), "echo#1: [[bash:ls]]"),
}


@pytest.mark.parametrize(("body", "text"), ANSWERS.values(), ids=ANSWERS)
def test_the_final_text(body: Body, text: str) -> None:
    assert says(body) == text


def test_tools_are_called_one_a_request_and_then_the_text_comes() -> None:
    prompt = '[[bash:touch a]] [[tool:write_stdin:{"session_id": 1}]] [[say:both done]]'
    seen = [answer(request(prompt, *([result("ok")] * done))) for done in range(3)]
    assert seen == [
        Answer(MODEL, "calling exec_command", (100, 10), ToolCall("exec_command", {"cmd": "touch a"})),
        Answer(MODEL, "calling write_stdin", (100, 10), ToolCall("write_stdin", {"session_id": 1})),
        Answer(MODEL, "both done", (100, 10)),
    ]


def test_a_text_sent_into_a_tool_turn_takes_it_over() -> None:
    assert says(request("[[bash:a]][[bash:b]]", result("ok"), "steer")) == "echo#2: steer"


@pytest.mark.parametrize(
    ("status", "kind", "code"), [(400, "invalid_request_error", "fake"), (500, "server_error", "fake")]
)
def test_error_bodies(status: int, kind: str, code: str) -> None:
    expected = {"message": "why", "type": kind, "param": None, "code": code}
    assert error(Failure(status, "why")) == {"error": expected}


def test_the_stream_of_a_text() -> None:
    stream = [event for _, event in events(Answer(MODEL, "hello", (7, 3)), "1")]
    assert [event["type"] for event in stream] == [
        "response.created",
        "response.output_item.added",
        *["response.output_text.delta"] * 5,
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event["delta"] for event in stream[2:-2]) == "hello"
    assert {event["item_id"] for event in stream[2:-2]} == {"msg_1"}
    assert (stream[1]["item"]["content"], stream[1]["item"]["status"]) == ([], "in_progress")
    assert stream[-2]["item"]["content"][0]["text"] == "hello"
    whole = stream[-1]["response"]
    assert (whole["output"], whole["status"]) == ([stream[-2]["item"]], "completed")
    usage = whole["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (7, 3, 10)


CALLS = {
    "function": (
        ToolCall("exec_command", {"cmd": "ls"}),
        {"id": "fc_1", "type": "function_call", "arguments": '{"cmd": "ls"}'},
    ),
    "free text": (
        ToolCall("apply_patch", {"input": "*** Begin Patch"}),
        {"id": "ctc_1", "type": "custom_tool_call", "input": "*** Begin Patch"},
    ),
}


@pytest.mark.parametrize(("call", "item"), CALLS.values(), ids=CALLS)
def test_the_stream_of_a_tool_call(call: ToolCall, item: dict[str, Any]) -> None:
    stream = [event for _, event in events(Answer(MODEL, "", (7, 3), call), "1")]
    assert [(event["type"], event.get("output_index")) for event in stream[1:-1]] == [
        ("response.output_item.added", 0),
        ("response.output_item.done", 0),
        ("response.output_item.added", 1),
        ("response.output_item.done", 1),
    ]
    whole = item | {"name": call.name, "call_id": "call_1", "status": "completed"}
    emptied = {"arguments": "", "input": ""}.keys() & item.keys()
    assert stream[-2]["item"] == whole
    assert stream[-3]["item"] == whole | dict.fromkeys(emptied, "") | {"status": "in_progress"}
    assert [entry["type"] for entry in stream[-1]["response"]["output"]] == ["message", item["type"]]


def test_a_slow_stream_pauses_that_long_in_all() -> None:
    pauses = [seconds for seconds, _ in events(Answer(MODEL, "x" * 12345, (1, 1), slow_s=3.0), "1")]
    assert sum(pauses) == pytest.approx(3.0)


def test_a_hanging_stream_has_one_event() -> None:
    assert [event["type"] for _, event in events(Answer(MODEL, "x", (1, 1), hang=True), "1")] == ["response.created"]


def test_an_answer_in_one_piece() -> None:
    whole = message(Answer(MODEL, "calling", (7, 3), ToolCall("exec_command", {"cmd": "ls"})), "1")
    assert [item["type"] for item in whole["output"]] == ["message", "function_call"]
    assert (whole["model"], whole["usage"]["total_tokens"]) == (MODEL, 10)


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAIFake]:
    with OpenAIFake(tmp_path_factory.mktemp("fake") / "log.jsonl") as started:
        yield started


@pytest.fixture
def client(fake: OpenAIFake) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fake.url, trust_env=False, timeout=10.0) as opened:
        yield opened


def test_a_turn_over_http(fake: OpenAIFake, client: httpx.Client) -> None:
    got = client.post("/v1/responses", json=request("héllo 😀"))
    assert got.status_code == 200
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["connection"] == "close"
    frames = [frame.split("\n") for frame in got.text.split("\n\n")[:-1]]
    data = [json.loads(line.removeprefix("data: ")) for _, line in frames]
    assert [first for first, _ in frames] == [f"event: {event['type']}" for event in data]
    assert "".join(event.get("delta", "") for event in data) == "echo#1: héllo 😀"
    assert user_texts(fake.turns()[-1]["body"]) == ["héllo 😀"]


def test_one_connection_serves_all_endpoints(fake: OpenAIFake, client: httpx.Client) -> None:
    turns = len(fake.turns())
    whole = client.post("/v1/responses", json=request("hi", tools=[], stream=False))
    assert whole.json()["output"][0]["content"][0]["text"] == "echo#1: hi"
    assert client.get("/v1/models").json()["data"][0]["id"] == MODEL
    for method, path in (("GET", "/v1/responses"), ("POST", "/responses")):
        assert client.request(method, path).status_code == 404
    assert len(fake.turns()) == turns, "a call without tools is none of a turn"
