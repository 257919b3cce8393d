"""`zoefs follow` at a real mount: as it happens, over rotations, over the end of a mount, until the agent is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.teller import Teller
from tests.living import DEADLINE, Tree, living, wait_for
from tests.mount.clients import BUSY, ECHO, busy, fresh, put
from tests.mount.followers import following, opened
from zoefs.contract.events import Event


def seqs(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


def test_a_turn_is_told_as_it_happens(shared: Tree) -> None:
    agent = fresh(shared, ECHO)
    put(agent / "inbox/k0", b"before")
    shared.settle(agent.name)
    with following(shared, agent.name) as follower:
        wait_for(lambda: opened(follower, agent), "it follows")
        put(agent / "inbox/k1", b"hello\nthere\n")
        follower.said("prompt k1, 12 bytes\n  | hello\n  | there\n", "hello\nthere\n[2] done\n")
        assert b"before" not in follower.out
        assert follower.end() == 0
        assert not follower.err


def test_it_begins_with_the_turn_that_runs_or_with_all(shared: Tree) -> None:
    agent = busy(shared, BUSY)
    with following(shared, agent.name) as follower:
        follower.said("[1] prompt first, 2 bytes\n  | go\n")
    with following(shared, agent.name, "--all", "--json") as follower:
        follower.said('"created"', '"prompt-given"')
        assert seqs(follower.events())[:3] == [1, 2, 3]
        assert all("kind" in json.loads(line) for line in bytes(follower.out).splitlines())
    shared.zoefs("stop", agent.name)


def test_it_ends_when_the_agent_is_retired(shared: Tree) -> None:
    agent = fresh(shared, ECHO)
    put(agent / "inbox/k0", b"x")
    shared.settle(agent.name)
    with following(shared, agent.name) as follower:
        wait_for(lambda: opened(follower, agent), "it follows")
        shared.zoefs("retire", "--stop", agent.name)
        assert follower.process.wait(DEADLINE) == 0


def test_what_is_not_there_is_not_followed(shared: Tree) -> None:
    done = shared.zoefs("follow", "nobody", check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no agent nobody" in done.stderr


def test_it_survives_rotations_and_the_end_of_a_mount(base: Path) -> None:
    with living(base, {"ZOEFS_ROTATE_BYTES": "600"}) as tree:
        agent = fresh(tree, ECHO)
        journal = tree.home / "log" / "agents"
        put(agent / "inbox/k0", b"x")
        tree.settle(agent.name)
        with following(tree, agent.name, "--all", "--json") as follower:
            follower.said('"turn-ended"')

            def turns(first: int, last: int) -> None:
                for n in range(first, last):
                    put(agent / f"inbox/k{n}", b"x")
                    assert tree.ended(agent.name, f"k{n}")[0] == "done"

            turns(1, 10)
            wait_for(lambda: len(list(journal.iterdir())) > 2, "the journal was rotated")
            follower.said('"id":"k9"')
            tree.kill("mount")
            follower.complained("the mount is gone")
            tree.up()
            turns(10, 25)
            follower.said('"id":"k24"')
            told = seqs(follower.events())
            assert told == list(range(1, len(told) + 1))
            assert follower.end() == 0


@pytest.mark.parametrize("json_", [False, True])
def test_what_a_model_says_and_asks(base: Path, json_: bool) -> None:
    teller = Teller(base / "teller")
    with living(base, teller.env) as tree:
        agent = tree.make("t", 'backend = "claude"\n')
        with following(tree, "t", *(["--json"] if json_ else [])) as follower:
            wait_for(lambda: opened(follower, agent), "it follows")
            program = (
                "text('I look.')\n"
                "say(type='assistant', message=dict(id='m', content=[dict(type='tool_use', id='u', name='Bash', "
                "input=dict(command='ls'))]))\n"
                "say(type='user', message=dict(content=[dict(type='tool_result', tool_use_id='u', content='a\\nb')]))\n"
                "text('\\x1b[31mred')\nresult('over')"
            )
            put(agent / "inbox/k1", program.encode())
            follower.said("turn-ended" if json_ else "[1] done")
            if json_:
                assert {"text", "tool", "tool-result"} <= {event.kind for event in follower.events()}
            else:
                told = bytes(follower.out).decode()
                assert 'I look.\n  > Bash {"command": "ls"}\n  < ok a (+1 lines)\n\\x1b[31mred\n[1] done' in told
