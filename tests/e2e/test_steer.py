"""What is said to a real CLI besides prompts: steer, compact, fork, and what becomes of it at every instant.

A steer reaches the model exactly once, in its place, and its receipt says how: into the running turn, or as a turn of
its own. Both CLIs; the fake's log is the witness.
"""

from __future__ import annotations

import time

import pytest

from tests.e2e.both import Agent, Both, gate, in_tool, open_gate, refusal
from tests.e2e.reading import kill
from tests.living import wait_for

pytestmark = pytest.mark.real_cli


def settled(agent: Agent, key: str) -> str:
    """Wait for the end of a steer, whatever it became; its note."""
    wait_for(lambda: agent.receipt(key)["receipt"] in ("done", "failed", "lost", "cancelled"), f"{key} ends")
    assert agent.receipt(key)["receipt"] == "done", (agent.receipt(key), agent.story())
    return agent.receipt(key).get("note", "")


def check_once(agent: Agent, *texts: str) -> None:
    """One more turn knows each of these texts exactly once, in this order."""
    assert agent.settle() == "await"
    agent.turn(f"last-{len(agent.events('turn-ended'))}", "last")
    said = agent.history()
    assert [text for text in said if text in texts] == list(texts), (said, agent.story())


def test_into_a_running_tool(both: Both) -> None:
    agent = both.make(both.kind.free)
    text = f"[[bash:{gate('x')}]] go"
    agent.prompt("k1", text)
    in_tool(agent, "x")
    agent.ctl("#s1 steer mind the gap")
    agent.until("verb-begun")
    open_gate(agent, "x")
    assert "said into turn 1" in settled(agent, "s1")
    assert agent.ended("k1")[0] == "done"
    assert agent.ends("k1") == ["done"]
    check_once(agent, text, "mind the gap")
    assert agent.stat()["turn"] == "2"


def test_into_an_answer_that_streams(both: Both) -> None:
    agent = both.make()
    text = "[[slow:1]] a long answer"
    agent.prompt("k1", text)
    agent.reached(text)
    wait_for(lambda: agent.deltas() >= 2, "it streams")
    agent.ctl("#s1 steer mind the gap")
    note = settled(agent, "s1")
    assert agent.ended("k1")[0] == "done"
    if both.kind.name == "claude":
        assert note.endswith("behind turn 1")
        assert agent.tree.receipt(agent.name, "s1")[1] == b"echo#2: mind the gap\n"
    else:
        assert "said into turn 1" in note
    check_once(agent, text, "mind the gap")


def test_without_a_turn_it_is_a_prompt(both: Both) -> None:
    agent = both.make()
    agent.ctl("#s0 steer the very first")
    assert "prompt" in settled(agent, "s0")
    agent.ctl("#s1 steer and another")
    assert "prompt" in settled(agent, "s1")
    assert agent.tree.receipt(agent.name, "s1")[1] == b"echo#2: and another\n"
    with pytest.raises(FileExistsError):
        agent.ctl("#s1 steer once more")
    check_once(agent, "the very first", "and another")


def test_one_under_way_does_not_hide_an_ask(both: Both) -> None:
    """claude takes a steer at its next model call, which is after the answer: nobody may wait for it before."""
    agent = both.make()
    text = f"[[bash:{gate('x')}]] go"
    agent.prompt("k1", text)
    ask = agent.ask()
    agent.ctl("#s1 steer mind the gap")
    agent.until("verb-begun")
    assert agent.settle() == "blocked"
    assert both.tree.zoefs("wait", agent.name, "--timeout", "20").stdout == f"{agent.name}\tblocked\n"
    agent.ctl(f"allow {ask}")
    open_gate(agent, "x")
    settled(agent, "s1")
    assert agent.ended("k1")[0] == "done"
    check_once(agent, text, "mind the gap")


def test_several_keep_their_order(both: Both) -> None:
    agent = both.make(both.kind.free)
    text = f"[[bash:{gate('x')}]] go"
    agent.prompt("k1", text)
    in_tool(agent, "x")
    for n in range(3):
        agent.ctl(f"#s{n} steer part {n}")
    agent.prompt("k2", "a prompt behind them")
    agent.until("verb-begun", 2)
    open_gate(agent, "x")
    for n in range(3):
        settled(agent, f"s{n}")
    assert agent.ended("k2")[0] == "done"
    check_once(agent, text, "part 0", "part 1", "part 2", "a prompt behind them")


