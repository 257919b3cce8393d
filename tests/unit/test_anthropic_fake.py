"""The fake Anthropic server: its dialect as pure tables, its endpoints over loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes import anthropic_script, script
from tests.fakes.anthropic import AnthropicFake, user_texts
from tests.fakes.anthropic_script import error, events, message
from tests.fakes.script import Answer, Body, Failure, ToolCall

MODEL = "claude-fake-1"
TOOLS = [{"name": "Bash"}]
REMINDER = "<system-reminder>\nmind the gap\n</system-reminder>\n"
STEERED = (
    "The user sent a new message while you were working:\nsteer\n\nThis is how Claude Code surfaces messages the user."
)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def result(value: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": value}


def request(*contents: Any, tools: list[dict[str, Any]] = TOOLS, stream: bool = True) -> dict[str, Any]:
    """A request whose user messages have these contents, with an assistant message between each two."""
    messages: list[dict[str, Any]] = []
    for content in contents:
        if messages:
            messages.append({"role": "assistant", "content": [text("an answer")]})
        messages.append({"role": "user", "content": content})
    return {"model": MODEL, "max_tokens": 9, "messages": messages, "tools": tools, "stream": stream}


def answer(body: Body, first_try: bool = True) -> Answer | Failure:
    return script.answer(anthropic_script, body, first_try)


def says(body: Body) -> str:
    reply = answer(body)
    assert isinstance(reply, Answer)
    return reply.text


HISTORIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a string": (request("hello"), ["hello"]),
    "two turns": (request("hello", [text("again\n")]), ["hello", "again\n"]),
    "reminder before": (request([text(REMINDER), text("hello")]), ["hello"]),
    "reminder after": (request([text("hello\n"), text(REMINDER)]), ["hello"]),
    "deferred tools": (request([text("<available-deferred-tools>\nX"), text("hello")]), ["hello"]),
    "slash command": (request("<command-name>/cost</command-name>", "<local-command-stdout>1", "hi"), ["hi"]),
    "interrupted, merged": (
        request([text("cut\n"), text("[Request interrupted by user]\n"), text("on")]),
        ["cut", "on"],
    ),
    "merged, own newline kept": (request([text("cut\n\n"), text("on\n")]), ["cut\n", "on\n"]),
    "tool result": (request("go", [result("done")]), ["go"]),
    "steered": (request("go", [result("done"), text(STEERED)]), ["go", "steer"]),
    "system entry": ({"messages": [{"role": "system", "content": "env"}, {"role": "user", "content": "a"}]}, ["a"]),
    "nothing": ({}, []),
}


@pytest.mark.parametrize(("body", "texts"), HISTORIES.values(), ids=HISTORIES)
def test_user_texts_are_what_the_user_gave(body: Body, texts: list[str]) -> None:
    assert user_texts(body) == texts


ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "echo": (request("hello"), "echo#1: hello"),
    "echo counts texts": (request("a", [text("b\n"), text("c")]), "echo#3: c"),
    "say": (request("x [[say:two\nlines]] y"), "two\nlines"),
    "say nothing": (request("[[say:]]"), ""),
    "only the current prompt counts": (request("[[say:old]]", "new"), "echo#2: new"),
    "first say counts": (request("[[say:a]][[say:b]]"), "a"),
    "unknown directive is text": (request("[[hum:a]] [[hangs]]"), "echo#1: [[hum:a]] [[hangs]]"),
    "tool result": (request("[[bash:ls]]", [result("a")]), "echo#1: [[bash:ls]] | tool_result='a'"),
    "last of two results": (
        request("go", [result("a"), result([text("b"), text("c")])]),
        "echo#1: go | tool_result='bc'",
    ),
    "result of an earlier prompt": (request("go", [result("a")], "on"), "echo#2: on"),
    "no tools listed": (request("[[bash:ls]]", tools=[]), "echo#1: [[bash:ls]]"),
}


@pytest.mark.parametrize(("body", "said"), ANSWERS.values(), ids=ANSWERS)
def test_the_final_text(body: Body, said: str) -> None:
    assert says(body) == said


def test_tools_are_called_one_a_request_and_then_the_text_comes() -> None:
    prompt = '[[bash:touch a]] [[tool:Write:{"rows": [[1]]}]] [[say:both done]]'
    seen = [answer(request(prompt, *([result("ok")] for _ in range(done)))) for done in range(3)]
    assert seen == [
        Answer(MODEL, "calling Bash", (100, 10), ToolCall("Bash", {"command": "touch a", "description": "run it"})),
        Answer(MODEL, "calling Write", (100, 10), ToolCall("Write", {"rows": [[1]]})),
        Answer(MODEL, "both done", (100, 10)),
    ]


def test_a_text_sent_into_a_tool_turn_takes_it_over() -> None:
    body = request("[[bash:a]][[bash:b]]", [result("ok"), text(STEERED)])
    assert says(body) == "echo#2: steer"


def test_errors_come_before_all_else() -> None:
    assert answer(request("[[bash:ls]] [[error:400]]")) == Failure(400, "fake 400")
    once = request("[[error1:529]] [[say:ok]]")
    assert answer(once, first_try=True) == Failure(529, "fake 529")
    assert answer(once, first_try=False) == Answer(MODEL, "ok", (100, 10))
    assert answer(request(f"[[errmodel:529:{MODEL}]]")) == Failure(529, "fake 529")
    assert says(request("[[errmodel:529:another]] x")) == "echo#1: [[errmodel:529:another]] x"


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (529, "overloaded_error"), (500, "api_error")]
)
def test_error_bodies(status: int, kind: str) -> None:
    assert error(Failure(status, "why")) == {"type": "error", "error": {"type": kind, "message": "why"}}


def test_the_stream_of_a_text() -> None:
    stream = [event for _, event in events(Answer(MODEL, "hello", (7, 3)), "1")]
    assert [event["type"] for event in stream] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 5,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert stream[0]["message"]["usage"]["input_tokens"] == 7
    assert "".join(event["delta"]["text"] for event in stream[2:-3]) == "hello"
    assert stream[-2]["delta"]["stop_reason"] == "end_turn"
    assert stream[-2]["usage"] == {"output_tokens": 3}


def test_the_stream_of_a_tool_call() -> None:
    call = ToolCall("Bash", {"command": "ls"})
    stream = [event for _, event in events(Answer(MODEL, "", (7, 3), call), "1")]
    assert [(event["type"], event.get("index")) for event in stream[1:]] == [
        ("content_block_start", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert stream[3]["content_block"] == {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    assert json.loads(stream[4]["delta"]["partial_json"]) == call.input
    assert stream[-2]["delta"]["stop_reason"] == "tool_use"


def test_a_slow_stream_pauses_that_long_in_all_and_a_long_text_has_few_pieces() -> None:
    pauses = [seconds for seconds, _ in events(Answer(MODEL, "x" * 12345, (1, 1), slow_s=3.0), "1")]
    assert sum(pauses) == pytest.approx(3.0)
    assert len(pauses) < 20


def test_a_hanging_stream_has_one_event() -> None:
    assert [event["type"] for _, event in events(Answer(MODEL, "x", (1, 1), hang=True), "1")] == ["message_start"]


def test_an_answer_in_one_piece() -> None:
    whole = message(Answer(MODEL, "calling Bash", (7, 3), ToolCall("Bash", {"command": "ls"})), "1")
    assert [block["type"] for block in whole["content"]] == ["text", "tool_use"]
    assert (whole["stop_reason"], whole["model"]) == ("tool_use", MODEL)
    assert (whole["usage"]["input_tokens"], whole["usage"]["output_tokens"]) == (7, 3)


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnthropicFake]:
    with AnthropicFake(tmp_path_factory.mktemp("fake") / "log.jsonl") as started:
        yield started


@pytest.fixture
def client(fake: AnthropicFake) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fake.url, trust_env=False, timeout=10.0) as opened:
        yield opened


MESSAGES = "/v1/messages?beta=true"


def test_a_turn_over_http(fake: AnthropicFake, client: httpx.Client) -> None:
    got = client.post(MESSAGES, json=request("héllo 😀"))
    assert got.status_code == 200
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.headers["connection"] == "close"
    assert got.headers["request-id"].startswith("req_")
    frames = [frame.split("\n") for frame in got.text.split("\n\n")[:-1]]
    data = [json.loads(line.removeprefix("data: ")) for _, line in frames]
    assert [first for first, _ in frames] == [f"event: {event['type']}" for event in data]
    assert "".join(event["delta"].get("text", "") for event in data if "delta" in event) == "echo#1: héllo 😀"

    entry = fake.turns()[-1]
    assert (entry["kind"], entry["method"], entry["path"]) == ("request", "POST", MESSAGES)
    assert entry["headers"]["content-type"] == "application/json"
    assert user_texts(entry["body"]) == ["héllo 😀"]


def test_one_connection_serves_all_endpoints(fake: AnthropicFake, client: httpx.Client) -> None:
    turns = len(fake.turns())
    whole = client.post(MESSAGES, json=request("hi", tools=[], stream=False))
    assert whole.json()["content"] == [text("echo#1: hi")]
    assert client.post("/v1/messages/count_tokens?beta=true", json=request("hi")).json()["input_tokens"] > 0
    assert client.get("/v1/models").json()["data"][0]["type"] == "model"
    for path in ("/", "/api/hello"):
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b"")
    for method, path in (("GET", "/nowhere"), ("DELETE", "/v1/messages"), ("POST", "/")):
        missing = client.request(method, path)
        assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
    assert len(fake.turns()) == turns
