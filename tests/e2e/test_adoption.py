"""Who survives what, agent by agent: a supervisor that dies or hangs, a keeper that dies, a CLI that will not go.

The CLI here is `sh` under the backend `exec`, or a small program that speaks just enough of the claude protocol to be
started and to die; the real CLI has test_claude. Each sh notes its runs in a file outside HOME: the witness.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.claude_tree import AT_ONCE, ClaudeTree, claude_tree
from tests.e2e.fake_cli import Fake
from tests.e2e.reading import (
    agent_home,
    alive,
    below,
    check_journal,
    ends,
    events,
    journal,
    keeper_of,
    kill,
    story,
    until_event,
)
from tests.living import Tree, living, wait_for
from zoefs.disk.process import Mark

GRACE_S = {"interrupt": 1.0, "TERM": 3.0, "EOF": 2.0}
"""The graces of an ending, in seconds: what the supervisor waits before it takes the next step."""
SLACK_S = 1.5
"""What an ending may take beyond its graces on a busy machine."""


def exec_spec(script: str, *words: object) -> str:
    """The spec of an agent that runs `script` with sh; `words` are $1 and on."""
    return f'backend = "exec"\nargv = {json.dumps(["sh", "-c", script, "sh", *map(str, words)])}\n'


GATED = """
read -r prompt; echo "$prompt" >>"$1/runs"
while [ ! -e "$1/go" ]; do sleep 0.01; done
echo "did $prompt"; exit $2
"""
"""Notes its prompt, waits for the file `go`, answers, and ends with the code given."""


def gated(tree: Tree, base: Path, code: int, name: str = "e") -> Path:
    """An agent in the middle of its first turn, under the id `k1`."""
    agent = tree.make(name, exec_spec(GATED, base, code))
    (agent / "inbox" / "k1").write_text("work")
    wait_for((base / "runs").exists, "the turn runs")
    return agent


# -- the supervisor dies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("ends_alone", [False, True], ids=["ends after the adoption", "ends while nobody looks"])
def test_a_turn_outlives_the_supervisor(tree: Tree, base: Path, code: int, ends_alone: bool) -> None:
    agent = gated(tree, base, code)
    keeper = keeper_of(tree, "e")
    tree.kill("supervisor")
    assert alive(keeper)
    assert tree.stat("e")["supervisor"] == "absent"
    assert tree.status("e") == "running"
    if ends_alone:
        (base / "go").touch()
        wait_for(lambda: not alive(keeper), "the turn is over")
        tree.up()
    else:
        tree.up()
        assert keeper_of(tree, "e") == keeper
        (base / "go").touch()
    assert tree.ended("e", "k1") == ("failed" if code else "done", b"did work\n")
    assert (agent / "out").read_text() == "did work\n"
    assert (base / "runs").read_text() == "work\n"
    assert [event.number("rc", -1) for event in events(tree, "e", "exited")] == [code]
    (agent / "inbox" / "k2").write_text("again\n")
    assert tree.ended("e", "k2")[1] == b"did again\n"
    check_journal(tree, "e")


def test_a_turn_outlives_many_supervisors(tree: Tree, base: Path) -> None:
    gated(tree, base, 0)
    keeper = keeper_of(tree, "e")
    for _ in range(5):
        tree.kill("supervisor")
        tree.up()
    assert keeper_of(tree, "e") == keeper
    (base / "go").touch()
    assert tree.ended("e", "k1") == ("done", b"did work\n")
    assert (base / "runs").read_text() == "work\n"
    check_journal(tree, "e")


def kill_at(tree: Tree, name: str, kind: str, number: int, later: float) -> bool:
    """SIGKILL the supervisor as soon as the journal holds `number` events of this kind; whether it came to that."""
    path, needle = journal(tree, name), f'"kind":"{kind}"'.encode()
    pid = tree.part("supervisor").mark.pid
    end = time.monotonic() + 20.0
    while (path.read_bytes() if path.exists() else b"").count(needle) < number:
        if time.monotonic() > end:
            return False
    time.sleep(later)
    os.kill(pid, signal.SIGKILL)
    tree.kill("supervisor")
    return True


EXEC_KINDS = ("created", "session", "prompt-given", "spawned", "turn-ended", "exited")


@pytest.mark.soak
@pytest.mark.parametrize("kind", EXEC_KINDS)
def test_the_supervisor_dies_at_an_event_of_an_exec_turn(tree: Tree, base: Path, kind: str, soak: bool) -> None:
    chance = random.Random(kind)
    spec = exec_spec('cat >>"$1/$2.runs"; cat "$1/$2.runs"', base, "{name}")
    for n in range(40 if soak else 5):
        agent = tree.make(f"e{n}", spec)
        (agent / "inbox" / "k1").write_text(f"one {n}\n")
        # a second prompt is in the queue when the supervisor dies over the first
        (agent / "inbox" / "k2").write_text(f"two {n}\n")
        assert kill_at(tree, agent.name, kind, 1, chance.choice((0.0, 0.0, 0.001, 0.003, 0.01)))
        tree.up()
        runs = f"one {n}\ntwo {n}\n"
        assert tree.ended(agent.name, "k1")[0] == "done", story(tree, agent.name, "k1")
        assert tree.ended(agent.name, "k2") == ("done", runs.encode()), story(tree, agent.name, "k2")
        assert (base / f"{agent.name}.runs").read_text() == runs
        assert tree.settle(agent.name) == "await"
        assert ends(tree, agent.name, "k1") == ends(tree, agent.name, "k2") == ["done"]
        assert len(events(tree, agent.name, "session")) <= 1
        check_journal(tree, agent.name)


GO_ON = "Continue from where you left off."
"""What Claude Code itself says to its model when it goes on with a cut turn that it does not rerun from the start."""

CLAUDE_KINDS = (
    *("created", "session", "spawned", "ready", "prompt-given", "prompt-sent", "stdin-begun", "stdin-done"),
    *("prompt-accepted", "text", "turn-ended"),
)


@pytest.mark.real_cli
@pytest.mark.soak
@pytest.mark.parametrize("kind", CLAUDE_KINDS)
def test_the_supervisor_dies_at_an_event_of_a_claude_turn(base: Path, kind: str, soak: bool) -> None:
    chance = random.Random(kind)
    with claude_tree(base) as claude:
        for n in range(20 if soak else 2):
            name = f"c{n}"
            agent = claude.make(name, AT_ONCE)
            long = f"[[slow:0.2]] one {n} " + "x" * (200_000 if kind.startswith("stdin") else 10)
            (agent / "inbox" / "k1").write_text(long)
            assert kill_at(claude.tree, name, kind, 1, chance.choice((0.0, 0.0, 0.002, 0.01)))
            claude.tree.up()
            check_one_turn(claude, name, long, n)


def check_one_turn(claude: ClaudeTree, name: str, text: str, n: int) -> None:
    """The first turn of an agent was given and answered once, and a second knows it."""
    fate, answer = claude.tree.ended(name, "k1")
    said = [text]
    if answer.decode() == f"echo#2: {GO_ON}\n":  # replaced between taking the prompt and its first model call
        said.append(GO_ON)
    assert (fate, answer.decode()) == ("done", f"echo#{len(said)}: {said[-1]}\n"), story(claude.tree, name, "k1")
    said.append(f"two {n}")
    assert claude.turn(name, f"two {n}", "k2") == f"echo#{len(said)}: two {n}\n"
    assert claude.history() == said
    assert ends(claude.tree, name, "k1") == ["done"]
    assert len(events(claude.tree, name, "session")) == 1
    check_journal(claude.tree, name)


@pytest.mark.soak
def test_a_supervisor_told_to_go_while_it_starts_goes_in_good_order(tree: Tree, base: Path, soak: bool) -> None:
    chance = random.Random(11)
    for n in range(4):
        agent = tree.make(f"e{n}", exec_spec(GATED, base, 0))
        (agent / "inbox" / "k1").write_text("work\n")
        keeper_of(tree, agent.name)
    keepers = [keeper_of(tree, f"e{n}") for n in range(4)]
    tree.kill("supervisor")
    for _ in range(300 if soak else 40):
        before = tree.part("supervisor").mark
        words = [sys.executable, "-c", "from supervisor.main import main; main()", "run", "--home", str(tree.home)]
        starting = subprocess.Popen(words, env=tree.env, stderr=subprocess.PIPE, text=True)
        until_another(tree, before)
        time.sleep(chance.uniform(0.0, 0.02))
        starting.terminate()
        _, said = starting.communicate(timeout=30)
        assert "Traceback" not in said, said
    tree.up()
    assert [keeper_of(tree, f"e{n}") for n in range(4)] == keepers
    (base / "go").touch()
    assert [tree.ended(f"e{n}", "k1") for n in range(4)] == [("done", b"did work\n")] * 4


def until_another(tree: Tree, before: Mark) -> None:
    """Wait until another supervisor than `before` holds the lock."""
    wait_for(lambda: tree.part("supervisor").mark != before, "it holds the lock")


# -- the supervisor hangs -----------------------------------------------------------------------------------------


def test_a_stopped_supervisor_shows_and_prompts_wait_for_it(tree: Tree, base: Path) -> None:
    agent = tree.make("e", exec_spec('cat >>"$1/runs"; echo did', base))
    (agent / "inbox" / "k1").write_text("one\n")
    assert tree.ended("e", "k1") == ("done", b"did\n")
    tree.kill("supervisor", signal.SIGSTOP)
    try:
        (agent / "inbox" / "k2").write_text("two\n")
        assert tree.status("e") == "running"
        assert tree.receipt("e", "k2")[0]["receipt"] == "queued"
        wait_for(lambda: tree.stat("e")["supervisor"] == "absent", "stat says that nobody works")
        assert any(line.startswith("supervisor degraded") for line in (tree.mount / "health").read_text().splitlines())
        assert tree.zoefs("wait", "e", check=False).returncode == 6
        assert (agent / "out").read_text() == "did\n"
    finally:
        tree.kill("supervisor", signal.SIGCONT)
    assert tree.ended("e", "k2") == ("done", b"did\n")
    assert tree.stat("e")["supervisor"] == "ok"
    assert (base / "runs").read_text() == "one\ntwo\n"


# -- a keeper dies, a CLI leaves something behind ----------------------------------------------------------------


@pytest.mark.parametrize("adopted", [False, True], ids=["its own supervisor", "after an adoption"])
def test_a_dead_keeper_takes_its_cli_with_it_and_the_agent_is_usable(tree: Tree, base: Path, adopted: bool) -> None:
    agent = gated(tree, base, 0)
    if adopted:
        tree.kill("supervisor")
        tree.up()
    keeper = keeper_of(tree, "e")
    tree_below = below(keeper)
    assert tree_below
    kill(keeper)
    assert tree.ended("e", "k1")[0] == "lost"
    assert not [pid for pid in tree_below if alive(pid)]
    assert tree.settle("e") == "await"
    assert tree.stat("e")["last_turn"] == "lost"
    assert "keeper" in (agent / "error").read_text()
    (base / "go").touch()
    (agent / "inbox" / "k2").write_text("again\n")
    assert tree.ended("e", "k2") == ("done", b"did again\n")
    assert (base / "runs").read_text() == "work\nagain\n"
    check_journal(tree, "e")


LEAVER = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(20):
            if fd != null:
                try: os.close(fd)
                except OSError: pass
        with open(sys.argv[1] + "/left", "w") as file: file.write(f"{os.getpid()}\\n")
        time.sleep(1000)
    os._exit(0)
while not os.path.exists(sys.argv[1] + "/go"): time.sleep(0.01)
print("left it")
"""
"""Double-forks a daemon of its own session without any descriptor, then waits for `go` and ends."""


