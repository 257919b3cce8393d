"""`ctl`: what a write may say, and which verb is permitted when."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoefs.contract.asks import Ask, Question, read_answers
from zoefs.contract.backends import BACKENDS, Backend
from zoefs.contract.refusal import Refusal
from zoefs.contract.verbs import VERBS, Command, check_permitted, parse_ctl
from zoefs.contract.words import OnLost, Status, Verb

QUICK = settings(deadline=None, max_examples=200)
C = Command


@pytest.mark.parametrize(
    ("data", "commands"),
    [
        (b"", []),
        (b"\n\n  \n\r\n", []),
        (b"start", [C(Verb.START)]),
        (b"start\n", [C(Verb.START)]),
        (b"  stop \r\n", [C(Verb.STOP)]),
        (b"stop\n\nstart\n", [C(Verb.STOP), C(Verb.START)]),
        (b"#k1 restart\n", [C(Verb.RESTART, key="k1")]),
        (b"#k1   restart\n", [C(Verb.RESTART, key="k1")]),
        (b"#k.1_a-b kill\n", [C(Verb.KILL, key="k.1_a-b")]),
        (b"allow a1\n", [C(Verb.ALLOW, "a1")]),
        (b"allow   a1  \n", [C(Verb.ALLOW, "a1")]),
        (b"#k allow-always toolu_01:x\n", [C(Verb.ALLOW_ALWAYS, "toolu_01:x", "k")]),
        (b"deny a1\n", [C(Verb.DENY, "a1")]),
        (b"deny a1 not on a  friday\n", [C(Verb.DENY, "a1 not on a  friday")]),
        (b"steer use the other file\n", [C(Verb.STEER, "use the other file")]),
        ("steer caf\u00e9 \u2014 #now\n".encode(), [C(Verb.STEER, "caf\u00e9 \u2014 #now")]),
        (b"interrupt\ncompact\nreset-budget\n", [C(Verb.INTERRUPT), C(Verb.COMPACT), C(Verb.RESET_BUDGET)]),
    ],
)
def test_what_a_write_says(data: bytes, commands: list[Command]) -> None:
    assert parse_ctl(data) == commands


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"\xff\n", ["UTF-8"]),
        (b"steer caf\xe9\n", ["UTF-8"]),
        (b"go\n", ["'go'", *Verb]),
        (b"Start\n", ["'Start'", "start"]),
        (b"START\n", ["'START'", "start"]),
        (b"start now\n", ["start", "'now'"]),
        (b"stop\tnow\n", ["stop"]),
        (b"start stop\n", ["start", "'stop'"]),
        (b"kill -9\n", ["kill", "'-9'"]),
        (b"allow\n", ["allow", "ask"]),
        (b"allow-always\n", ["allow-always", "ask"]),
        (b"deny\n", ["deny", "ask"]),
        (b"deny   \n", ["deny", "ask"]),
        (b"steer\n", ["steer", "text"]),
        (b"#k\n", ["start"]),
        (b"#k \n", ["start"]),
        (b"# start\n", ["key"]),
        (b"#.k start\n", ["key", "'#.k start'"]),
        (b"#a/b start\n", ["key"]),
        (b"#-k start\n", ["key"]),
        ("#caf\u00e9 start\n".encode(), ["key"]),
        (b"#" + b"k" * 201 + b" start\n", ["key", "200"]),
        (b"#k go\n", ["'go'"]),
        (b"#k #l start\n", ["#l"]),
        (b"\0\n", ["start"]),
    ],
)
def test_what_is_refused_and_what_the_sentence_names(data: bytes, names: list[str]) -> None:
    for write in (data, b"stop\n" + data, data + b"stop\n"):
        with pytest.raises(Refusal) as caught:
            parse_ctl(write)
        assert caught.value.errno == errno.EINVAL
        assert "\n" not in caught.value.sentence
        assert len(caught.value.sentence) < 500
        for name in names:
            assert name in caught.value.sentence


def test_two_lines_of_one_write_cannot_share_a_key() -> None:
    """A key is an id of `inbox/`, and an id has one fate."""
    with pytest.raises(Refusal):
        parse_ctl(b"#k stop\n#k start\n")


def commands_of(data: bytes) -> list[Command]:
    """What the write says; nothing where it is refused, and then as it should be."""
    refusals: list[Refusal] = []
    try:
        return parse_ctl(data)
    except Refusal as refusal:
        refusals.append(refusal)
    assert refusals[0].errno == errno.EINVAL
    assert refusals[0].sentence
    return []


WORDS = st.text(alphabet="ab #-\t\u00e9\u00a0\r", max_size=12)


@QUICK
@given(st.lists(st.tuples(st.sampled_from(["", "#k ", "#k1"]), st.sampled_from(Verb), WORDS), max_size=3))
def test_a_command_survives_its_line(parts: list[tuple[str, Verb, str]]) -> None:
    text = "\n".join(f"{key}{verb} {words}" for key, verb, words in parts)
    commands = commands_of(text.encode())
    assert parse_ctl("\n".join(command.encode() for command in commands).encode()) == commands


@QUICK
@given(st.binary(max_size=40))
def test_any_bytes_are_commands_or_a_refusal(data: bytes) -> None:
    commands_of(data)


ARGUMENTS = {"none": "", "ask": "a1", "ask-more": "a1", "text": "do this"}
EVERY_VERB = Backend("every", "stream", OnLost.HOLD, frozenset(Verb), "protocol", "a backend that can do all")


def pending(*ids: str, **more: Any) -> dict[str, Ask]:
    return {id: Ask(id, "Bash", {"command": "touch q"}, rule=[1], **more) for id in ids}


ASKS = pending("a1", "a2")


def test_every_verb_has_a_row_and_a_sentence() -> None:
    assert list(VERBS) == [row.verb for row in VERBS.values()]
    assert set(VERBS) == set(Verb)
    assert all(row.argument in ARGUMENTS and row.when and row.doc.endswith(".") for row in VERBS.values())


@pytest.mark.parametrize("backend", [*BACKENDS.values(), EVERY_VERB], ids=lambda backend: backend.name)
@pytest.mark.parametrize(("verb", "status"), list(itertools.product(Verb, Status)))
def test_every_verb_in_every_status(verb: Verb, status: Status, backend: Backend) -> None:
    command = C(verb, ARGUMENTS[VERBS[verb].argument])
    if verb in backend.verbs and status in VERBS[verb].when:
        check_permitted(command, status, backend, ASKS)
        return
    with pytest.raises(Refusal) as caught:
        check_permitted(command, status, backend, ASKS)
    head, _, permitted = caught.value.sentence.rpartition("can " if verb not in backend.verbs else ": ")
    assert verb in head
    if verb not in backend.verbs:
        assert caught.value.errno == errno.EOPNOTSUPP
        assert backend.name in head
        assert set(permitted.split()) == backend.verbs
    else:
        assert caught.value.errno == errno.EBUSY
        assert status in head
        assert set(permitted.split()) == {v for v in backend.verbs if status in VERBS[v].when}


@pytest.mark.parametrize("status", Status)
def test_an_agent_can_always_be_brought_down_and_back(status: Status) -> None:
    for backend in BACKENDS.values():
        for verb in (Verb.STOP, Verb.KILL, Verb.RESTART):
            check_permitted(C(verb), status, backend, {})


@pytest.mark.parametrize("verb", [Verb.ALLOW, Verb.ALLOW_ALWAYS, Verb.DENY])
@pytest.mark.parametrize("asks", [(), ("a2",), ("a", "a11", "A1")])
def test_an_ask_that_is_not_pending_is_stale(verb: Verb, asks: tuple[str, ...]) -> None:
    with pytest.raises(Refusal) as caught:
        check_permitted(C(verb, "a1"), Status.BLOCKED, EVERY_VERB, pending(*asks))
    assert caught.value.errno == errno.ESTALE
    assert "'a1'" in caught.value.sentence
    assert "ask" in caught.value.sentence


@pytest.mark.parametrize("line", ["deny a1", "deny a1 why", "deny a1   why not", "deny a1\twhy"])
def test_the_ask_of_deny_ends_at_the_first_space(line: str) -> None:
    [command] = parse_ctl(line.encode())
    check_permitted(command, Status.BLOCKED, EVERY_VERB, pending("a1"))


WHICH = (Question("q1", "Which?", ("A", "B")), Question("q2", "What else?", ("x, y", "z"), several=True))


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("1 | 1", {"q1": ("A",), "q2": ("x, y",)}),
        ("b|X, Y", {"q1": ("B",), "q2": ("x, y",)}),
        (" B | 2, 1 ", {"q1": ("B",), "q2": ("z", "x, y")}),
        ("B | z, z", {"q1": ("B",), "q2": ("z",)}),
        ("3 | 0", {"q1": ("3",), "q2": ("0",)}),
        ("neither of them | z, or not", {"q1": ("neither of them",), "q2": ("z, or not",)}),
    ],
)
def test_a_question_is_answered_by_number_name_or_text(text: str, answers: dict[str, tuple[str, ...]]) -> None:
    asks = pending("a1", questions=WHICH)
    check_permitted(C(Verb.ALLOW, f"a1 {text}"), Status.BLOCKED, EVERY_VERB, asks)
    assert read_answers(asks["a1"], text) == answers


@pytest.mark.parametrize("text", ["", "A", "A |", "| z", "A | z | more"])
def test_each_question_wants_one_answer(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_permitted(C(Verb.ALLOW, f"a1 {text}"), Status.BLOCKED, EVERY_VERB, pending("a1", questions=WHICH))
    assert caught.value.errno == errno.EINVAL
    assert "Which? | What else?" in caught.value.sentence


def test_a_permission_is_allowed_without_a_word() -> None:
    with pytest.raises(Refusal) as caught:
        check_permitted(C(Verb.ALLOW, "a1 yes"), Status.BLOCKED, EVERY_VERB, pending("a1"))
    assert caught.value.errno == errno.EINVAL


def test_allow_always_needs_a_rule_to_keep() -> None:
    with pytest.raises(Refusal) as caught:
        check_permitted(C(Verb.ALLOW_ALWAYS, "a1"), Status.BLOCKED, EVERY_VERB, {"a1": Ask("a1", "Bash", None)})
    assert caught.value.errno == errno.EOPNOTSUPP
    assert "deny a1" in caught.value.sentence


def test_words_of_the_page() -> None:
    """Which verbs leave which status (words.md, column "leaves by")."""
    assert Status.FAILED in VERBS[Verb.RESTART].when
    assert Status.FAILED in VERBS[Verb.RESET_BUDGET].when
    assert Status.STOPPED in VERBS[Verb.START].when
    assert Status.FAILED not in VERBS[Verb.START].when
    assert all(VERBS[verb].when == {Status.BLOCKED} for verb in (Verb.ALLOW, Verb.ALLOW_ALWAYS, Verb.DENY))


def test_a_refusal_prints_its_number_by_name() -> None:
    refusal = Refusal(errno.EBUSY, "start: not now")
    assert (str(refusal), refusal.errno, refusal.sentence) == ("EBUSY: start: not now", errno.EBUSY, "start: not now")
    assert str(Refusal(99999, "odd")) == "99999: odd"
