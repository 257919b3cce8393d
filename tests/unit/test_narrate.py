"""What `follow` prints for each kind of event."""

from __future__ import annotations

from typing import Any

import pytest

from zoefs.cli.follow import beginning
from zoefs.cli.narrate import _TELLERS, BRIEF, Narrator, brief, visible
from zoefs.contract.events import Event, Kind

T = "2026-01-01T00:00:00.000Z"


def event(kind: str, seq: int = 1, **data: Any) -> Event:
    return Event(T, seq, kind, data)


def told(*events: Event) -> str:
    narrator = Narrator("/m/agents/a b/ctl")
    return "".join(narrator.tell(one) for one in events)


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (event("prompt-given", turn=3, id="k1", bytes=5), "[3] prompt k1, 5 bytes\n"),
        (event("tool", tool="Bash", input={"command": "ls"}), '  > Bash {"command": "ls"}\n'),
        (event("tool", tool="Bash", input={}), "  > Bash \n"),
        (event("tool-result", ok=True, text="a\nb\nc\n"), "  < ok a (+2 lines)\n"),
        (event("tool-result", ok=False, text=""), "  < failed\n"),
        (event("turn-ended", turn=3, how="done"), "[3] done\n"),
        (
            event("turn-ended", turn=3, how="failed", text="why", cost_usd=0.5, tokens_in=7, tokens_out=2),
            "[3] failed: why; 0.5000 USD, 7 tokens in, 2 out\n",
        ),
        (
            event("turn-ended", turn=1, how="done", cost_usd=0.5, cost_estimated=True),
            "[1] done; ~0.5000 USD, 0 tokens in, 0 out\n",
        ),
        (event("answered", ask="a1", decision="deny", by="k", why="no"), "! ask a1: deny by k, no\n"),
        (event("ask-gone", ask="a1"), "! ask a1 ended without an answer\n"),
        (event("exited", next="resting"), ""),
        (event("exited", next="backoff", text="died"), "* the CLI ended: backoff, died\n"),
        (event("failed", reason="config", text="no program"), "* failed config: no program\n"),
        (event("turn-lost", turn=2), "[2] its CLI died under it\n"),
        (event("prompt-sent"), ""),
        (event("of-a-later-version"), ""),
    ],
)
def test_one_event(one: Event, line: str) -> None:
    assert told(one) == line


def test_an_ask_shows_the_lines_that_answer_it() -> None:
    lines = told(event("asked", ask="a1", tool="Bash", input={"command": "rm x"}, rule=["Bash(rm)"])).splitlines()
    assert lines == [
        '? ask a1: Bash {"command": "rm x"}',
        "  echo 'allow a1' > '/m/agents/a b/ctl'",
        '  the rule it would keep: ["Bash(rm)"]',
        "  echo 'allow-always a1' > '/m/agents/a b/ctl'",
        "  echo 'deny a1 WHY' > '/m/agents/a b/ctl'",
    ]


def test_questions_show_their_choices() -> None:
    questions = [{"key": "q", "text": "Which?", "choices": ["red", "blue"], "several": True}]
    lines = told(event("asked", ask="a1", tool="Ask", input={}, questions=questions)).splitlines()
    assert lines[1:5] == [
        "  Which? (several)",
        "    1. red",
        "    2. blue",
        "  echo 'allow a1 ANSWER' > '/m/agents/a b/ctl'",
    ]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([event("text", text="hello")], "hello\n"),
        ([event("delta", text="hel"), event("text", text="hello\n")], "hello\n"),
        ([event("delta", text="hel"), event("delta", text="lo"), event("text", text="hello")], "hello\n"),
        ([event("delta", text="lo"), event("text", text="hello")], "lo\nhello\n"),
        ([event("delta", text="abcd"), event("text", text="abc", cut=3)], "abcd\n[3 more characters]\n"),
        ([event("delta", text="abc"), event("turn-ended", turn=1, how="lost")], "abc\n[1] lost\n"),
        ([event("delta", text="abc"), event("prompt-sent"), event("text", text="abcd")], "abcd\n"),
    ],
)
def test_what_is_said_is_printed_as_it_comes_and_once(events: list[Event], text: str) -> None:
    assert told(*events) == text


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind in _TELLERS or kind in (Kind.TEXT, Kind.DELTA)])
def test_nothing_steers_the_terminal(kind: Kind) -> None:
    nasty = "\x1b]0;x\x07\x9b31m\r\u202e"
    words = ("text", "id", "tool", "ask", "how", "why", "by", "decision", "next", "reason", "status")
    fields: dict[str, Any] = {**dict.fromkeys(words, nasty), "input": {nasty: nasty}, "rule": nasty}
    printed = told(event(kind, **fields))
    assert printed
    assert not set(printed) & set(nasty) - set("]0;x31m")


def test_brief_is_brief() -> None:
    assert brief("x" * 1000) == "x" * BRIEF + "…"
    assert visible("a\tb\nc") == "a\tb\nc"


def test_it_begins_with_the_turn_that_runs() -> None:
    given, text, ended = event("prompt-given", 1), event("text", 2), event("turn-ended", 3)
    assert beginning([given, text], False) == [given, text]
    assert beginning([given, text, ended], False) == []
    assert beginning([given, text, ended, given], False) == [given]
    assert beginning([given, text, ended], True) == [given, text, ended]
    assert beginning([], False) == []