@pytest.mark.parametrize("adopted", [False, True], ids=["its own supervisor", "after an adoption"])
def test_what_a_turn_leaves_behind_is_gone_when_it_has_ended(tree: Tree, base: Path, adopted: bool) -> None:
    argv = json.dumps([sys.executable, "-c", LEAVER, str(base)])
    agent = tree.make("e", f'backend = "exec"\nargv = {argv}\n')
    (agent / "inbox" / "k1").write_text("x")
    left = base / "left"
    wait_for(lambda: left.exists() and left.read_text().endswith("\n"), "the grandchild runs")
    pid = int(left.read_text())
    if adopted:
        tree.kill("supervisor")
        tree.up()
    assert alive(pid)
    (base / "go").touch()
    assert tree.ended("e", "k1") == ("done", b"left it\n")
    assert not alive(pid)


# -- stop ---------------------------------------------------------------------------------------------------------

DEAF = 'echo $$ >>"$1/pids"; trap "" TERM INT HUP; while :; do sleep 0.05; done'


@pytest.mark.parametrize("adopted", [False, True], ids=["its own supervisor", "after an adoption"])
def test_stop_of_a_cli_that_ignores_term_takes_the_grace_and_leaves_nothing(
    tree: Tree, base: Path, adopted: bool
) -> None:
    agent = tree.make("e", exec_spec(DEAF, base))
    (agent / "in").write_text("x")
    wait_for((base / "pids").exists, "it runs")
    keeper = keeper_of(tree, "e")
    if adopted:
        tree.kill("supervisor")
        tree.up()
    all_of_it = [keeper, *below(keeper)]
    began = time.monotonic()
    (agent / "ctl").write_text("stop\n")
    assert tree.settle("e") == "stopped"
    took = time.monotonic() - began
    assert GRACE_S["TERM"] - 0.1 <= took < GRACE_S["TERM"] + SLACK_S, f"stopped after {took:.2f} s"
    assert not [pid for pid in all_of_it if alive(pid)]
    assert tree.stat("e")["last_turn"] == "interrupted"
    assert not [pid for pid, _ in tree.processes() if pid in all_of_it]


