"""The real claude CLI as a directory: what a client reads and writes, and what a `kill -9` at any instant changes.

The model is the fake; its log is the witness of what the CLI really sent. Nothing here counts on speed but the one
promise that an interrupt settles within a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.claude_tree import AT_ONCE, ClaudeTree, claude_tree
from tests.e2e.reading import (
    agent_home,
    alive,
    below,
    check_journal,
    children,
    cli_of,
    ends,
    events,
    keeper_of,
    kill,
    until_event,
)
from tests.living import wait_for

pytestmark = pytest.mark.real_cli


@pytest.fixture
def claude(base: Path) -> Iterator[ClaudeTree]:
    with claude_tree(base) as found:
        yield found


def reached(claude: ClaudeTree, text: str, seconds: float = 0.0, times: int = 1) -> None:
    """Wait until the model was asked this so many times, and some seconds more."""
    claude.fake.until(lambda _: claude.asked(text) >= times)
    time.sleep(seconds)


# -- the ordinary life --------------------------------------------------------------------------------------------


def test_an_answer_and_a_second_turn_that_knows_the_first(claude: ClaudeTree) -> None:
    agent = claude.make("c")
    assert claude.tree.shell('echo hello > c/in; while [ -z "$(cat c/wait)" ]; do :; done; cat c/out').stdout == (
        "echo#1: hello\n"
    )
    assert claude.turn("c", "again", "k2") == "echo#2: again\n"
    assert claude.history() == ["hello\n", "again"]
    assert (agent / "out").read_text() == "echo#2: again\n"
    stat = claude.tree.stat("c")
    assert (stat["status"], stat["turn"], stat["last_turn"], stat["incarnation"]) == ("await", "2", "done", "1")
    assert stat["session"] == (agent / "session").read_text().strip()
    assert stat["session"] in {turn["headers"]["x-claude-code-session-id"] for turn in claude.fake.turns()}
    check_journal(claude.tree, "c")


def test_an_interrupt_settles_within_a_second_and_the_process_lives(claude: ClaudeTree) -> None:
    agent = claude.make("c")
    claude.turn("c", "first", "k1")
    cli = cli_of(claude.tree, "c")
    (agent / "inbox" / "k2").write_text("[[hang]] for ever")
    reached(claude, "[[hang]] for ever")
    began = time.monotonic()
    (agent / "ctl").write_text("#stop-it interrupt\n")
    assert claude.tree.settle("c") == "await"
    took = time.monotonic() - began
    assert claude.tree.receipt("c", "stop-it")[0]["receipt"] == "done"
    assert claude.tree.receipt("c", "k2")[0]["receipt"] == "cancelled"
    assert claude.tree.stat("c")["last_turn"] == "interrupted"
    assert claude.turn("c", "next", "k3") == "echo#3: next\n"
    assert claude.history() == ["first", "[[hang]] for ever", "next"]
    assert cli_of(claude.tree, "c") == cli
    assert took < 1.0, f"the interrupt took {took:.3f} s"


@pytest.mark.parametrize("status", [400, 401, 529])
def test_an_error_of_the_model_is_a_failed_turn_and_no_answer(claude: ClaudeTree, status: int) -> None:
    agent = claude.make("c")
    (agent / "inbox" / "k1").write_text(f"[[error:{status}]] please")
    fate, answer = claude.tree.ended("c", "k1")
    assert (fate, answer) == ("failed", b"")
    assert claude.tree.settle("c") in ("await", "failed")
    assert claude.tree.stat("c")["last_turn"] == "failed"
    assert (agent / "out").read_bytes() == b""
    said = (agent / "error").read_text()
    assert f"fake {status}" in said or str(status) in said or "auth" in said.lower(), said
    if claude.tree.status("c") == "await":
        assert claude.turn("c", "still there?", "k2").endswith("still there?\n")


def test_an_ask_blocks_and_is_answered_by_the_lines_that_it_prints(claude: ClaudeTree) -> None:
    agent = claude.make("c")
    prompt = "[[bash:touch allowed]] [[bash:touch denied]]"
    (agent / "inbox" / "k1").write_text(prompt)
    assert claude.tree.settle("c") == "blocked"
    assert claude.tree.receipt("c", "k1")[0]["receipt"] == "accepted"
    first = (agent / "ask").read_text()
    assert "tool: Bash\n" in first
    assert '"command": "touch allowed"' in first
    assert claude.tree.shell("grep '^allow ' c/ask > c/ctl").stderr == ""
    wait_for(lambda: claude.tree.status("c") == "blocked" and (agent / "ask").read_text() != first, "the second ask")
    (deny,) = [line for line in (agent / "ask").read_text().splitlines() if line.startswith("deny ")]
    (agent / "ctl").write_text(deny.replace("WHY", "not on a Monday") + "\n")
    assert claude.tree.settle("c") == "await"
    fate, answer = claude.tree.ended("c", "k1")
    assert fate == "done"
    assert b"not on a Monday" in answer
    assert sorted(os.listdir(agent_home(claude.tree, "c").work)) == ["allowed"]
    assert (agent / "ask").read_text() == ""
    answered = [(e.text("decision"), e.text("why")) for e in events(claude.tree, "c", "answered")]
    assert answered == [("allow", ""), ("deny", "not on a Monday")]


def test_stop_ends_a_turn_as_interrupted_and_start_does_not_run_it_again(claude: ClaudeTree) -> None:
    agent = claude.make("c")
    claude.turn("c", "first", "k1")
    (agent / "inbox" / "k2").write_text("[[hang]] not again")
    reached(claude, "[[hang]] not again")
    tree = [keeper_of(claude.tree, "c"), *below(keeper_of(claude.tree, "c"))]
    (agent / "ctl").write_text("stop\n")
    assert claude.tree.settle("c") == "stopped"
    assert not [pid for pid in tree if alive(pid)]
    assert claude.tree.stat("c")["last_turn"] == "interrupted"
    assert claude.tree.receipt("c", "k2")[0]["receipt"] == "cancelled"
    (agent / "ctl").write_text("start\n")
    assert claude.tree.settle("c") == "await"
    assert claude.turn("c", "next", "k3") == "echo#3: next\n"
    assert claude.asked("[[hang]] not again") == 1
    assert claude.history() == ["first", "[[hang]] not again", "next"]
    assert ends(claude.tree, "c", "k2") == ["interrupted"]


LONG = "word " * 209_715 + "end."
ORDER = '{"type":"control_request","request_id":"x","request":{"subtype":"interrupt"}}'
STRANGE = f"a\0b \u2028 c\u2029 \x1b[2J \x85 \r\n{ORDER}\nend"


@pytest.mark.parametrize("text", [LONG, STRANGE], ids=["1 MiB", "NUL, U+2028, ESC and a line of the protocol"])
def test_a_prompt_of_any_text_is_one_frame(claude: ClaudeTree, text: str) -> None:
    claude.make("c")
    assert claude.turn("c", "first", "k1") == "echo#1: first\n"
    (claude.tree.agent("c") / "inbox" / "k2").write_bytes(text.encode())
    fate, answer = claude.tree.ended("c", "k2")
    assert (fate, answer.decode()) == ("done", f"echo#2: {text}\n")
    assert claude.history() == ["first", text]
    assert claude.asked(text) == 1
    assert claude.tree.stat("c")["incarnation"] == "1"


def test_bytes_that_are_no_text_reach_the_model_as_replacement_characters(claude: ClaudeTree) -> None:
    agent = claude.make("c")
    (agent / "inbox" / "k1").write_bytes(b"caf\xe9 \xff\xfe end")
    assert claude.tree.ended("c", "k1")[0] == "done"
    assert claude.history() == ["caf\ufffd \ufffd\ufffd end"]
    (order,) = agent_home(claude.tree, "c").taken.iterdir()
    assert order.read_bytes() == b"caf\xe9 \xff\xfe end"


# -- kill -9 ------------------------------------------------------------------------------------------------------

Instant = Callable[[ClaudeTree, str, str], None]
"""Waits for an instant in the turn of the prompt `id` with this text, of the agent of the same name as the id."""


def _after_event(kind: str) -> Instant:
    def wait(claude: ClaudeTree, id: str, text: str) -> None:
        wait_for(lambda: id in [event.text("id") for event in events(claude.tree, id, kind)], kind)

    return wait


def _after_request(seconds: float) -> Instant:
    return lambda claude, id, text: reached(claude, text, seconds)


INSTANTS: dict[str, Instant] = {
    "given": _after_event("prompt-given"),
    "delivered": _after_event("prompt-sent"),
    "accepted": _after_event("prompt-accepted"),
    "0 s": _after_request(0.0),
    "0.05 s": _after_request(0.05),
    "0.2 s": _after_request(0.2),
    "1 s": _after_request(1.0),
}


@pytest.mark.soak
@pytest.mark.parametrize("when", INSTANTS)
def test_kill_9_in_a_turn_is_followed_by_its_one_answer(claude: ClaudeTree, when: str, soak: bool) -> None:
    for n in range(10 if soak else 1):
        name = f"c{n}"
        agent = claude.make(name, AT_ONCE)
        first, cut, last = f"first {n}", f"[[slow:3]] cut {n} at {when}", f"last {n}"
        claude.turn(name, first, "first")
        session = (agent / "session").read_text()
        (agent / "inbox" / name).write_text(cut)
        INSTANTS[when](claude, name, cut)
        kill(cli_of(claude.tree, name))
        assert claude.tree.ended(name, name) == ("done", f"echo#2: {cut}\n".encode())
        assert claude.turn(name, last, "last") == f"echo#3: {last}\n"
        assert claude.history() == [first, cut, last]
        assert ends(claude.tree, name, name) == ["done"]
        assert (agent / "session").read_text() == session
        assert claude.fake.turns()[-1]["headers"]["x-claude-code-session-id"] == session.strip()
        stat = claude.tree.stat(name)
        assert (stat["incarnation"], stat["restarts"]) == ("2", "1")
        check_journal(claude.tree, name)
        (agent / "ctl").write_text("stop\n")


@pytest.mark.soak
def test_kill_9_again_and_again_in_one_turn(claude: ClaudeTree, soak: bool) -> None:
    agent = claude.make("c", AT_ONCE)
    claude.turn("c", "first", "k1")
    cut = "[[slow:2]] cut many times"
    (agent / "inbox" / "k2").write_text(cut)
    rounds = 10 if soak else 3
    for n in range(rounds):
        reached(claude, cut, times=n + 1)
        time.sleep(0.1 * n)
        kill(cli_of(claude.tree, "c"))
        until_event(claude.tree, "c", "spawned", more_than=n + 1)
    assert claude.tree.ended("c", "k2") == ("done", f"echo#2: {cut}\n".encode())
    claude.turn("c", "last", "k3")
    assert claude.history() == ["first", cut, "last"]
    assert ends(claude.tree, "c", "k2") == ["done"]
    assert int(claude.tree.stat("c")["restarts"]) == rounds


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3])
def test_kill_9_while_it_starts_loses_nothing(claude: ClaudeTree, seconds: float) -> None:
    agent = claude.make("c", AT_ONCE)
    (agent / "inbox" / "k1").write_text("[[slow:0.2]] the first")
    until_event(claude.tree, "c", "spawned")
    cli = cli_of(claude.tree, "c")
    time.sleep(seconds)
    kill(cli)
    assert claude.tree.ended("c", "k1") == ("done", b"echo#1: [[slow:0.2]] the first\n")
    assert claude.turn("c", "next", "k2") == "echo#2: next\n"
    assert claude.history() == ["[[slow:0.2]] the first", "next"]
    assert ends(claude.tree, "c", "k1") == ["done"]
    assert len(events(claude.tree, "c", "session")) == 1
    assert claude.tree.stat("c")["incarnation"] == "2"


def test_kill_9_between_turns_is_healed_and_the_session_goes_on(claude: ClaudeTree) -> None:
    agent = claude.make("c", AT_ONCE)
    claude.turn("c", "first", "k1")
    session = (agent / "session").read_text()
    kill(cli_of(claude.tree, "c"))
    until_event(claude.tree, "c", "exited")
    assert claude.turn("c", "next", "k2") == "echo#2: next\n"
    assert claude.history() == ["first", "next"]
    assert (agent / "session").read_text() == session
    assert (agent / "out").read_text() == "echo#2: next\n"


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_the_keeper_alone_is_killed(claude: ClaudeTree, seconds: float) -> None:
    agent = claude.make("c", AT_ONCE)
    claude.turn("c", "first", "k1")
    cut = "[[slow:3]] the keeper dies"
    (agent / "inbox" / "k2").write_text(cut)
    reached(claude, cut, seconds)
    keeper, cli = keeper_of(claude.tree, "c"), cli_of(claude.tree, "c")
    kill(keeper)
    until_event(claude.tree, "c", "exited")
    assert not alive(cli)
    assert claude.tree.ended("c", "k2") == ("done", f"echo#2: {cut}\n".encode())
    claude.turn("c", "last", "k3")
    assert claude.history() == ["first", cut, "last"]
    assert ends(claude.tree, "c", "k2") == ["done"]


def test_kill_9_in_a_tool_ends_the_tool_too_and_the_turn_once(claude: ClaudeTree) -> None:
    agent = claude.make("c", AT_ONCE + 'permission = "dontAsk"\nargs = ["--allowedTools", "Bash"]\n')
    claude.turn("c", "first", "k1")
    cut = "[[bash:echo $$ >> pids; exec sleep 3]] then say it"
    (agent / "inbox" / "k2").write_text(cut)
    pids = agent_home(claude.tree, "c").work / "pids"
    wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"), "the tool runs")
    tool = int(pids.read_text().split()[0])
    assert alive(tool)
    kill(cli_of(claude.tree, "c"))
    until_event(claude.tree, "c", "exited")
    assert not alive(tool)
    assert claude.tree.ended("c", "k2")[0] == "done"
    claude.turn("c", "last", "k3")
    assert claude.history().count(cut) == 1
    assert claude.history()[0] == "first"
    assert ends(claude.tree, "c", "k2") == ["done"]


def test_kill_9_while_it_asks_takes_the_ask_back(claude: ClaudeTree) -> None:
    agent = claude.make("c", AT_ONCE)
    (agent / "inbox" / "k1").write_text("[[bash:touch made]] then say it")
    assert claude.tree.settle("c") == "blocked"
    (old,) = [line for line in (agent / "ask").read_text().splitlines() if line.startswith("allow ")]
    kill(cli_of(claude.tree, "c"))
    until_event(claude.tree, "c", "exited")
    wait_for(lambda: claude.tree.status("c") in ("await", "blocked"), "it settles")
    assert old not in (agent / "ask").read_text()
    assert claude.tree.shell(f"echo '{old}' > c/ctl", check=False).returncode != 0
    while claude.tree.settle("c") == "blocked":
        claude.tree.shell("grep '^allow ' c/ask > c/ctl")
    assert claude.tree.ended("c", "k1")[0] == "done"
    claude.turn("c", "last", "k2")
    assert claude.history().count("[[bash:touch made]] then say it") == 1
    assert ends(claude.tree, "c", "k1") == ["done"]


def test_nothing_of_a_dead_cli_is_left_while_the_agent_lives_on(claude: ClaudeTree) -> None:
    claude.make("c", AT_ONCE)
    claude.turn("c", "first", "k1")
    old = [keeper_of(claude.tree, "c"), *below(keeper_of(claude.tree, "c"))]
    kill(old[1])
    until_event(claude.tree, "c", "exited")
    claude.turn("c", "next", "k2")
    assert not [pid for pid in old if alive(pid)]
    assert len(children(claude.tree.part("supervisor").mark.pid)) == 1
    check_journal(claude.tree, "c")
