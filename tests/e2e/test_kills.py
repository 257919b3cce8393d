"""`kill -9` of a real CLI at every instant of its life, and a session whose record is gone; both CLIs.

What must hold: claude goes on with a cut turn, once; codex tells that it is lost, or is given a prompt again that had
not reached its record. The text of a prompt stands in the history once, whatever died.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.both import Agent, Both, gate, in_tool, open_gate, refusal
from tests.e2e.reading import alive, kill
from tests.living import wait_for

pytestmark = pytest.mark.real_cli

DELAYS_MS = (0, 7, 30)
SOAK_DELAYS_MS = (0, 1, 3, 7, 15, 20, 30, 40, 50)


def check_cut(agent: Agent, id: str, text: str) -> None:
    """The prompt `id` was cut by a kill of the CLI: it ended once, as its backend promises, and a later turn knows it
    once."""
    fate, answer = agent.ended(id)
    continues = agent.both.kind.continues
    assert fate in (("done",) if continues else ("done", "lost")), agent.story()
    assert agent.ends(id) == [fate]
    agent.turn(f"{id}-then", f"after {id}")
    said = agent.history()
    assert said.count(text) == 1, (said, agent.story())
    assert said[-1] == f"after {id}"
    if fate == "done" and not continues:
        assert agent.asked(text) == 1
        assert answer.endswith(f"{text}\n")


def test_before_the_first_prompt(both: Both) -> None:
    agent = both.make()
    agent.ctl("start")
    wait_for(lambda: both.tree.status(agent.name) == "await" and agent.stat()["version"], "it is up")
    session = agent.read("session")
    assert session
    agent.kill_cli()
    assert agent.turn("k1", "first") == "echo#1: first\n"
    assert (agent.read("session") == session) == (both.kind.name == "claude")
    assert "former_session" not in agent.stat()
    assert not agent.events("failed")
    assert agent.turn("k2", "second") == "echo#2: second\n"
    assert agent.history() == ["first", "second"]


def test_again_and_again_before_the_first_prompt(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", "first")
    for n in range(3):
        agent.until("spawned", n)
        kill(agent.cli())
        agent.until("exited", n)
    check_cut(agent, "k1", "first")


@pytest.mark.soak
def test_right_after_the_delivery_of_a_first_prompt(both: Both, soak: bool) -> None:
    for delay in SOAK_DELAYS_MS if soak else DELAYS_MS[:2]:
        agent = both.make()
        text = f"[[slow:0.3]] cut {delay}"
        agent.prompt("k1", text)
        agent.until("prompt-sent")
        time.sleep(delay / 1000)
        agent.kill_cli()
        check_cut(agent, "k1", text)
        agent.ctl("kill")


@pytest.mark.soak
def test_right_after_the_delivery_of_a_later_prompt(both: Both, soak: bool) -> None:
    agent = both.make()
    agent.turn("first", "first")
    session = agent.read("session")
    for n, delay in enumerate(SOAK_DELAYS_MS if soak else DELAYS_MS):
        text, sent = f"[[slow:0.3]] cut {delay}", len(agent.events("prompt-sent"))
        agent.prompt(f"k{n}", text)
        agent.until("prompt-sent", sent)
        time.sleep(delay / 1000)
        agent.kill_cli()
        check_cut(agent, f"k{n}", text)
    assert agent.read("session") == session
    assert agent.history()[0] == "first"


def test_in_mid_stream(both: Both) -> None:
    agent = both.make()
    agent.turn("first", "first")
    session, text = agent.read("session"), "[[slow:2]] a stream that is cut"
    agent.prompt("k1", text)
    agent.reached(text)
    wait_for(lambda: agent.deltas() >= 2, "it streams")
    agent.kill_cli()
    check_cut(agent, "k1", text)
    fate, answer = agent.ended("k1")
    if both.kind.continues:
        assert answer == f"echo#2: {text}\n"
    else:
        assert fate == "lost"
        assert agent.asked(text) == 1
    assert agent.read("session") == session
    assert agent.history() == ["first", text, "after k1"]


def test_in_mid_tool(both: Both) -> None:
    agent = both.make(both.kind.free)
    agent.turn("first", "first")
    text = f"[[bash:{gate('x')}]] then say it"
    agent.prompt("k1", text)
    tool = in_tool(agent, "x")
    agent.kill_cli()
    assert not alive(tool)
    open_gate(agent, "x")
    check_cut(agent, "k1", text)
    if not both.kind.continues:
        assert agent.ended("k1")[0] == "lost"
        assert agent.stat()["last_turn"] == "done"
    assert agent.history()[0] == "first"


def test_idle(both: Both) -> None:
    agent = both.make()
    agent.turn("k1", "first")
    session = agent.read("session")
    for n in (2, 3):
        agent.kill_cli()
        assert agent.turn(f"k{n}", f"turn {n}") == f"echo#{n}: turn {n}\n"
    assert agent.history() == ["first", "turn 2", "turn 3"]
    assert agent.read("session") == session
    assert agent.ends("k1") == ["done"]


def test_right_after_the_end_of_a_turn(both: Both) -> None:
    agent = both.make()
    for n in range(1, 4):
        agent.prompt(f"k{n}", f"turn {n}")
        agent.until("turn-ended", n - 1)
        agent.kill_cli()
        assert agent.ended(f"k{n}") == ("done", f"echo#{n}: turn {n}\n")
    agent.turn("last", "last")
    assert agent.history() == [*(f"turn {n}" for n in range(1, 4)), "last"]


# -- a session whose record is gone -------------------------------------------------------------------------------


def record_of(agent: Agent, base: Path) -> Path:
    """The file in which the CLI keeps the agent's session."""
    session = agent.read("session").strip()
    below = {"claude": "config/projects", "codex": "codex/sessions"}[agent.both.kind.name]
    (found,) = (base / below).rglob(f"*{session}.jsonl")
    return found