def test_interrupt_of_a_cli_that_ignores_term(tree: Tree, base: Path) -> None:
    agent = tree.make("e", exec_spec(DEAF, base))
    (agent / "inbox" / "k1").write_text("x")
    wait_for((base / "pids").exists, "it runs")
    began = time.monotonic()
    (agent / "ctl").write_text("interrupt\n")
    assert tree.settle("e") == "await"
    took = time.monotonic() - began
    assert GRACE_S["interrupt"] - 0.1 <= took < GRACE_S["interrupt"] + SLACK_S, f"interrupted after {took:.2f} s"
    assert tree.receipt("e", "k1")[0]["receipt"] == "cancelled"


def test_kill_does_not_wait_for_a_stop_under_way(tree: Tree, base: Path) -> None:
    agent = tree.make("e", exec_spec(DEAF, base))
    (agent / "in").write_text("x")
    wait_for((base / "pids").exists, "it runs")
    (agent / "ctl").write_text("#one stop\n")
    began = time.monotonic()
    (agent / "ctl").write_text("#two kill\n")
    assert tree.settle("e") == "stopped"
    assert time.monotonic() - began < GRACE_S["TERM"] - 0.5
    assert [tree.receipt("e", key)[0]["receipt"] for key in ("one", "two")] == ["done", "done"]


