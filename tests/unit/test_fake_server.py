"""The manners that every fake model server has on the wire, whatever its dialect."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.anthropic import AnthropicFake
from tests.fakes.openai import OpenAIFake
from tests.fakes.server import Fake

FAKES = {"anthropic": AnthropicFake, "openai": OpenAIFake}
FIRST_EVENTS = {AnthropicFake: "event: message_start", OpenAIFake: "event: response.created"}
SESSION_HEADERS = {AnthropicFake: "x-claude-code-session-id", OpenAIFake: "thread-id"}


def request(*prompts: str) -> dict[str, Any]:
    """A streaming request with these user texts, which every dialect understands."""
    parts = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]} for text in prompts]
    messages = [{"role": "user", "content": text} for text in prompts]
    return {"model": "m", "stream": True, "tools": [{"name": "any"}], "messages": messages, "input": parts}


@pytest.fixture(scope="module", params=list(FAKES.values()), ids=list(FAKES))
def fake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    kind: type[Fake] = request.param
    with kind(tmp_path_factory.mktemp("fake") / "log.jsonl") as started:
        yield started


@pytest.fixture
def client(fake: Fake) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fake.url, trust_env=False, timeout=10.0) as opened:
        yield opened


def test_error_statuses(fake: Fake, client: httpx.Client) -> None:
    def post(*prompts: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return client.post(fake.calls, json=request(*prompts), headers=headers)

    overloaded = post("[[error:529]]")
    assert (overloaded.status_code, overloaded.json()["error"]["message"]) == (529, "fake 529")
    assert [post("[[error1:401]]").status_code for _ in range(3)] == [401, 200, 200]
    assert post("a", "b", "[[error1:401]]").status_code == 401, "another turn"
    assert post("[[error1:401]]", headers={SESSION_HEADERS[type(fake)]: "other"}).status_code == 401, "another session"
    misspelt = post("[[slow:x]]")
    assert (misspelt.status_code, "[[slow]]" in misspelt.json()["error"]["message"]) == (400, True)
    assert client.post(fake.calls, content=b"{").status_code == 400
    assert fake.requests()[-1]["body"] == "{"


@pytest.mark.parametrize("prompt", ["[[hang]]", "[[slow:3600]]"])
def test_a_client_that_leaves_ends_the_answer_and_is_logged(fake: Fake, client: httpx.Client, prompt: str) -> None:
    with client.stream("POST", fake.calls, json=request(prompt)) as got:
        assert next(got.iter_lines()) == FIRST_EVENTS[type(fake)]
    n = fake.turns()[-1]["n"]
    fake.until(lambda seen: n in seen.gone(), 10.0)


@pytest.mark.parametrize("kind", FAKES.values(), ids=FAKES)
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_every_answer_and_exits_cleanly(tmp_path: Path, kind: type[Fake], stop: signal.Signals) -> None:
    log = tmp_path / "log.jsonl"
    command = [sys.executable, kind.program, "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        port = int(server.stdout.readline().removeprefix("PORT "))
        idle = socket.create_connection(("127.0.0.1", port))
        with idle, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10.0) as client:
            with client.stream("POST", kind.calls, json=request("[[hang]]")) as got:
                lines = got.iter_lines()
                assert next(lines) == FIRST_EVENTS[kind]
                os.kill(server.pid, stop)
                assert [line for line in lines if line.startswith("event")] == []
            assert idle.recv(1) == b""
        assert (server.wait(10.0), server.stderr.read()) == (0, "")
    assert [json.loads(line)["kind"] for line in log.read_text().splitlines()] == ["request"]
