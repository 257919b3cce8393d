"""What a CLI asks, and every way in which that is answered, late, twice, or not at all; both real CLIs.

The model is the fake; its log is the witness of what the CLI made of an answer.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.e2e.both import Agent, Both, files, gate, in_tool, open_gate
from tests.e2e.reading import alive, kill
from tests.living import wait_for
from zoefs.disk.files import read

pytestmark = pytest.mark.real_cli


def line_of(agent: Agent, verb: str) -> str:
    """The line of `ask` that begins with this verb, as a client copies it."""
    (found,) = [line for line in agent.read("ask").splitlines() if line.startswith(f"{verb} ")]
    return found


# -- allow, deny, allow-always ------------------------------------------------------------------------------------


def test_allow_runs_the_tool_and_deny_tells_the_model_why(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", "[[bash:touch allowed]] [[bash:touch denied]] then say it")
    assert agent.settle() == "blocked"
    first = agent.ask()
    assert f"tool: {both.kind.shell}\n" in agent.read("ask")
    assert "touch allowed" in agent.read("ask")
    assert both.tree.shell(f"grep '^allow ' {agent.name}/ask > {agent.name}/ctl").stderr == ""
    agent.ask_after(first)
    assert files(agent.work) == ["allowed"]
    agent.ctl(line_of(agent, "deny").replace("WHY", "not on a Monday"))
    assert agent.ended("k1")[0] == "done"
    assert agent.heard("not on a Monday")
    assert agent.settle() == "await"
    assert files(agent.work) == ["allowed"]
    assert agent.read("ask") == ""
    told = [(event.text("decision"), event.text("why")) for event in agent.events("answered")]
    assert told == [("allow", ""), ("deny", "not on a Monday")]
    assert agent.turn("k2", "still there?").endswith("still there?\n")


def test_what_was_always_allowed_is_not_asked_again_in_this_process_nor_in_the_next(both: Both) -> None:
    agent = both.make()
    made, command = agent.work / f"always-{agent.name}", f"[[bash:touch always-{agent.name}]]"
    agent.prompt("k1", command)
    agent.ask()
    assert "rule: " in agent.read("ask")
    agent.ctl(line_of(agent, "allow-always"))
    assert agent.ended("k1")[0] == "done"
    for id, way in (("k2", "again"), ("k3", "after a stop")):
        made.unlink()
        if id == "k3":
            agent.ctl("stop")
            assert agent.settle() == "stopped"
            agent.ctl("start")
        agent.turn(id, f"{command} {way}")
        assert made.exists()
    assert len(agent.events("asked")) == 1
    agent.prompt("k4", f"[[bash:mkdir other-{agent.name}]]")
    agent.ask()
    agent.ctl(line_of(agent, "deny").replace(" WHY", ""))
    assert agent.ended("k4")[0] == "done"
    assert agent.answers() == ["allow-always", "deny"]


# -- interrupt ----------------------------------------------------------------------------------------------------


def test_an_interrupt_takes_the_ask_back_and_the_agent_goes_on(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", "[[bash:touch never]] then say it")
    ask = agent.ask()
    agent.ctl("#cut interrupt")
    assert agent.ended("k1")[0] == "cancelled"
    assert agent.settle() == "await"
    assert agent.receipt("cut")["receipt"] == "done"
    assert agent.read("ask") == ""
    assert agent.refused(f"allow {ask}") == "EBUSY"
    assert agent.turn("k2", "next") == "echo#2: next\n"
    assert files(agent.work) == []
    assert agent.stat()["incarnation"] == "1"
    assert agent.ends("k1") == ["interrupted"]


def test_an_interrupt_ends_the_tool_that_runs(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", f"[[bash:{gate('x')}]] then say it")
    agent.ask()
    agent.ctl(line_of(agent, "allow"))
    tool = in_tool(agent, "x")
    agent.ctl("interrupt")
    assert agent.ended("k1")[0] == "cancelled"
    wait_for(lambda: not alive(tool), "the tool is gone")
    assert agent.settle() == "await"
    assert agent.turn("k2", "next") == "echo#2: next\n"
    assert agent.stat()["incarnation"] == "1"


def test_an_interrupt_during_an_ask_ends_a_tool_that_was_left_in_the_background(only_codex: Both) -> None:
    agent = only_codex.make()
    call = json.dumps({"cmd": gate("x"), "yield_time_ms": 250})
    agent.prompt("k1", f"[[tool:exec_command:{call}]] [[bash:touch never]]")
    first = agent.ask()
    agent.ctl(line_of(agent, "allow"))
    tool = in_tool(agent, "x")
    agent.ask_after(first)
    agent.ctl("interrupt")
    assert agent.ended("k1")[0] == "cancelled"
    wait_for(lambda: not alive(tool), "the tool is gone")
    assert agent.turn("k2", "next") == "echo#2: next\n"
    assert not (agent.work / "never").exists()


# -- answers that do not fit --------------------------------------------------------------------------------------


def test_late_double_and_foreign_answers_are_refused(both: Both) -> None:
    agent, other = both.make(), both.make()
    for one in (agent, other):
        one.prompt("k1", "[[bash:touch one]] [[bash:touch two]]")
    first, foreign = agent.ask(), other.ask()
    assert agent.refused("allow nothing-of-the-kind") == "ESTALE"
    if foreign != first:
        assert agent.refused(f"allow {foreign}") == "ESTALE"
    assert agent.refused(f"allow {first}\ndeny {first}") == "ESTALE"
    assert agent.refused(f"allow {first} with an answer that nobody asked for") == "EINVAL"
    assert agent.ask() == first
    assert files(agent.work) == []
    agent.ctl(f"allow {first}")
    second = agent.ask_after(first)
    assert agent.refused(f"deny {first}") == "ESTALE"
    assert first in agent.read("error")
    agent.ctl(f"#mine allow {second}")
    assert agent.ended("k1")[0] == "done"
    assert agent.receipt("mine")["receipt"] == "done"
    assert agent.settle() == "await"
    assert agent.refused(f"allow {second}") == "EBUSY"
    assert files(agent.work) == ["one", "two"]
    assert agent.answers() == ["allow", "allow"]
    assert other.ask() == foreign
    assert files(other.work) == []


def test_of_many_answers_at_once_one_wins(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", "[[bash:touch one]] then say it")
    ask = agent.ask()
    answers = " ".join(f"(echo '#k{n} {verb} {ask}' > ctl) &" for n, verb in enumerate(["allow", "deny"] * 4, 10))
    both.tree.shell(f"cd {agent.name}; {answers} wait")
    assert agent.ended("k1")[0] == "done"
    assert agent.settle() == "await"
    (winner,) = agent.answers()
    assert files(agent.work) == (["one"] if winner == "allow" else [])
    told = [name for n in range(10, 18) if (agent.path / "inbox" / (name := f"k{n}")).exists()]
    assert [agent.receipt(name)["receipt"] for name in told].count("done") == 1


def test_an_answer_that_a_dead_supervisor_left_waiting_fails_with_a_sentence_once_the_ask_is_gone(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", "[[bash:touch one]] then say it")
    ask = agent.ask()
    both.tree.kill("supervisor")
    cli = agent.cli()
    agent.ctl(f"#late allow {ask}")
    kill(cli)
    both.heal()
    wait_for(lambda: agent.receipt("late")["receipt"] in ("done", "failed"), "the answer is settled")
    assert agent.receipt("late")["receipt"] == "failed"
    assert ask in agent.receipt("late")["note"]


# -- nobody answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", ["deny", "allow"])
def test_an_ask_that_nobody_answers_in_time_is_answered_by_the_spec(both: Both, default: str) -> None:
    agent = both.make(f'ask_timeout = 0.5\nask_default = "{default}"\n')
    agent.prompt("k1", "[[bash:touch made]] then say it")
    assert agent.ended("k1")[0] == "done"
    assert files(agent.work) == (["made"] if default == "allow" else [])
    assert agent.heard("nobody answered within 0.5 s") == (default == "deny")
    assert [(e.text("decision"), e.text("by")) for e in agent.events("answered")] == [(default, "ask_timeout")]


def test_an_open_ask_says_when_it_expires(both: Both) -> None:
    agent = both.make('ask_timeout = "20m"\n')
    agent.prompt("k1", "[[bash:touch made]]")
    agent.ask()
    (line,) = [line for line in agent.read("ask").splitlines() if line.startswith("expires: ")]
    assert line.endswith("Z deny")


# -- who dies while it asks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["supervisor", "mount"])
def test_an_ask_outlives_a_part_and_is_then_answered_once(both: Both, part: str) -> None:
    agent = both.make()
    agent.prompt("k1", "[[bash:touch made]] then say it")
    ask, cli = agent.ask(), agent.cli()
    both.tree.kill(part)
    both.heal()
    assert agent.settle() == "blocked"
    assert agent.ask() == ask
    agent.ctl(f"#mine allow {ask}")
    assert agent.refused(f"#other deny {ask}") in ("ESTALE", "EBUSY")
    assert agent.ended("k1")[0] == "done"
    assert agent.cli() == cli
    assert agent.answers() == ["allow"]
    assert files(agent.work) == ["made"]
    assert agent.receipt("mine")["receipt"] == "done"
    assert agent.turn("k2", "next") == "echo#2: next\n"


def test_down_in_an_ask_answers_it_with_nothing_and_the_turn_goes_on_or_is_lost(both: Both) -> None:
    """`down` is no answer: nothing is denied in anybody's name, and no turn counts as done for it."""
    agent = both.make()
    agent.prompt("k1", "[[bash:touch made]] then say it")
    ask = agent.ask()
    both.tree.down()
    both.heal()
    if both.kind.name == "codex":
        assert agent.ended("k1")[0] == "lost"
    else:
        wait_for(lambda: agent.settle() == "await" or agent.ask() != ask, "it asks again, or goes on from where it was")
        if agent.settle() == "blocked":
            agent.ctl(f"allow {agent.ask()}")
        assert agent.ended("k1")[0] == "done"
    assert agent.answers() in ([], ["allow"])
    assert [event.text("ask") for event in agent.events("ask-gone")] == [ask]
    assert agent.turn("k2", "next").endswith("next\n")