def test_stop_twice_is_stop_once(tree: Tree, base: Path) -> None:
    agent = gated(tree, base, 0)
    (agent / "ctl").write_text("#one stop\n")
    (agent / "ctl").write_text("#two stop\n")
    assert tree.settle("e") == "stopped"
    (agent / "ctl").write_text("#three stop\n")
    assert tree.settle("e") == "stopped"
    assert [tree.receipt("e", key)[0]["receipt"] for key in ("one", "two", "three")] == ["done"] * 3
    assert ends(tree, "e", "k1") == ["interrupted"]
    (base / "go").touch()
    (agent / "ctl").write_text("start\n")
    assert tree.settle("e") == "await"
    (agent / "inbox" / "k2").write_text("again\n")
    assert tree.ended("e", "k2") == ("done", b"did again\n")


def test_prompts_that_wait_outlive_a_stop_and_a_supervisor(tree: Tree, base: Path) -> None:
    agent = gated(tree, base, 0)
    for n in range(2, 5):
        (agent / "inbox" / f"k{n}").write_text(f"prompt {n}\n")
    (agent / "ctl").write_text("stop\n")
    assert tree.settle("e") == "stopped"
    tree.kill("supervisor")
    tree.up()
    assert tree.status("e") == "stopped"
    assert [tree.receipt("e", f"k{n}")[0]["receipt"] for n in range(2, 5)] == ["queued"] * 3
    (base / "go").touch()
    (agent / "ctl").write_text("start\n")
    assert [tree.ended("e", f"k{n}") for n in range(2, 5)] == [
        ("done", f"did prompt {n}\n".encode()) for n in range(2, 5)
    ]
    assert (base / "runs").read_text() == "work\nprompt 2\nprompt 3\nprompt 4\n"