@pytest.mark.soak
def test_at_every_instant_of_a_turn(both: Both, soak: bool) -> None:
    agent = both.make()
    texts, notes = [], set()
    rounds = 24 if soak else 6
    for n in range(rounds):
        texts += [f"[[slow:0.2]] turn {n}", f"steer {n}"]
        agent.prompt(f"k{n}", texts[-2])
        agent.reached(texts[-2])
        time.sleep(0.36 * n / rounds)
        if n == rounds - 1:
            agent.ended(f"k{n}")
        agent.ctl(f"#s{n} steer {texts[-1]}")
        notes.add(settled(agent, f"s{n}").rstrip("0123456789"))
        assert agent.ended(f"k{n}")[0] == "done", agent.story()
        assert agent.settle() == "await"
    check_once(agent, *texts)
    assert len(notes) > 1, "the delays met one case only"


@pytest.mark.soak
@pytest.mark.parametrize("phase", ["tool", "stream"])
@pytest.mark.parametrize("what", ["supervisor", "mount", "cli", "interrupt"])
def test_right_before_something_dies(both: Both, what: str, phase: str, soak: bool) -> None:
    agent = both.make(both.kind.free)
    texts = []
    for n, delay in enumerate((0.0, 0.002, 0.01, 0.02, 0.05) if soak else (0.0, 0.02)):
        text = f"[[bash:{gate(f'x{n}')}]] go {n}" if phase == "tool" else f"[[slow:0.5]] stream {n}"
        texts += [text, f"steer {n}"]
        agent.prompt(f"k{n}", text)
        if phase == "tool":
            in_tool(agent, f"x{n}")
        else:
            agent.reached(text)
            wait_for(agent.more_deltas_than(agent.deltas()), "it streams")
        exits = len(agent.events("exited"))
        agent.ctl(f"#s{n} steer {texts[-1]}")
        time.sleep(delay)
        match what:
            case "supervisor" | "mount":
                both.tree.kill(what)
                both.heal()
            case "cli":
                kill(agent.cli())
                agent.until("exited", exits)
            case _:
                agent.ctl(f"#i{n} interrupt")
        if phase == "tool":
            open_gate(agent, f"x{n}")
        settled(agent, f"s{n}")
        fate, _ = agent.ended(f"k{n}")
        assert fate in ("done", "lost", "cancelled"), agent.story()
        assert agent.ends(f"k{n}") == [{"cancelled": "interrupted"}.get(fate, fate)]
        assert agent.settle() == "await"
    check_once(agent, *texts)


# -- compact ------------------------------------------------------------------------------------------------------


def test_compact_shortens_counts_and_the_next_turn_works(both: Both) -> None:
    agent = both.make()
    agent.turn("k1", "first")
    agent.turn("k2", "second")
    before = float(agent.stat()["cost_usd"].lstrip("~")), int(agent.stat()["tokens_in"])
    agent.ctl("#c compact")
    assert agent.settle() == "await"
    wait_for(lambda: agent.receipt("c")["receipt"] == "done", "it is done")
    (event,) = agent.events("compacted")
    assert event.data["ok"] is True
    stat = agent.stat()
    assert int(stat["tokens_in"]) > before[1], agent.story()
    if both.kind.name == "claude":
        assert float(stat["cost_usd"]) > before[0]
    assert stat["turn"] == "2"
    agent.turn("k3", "third")
    assert agent.history()[-1] == "third"
    agent.kill_cli()
    agent.turn("k4", "fourth")
    assert agent.history()[-2:] == ["third", "fourth"]
    assert agent.stat()["session"] == stat["session"]


