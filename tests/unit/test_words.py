"""The dictionary against `words.md`."""

from __future__ import annotations

import pytest

from zoefs.contract import words
from zoefs.contract.words import (
    FATE_OF_TURN,
    FINAL,
    LONGEST_STATUS,
    SETTLED,
    Fate,
    How,
    Reason,
    Status,
    Verb,
    is_agent_name,
    is_order_id,
)


def test_statuses_stand_in_order_of_precedence() -> None:
    assert list(Status) == ["failed", "stopped", "backoff", "blocked", "starting", "running", "await"]
    assert len(b"starting\n") == LONGEST_STATUS == max(len(f"{status}\n") for status in Status)


def test_the_settled_statuses_are_those_wait_answers_at_once() -> None:
    assert {"await", "blocked", "stopped", "failed"} == SETTLED


def test_reasons_are_those_of_the_page() -> None:
    page = "crash-loop cwd-missing auth config over-budget context-lost usage-limit disk-full"
    assert set(Reason) == set(page.split())


def test_fates_are_those_of_the_page_and_four_are_final() -> None:
    assert set(Fate) == set("writing queued sent accepted uncertain done failed lost cancelled".split())
    assert set("done failed lost cancelled".split()) == FINAL


def test_every_end_of_a_turn_has_a_final_fate() -> None:
    assert set(FATE_OF_TURN) == set(How)
    assert set(FATE_OF_TURN.values()) == FINAL


def test_verbs_are_those_of_the_page() -> None:
    page = "start stop restart interrupt kill allow allow-always deny steer compact reset-budget"
    assert set(Verb) == set(page.split())


def test_exit_codes_are_those_of_the_page() -> None:
    codes = {name: code for name, code in vars(words.Exit).items() if name.isupper()}
    assert codes == {
        "DONE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "NOT_FOUND": 3,
        "REFUSED": 4,
        "TIMED_OUT": 5,
        "NOT_RUNNING": 6,
    }


def test_limits_are_those_of_the_page() -> None:
    assert (words.PROMPT_MAX, words.SINGLE_WRITE_MAX) == (16 * 2**20, 4096)
    assert (words.QUEUE_MAX, words.QUEUE_BYTES_MAX) == (1000, 64 * 2**20)
    assert (words.RECEIPTS_SHOWN, words.WAIT_SECONDS) == (1000, 0.8)


BOTH = ["a", "A", "0", "_", "r1", "R1", "a.b", "a-b", "a..", "reviewer-1", "Lister", "list2", "in", "ctl", "a" * 64]
NEITHER = [
    *("", ".", "..", ".a", "-", "-x", "--help", "a/b", "/", "a/", "a b", " a", "a ", "a\n", "\na", "a\tb", "a\0", "\0"),
    *("caf\u00e9", "cafe\u0301", "\u0663", "\uff41", "\u212a", "a\u200b", "a\ud800", "a*", "a?", "a@b", "a+", "a:b"),
    *("a'b", 'a"b', "a\\b", "~a", "#a", "a\r", "a\x85", "a\u2028"),
]


@pytest.mark.parametrize("name", BOTH)
def test_what_may_name_an_agent_or_an_order(name: str) -> None:
    assert is_agent_name(name)
    assert is_order_id(name)


@pytest.mark.parametrize("name", NEITHER)
def test_what_may_name_neither(name: str) -> None:
    assert not is_agent_name(name)
    assert not is_order_id(name)


def test_list_is_a_file_and_no_agent() -> None:
    assert not is_agent_name("list")
    assert is_order_id("list")


def test_names_have_a_longest_length_in_bytes() -> None:
    assert is_agent_name("a" * 64)
    assert not is_agent_name("a" * 65)
    assert is_order_id("a" * 200)
    assert not is_order_id("a" * 201)
