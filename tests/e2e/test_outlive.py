"""A supervisor that dies over a real CLI: in mid-line, and at every event of a turn; the next one adopts what it left.

No prompt is lost, none is given twice, and no CLI reads half a line.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.e2e.both import Agent, Both, gate, in_tool, open_gate
from tests.e2e.test_adoption import kill_at
from tests.living import wait_for

pytestmark = pytest.mark.real_cli

LONG = "word " * 209_000 + "end."
"""A line of more than a pipe takes, and of fewer characters than codex takes."""


def check_next(agent: Agent, *texts: str) -> None:
    """One more turn knows exactly these texts."""
    agent.turn("last", "last")
    assert agent.history() == [*texts, "last"], agent.story()
    assert len(agent.events("session")) == 1


@pytest.mark.parametrize("first", [True, False], ids=["the first prompt", "a later prompt"])
def test_in_the_middle_of_a_long_line(both: Both, first: bool) -> None:
    agent = both.make()
    agent.ctl("start")
    wait_for(lambda: both.tree.status(agent.name) == "await" and agent.stat()["version"], "it is up")
    if not first:
        agent.turn("first", "first")
    session, cli = agent.read("session"), agent.cli()
    os.kill(cli, signal.SIGSTOP)  # it reads no more, so the line cannot be written whole
    agent.prompt("k1", LONG)
    agent.until("stdin-begun")
    both.tree.kill("supervisor")
    assert not agent.events("stdin-done")
    os.kill(cli, signal.SIGCONT)
    both.heal()
    fate, answer = agent.ended("k1")
    assert (fate, answer) == ("done", f"echo#{1 if first else 2}: {LONG}\n"), agent.story()[-3000:]
    assert agent.asked(LONG) == 1
    assert agent.ends("k1") == ["done"]
    assert [event.text("asked") for event in agent.events("exited")] == ["replace"]
    agent.turn("k2", "next")
    assert agent.history() == ([] if first else ["first"]) + [LONG, "next"]
    if not first or both.kind.name == "claude":
        assert agent.read("session") == session


@pytest.mark.soak
def test_at_any_time_of_a_long_line(both: Both, soak: bool) -> None:
    agent = both.make()
    agent.turn("first", "first")
    texts = ["first"]
    for n, delay in enumerate((0.0, 0.001, 0.002, 0.005, 0.01, 0.03) if soak else (0.0, 0.01)):
        texts.append(f"{n} {LONG[n:]}")
        begun = len(agent.events("stdin-begun"))
        agent.prompt(f"k{n}", texts[-1])
        agent.until("stdin-begun", begun)
        time.sleep(delay)
        both.tree.kill("supervisor")
        both.heal()
        assert agent.ended(f"k{n}") == ("done", f"echo#{n + 2}: {texts[-1]}\n")
        assert agent.asked(texts[-1]) == 1
    check_next(agent, *texts)


def test_a_long_line_of_the_adopter_is_no_torn_one(both: Both) -> None:
    agent = both.make()
    agent.turn("first", "first")
    both.tree.kill("supervisor")
    both.heal()
    cli = agent.cli()
    os.kill(cli, signal.SIGSTOP)
    agent.prompt("k1", LONG)
    agent.until("stdin-begun")
    agent.ctl("#s steer meanwhile")
    agent.until("verb-begun" if both.kind.name == "claude" else "verb-done")  # codex has not told its turn's id yet
    os.kill(cli, signal.SIGCONT)
    assert agent.ended("k1")[0] == "done"
    assert agent.ended("s")[0] == "done"
    assert agent.cli() == cli
    assert agent.asked(LONG) == 1


def test_a_prompt_that_is_too_long_for_codex_fails_and_the_next_is_answered(only_codex: Both) -> None:
    agent = only_codex.make()
    agent.prompt("k1", "x" * 1_048_577)
    fate, _ = agent.ended("k1")
    assert fate == "failed"
    assert "1048576" in agent.read("error")
    assert agent.turn("k2", "next") == "echo#1: next\n"


CODEX_KINDS = (
    *("created", "spawned", "session", "ready", "prompt-given", "prompt-sent", "stdin-begun", "stdin-done"),
    *("prompt-accepted", "text", "turn-ended"),
)


@pytest.mark.soak
@pytest.mark.parametrize("kind", CODEX_KINDS)
def test_at_an_event_of_a_codex_turn(only_codex: Both, kind: str, soak: bool) -> None:
    for delay in (0.0, 0.001, 0.003, 0.01) if soak else (0.0,):
        agent = only_codex.make()
        text = f"[[slow:0.2]] one {delay} " + "x" * (200_000 if kind.startswith("stdin") else 10)
        agent.prompt("k1", text)
        assert kill_at(only_codex.tree, agent.name, kind, 1, delay)
        only_codex.heal()
        assert agent.ended("k1") == ("done", f"echo#1: {text}\n"), agent.story()
        assert agent.asked(text) == 1
        assert agent.turn("k2", "two") == "echo#2: two\n"
        assert agent.history() == [text, "two"]
        agent.ctl("kill")


def test_again_and_again_in_one_turn(both: Both) -> None:
    agent = both.make(both.kind.free)
    text = f"[[bash:{gate('x')}]] [[slow:1]] go"
    agent.prompt("k1", text)
    in_tool(agent, "x")
    cli = agent.cli()
    for _ in range(2):
        both.tree.kill("supervisor")
        both.heal()
    open_gate(agent, "x")
    wait_for(lambda: agent.deltas() >= 3, "it streams")
    both.tree.kill("supervisor")
    both.heal()
    assert agent.ended("k1")[0] == "done"
    assert agent.cli() == cli
    check_next(agent, text)
    assert agent.ends("k1") == ["done"]


def test_the_cli_dies_while_no_supervisor_runs(both: Both) -> None:
    agent = both.make()
    agent.turn("first", "first")
    text = "[[slow:2]] cut"
    agent.prompt("k1", text)
    agent.reached(text)
    cli = agent.cli()
    both.tree.kill("supervisor")
    os.kill(cli, signal.SIGKILL)
    both.heal()
    assert agent.ended("k1")[0] == ("done" if both.kind.continues else "lost")
    check_next(agent, "first", text)


def test_the_turn_ends_while_no_supervisor_runs(both: Both) -> None:
    agent = both.make()
    agent.turn("first", "first")
    text = "[[slow:0.5]] alone"
    agent.prompt("k1", text)
    agent.reached(text)
    both.tree.kill("supervisor")
    raw = both.tree.home / "agents" / agent.name / "raw" / "1.ndjson"
    ended = {"claude": b'"terminal_reason"', "codex": b'"turn/completed"'}[both.kind.name]
    wait_for(lambda: raw.read_bytes().count(ended) == 2, "the turn is over")
    both.heal()
    assert agent.ended("k1") == ("done", f"echo#2: {text}\n")
    check_next(agent, "first", text)
    assert agent.stat()["incarnation"] == "1"


@pytest.mark.soak
def test_an_interrupt_at_any_time_of_a_turn_ends_it_and_the_agent_goes_on(both: Both, soak: bool) -> None:
    agent = both.make()
    agent.turn("first", "first")
    for n, delay in enumerate((0.0, 0.005, 0.015, 0.03, 0.06, 0.12) if soak else (0.0, 0.01, 0.04)):
        sent = len(agent.events("prompt-sent"))
        agent.prompt(f"k{n}", f"[[slow:60]] turn {n}")
        agent.until("prompt-sent", sent)
        time.sleep(delay)
        agent.ctl(f"#i{n} interrupt")
        assert agent.ended(f"k{n}")[0] == "cancelled", agent.story()
        assert agent.settle() == "await"
        assert agent.receipt(f"i{n}")["receipt"] == "done"
        agent.turn(f"then{n}", f"then {n}")
        assert agent.history().count(f"[[slow:60]] turn {n}") <= 1
    assert agent.stat()["incarnation"] == "1"