def test_prompts_wait_while_it_compacts(both: Both) -> None:
    agent = both.make()
    agent.turn("k1", "[[slow:0.1]] first")
    agent.turn("k2", "[[slow:1]] second")
    both.tree.shell(f"cd {agent.name}; echo '#c compact' > ctl; echo -n one > inbox/p1; echo -n two > inbox/p2")
    assert [agent.ended(id)[1].rpartition(": ")[2] for id in ("p1", "p2")] == ["one\n", "two\n"]
    assert agent.receipt("c")["receipt"] == "done"
    kinds = [event.kind for event in agent.events() if event.kind in ("compacted", "prompt-given")]
    assert kinds[-3:] == ["compacted", "prompt-given", "prompt-given"]
    assert agent.history()[-2:] == ["one", "two"]


def test_a_turn_after_a_compaction_outlives_the_supervisor(both: Both) -> None:
    agent = both.make()
    agent.turn("k1", "first")
    agent.ctl("compact")
    agent.until("compacted")
    agent.prompt("k2", "[[slow:1]] second")
    agent.reached("[[slow:1]] second")
    both.tree.kill("supervisor")
    both.heal()
    fate, answer = agent.ended("k2")
    assert (fate, answer.endswith("[[slow:1]] second\n")) == ("done", True)
    agent.turn("k3", "third")
    assert agent.history()[-2:] == ["[[slow:1]] second", "third"]
    assert len(agent.events("compacted")) == 1


def test_a_supervisor_that_dies_while_the_cli_compacts(both: Both) -> None:
    agent = both.make()
    agent.turn("k1", "first")
    agent.turn("k2", "[[slow:1]] second")
    agent.ctl("#c compact")
    agent.until("verb-begun")
    both.tree.kill("supervisor")
    both.heal()
    agent.turn("k3", "third")
    assert agent.receipt("c")["receipt"] == "done"
    assert len(agent.events("compacted")) == 1
    assert agent.history()[-1] == "third"


def test_a_cli_that_dies_while_it_compacts_says_so_and_goes_on(both: Both) -> None:
    agent = both.make()
    agent.turn("k1", "first")
    agent.turn("k2", "[[slow:1]] second")
    agent.ctl("#c compact")
    agent.until("verb-begun")
    agent.kill_cli()
    wait_for(lambda: agent.receipt("c")["receipt"] == "failed", "it failed")
    agent.turn("k3", "third")
    assert agent.history() == ["first", "[[slow:1]] second", "third"]


# -- fork ---------------------------------------------------------------------------------------------------------


def test_a_fork_knows_what_was_said_and_both_go_on_alone(both: Both) -> None:
    agent = both.make()
    agent.turn("k1", "first")
    agent.turn("k2", "second")
    new = both.adopt(f"{agent.name}-fork")
    both.tree.zoefs("fork", agent.name, new.name)
    assert new.turn("f1", "of the fork") == "echo#3: of the fork\n"
    assert new.history() == ["first", "second", "of the fork"]
    assert agent.turn("k3", "of the first") == "echo#3: of the first\n"
    assert agent.history() == ["first", "second", "of the first"]
    assert new.read("session") != agent.read("session")
    for one, said in ((new, "of the fork"), (agent, "of the first")):
        one.kill_cli()
        assert one.turn("again", "again") == "echo#4: again\n"
        assert one.history() == ["first", "second", said, "again"]


def test_a_fork_of_a_running_agent_and_one_killed_before_its_first_prompt(both: Both) -> None:
    agent = both.make()
    agent.turn("k1", "first")
    agent.prompt("k2", "[[slow:2]] runs on")
    agent.reached("[[slow:2]] runs on")
    new = both.adopt(f"{agent.name}-fork")
    both.tree.zoefs("fork", agent.name, new.name)
    new.ctl("start")
    wait_for(lambda: new.stat()["version"], "the fork is up")
    new.kill_cli()
    new.turn("f1", "of the fork")
    said = new.history()
    assert (said[0], said[-1]) == ("first", "of the fork")
    assert agent.ended("k2")[0] == "done"
    assert agent.turn("k3", "third") == "echo#3: third\n"
    assert agent.history() == ["first", "[[slow:2]] runs on", "third"]


# -- the queue and the spec ---------------------------------------------------------------------------------------


