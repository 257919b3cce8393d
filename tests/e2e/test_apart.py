"""Agents of one CLI that share a directory, each with its own session and its own key; and CLIs inside of CLIs.

The fake's log tells which credential came with which session.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.e2e.both import Both
from tests.living import wait_for

pytestmark = pytest.mark.real_cli


def test_two_agents_in_one_directory_keep_apart(both: Both, base: Path) -> None:
    one, two = (both.make(f'cwd = "{base}"\n') for _ in range(2))
    for n in range(1, 4):
        for agent in (one, two):
            agent.prompt(f"k{n}", f"{agent.name} {n}")
        for agent in (one, two):
            assert agent.ended(f"k{n}") == ("done", f"echo#{n}: {agent.name} {n}\n")
    one.kill_cli()
    for agent in (one, two):
        agent.turn("k4", "last")
        assert agent.history() == [*(f"{agent.name} {n}" for n in range(1, 4)), "last"]
    assert one.read("session") != two.read("session")


def test_each_agent_has_the_key_of_its_own_env_file(both: Both, base: Path) -> None:
    agents = []
    for n in range(2):
        file = base / f"env{n}"
        file.write_text(f'# the key of one agent\nexport {both.kind.key_variable}="dummy-of-{n}"\n')
        agents.append(both.make(f'env_file = "{file}"\n'))
    for n, agent in enumerate(agents):
        agent.prompt("k1", f"hello {n}")
    for agent in agents:
        assert agent.ended("k1")[0] == "done"
    agents[0].kill_cli()
    for n, agent in enumerate(agents):
        agent.turn("k2", "again")
        keys = {call["headers"].get(both.kind.key_header, "").removeprefix("Bearer ") for call in agent.calls()}
        assert keys == {f"dummy-of-{n}"}
        written = b"".join(path.read_bytes() for path in both.tree.home.rglob("*") if path.is_file())
        assert f"dummy-of-{n}".encode() not in written


def test_a_cli_started_by_an_agents_tool_disturbs_nobody(both: Both) -> None:
    binary = shlex.quote(both.tree.env[f"ZOEFS_{both.kind.name.upper()}"])
    words = {"claude": f"{binary} -p nested", "codex": f"{binary} exec --skip-git-repo-check nested"}[both.kind.name]
    agent = both.make(both.kind.free)
    agent.turn("k0", "first")
    session, incarnation = agent.read("session"), agent.stat()["incarnation"]
    answer = agent.turn("k1", f"[[bash:{words} < /dev/null > nested.out 2> nested.err; cat nested.out]] [[say:over]]")
    assert answer == "over\n"
    said = (agent.work / "nested.out").read_text()
    assert "echo#1: nested" in said, (agent.work / "nested.err").read_text()
    assert agent.read("session") == session
    assert agent.stat()["incarnation"] == incarnation
    assert [event.text("how") for event in agent.events("turn-ended")] == ["done", "done"]
    agent.kill_cli()
    agent.turn("k2", "again")
    assert [text for text in agent.history() if text in ("first", "nested", "again")] == ["first", "again"]


def test_an_agent_prompts_another_through_the_mount(both: Both) -> None:
    agent, peer = both.make(both.kind.free), both.make()
    agent.turn("k1", f"[[bash:echo -n from $ZOEFS_AGENT > $ZOEFS_MOUNT/agents/{peer.name}/inbox/p1]]")
    assert peer.ended("p1") == ("done", f"echo#1: from {agent.name}\n")
    wait_for(lambda: both.tree.status(agent.name) == "await", "it is done")
