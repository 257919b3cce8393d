"""The real claude CLI behind the fake model server: what the claude backend takes for granted about its protocol.

The CLI is driven by bare pipes, so that a failure here is a change of the CLI and not of zoefs.
Nothing here sleeps or counts on speed: each wait is for a line of the CLI or of the fake's log, under one deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import pytest

from tests.fakes.anthropic import AnthropicFake, user_texts
from tests.fakes.install_clis import find_claude

pytestmark = pytest.mark.real_cli

DEADLINE_S = 60.0

Line = dict[str, Any]


class Claude:
    """One process of the CLI. `lines` holds all that it printed and was read so far."""

    def __init__(self, binary: Path, home: Path, url: str, session: str, *, resume: bool = False) -> None:
        self.lines: list[Line] = []
        self._rest = b""
        work = home / "work"
        work.mkdir(exist_ok=True)
        with (home / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                [
                    *(binary, "-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"),
                    *("--include-partial-messages", "--permission-prompt-tool", "stdio"),
                    *("--resume" if resume else "--session-id", session),
                ],
                cwd=work,
                env=environment(home, url),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._stdin.close()
        self._stdout.close()

    def control(self, request_id: str, **request: Any) -> None:
        self._write({"type": "control_request", "request_id": request_id, "request": request})

    def prompt(self, text: str, uuid: str | None = None) -> str:
        """Send a prompt and return its uuid."""
        uuid = uuid or str(uuid4())
        self._write({"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}})
        return uuid

    def decide(self, ask: Line, **response: Any) -> None:
        answer = {"subtype": "success", "request_id": ask["request_id"], "response": response}
        self._write({"type": "control_response", "response": answer})

    def until(self, wanted: Callable[[Line], bool]) -> Line:
        """Read on to the first line that is wanted, and return it."""
        end = time.monotonic() + DEADLINE_S
        for line in self._read(end):
            if wanted(line):
                return line
        pytest.fail(f"claude ended before the line came; it printed {[kind(line) for line in self.lines]}")

    def turn(self, text: str) -> Line:
        """Send a prompt and return the result that ends its turn."""
        return self.end_of(self.prompt(text))

    def end_of(self, uuid: str) -> Line:
        """Read on to the end of this prompt's turn and return its result, of which there must be one."""
        self.until(lambda line: line["type"] == "result" and uuid in line["user_message_uuids"])
        self.until(is_idle)
        (only,) = self.results(uuid)
        return only

    def finish(self) -> int:
        """Close stdin, read to the end, and return the exit code."""
        self._stdin.close()
        list(self._read(time.monotonic() + DEADLINE_S))
        return self._process.wait(DEADLINE_S)

    def kill(self) -> None:
        """SIGKILL, then read what was still in the pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_S)
        if not self._stdout.closed:
            list(self._read(time.monotonic() + DEADLINE_S))

    def results(self, uuid: str) -> list[Line]:
        return [line for line in self.lines if line["type"] == "result" and uuid in line["user_message_uuids"]]

    def lifecycle(self, uuid: str) -> list[str]:
        states = [line for line in self.lines if line["type"] == "command_lifecycle"]
        return [line["state"] for line in states if line["command_uuid"] == uuid]

    def _write(self, line: Line) -> None:
        self._stdin.write(json.dumps(line).encode() + b"\n")

    def _read(self, end: float) -> Iterator[Line]:
        while True:
            while b"\n" in self._rest:
                whole, self._rest = self._rest.split(b"\n", 1)
                self.lines.append(json.loads(whole))
                yield self.lines[-1]
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                pytest.fail(f"claude was silent; it printed {[kind(line) for line in self.lines]}")
            chunk = os.read(self._stdout.fileno(), 1 << 16)
            if not chunk:
                return
            self._rest += chunk


def environment(home: Path, url: str) -> dict[str, str]:
    """Nothing of ours but PATH: no key, no configuration, no way out of this machine."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "config"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
        "CLAUDE_CODE_RESUME_INTERRUPTED_TURN": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
    }


def kind(line: Line) -> str:
    """`type` and what tells its lines apart, for conditions and for messages."""
    event = line.get("event", {}).get("type")
    words = (line["type"], line.get("subtype"), event, line.get("state"))
    return " ".join(word for word in words if word)


def is_idle(line: Line) -> bool:
    return kind(line) == "system session_state_changed idle"


def is_delta(line: Line) -> bool:
    return kind(line) == "stream_event content_block_delta"


def is_ask(line: Line) -> bool:
    return kind(line) == "control_request"


def answers(request_id: str) -> Callable[[Line], bool]:
    return lambda line: kind(line) == "control_response" and line["response"]["request_id"] == request_id