def test_an_answer_written_while_no_supervisor_runs_is_given_by_the_next(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", "[[bash:touch made]] then say it")
    ask = agent.ask()
    both.tree.kill("supervisor")
    agent.ctl(f"#mine allow {ask}")
    assert agent.refused(f"deny {ask}") in ("ESTALE", "EBUSY")
    both.heal()
    assert agent.ended("k1")[0] == "done"
    assert agent.receipt("mine")["receipt"] == "done"
    assert files(agent.work) == ["made"]


def test_after_a_kill_of_the_cli_its_ask_is_gone_and_its_id_refused(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", "[[bash:touch made]] then say it")
    ask = agent.ask()
    if both.kind.continues:  # claude may ask before it has written the prompt to its record, and cannot resume then
        records, name = both.tree.home.parent / "config/projects", f"*{agent.read('session').strip()}.jsonl"
        wait_for(lambda: any(b"[[bash:touch" in (read(one) or b"") for one in records.rglob(name)), "its record has it")
    agent.kill_cli()
    assert agent.refused(f"allow {ask}") in ("ESTALE", "EBUSY")
    if both.kind.continues:
        wait_for(lambda: both.tree.status(agent.name) in ("await", "blocked"), "it goes on")
        if both.tree.status(agent.name) == "blocked":  # where the model asks for the tool again
            assert agent.ask() != ask
            agent.ctl(line_of(agent, "allow"))
        assert agent.ended("k1")[0] == "done"
    else:
        assert agent.ended("k1")[0] == "lost"
        assert agent.settle() == "await"
        assert agent.refused(f"allow {ask}") == "EBUSY"
        assert files(agent.work) == []
    agent.turn("k2", "next")
    assert agent.history().count("[[bash:touch made]] then say it") == 1


# -- questions ----------------------------------------------------------------------------------------------------

COLOURS = ("Red", "Dark Blue", "Green")


def question(both: Both, *texts: str, several: bool = False) -> str:
    """A directive that has the CLI ask these questions, each with the same choices."""
    options = [{"label": colour, "description": colour} for colour in COLOURS]
    if both.kind.name == "claude":
        asked = [{"question": text, "header": "Colour", "options": options, "multiSelect": several} for text in texts]
        return f"[[tool:AskUserQuestion:{json.dumps({'questions': asked})}]]"
    asked = [{"id": f"q{n}", "question": text, "header": "C", "options": options} for n, text in enumerate(texts)]
    return f"[[tool:request_user_input:{json.dumps({'questions': asked})}]]"


@pytest.mark.parametrize(
    ("answer", "told"), [("2", "Dark Blue"), ("dark blue", "Dark Blue"), ("a shade, of my own", "a shade, of my own")]
)
def test_a_question_is_answered_by_number_by_label_or_by_own_text(both: Both, answer: str, told: str) -> None:
    agent = both.make()
    agent.prompt("k1", question(both, "Which one?"))
    ask = agent.ask()
    shown = agent.read("ask")
    assert "question: Which one?\n" in shown
    assert "choice 2: Dark Blue\n" in shown
    assert agent.refused(f"allow {ask}") == "EINVAL"
    assert "Which one?" in agent.read("error")
    agent.ctl(line_of(agent, "allow").replace("ANSWER", answer))
    fate, said = agent.ended("k1")
    assert fate == "done"
    assert told in said.split("tool_result=")[1]
    assert agent.settle() == "await"
    assert agent.refused(f"allow {ask} 1") == "EBUSY"


def test_several_questions_are_answered_in_one_line(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", question(both, "First?", "Second?", "Third?"))
    ask = agent.ask()
    assert agent.refused(f"allow {ask} 1 | 2") == "EINVAL"
    assert line_of(agent, "allow") == f"allow {ask} ANSWER | ANSWER | ANSWER"
    agent.ctl(f"allow {ask} 3 | red | none of them")
    fate, said = agent.ended("k1")
    result = said.split("tool_result=")[1]
    assert fate == "done"
    assert [result.count(word) > 0 for word in ("Green", "Red", "none of them")] == [True] * 3
    (answered,) = agent.events("answered")
    assert list(answered.data["answers"].values()) == [["Green"], ["Red"], ["none of them"]]


def test_several_choices_of_one_question(only_claude: Both) -> None:
    agent = only_claude.make()
    agent.prompt("k1", question(only_claude, "Which ones?", several=True))
    ask = agent.ask()
    assert "(several)" in agent.read("ask")
    agent.ctl(f"allow {ask} 1, green")
    fate, said = agent.ended("k1")
    assert (fate, "Red, Green" in said) == ("done", True)


def test_a_question_can_be_denied_and_is_never_allowed_unanswered(both: Both) -> None:
    agent = both.make('ask_timeout = 1\nask_default = "allow"\n')
    agent.prompt("k1", question(both, "Which one?"))
    agent.ask()
    agent.ctl(line_of(agent, "deny").replace("WHY", "I do not care"))
    assert agent.ended("k1")[0] == "done"
    assert agent.heard("I do not care")
    agent.prompt("k2", question(both, "And now?"))
    assert agent.ended("k2")[0] == "done"
    assert agent.heard("nobody answered within 1 s")
    assert agent.answers() == ["deny", "deny"]


def test_an_answer_to_a_question_survives_the_supervisor(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", question(both, "Which one?"))
    ask = agent.ask()
    both.tree.kill("supervisor")
    both.heal()
    assert agent.settle() == "blocked"
    agent.ctl(f"allow {ask} 3")
    fate, said = agent.ended("k1")
    assert (fate, "Green" in said) == ("done", True)


def test_a_tool_that_waits_for_its_gate_is_let_through(both: Both) -> None:
    agent = both.make()
    agent.prompt("k1", f"[[bash:{gate('x')}]]")
    agent.ask()
    agent.ctl(line_of(agent, "allow"))
    in_tool(agent, "x")
    assert both.tree.status(agent.name) == "running"
    open_gate(agent, "x")
    assert "through x" in agent.ended("k1")[1]


# -- who dies right after the answer, and other ways to end an ask ------------------------------------------------


def test_the_supervisor_dies_right_after_an_answer(both: Both) -> None:
    agent = both.make()
    for n, delay in enumerate((0.0, 0.005)):
        agent.prompt(f"k{n}", f"[[bash:touch made{n}]] [[bash:touch no{n}]]")
        first = agent.ask()
        agent.ctl(f"allow {first}")
        time.sleep(delay)
        both.tree.kill("supervisor")
        both.heal()
        second = agent.ask_after(first)
        agent.ctl(f"deny {second} not number {n}")
        time.sleep(delay)
        both.tree.kill("supervisor")
        both.heal()
        assert agent.ended(f"k{n}")[0] == "done", agent.story()
        assert agent.heard(f"not number {n}")
    assert agent.answers() == ["allow", "deny"] * 2
    assert files(agent.work) == ["made0", "made1"]
    agent.turn("last", "last")
    assert all("".join(agent.history()).count(f"not number {n}") <= 1 for n in range(2))


def test_the_cli_dies_right_after_an_answer(both: Both) -> None:
    agent = both.make()
    for n, delay in enumerate((0.0, 0.02)):
        agent.prompt(f"k{n}", f"[[bash:touch made{n}]] then")
        agent.ctl(f"allow {agent.ask()}")
        time.sleep(delay)
        agent.kill_cli()
        wait_for(lambda: both.tree.status(agent.name) in ("await", "blocked"), "it goes on")
        if both.tree.status(agent.name) == "blocked":
            agent.ctl(line_of(agent, "allow"))
        assert agent.ended(f"k{n}")[0] in (("done",) if both.kind.continues else ("done", "lost"))
    agent.turn("last", "last")
    assert [agent.history().count(f"[[bash:touch made{n}]] then") for n in range(2)] == [1, 1]


@pytest.mark.parametrize("verb", ["stop", "restart", "kill"])
def test_an_agent_that_asks_is_ended_by_hand_and_prompts_behind_it_go_on(both: Both, verb: str) -> None:
    agent = both.make()
    agent.turn("k0", "first")
    agent.prompt("k1", "[[bash:touch made]] then say it")
    ask = agent.ask()
    agent.prompt("k2", "queued behind it")
    assert both.tree.status(agent.name) == "blocked"
    agent.ctl(verb)
    assert agent.ended("k1")[0] == "cancelled"
    assert agent.refused(f"allow {ask}") in ("EBUSY", "ESTALE")
    if verb != "restart":
        assert agent.settle() == "stopped"
        assert agent.receipt("k2")["receipt"] == "queued"
        agent.ctl("start")
    assert agent.ended("k2")[0] == "done"
    assert [text for text in agent.history() if "then say it" not in text] == ["first", "queued behind it"]
    assert files(agent.work) == []


def test_a_turn_that_asks_for_too_long_is_interrupted(both: Both) -> None:
    agent = both.make("turn_timeout = 1\n")
    agent.prompt("k1", "[[bash:touch made]] then say it")
    assert agent.ended("k1")[0] == "cancelled"
    assert "turn_timeout" in agent.receipt("k1")["note"]
    assert agent.turn("k2", "next") == "echo#2: next\n"
    assert agent.stat()["incarnation"] == "1"


def test_a_permission_of_deny_asks_nobody_and_runs_nothing(both: Both) -> None:
    agent = both.make('permission = "deny"\n')
    agent.turn("k1", "[[bash:touch made]] then say it")
    assert files(agent.work) == []
    assert not agent.events("asked")


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_an_error_of_the_model_is_a_failed_turn_of_codex(only_codex: Both, status: int) -> None:
    agent = only_codex.make()
    agent.prompt("k1", f"[[error:{status}]] please")
    assert agent.ended("k1") == ("failed", "")
    assert agent.settle() in ("await", "failed")
    assert "turn 1: " in agent.read("error")
    if only_codex.tree.status(agent.name) == "await":
        assert agent.turn("k2", "still there?").endswith("still there?\n")