# -- a CLI that dies ----------------------------------------------------------------------------------------------


@pytest.fixture
def fake(base: Path) -> Fake:
    return Fake(base / "fake")


@pytest.fixture
def fake_tree(base: Path, fake: Fake) -> Iterator[Tree]:
    with living(base, fake.env) as found:
        yield found


def spec(**restart: object) -> str:
    table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in restart.items())
    return f'backend = "claude"\nrestart = {{ {table} }}\n' if restart else 'backend = "claude"\n'


def test_a_crash_loop_opens_the_breaker_and_restart_clears_it(fake_tree: Tree, fake: Fake) -> None:
    fake.be("die")
    agent = fake_tree.make("c", spec(floor=0.05, cap=0.1, burst=4))
    (agent / "inbox" / "k1").write_text("hello")
    wait_for(lambda: fake_tree.status("c") == "failed", "the breaker opens")
    assert len(fake.starts) == 4
    assert fake_tree.settle("c") == "failed"
    stat = fake_tree.stat("c")
    assert (stat["reason"], stat["restarts"]) == ("crash-loop", "3")
    said = (agent / "error").read_text()
    assert "fake: no such luck" in said
    assert "restart" in said
    refused = fake_tree.shell("echo more > c/in", check=False)
    assert refused.returncode != 0
    assert "restart" in (agent / "error").read_text()
    fake.be("well")
    (agent / "ctl").write_text("restart\n")
    assert fake_tree.settle("c") == "await"
    assert fake_tree.stat("c")["reason"] == ""
    (agent / "inbox" / "k2").write_text("again")
    assert fake_tree.ended("c", "k2") == ("done", b"fake: again\n")
    assert len(fake.starts) == 5
    assert len(events(fake_tree, "c", "session")) == 1
    check_journal(fake_tree, "c")


def test_the_prompt_that_met_a_crash_loop_has_one_end(fake_tree: Tree, fake: Fake) -> None:
    fake.be("die-in-turn")
    agent = fake_tree.make("c", spec(floor=0.05, cap=0.1, burst=3))
    (agent / "inbox" / "k1").write_text("hello")
    wait_for(lambda: fake_tree.status("c") == "failed", "the breaker opens")
    assert fake_tree.ended("c", "k1")[0] == "lost"
    assert ends(fake_tree, "c", "k1") == ["lost"]
    fake.be("well")
    (agent / "ctl").write_text("restart\n")
    (agent / "inbox" / "k2").write_text("again")
    assert fake_tree.ended("c", "k2") == ("done", b"fake: again\n")
    assert ends(fake_tree, "c", "k1") == ["lost"]