@pytest.mark.parametrize(("way", "damage"), [("stop", "removed"), ("kill", "empty"), ("kill", "removed")])
def test_a_session_without_its_record_is_told_and_restart_begins_another(both: Both, way: str, damage: str) -> None:
    agent = both.make()
    agent.turn("k1", "first")
    old, record = agent.read("session"), record_of(agent, both.tree.home.parent)
    if way == "stop":
        agent.ctl("stop")
        assert agent.settle() == "stopped"
    if damage == "removed":
        record.unlink()
    else:
        record.write_bytes(b"")
    if way == "stop":
        agent.ctl("start")
    else:
        kill(agent.cli())
    wait_for(lambda: both.tree.status(agent.name) == "failed", "it is told")
    stat = agent.stat()
    assert (stat["reason"], stat["session"]) == ("context-lost", old.strip())
    assert agent.read("session") == old
    assert old.strip() in agent.read("error")
    assert refusal(lambda: agent.prompt("k2", "refused")) == "EHOSTDOWN"
    agent.ctl("restart")
    assert agent.turn("k3", "anew") == "echo#1: anew\n"
    stat = agent.stat()
    assert stat["session"] != old.strip()
    assert stat["former_session"] == old.strip()
    assert agent.history() == ["anew"]
    agent.kill_cli()
    assert agent.turn("k4", "again") == "echo#2: again\n"
    assert agent.stat()["session"] == stat["session"]


def test_a_first_prompt_whose_record_a_power_cut_left_empty(only_claude: Both) -> None:
    agent = only_claude.make()
    agent.prompt("k1", "[[hang]] cut")
    agent.reached("[[hang]] cut")
    agent.ctl("stop")
    assert agent.settle() == "stopped"
    old = agent.read("session")
    record_of(agent, only_claude.tree.home.parent).write_bytes(b"")
    agent.ctl("start")
    wait_for(lambda: only_claude.tree.status(agent.name) == "failed", "it is told")
    assert (agent.stat()["reason"], agent.read("session")) == ("context-lost", old)
    agent.ctl("restart")
    assert agent.turn("k2", "anew") == "echo#1: anew\n"
    assert agent.stat()["former_session"] == old.strip()
