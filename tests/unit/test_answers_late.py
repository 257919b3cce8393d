"""Asks: answered by a verb or, in want of one, by the spec; gone; and the bits of a text that are collected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from supervisor import ctl, hearing
from supervisor.backends import codec as told
from supervisor.running import DELTA_MAX, DELTA_SECONDS, Running
from tests.unit.desks import Bench
from zoefs.contract.asks import Question
from zoefs.contract.words import Verb

QUESTION = Question("color", "Which one?", ("Red", "Blue"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def by_default(bench: Bench, default: str, seconds: float = 60.0) -> None:
    bench.desk.spec = attrs.evolve(bench.desk.spec, ask_default=default, ask_timeout=seconds)


@pytest.mark.parametrize(
    ("default", "questions", "decision"),
    [
        ("deny", (), "deny"),
        ("allow", (), "allow"),
        ("", (), "deny"),
        ("allow", (QUESTION,), "deny"),
    ],
)
def test_an_ask_that_nobody_answered_is_answered_by_the_spec(
    bench: Bench, default: str, questions: tuple[Question, ...], decision: str
) -> None:
    """A question cannot be allowed without an answer."""
    by_default(bench, default)
    bench.asked(questions=[question.encode() for question in questions])
    bench.told()
    ctl.answer_late(bench.desk)
    (answered,) = bench.told()
    assert (answered.kind, answered.text("ask"), answered.text("by")) == ("answered", "1-3", "ask_timeout")
    assert answered.text("decision") == decision
    assert answered.text("why") == ("" if decision == "allow" else "nobody answered within 60 s")
    assert bench.desk.fold.asks == {}
    (reply,) = [value["result"] for value in bench.written() if value.get("id") == 3]
    if questions:
        assert reply == {"answers": {}}
    else:
        assert reply == {"decision": "accept" if decision == "allow" else "decline"}


def test_the_oldest_is_answered_first_and_the_others_wait(bench: Bench) -> None:
    by_default(bench, "deny", 1.5)
    bench.asked("1-3")
    bench.asked("1-4")
    bench.told()
    ctl.answer_late(bench.desk)
    (answered,) = bench.told()
    assert answered.text("ask") == "1-3"
    assert answered.text("why") == "nobody answered within 1.5 s"
    assert list(bench.desk.fold.asks) == ["1-4"]


def test_who_comes_after_the_default_is_told_so(bench: Bench) -> None:
    by_default(bench, "deny")
    bench.asked()
    ctl.answer_late(bench.desk)
    bench.written()
    bench.told()
    ctl.answer(bench.desk, bench.line(Verb.ALLOW, "1-3"))
    (done,) = bench.told()
    assert (done.kind, done.data["ok"]) == ("verb-done", False)
    assert "1-3" in done.text("text")
    assert bench.written() == []


@pytest.mark.parametrize(
    ("verb", "argument", "decision", "why"),
    [
        (Verb.ALLOW, "1-3", "allow", ""),
        (Verb.ALLOW_ALWAYS, "1-3", "allow-always", ""),
        (Verb.DENY, "1-3 not there", "deny", "not there"),
    ],
)
def test_a_verb_answers_in_its_clients_name(bench: Bench, verb: Verb, argument: str, decision: str, why: str) -> None:
    bench.asked(rule="acceptForSession")
    bench.told()
    ctl.answer(bench.desk, bench.line(verb, argument, key="k"))
    begun, answered, done = bench.told()
    assert begun.kind == "verb-begun", "noted before the answer is said"
    assert (answered.text("decision"), answered.text("why"), answered.text("by")) == (decision, why, "k")
    assert (done.kind, done.data["ok"]) == ("verb-done", True)
    assert bench.written()[-1]["id"] == 3


def test_a_question_is_answered_with_a_choice(bench: Bench) -> None:
    bench.asked(questions=[QUESTION.encode()])
    bench.told()
    ctl.answer(bench.desk, bench.line(Verb.ALLOW, "1-3 2"))
    _, answered, _ = bench.told()
    assert answered.data["answers"] == {"color": ["Blue"]}
    assert bench.written() == [{"id": 3, "result": {"answers": {"color": {"answers": ["Blue"]}}}}]


def test_an_ask_that_was_answered_is_not_noted_as_gone(bench: Bench) -> None:
    """Who takes over reads the end of an ask again that was answered before it."""
    bench.asked("1-3")
    note = hearing.as_note(bench.desk, told.AskGone("1-3"), bench.running, 9)
    assert note is not None
    assert note[0] == "ask-gone"
    ctl.answer(bench.desk, bench.line(Verb.ALLOW, "1-3"))
    assert hearing.as_note(bench.desk, told.AskGone("1-3"), bench.running, 9) is None


async def test_an_ask_that_is_gone_in_the_same_breath_is_noted(bench: Bench) -> None:
    lines = [
        '{"method":"item/commandExecution/requestApproval","id":7,"params":{"threadId":"T","command":"x"}}',
        '{"method":"serverRequest/resolved","params":{"threadId":"T","requestId":7}}',
    ]
    bench.agent.raw(1).write_text("\n".join(lines) + "\n")
    assert await hearing.drain(bench.desk, bench.running)
    assert [event.kind for event in bench.told()] == ["asked", "ask-gone"]
    assert bench.desk.fold.asks == {}
    assert not await hearing.drain(bench.desk, bench.running)


# -- what is being said -----------------------------------------------------------------------------------------------


def running(tmp_path: Path) -> Running:
    bench = Bench(tmp_path)
    bench.close()
    return bench.running


def test_bits_are_collected_for_a_while(tmp_path: Path) -> None:
    one = running(tmp_path)
    assert one.coalesce("a", 100.0) is None
    assert one.coalesce("b", 100.0 + DELTA_SECONDS * 0.9) is None
    assert one.coalesce("c", 100.0 + DELTA_SECONDS) == "abc"
    assert one.coalesce("d", 100.0 + DELTA_SECONDS * 1.5) is None, "the next while begins with the last note"
    assert one.coalesce("e", 100.0 + DELTA_SECONDS * 2) == "de"


def test_many_bits_are_noted_before_their_time(tmp_path: Path) -> None:
    one = running(tmp_path)
    assert one.coalesce("x" * (DELTA_MAX - 1), 100.0) is None
    assert one.coalesce("y", 100.0) == "x" * (DELTA_MAX - 1) + "y"
    assert one.coalesce("z", 100.0) is None


def test_what_was_collected_is_forgotten_once_the_whole_piece_is_said(tmp_path: Path) -> None:
    one = running(tmp_path)
    one.coalesce("a", 100.0)
    one.said_whole()
    assert one.coalesce("b", 200.0) is None, "a bit after a pause begins a new while"
    assert one.coalesce("c", 200.0 + DELTA_SECONDS) == "bc"


def test_nothing_is_lost_between_notes(tmp_path: Path) -> None:
    one, noted, now = running(tmp_path), "", 100.0
    for n in range(1000):
        now += 0.013
        noted += one.coalesce(chr(97 + n % 26), now) or ""
    noted += one.coalesce("!", now + DELTA_SECONDS) or ""
    assert noted == "".join(chr(97 + n % 26) for n in range(1000)) + "!"


async def test_bits_and_the_whole_piece_in_one_breath_are_noted_as_the_piece(bench: Bench) -> None:
    def item(text: str) -> dict[str, Any]:
        return {"method": "item/completed", "params": {"item": {"type": "agentMessage", "id": "1", "text": text}}}

    bits = [{"method": "item/agentMessage/delta", "params": {"delta": bit}} for bit in "ab"]
    bench.agent.raw(1).write_text("".join(json.dumps(value) + "\n" for value in (*bits, item("ab"))))
    await hearing.drain(bench.desk, bench.running)
    assert [(event.kind, event.text("text")) for event in bench.told()] == [("text", "ab")]


async def test_what_a_steer_cut_short_is_not_the_beginning_of_what_follows(bench: Bench) -> None:
    bench.codec.steer("s", "n", "more")
    started = {"type": "userMessage", "id": "2", "clientId": "n"}
    lines: list[Any] = [{"method": "item/agentMessage/delta", "params": {"delta": "dropped"}}]
    lines += [{"method": "item/started", "params": {"item": started}}]
    lines += [{"method": "item/agentMessage/delta", "params": {"delta": "x" * DELTA_MAX}}]
    bench.agent.raw(1).write_text("".join(json.dumps(value) + "\n" for value in lines))
    await hearing.drain(bench.desk, bench.running)
    assert [(event.kind, event.text("text")) for event in bench.told()] == [("delta", "x" * DELTA_MAX)]