def test_a_queued_prompt_that_is_removed_never_reaches_the_model(both: Both) -> None:
    agent = both.make(both.kind.free)
    agent.prompt("k1", f"[[bash:{gate('x')}]] go")
    in_tool(agent, "x")
    for n in (2, 3, 4):
        agent.prompt(f"k{n}", f"queued {n}")
    (agent.path / "inbox" / "k3").unlink()
    assert refusal((agent.path / "inbox" / "k1").unlink) == "EBUSY"
    open_gate(agent, "x")
    assert agent.ended("k4")[0] == "done"
    assert agent.receipt("k3")["receipt"] == "cancelled"
    check_once(agent, f"[[bash:{gate('x')}]] go", "queued 2", "queued 4")
    assert not agent.heard("queued 3")


def test_model_and_permission_of_the_spec_hold_from_the_next_start_in_the_same_session(both: Both) -> None:
    models = {"claude": ("claude-haiku-4-5", "claude-sonnet-4-5"), "codex": ("gpt-5.1", "gpt-5.2")}[both.kind.name]
    agent = both.make(f'model = "{models[0]}"\n')
    agent.turn("k1", "first")
    assert agent.calls()[-1]["body"]["model"] == models[0]
    session = agent.read("session")
    agent.prompt("ask", "[[bash:touch asked]]")
    agent.ask()
    agent.ctl("stop")
    assert agent.settle() == "stopped"
    spec = agent.read("spec").replace(models[0], models[1]) + both.kind.free
    (agent.path / "spec").write_text(spec)
    agent.ctl("start")
    agent.turn("k2", "[[bash:touch made]]")
    assert (agent.work / "made").exists()
    assert agent.calls()[-1]["body"]["model"] == models[1]
    assert agent.read("session") == session
    assert agent.history()[0] == "first"
    assert len(agent.events("asked")) == 1


def test_several_into_an_answer_that_streams(both: Both) -> None:
    agent = both.make()
    text = "[[slow:1]] a long answer"
    agent.prompt("k1", text)
    agent.reached(text)
    wait_for(agent.more_deltas_than(1), "it streams")
    agent.prompt("k2", "a prompt between them")
    for n in range(3):
        agent.ctl(f"#s{n} steer part {n}")
    for n in range(3):
        settled(agent, f"s{n}")
    assert agent.ended("k1")[0] == agent.ended("k2")[0] == "done"
    assert agent.settle() == "await"
    agent.turn("last", "last")
    said = [line for text in agent.history() for line in text.splitlines()]  # claude makes one text of several
    assert [line for line in said if line.startswith("part ")] == ["part 0", "part 1", "part 2"], agent.story()
    assert said.count("a prompt between them") == 1


@pytest.mark.parametrize("verb", ["stop", "restart", "kill"])
def test_right_before_the_cli_is_ended_by_hand(both: Both, verb: str) -> None:
    agent = both.make(both.kind.free)
    agent.prompt("k1", f"[[bash:{gate('x')}]] go")
    in_tool(agent, "x")
    agent.ctl("#s steer mind the gap")
    agent.ctl(verb)
    assert agent.ended("k1")[0] == "cancelled"
    if verb != "restart":
        assert agent.settle() == "stopped"
        agent.ctl("start")
    fate, _ = agent.ended("s")
    assert fate in ("done", "cancelled")
    agent.turn("last", "last")
    assert agent.history().count("mind the gap") == 1, agent.story()


def test_a_fork_of_an_agent_that_has_said_nothing_is_refused_and_tells_why(both: Both) -> None:
    agent = both.make()
    agent.ctl("start")
    wait_for(lambda: agent.stat()["version"], "it is up")
    done = both.tree.zoefs("fork", agent.name, "refused", check=False)
    assert (done.returncode, "give it a prompt first" in done.stderr) == (4, True), done.stderr
    new = both.make(f'fork = "{agent.name}"\n')
    new.ctl("start")
    wait_for(lambda: both.tree.status(new.name) == "failed", "it is told")
    assert new.stat()["reason"] == "config"
    assert "fork: " in new.read("error")
    agent.turn("k1", "first")
    new.ctl("restart")
    assert new.turn("f1", "of the fork") == "echo#2: of the fork\n"