def test_restart_never_gives_up_at_the_first_death(fake_tree: Tree, fake: Fake) -> None:
    agent = fake_tree.make("c", 'backend = "claude"\nrestart = "never"\n')
    (agent / "inbox" / "k1").write_text("hello")
    assert fake_tree.ended("c", "k1") == ("done", b"fake: hello\n")
    kill(fake.starts[0])
    assert fake_tree.zoefs("wait", "c", "--until", "failed").returncode == 0
    assert fake_tree.stat("c")["restarts"] == "0"
    assert "never" in (agent / "error").read_text()
    assert len(fake.starts) == 1
    (agent / "ctl").write_text("restart\n")
    assert fake_tree.settle("c") == "await"
    assert len(fake.starts) == 2


def test_stop_during_backoff_is_at_once_and_nothing_starts_again(fake_tree: Tree, fake: Fake) -> None:
    agent = fake_tree.make("c", spec(floor=1.5, cap=1.5, burst=100))
    (agent / "inbox" / "k1").write_text("hello")
    assert fake_tree.ended("c", "k1")[0] == "done"
    fake.be("die")
    kill(fake.starts[0])
    wait_for(lambda: fake_tree.status("c") == "backoff", "backoff")
    began = time.monotonic()
    (agent / "ctl").write_text("stop\n")
    assert fake_tree.settle("c") == "stopped"
    assert time.monotonic() - began < 1.0
    time.sleep(2.2)  # beyond the time at which the restart was due: nothing else could show that it is off
    assert fake_tree.status("c") == "stopped"
    assert len(fake.starts) == 1
    fake.be("well")
    (agent / "ctl").write_text("start\n")
    (agent / "inbox" / "k2").write_text("again")
    assert fake_tree.ended("c", "k2") == ("done", b"fake: again\n")


def test_a_backoff_goes_on_under_the_next_supervisor(fake_tree: Tree, fake: Fake) -> None:
    agent = fake_tree.make("c", spec(floor=1.5, cap=1.5, burst=100))
    (agent / "inbox" / "k1").write_text("hello")
    assert fake_tree.ended("c", "k1")[0] == "done"
    kill(fake.starts[0])
    wait_for(lambda: fake_tree.status("c") == "backoff", "backoff")
    fake_tree.kill("supervisor")
    fake_tree.up()
    assert fake_tree.status("c") in ("backoff", "starting", "await")
    (agent / "inbox" / "k2").write_text("again")
    assert fake_tree.ended("c", "k2") == ("done", b"fake: again\n")
    assert len(fake.starts) == 2


def test_stop_of_a_stream_cli_that_ignores_everything(fake_tree: Tree, fake: Fake) -> None:
    fake.be("deaf")
    agent = fake_tree.make("c", spec(floor=0.05))
    (agent / "inbox" / "k1").write_text("hello")
    assert fake_tree.ended("c", "k1")[0] == "done"
    keeper = keeper_of(fake_tree, "c")
    all_of_it = [keeper, *below(keeper)]
    began = time.monotonic()
    (agent / "ctl").write_text("stop\n")
    assert fake_tree.settle("c") == "stopped"
    took, grace = time.monotonic() - began, GRACE_S["EOF"] + GRACE_S["TERM"]
    assert grace - 0.1 <= took < grace + SLACK_S, f"stopped after {took:.2f} s"
    assert not [pid for pid in all_of_it if alive(pid)]
    assert not agent_home(fake_tree, "c").stdin.exists()
    assert (agent / "out").read_text() == "fake: hello\n"


def test_down_takes_the_clis_with_it_and_up_brings_the_session_back(fake_tree: Tree, fake: Fake) -> None:
    agent = fake_tree.make("c", spec(floor=0.05))
    (agent / "inbox" / "k1").write_text("hello")
    assert fake_tree.ended("c", "k1")[0] == "done"
    session, pid = (agent / "session").read_text(), fake.starts[0]
    fake_tree.down()
    assert not alive(pid)
    fake_tree.up()
    assert (agent / "session").read_text() == session
    (agent / "inbox" / "k2").write_text("again")
    assert fake_tree.ended("c", "k2") == ("done", b"fake: again\n")
    until_event(fake_tree, "c", "spawned", more_than=1)
    assert len(events(fake_tree, "c", "session")) == 1