@pytest.fixture(scope="module")
def binary() -> Path:
    found = find_claude()
    if found is None:
        pytest.skip("no claude here: run tests/fakes/install_clis.py, or set ZOEFS_CLAUDE")
    return found


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[AnthropicFake]:
    with AnthropicFake(tmp_path / "fake.jsonl") as started:
        yield started


Start = Callable[..., Claude]


@pytest.fixture
def start(binary: Path, tmp_path: Path, fake: AnthropicFake) -> Iterator[Start]:
    """Starts processes of one session, each ended with the test."""
    session = str(uuid4())
    with contextlib.ExitStack() as stack:
        yield lambda **how: stack.enter_context(Claude(binary, tmp_path, fake.url, session, **how))


def history(fake: AnthropicFake) -> list[str]:
    """The user texts in the newest model call."""
    return user_texts(fake.turns()[-1]["body"])


def test_initialize_is_answered_before_any_prompt(start: Start, fake: AnthropicFake) -> None:
    claude = start()
    claude.control("init", subtype="initialize")
    answer = claude.until(answers("init"))["response"]
    assert answer["subtype"] == "success"
    assert answer["response"]["session_state"] == "idle"
    assert claude.finish() == 0
    assert fake.turns() == []


def test_each_turn_has_one_result_and_sees_those_before_it(start: Start, fake: AnthropicFake) -> None:
    claude = start()
    first = claude.turn("hello")
    assert (first["result"], first["terminal_reason"], first["is_error"]) == ("echo#1: hello", "completed", False)
    assert claude.lifecycle(first["user_message_uuids"][0]) == ["queued", "started", "completed"]
    assert claude.turn("again\n")["result"] == "echo#2: again\n"
    assert claude.finish() == 0
    assert [user_texts(turn["body"]) for turn in fake.turns()] == [["hello"], ["hello", "again\n"]]


def test_an_ask_is_answered_by_its_id_and_the_turn_goes_on(start: Start, tmp_path: Path) -> None:
    claude = start()
    uuid = claude.prompt("[[bash:touch allowed]] [[bash:touch denied]]")
    ask = claude.until(is_ask)
    assert (ask["request"]["tool_name"], ask["request"]["input"]["command"]) == ("Bash", "touch allowed")
    claude.decide(ask, behavior="allow", updatedInput=ask["request"]["input"])
    claude.decide(claude.until(is_ask), behavior="deny", message="not this one")
    only = claude.end_of(uuid)
    assert only["terminal_reason"] == "completed"
    assert only["result"].endswith("| tool_result='not this one'")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["allowed"]


def test_an_interrupt_cuts_the_model_call_and_the_process_lives(start: Start, fake: AnthropicFake) -> None:
    claude = start()
    uuid = claude.prompt("[[hang]]")
    claude.until(lambda line: kind(line) == "stream_event message_start")
    claude.control("cut", subtype="interrupt")
    assert claude.until(answers("cut"))["response"]["subtype"] == "success"
    cut = claude.end_of(uuid)
    assert (cut["terminal_reason"], cut["is_error"]) == ("aborted_streaming", True)
    assert claude.lifecycle(uuid)[-1] == "cancelled"
    fake.until(lambda seen: seen.gone() == [seen.turns()[0]["n"]], DEADLINE_S)
    assert claude.turn("go on")["terminal_reason"] == "completed"
    assert history(fake) == ["[[hang]]", "go on"]


def test_a_killed_turn_has_one_result_and_its_prompt_stands_once(start: Start, fake: AnthropicFake) -> None:
    first = start()
    first.turn("hello")
    uuid = first.prompt("[[slow:5]] cut me")
    first.until(is_delta)
    first.kill()

    second = start(resume=True)
    second.prompt("[[slow:5]] cut me", uuid)
    second.until(lambda line: kind(line) == "command_lifecycle completed" and line["command_uuid"] == uuid)
    assert second.finish() == 0
    results = first.results(uuid) + second.results(uuid)
    assert [(only["result"], only["terminal_reason"]) for only in results] == [
        ("echo#2: [[slow:5]] cut me", "completed")
    ]
    assert history(fake) == ["hello", "[[slow:5]] cut me"]


def test_a_prompt_that_had_its_turn_is_not_run_again_by_a_later_process(start: Start, fake: AnthropicFake) -> None:
    first = start()
    (uuid,) = first.turn("hello")["user_message_uuids"]
    first.kill()

    second = start(resume=True)
    second.prompt("hello", uuid)
    assert second.turn("again")["result"] == "echo#2: again"
    assert second.results(uuid) == []
    assert second.lifecycle(uuid) == ["completed"]
    assert [user_texts(turn["body"]) for turn in fake.turns()] == [["hello"], ["hello", "again"]]
