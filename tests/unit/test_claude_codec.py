"""The claude codec on recorded transcripts of two versions of the CLI: what each line means, in order."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from supervisor.backends.claude import ClaudeCodec
from supervisor.backends.codec import (
    Accepted,
    Asked,
    AskGone,
    Capable,
    Compacted,
    Decoded,
    Ready,
    Retry,
    SessionChanged,
    Setup,
    Steered,
    Text,
    Tool,
    ToolResult,
    TurnEnd,
    Unreadable,
)
from zoefs.contract.spec import Spec
from zoefs.contract.words import How, Reason

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "transcripts"
SCENARIOS = sorted(path.name for path in TRANSCRIPTS.glob("claude-*.jsonl"))


def lines_of(name: str) -> list[bytes]:
    return (TRANSCRIPTS / name).read_bytes().split(b"\n")[:-1]


def codec(**kwargs: object) -> ClaudeCodec:
    return ClaudeCodec(Setup(name="a", session="S", spec=Spec(backend="claude"), binary="/bin/claude", **kwargs))  # type: ignore[arg-type]


def decode(name: str, expect: str = "") -> list[Decoded]:
    made = codec()
    if expect:
        made.expect(expect)
    return [event for line in lines_of(name) for event in made.decode(line) if not isinstance(event, SessionChanged)]


def ends(events: list[Decoded]) -> list[tuple[How, str | None]]:
    return [(event.how, event.text) for event in events if isinstance(event, TurnEnd)]


ENDS = {
    "claude-2.1.332-init-hello": [(How.DONE, "echo#1: hello")],
    "claude-2.1.332-interrupt-streaming": [(How.INTERRUPTED, "")],
    "claude-2.1.332-api-error-400": [(How.FAILED, "")],
    "claude-2.1.332-api-retry-401": [(How.FAILED, "")],
    "claude-2.1.332-resume-unknown": [],
    "claude-2.1.332-resume-rerun-and-dedupe": [(How.DONE, "echo#2: [[slow:2]] cut.....")],
    "claude-2.1.197-init-hello": [(How.DONE, "echo#1: hello")],
    "claude-2.1.197-interrupt-streaming": [(How.INTERRUPTED, "")],
}


@pytest.mark.parametrize("name", ENDS)
def test_how_each_turn_ended_and_what_it_answered(name: str) -> None:
    assert ends(decode(f"{name}.jsonl")) == ENDS[name]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_result_ends_one_turn_and_no_line_is_unreadable(name: str) -> None:
    events = decode(name)
    results = [json.loads(line) for line in lines_of(name)]
    real = [r for r in results if r.get("type") == "result" and (r.get("terminal_reason") or not r.get("is_error"))]
    assert len(ends(events)) == len(real)
    assert not [event for event in events if isinstance(event, Unreadable)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_error_never_reads_as_an_answer(name: str) -> None:
    for event in decode(name):
        if isinstance(event, TurnEnd) and event.how is not How.DONE:
            assert "API Error" not in (event.text or "")
            assert event.reason


def test_handshake_is_ready_and_tells_the_version() -> None:
    assert [e for e in decode("claude-2.1.332-init-hello.jsonl") if isinstance(e, Ready)] == [Ready(version="2.1.332")]


def test_an_ask_a_tool_and_its_result_in_order() -> None:
    kinds = [type(e) for e in decode("claude-2.1.332-permission-allow-steer-folded.jsonl")]
    order = [kinds.index(kind) for kind in (Tool, Asked, ToolResult)]
    assert order == sorted(order)
    asked = next(e for e in decode("claude-2.1.332-permission-deny.jsonl") if isinstance(e, Asked))
    assert asked.ask.tool == "Bash"
    assert "command" in asked.ask.input


def test_an_ask_dies_with_an_interrupt() -> None:
    events = decode("claude-2.1.332-interrupt-during-ask.jsonl")
    asked = [e.ask.id for e in events if isinstance(e, Asked)]
    assert [e.ask for e in events if isinstance(e, AskGone)] == asked
    assert ends(events)[-1][0] is How.INTERRUPTED


def test_retries_carry_status_and_attempt() -> None:
    retries = [e for e in decode("claude-2.1.332-api-retry-401.jsonl") if isinstance(e, Retry)]
    assert retries
    assert [e.attempt for e in retries] == list(range(1, len(retries) + 1))
    assert {e.status for e in retries} == {401}


def test_a_resent_prompt_that_was_completed_before_ends_the_open_turn_without_a_text() -> None:
    """Nothing runs: `completed` alone says that an earlier process finished it."""
    made = codec()
    made.expect("u1")
    line = json.dumps({"type": "command_lifecycle", "command_uuid": "u1", "state": "completed"}).encode()
    assert ends(made.decode(line)) == [(How.DONE, None)]
    assert made.decode(line) == []


def test_a_completed_of_another_prompt_ends_nothing() -> None:
    made = codec()
    made.expect("u2")
    line = json.dumps({"type": "command_lifecycle", "command_uuid": "u1", "state": "completed"}).encode()
    assert made.decode(line) == []


def test_a_prompt_absorbed_by_a_running_rerun_ends_with_its_result_only() -> None:
    """`completed` comes while the rerun goes on; the `result` ends the turn, once."""
    made = codec()
    made.expect("u1")
    feed = [
        {"type": "system", "subtype": "session_state_changed", "state": "running"},
        {"type": "command_lifecycle", "command_uuid": "u1", "state": "completed"},
        {"type": "result", "subtype": "success", "is_error": False, "result": "x", "terminal_reason": "completed"},
        {"type": "command_lifecycle", "command_uuid": "u1", "state": "completed"},
        {"type": "system", "subtype": "session_state_changed", "state": "idle"},
    ]
    events = [event for value in feed for event in made.decode(json.dumps(value).encode())]
    assert ends(events) == [(How.DONE, "x")]


def test_after_a_result_the_lifecycle_line_of_the_same_prompt_does_not_end_the_next() -> None:
    events = decode("claude-2.1.332-queued-while-streaming.jsonl")
    assert len(ends(events)) == 2


def test_partial_text_of_a_cut_turn_is_what_was_said() -> None:
    made = codec()
    said = []
    for line in lines_of("claude-2.1.332-resume-rerun-and-dedupe.jsonl"):
        made.decode(line)
        said.append(made.partial())
    assert "echo#2: [[slow:2]] cut" in said
    assert said[-1] == ""


def test_cost_is_the_sum_over_turns() -> None:
    events = decode("claude-2.1.332-queued-while-streaming.jsonl")
    costs = [e.spent.usd or 0.0 for e in events if isinstance(e, TurnEnd)]
    assert all(cost > 0 for cost in costs)


@pytest.mark.parametrize("seed", range(20))
def test_broken_lines_never_raise(seed: int) -> None:
    rng = random.Random(seed)
    made = codec()
    lines = [line for name in SCENARIOS for line in lines_of(name)]
    for line in rng.sample(lines, 60):
        cut = bytearray(line[: rng.randrange(len(line) + 1)])
        if cut:
            cut[rng.randrange(len(cut))] = rng.randrange(256)
        made.decode(bytes(cut))
    broken: list[object] = [[], None, 3, {"type": "result"}, {"type": "assistant"}]
    broken.append({"type": "control_request", "request": {}})
    for value in broken:
        made.decode(json.dumps(value).encode())
    made.decode(b'{"type":"assistant","message":{"content":[{"type":"text"}]}}')
    made.decode(b"[" * 100_000)


def test_a_prompt_is_one_line_whatever_is_in_it() -> None:
    text = 'a\nb\r\0\x1b[201~ \u2028 😀 {"type":"control_request"}\ud800'
    line = codec().prompt("u", text)
    assert line.count(b"\n") == 1
    assert json.loads(line)["message"]["content"] == text


def test_requests_that_are_not_served_are_refused() -> None:
    made = codec()
    made.decode(b'{"type":"control_request","request_id":"q1","request":{"subtype":"mcp_message"}}')
    reply = json.loads(made.take())
    assert reply["response"]["request_id"] == "q1"
    assert reply["response"]["subtype"] == "error"
    assert made.take() == b""


def test_command_line_of_a_new_and_a_resumed_session() -> None:
    assert "--session-id" in codec().argv()
    assert "--resume" in codec(resume=True).argv()
    assert "CLAUDE_CODE_RESUME_INTERRUPTED_TURN" in codec(continuing=True).environment()
    assert "CLAUDE_CODE_RESUME_INTERRUPTED_TURN" not in codec().environment()


def test_last_words() -> None:
    made = codec()
    assert made.death(1, "Error: Session ID S is already in use.\n").resume is True
    assert made.death(1, "No conversation found with session ID: S\n").resume is False
    assert made.death(1, "error: unknown option '--x'\n").reason is Reason.CONFIG
    assert made.death(137, "").reason is None


def test_accepted_names_our_message() -> None:
    message = "67479973-fdc3-4d18-b9c6-5a9d9fd07b82"
    assert [e for e in decode("claude-2.1.332-init-hello.jsonl", message) if isinstance(e, Accepted)] == [
        Accepted(message),
        Accepted(message),
    ]
    assert not [e for e in decode("claude-2.1.332-init-hello.jsonl", "other") if isinstance(e, Accepted)]
    assert any(isinstance(e, Text) and e.text == "echo#1: hello" for e in decode("claude-2.1.332-init-hello.jsonl"))


# -- what no transcript shows -------------------------------------------------------------------------------------

WORDS = {"type": "system", "subtype": "init", "capabilities": ["msg_lifecycle_v1", "b"], "session_id": "S"}


def hear(made: ClaudeCodec, *values: object) -> list[Decoded]:
    return [event for value in values for event in made.decode(json.dumps(value).encode())]


def lifecycle(message: str, state: str) -> dict[str, str]:
    return {"type": "command_lifecycle", "command_uuid": message, "state": state}


def result(*uuids: str, **more: object) -> dict[str, object]:
    said = {"type": "result", "is_error": False, "result": "x", "terminal_reason": "completed", "num_turns": 1}
    return {**said, "user_message_uuids": list(uuids), **more}


def steering(*steers: str) -> ClaudeCodec:
    """A codec whose turn `m` runs and was steered."""
    made = codec()
    made.prompt("m", "text")
    hear(made, {"type": "system", "subtype": "session_state_changed", "state": "running"}, WORDS)
    for steer in steers:
        assert made.steer(f"s:{steer}", steer, "more")
    return made


def test_what_the_cli_can_is_told_once_and_when_it_changes() -> None:
    made = codec()
    assert hear(made, WORDS, WORDS) == [Capable(("b", "msg_lifecycle_v1"))]
    assert hear(made, {**WORDS, "capabilities": ["c"]}) == [Capable(("c",))]
    assert hear(codec(), {**WORDS, "capabilities": None}) == []


def test_a_cli_that_does_not_tell_what_becomes_of_a_message_is_not_steered() -> None:
    made = codec()
    made.prompt("m", "text")
    for line in lines_of("claude-2.1.197-permission-allow-steer-folded.jsonl")[:30]:
        made.decode(line)
    assert made.steer("s", "n", "more") == b""
    assert steering().steer("s", "n", "more")


def test_an_interrupt_of_the_older_dialect_is_answered_without_a_response() -> None:
    made = codec()
    made.prompt("m", "text")
    line = {"type": "control_response", "response": {"subtype": "success", "request_id": "interrupt"}}
    assert hear(made, line) == []
    assert ends(hear(made, result(terminal_reason="aborted_streaming"))) == [(How.INTERRUPTED, "")]


def test_a_steer_told_completed_before_the_result_is_part_of_the_turn() -> None:
    made = steering("n")
    assert hear(made, lifecycle("n", "queued"), lifecycle("n", "started"), lifecycle("n", "completed")) == [
        Steered("s:n", True)
    ]
    (end,) = hear(made, result("m", "n"))
    assert isinstance(end, TurnEnd)
    assert end.goes_on == ""


def test_a_steer_that_only_the_result_names_is_part_of_the_turn() -> None:
    steered, end = hear(steering("n"), result("m", "n"))
    assert steered == Steered("s:n", True)
    assert isinstance(end, TurnEnd)
    assert end.goes_on == ""


def test_steers_that_are_queued_at_the_result_run_next_one_by_one() -> None:
    made = steering("n", "o")
    (first,) = hear(made, result("m"))
    second = hear(made, lifecycle("m", "completed"), lifecycle("n", "started"), result("n"))
    third = hear(made, lifecycle("n", "completed"), lifecycle("o", "started"), result("o"))
    assert isinstance(first, TurnEnd)
    assert first.goes_on == "s:n"
    assert second[0] == Accepted("n")
    assert [e.goes_on for e in (*second, *third) if isinstance(e, TurnEnd)] == ["s:o", ""]


def test_a_steer_that_may_have_been_said_before_is_said_again() -> None:
    """The same message is not run twice; it is told completed where it was."""
    made = codec()
    made.expect("m")
    (said,) = [json.loads(line) for line in made.expect_steer("s:n", "n", "more").splitlines()]
    assert (said["uuid"], said["message"]["content"]) == ("n", "more")
    assert hear(made, lifecycle("n", "completed")) == [Steered("s:n", True)]


def test_a_compaction_is_done_where_the_cli_drew_its_boundary() -> None:
    boundary = {"type": "system", "subtype": "compact_boundary"}
    ended = result("c", terminal_reason=None, num_turns=0, result="")
    synthetic = {"model": "<synthetic>", "content": [{"type": "text", "text": "Error: No messages to compact"}]}
    refusal = {"type": "assistant", "message": synthetic}
    for again in (False, True):
        made = codec()
        (said,) = [json.loads(x) for x in (made.expect_compact if again else made.compact)("c").splitlines()]
        assert (said["uuid"], said["message"]["content"]) == ("c", "/compact")
        (done,) = hear(made, lifecycle("c", "started"), boundary, ended, lifecycle("c", "completed"))
        assert isinstance(done, Compacted)
        assert done.ok
        made.compact("d")
        (failed,) = hear(made, refusal, ended, lifecycle("d", "completed"))
        assert isinstance(failed, Compacted)
        assert (failed.ok, failed.text) == (False, "Error: No messages to compact")
    made = steering()
    hear(made, boundary)
    made.compact("c")
    assert [e.ok for e in hear(made, result("m"), ended) if isinstance(e, Compacted)] == [False]


def test_a_compaction_that_an_earlier_process_finished() -> None:
    made = codec()
    made.expect_compact("c")
    assert hear(made, lifecycle("c", "completed")) == [Compacted(True)]


def test_a_compaction_that_fails_says_why() -> None:
    made = codec()
    made.compact("c")
    failed = result("c", is_error=True, terminal_reason="api_error", result="API Error: 529")
    (event,) = hear(made, failed)
    assert isinstance(event, Compacted)
    assert (event.ok, event.text) == (False, "API Error: 529")


def test_a_cli_that_is_greeted_twice_is_ready_once() -> None:
    """A supervisor that takes over in the handshake says hello again; the CLI answers each."""
    line = {"type": "control_response", "response": {"request_id": "init", "response": {"claude_code_version": "9"}}}
    assert hear(codec(), line, line) == [Ready("9")]


@pytest.mark.parametrize(("model", "seen"), [("claude-x", 1), ("<synthetic>", 0)])
def test_what_no_model_said_is_no_text(model: str, seen: int) -> None:
    content = [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}]
    assert len(hear(codec(), {"type": "assistant", "message": {"model": model, "content": content}})) == seen


def test_what_a_sub_agent_says_is_not_the_answer() -> None:
    made = codec()
    within = {"parent_tool_use_id": "t1", "message": {"content": [{"type": "text", "text": "a"}]}}
    delta = {"event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}}
    assert hear(made, {"type": "assistant", **within}, {"type": "stream_event", **delta, **within}) == []
    assert made.partial() == ""


def test_costs_of_the_older_dialect_are_the_growth_of_the_total() -> None:
    made = codec()
    parts = ("init-hello", "permission-allow-steer-folded", "interrupt-streaming")
    spent = []
    for part in parts:
        made.prompt(part, "text")
        lines = lines_of(f"claude-2.1.197-{part}.jsonl")
        spent += [e.spent for line in lines for e in made.decode(line) if isinstance(e, TurnEnd)]
    assert [round(s.usd or 0.0, 5) for s in spent] == [0.00075, 0.0015, 0.0]
    assert [s.tokens_in for s in spent] == [100, 200, 0]


# -- the handshake ------------------------------------------------------------------------------------------------


def begin(made: ClaudeCodec, sessions: set[str]) -> tuple[list[bytes], str, int | None]:
    """What the CLI does with this command line and hello, by the facts: its stdout, its stderr, its exit code."""
    words = made.argv()
    hello = json.loads(made.hello())
    assert hello == {"type": "control_request", "request_id": "init", "request": {"subtype": "initialize"}}
    given = {word: words[n + 1] for n, word in enumerate(words[:-1]) if word in ("--session-id", "--resume")}
    if len(given) == 2 and "--fork-session" not in words:
        return [], "Error: --session-id can only be used with --resume if --fork-session is also specified.", 1
    if "--resume" in given and given["--resume"] not in sessions:
        return (
            lines_of("claude-2.1.332-resume-unknown.jsonl"),
            f"No conversation found with session ID: {given['--resume']}",
            1,
        )
    if given.get("--session-id") in sessions:
        return [], f"Error: Session ID {given['--session-id']} is already in use.", 1
    return lines_of("claude-2.1.332-init-hello.jsonl")[:1], "", None


@pytest.mark.parametrize(
    ("setup", "sessions", "ready", "resume", "reason"),
    [
        ({}, set(), True, None, None),
        ({"resume": True}, {"S"}, True, None, None),
        ({"resume": True}, set(), False, False, None),
        ({}, {"S"}, False, True, None),
        ({"fork": "P"}, {"P"}, True, None, None),
        ({"fork": "P"}, set(), False, None, Reason.CONFIG),
        ({"fork": "P", "resume": True}, {"S", "P"}, True, None, None),
    ],
)
def test_a_session_is_begun_resumed_or_forked_and_the_last_words_say_what_to_try(
    setup: dict[str, object], sessions: set[str], ready: bool, resume: bool | None, reason: Reason | None
) -> None:
    made = codec(**setup)
    lines, words, rc = begin(made, sessions)
    events = [event for line in lines for event in made.decode(line)]
    assert [event for event in events if isinstance(event, Ready)] == ([Ready("2.1.332")] if ready else [])
    assert not [event for event in events if isinstance(event, TurnEnd)]
    assert (rc is None) is ready
    if rc is not None:
        death = made.death(rc, words)
        assert (death.resume, death.reason) == (resume, reason)


@pytest.mark.parametrize(
    ("before", "totals", "spent"),
    [(0.0, [0.5, 0.75], [0.5, 0.25]), (2.0, [2.5, 2.75], [0.5, 0.25]), (0.5, [0.5, None, 0.75], [0.0, 0.0, 0.25])],
    ids=["its first process", "one that goes on from a total", "a result that tells none"],
)
def test_the_older_dialect_tells_running_totals(before: float, totals: list[float | None], spent: list[float]) -> None:
    made = codec(usd=before)
    found = []
    for total in totals:
        result: dict[str, object] = {"type": "result", "terminal_reason": "completed", "result": "x"}
        result |= {} if total is None else {"total_cost_usd": total}
        found += [event for event in made.decode(json.dumps(result).encode()) if isinstance(event, TurnEnd)]
    assert [end.spent.usd for end in found] == pytest.approx(spent)
    assert [end.spent.total for end in found] == totals
