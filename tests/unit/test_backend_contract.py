"""What every row of BACKENDS must hold, on recorded transcripts: no CLI, no clock.

A row is tested by bringing transcripts of each version it names. exec is the exception: it has no protocol.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import types
import typing
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.backends import CODECS, Codec
from supervisor.backends import codec as told
from supervisor.backends.codec import Decoded
from tests.unit.recordings import (
    TRANSCRIPTS,
    Call,
    Played,
    Recording,
    codec_of,
    do,
    in_words,
    make,
    play,
    recordings,
    verdict_on,
)
from zoefs.contract.asks import Ask, Question, Verdict, ask_of
from zoefs.contract.backends import BACKENDS, is_tested
from zoefs.contract.events import Event
from zoefs.contract.words import How

WITHOUT_PROTOCOL = frozenset({"exec"})
STREAMS = sorted(set(BACKENDS) - WITHOUT_PROTOCOL)
ALL = recordings()
QUICK = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
CUT = ("cut-midapproval", "cut-midstream", "cut-midtool", "cut-reply10", "cut-warm-reply")
"""Recordings that end within a turn."""
ONCE = (told.Capable, told.Unknown)
"""Told once by each codec: an adopter's tells them again."""

per_recording = pytest.mark.parametrize("recording", ALL, ids=[recording.name for recording in ALL])
per_stream = pytest.mark.parametrize("backend", STREAMS)


# -- the table --------------------------------------------------------------------------------------------------------


def test_every_row_has_a_codec_and_every_version_of_it_has_transcripts() -> None:
    assert set(CODECS) == set(BACKENDS)
    for row in BACKENDS.values():
        if row.name in WITHOUT_PROTOCOL:
            assert not row.versions
            continue
        assert row.versions, f"{row.name}: which versions are its tests run with?"
        recorded = {recording.version for recording in recordings(row.name)}
        assert recorded == set(row.versions), f"{row.name}: record transcripts, see tests/data/transcripts"


def test_every_transcript_is_in_the_index_and_says_no_path_of_a_machine() -> None:
    index = (TRANSCRIPTS / "README.md").read_text()
    for recording in ALL:
        assert f"`{recording.scenario}`" in index, recording.name
        data = b"\n".join(recording.lines)
        assert b"/tmp/" not in data
        assert b"/root/" not in data


@functools.cache
def expected() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in TRANSCRIPTS.glob("*.events"):
        for section in path.read_text().split("== ")[1:]:
            scenario, *lines = section.split("\n")
            found[f"{path.stem}-{scenario}"] = [line for line in lines if line]
    return found


@per_recording
def test_what_each_recording_means(recording: Recording) -> None:
    assert in_words(recording) == expected()[recording.name]


def test_nothing_is_expected_of_a_recording_that_is_not_there() -> None:
    assert set(expected()) == {recording.name for recording in ALL}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_version_that_is_not_tested_is_known_as_such(backend: str) -> None:
    versions = BACKENDS[backend].versions
    assert all(is_tested(backend, version) for version in versions)
    assert is_tested(backend, "")
    for other in ("0.0.1", "99.0.0", *(f"{version}0" for version in versions), *(f"{v}-beta" for v in versions)):
        assert is_tested(backend, other) is not bool(versions)
    assert is_tested("no such backend", "1")


# -- order ------------------------------------------------------------------------------------------------------------


@per_recording
def test_a_turn_ends_once_and_nothing_of_it_follows_but_a_late_tool(recording: Recording) -> None:
    given = {call.at: call for call in recording.calls if call.method in ("prompt", "expect")}
    turn, ended = "", []
    events = play(recording).events
    for at in range(len(recording.lines)):
        if at in given and given[at].message != turn:
            assert not turn, "a prompt is given only when no turn is open"
            turn = given[at].message
        for event in (event for line, event in events if line == at):
            if isinstance(event, told.Accepted):
                assert event.message == turn
            if isinstance(event, told.Text | told.Delta | told.Asked | told.Tool):
                assert turn, event
            if isinstance(event, told.TurnEnd):
                assert turn, "a turn that was not open ended"
                ended.append(turn)
                turn = event.goes_on.removeprefix("s:")
    assert len(ended) == len(set(ended))
    assert bool(turn) is recording.scenario.startswith(CUT)


@per_recording
def test_a_handshake_is_ready_once_and_every_line_is_understood(recording: Recording) -> None:
    played = play(recording)
    assert len(played.of(told.Ready, told.Unable)) <= 1
    assert not played.of(told.Unreadable, told.Unknown, told.Unserved)


@per_recording
def test_an_ask_is_told_before_what_becomes_of_it_and_is_gone_only_unanswered(recording: Recording) -> None:
    asked: list[str] = []
    gone: list[str] = []
    for event in play(recording).of(told.Asked, told.AskGone):
        if isinstance(event, told.Asked):
            asked.append(event.ask.id)
        else:
            assert event.ask in asked
            gone.append(event.ask)
    assert len(asked) == len(set(asked))
    answered = [asked[n] for n in recording.answered]
    assert not set(gone) & set(answered)
    if recording.scenario not in ("cut-midapproval",):
        assert set(gone) | set(answered) == set(asked)


@per_recording
def test_bits_of_a_piece_are_its_beginning(recording: Recording) -> None:
    """What was begun and dropped, since a steer cut it short, is no beginning of what follows."""
    bits = ""
    for _, event in play(recording).events:
        if isinstance(event, told.Delta):
            bits += event.text
        elif isinstance(event, told.Text):
            assert event.text.startswith(bits)
            bits = ""
        elif isinstance(event, told.TurnEnd):
            assert (event.text or "").endswith(bits)
            bits = ""
        elif isinstance(event, told.Steered) and recording.backend == "codex":
            bits = ""


@per_recording
def test_partial_is_what_was_said_in_the_open_turn_and_nothing_after_it(recording: Recording) -> None:
    made = codec_of(recording)
    said: list[str] = []
    for at, line in enumerate(recording.lines):
        for call in recording.calls:
            if call.at == at:
                do(made, call)
        for event in made.decode(line):
            if isinstance(event, told.Text):
                said.append(event.text)
            if isinstance(event, told.TurnEnd):
                said = []
                assert made.partial() == ""
        made.take()
        assert made.partial().startswith("\n\n".join(said))
    if not recording.scenario.startswith(CUT):
        assert made.partial() == ""


# -- what it cost -----------------------------------------------------------------------------------------------------


def raw_spending(recording: Recording) -> tuple[float | None, int, int]:
    """What the recording says that was spent from its first line to its last, in the CLI's own numbers."""
    values = recording.values
    if recording.backend == "codex":
        usage = [v["params"]["tokenUsage"] for v in values if v.get("method") == "thread/tokenUsage/updated"]
        if not usage:
            return None, 0, 0
        first, last = usage[0], usage[-1]["total"]
        retold = recording.scenario == "compact" or recording.scenario.startswith(
            ("resume-idle", "resume-warm", "resume-usage", "resume-after")
        )
        before = {key: first["total"][key] - (0 if retold else first["last"][key]) for key in first["total"]}
        return None, last["inputTokens"] - before["inputTokens"], last["outputTokens"] - before["outputTokens"]
    results = [v for v in values if v.get("type") == "result"]
    if recording.version == "2.1.197":
        usages = [result["usage"] for result in results]
        usd = results[-1]["total_cost_usd"]
        return usd, sum(u["input_tokens"] for u in usages), sum(u["output_tokens"] for u in usages)
    models = [m for r in results for m in r.get("model_usage_since_last_result", {}).values()]
    return (
        sum(m["costUSD"] for m in models),
        sum(m["inputTokens"] for m in models),
        sum(m["outputTokens"] for m in models),
    )


@per_recording
def test_what_was_spent_adds_up_to_what_the_cli_says(recording: Recording) -> None:
    spent = [event.spent for event in play(recording).of(told.TurnEnd, told.Compacted)]
    assert all(s.tokens_in >= s.tokens_cached >= 0 and s.tokens_out >= 0 for s in spent)
    assert all(s.usd is None or s.usd >= 0 for s in spent)
    usd, tokens_in, tokens_out = raw_spending(recording)
    assert sum(s.tokens_in for s in spent) == tokens_in
    assert sum(s.tokens_out for s in spent) == tokens_out
    if usd is None:
        assert all(s.usd is None for s in spent)
    else:
        assert sum(s.usd or 0.0 for s in spent) == pytest.approx(usd)


# -- adoption ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class State:
    """What the journal knows when a supervisor dies before line `at`."""

    offset: int
    session: str
    message: str
    steers: tuple[str, ...]
    compacting: str
    answered: frozenset[str]
    model: str = ""


def state_at(recording: Recording, played: Played, at: int) -> State:
    """From what was called and told before line `at`."""
    offset, session, message, compacting, model = 0, recording.session, "", "", ""
    steers: list[str] = []
    asked: list[str] = []
    for line in range(at):
        for call in sorted((c for c in recording.calls if c.at == line), key=lambda c: c.method != "expect"):
            match call.method:
                case "prompt" | "expect":
                    message = call.message
                case "steer":
                    steers.append(call.message)
                case "compact":
                    compacting = call.message
                case _:
                    pass
        for event in (event for n, event in played.events if n == line):
            match event:
                case told.TurnEnd(goes_on=goes_on):
                    offset, message = line + 1, goes_on.removeprefix("s:")
                    steers = [steer for steer in steers if steer != message]
                case told.Steered(id=id):
                    steers.remove(id.removeprefix("s:"))
                case told.Compacted():
                    offset, compacting = line + 1, ""
                case told.Ready():
                    model = event.model
                case told.SessionChanged():
                    session = event.session
                case told.Asked(ask=ask):
                    asked.append(ask.id)
                case _:
                    pass
    answered = frozenset(asked[n] for n in recording.answered if n < len(asked))
    return State(offset, session, message, tuple(steers), compacting, answered, model)


def adopted(recording: Recording, state: State) -> Codec:
    """A codec of a supervisor that takes over; as supervisor.starts and supervisor.steering make it."""
    more = {"session": state.session, "model": state.model, "resume": True, "continuing": bool(state.message)}
    made = codec_of(recording, **more)
    if state.message:
        made.expect(state.message)
    for steer in state.steers:
        made.expect_steer(f"s:{steer}", steer, "text")
    if state.compacting:
        made.expect_compact(state.compacting)
    return made


def kept(played: Played, at: int, answered: frozenset[str]) -> list[tuple[int, Decoded]]:
    """The events from line `at` on, but for those that a new codec may tell again or that mean nothing any more."""
    return [
        (line, event)
        for line, event in played.events
        if line >= at
        and not isinstance(event, ONCE)
        and not (isinstance(event, told.AskGone) and event.ask in answered)
    ]


def ids_in(data: bytes) -> list[Any]:
    values = [json.loads(line) for line in data.split(b"\n")[:-1]]
    return [value["id"] for value in values if "method" in value and "id" in value]


@per_recording
def test_whoever_reads_on_from_the_last_end_hears_the_same(recording: Recording) -> None:
    whole = play(recording)
    for at in range(len(recording.lines) + 1):
        state = state_at(recording, whole, at)
        made = adopted(recording, state)
        for line in recording.lines[state.offset : at]:
            made.decode(line)
        assert not unfounded(recording, at, made.take()), at
        rest = play(recording, made, start=at, calls_from=at)
        assert kept(rest, at, state.answered) == kept(whole, at, state.answered), at


def unfounded(recording: Recording, at: int, asked: bytes) -> list[Any]:
    """Of what a new reader asks for after line `at`: what was done before it."""
    replies = {value.get("id") for value in recording.values[:at] if "method" not in value}
    given = any(call.at < at - 1 and call.method == "prompt" for call in recording.calls)
    return [id for id in ids_in(asked) if id in replies or (id == "turns" and given)]


@per_recording
def test_reading_it_all_again_asks_for_nothing(recording: Recording) -> None:
    whole = play(recording)
    state = state_at(recording, whole, len(recording.lines))
    made = adopted(recording, state)
    for line in recording.lines[state.offset :]:
        made.decode(line)
    assert made.take() == b""


# -- lines that nobody expects ----------------------------------------------------------------------------------------


def is_of(value: Any, hint: Any) -> bool:
    """Whether a decoded value is what its field says."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(is_of(value, one) for one in args)
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of(one, args[0]) for one in value)
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    if attrs.has(hint):
        return isinstance(value, hint) and well_typed(value)
    return isinstance(value, hint)


def well_typed(value: Any) -> bool:
    hints = _hints(value.__class__)
    return all(is_of(getattr(value, name), hint) for name, hint in hints.items())


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def feed(made: Codec, lines: list[bytes]) -> list[Decoded]:
    """Decode; see that it did not raise, and told what the types say and a journal can hold."""
    found: list[Decoded] = []
    for line in lines:
        decoded = made.decode(line)
        assert isinstance(decoded, list)
        for event in decoded:
            assert well_typed(event), event
            json.dumps(attrs.asdict(event))
        found += decoded
        assert_lines(made.take())
        assert isinstance(made.partial(), str)
    return found


def assert_lines(data: bytes) -> list[Any]:
    """Whole lines of ASCII JSON; their values."""
    if not data:
        return []
    assert data.endswith(b"\n")
    assert data.isascii()
    assert b"\r" not in data
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def begun(backend: str) -> Codec:
    """A codec in the midst of everything: an open turn, steers and a compaction that are not settled."""
    made = make(backend)
    made.expect("m")
    made.expect_steer("s1", "s1", "text")
    made.expect_compact("c")
    return made


@per_stream
def test_every_line_that_is_cut_anywhere(backend: str) -> None:
    for recording in recordings(backend):
        made = codec_of(recording)
        for line in recording.lines:
            feed(made, [line[:end] for end in range(0, len(line), max(1, len(line) // 25))])


@per_stream
@pytest.mark.parametrize("seed", range(10))
def test_bytes_that_are_changed(backend: str, seed: int) -> None:
    rng = random.Random(seed)
    made = begun(backend)
    lines = [line for recording in recordings(backend) for line in recording.lines]
    for line in rng.sample(lines, 150):
        changed = bytearray(line)
        for _ in range(rng.choice((1, 1, 3, 20))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        feed(made, [bytes(changed)])


@per_stream
def test_the_lines_of_other_clis_mean_nothing(backend: str) -> None:
    foreign = [line for other in STREAMS if other != backend for r in recordings(other) for line in r.lines]
    foreign += [b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}', b"Traceback (most recent call last):"]
    events = feed(begun(backend), foreign)
    allowed = told.Unknown | told.Unreadable | told.Unserved
    assert not [event for event in events if not isinstance(event, allowed)]
    assert events


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just({"id": {}}),
    st.just("\ud800"),
    st.just(10**400),
    st.just(json.loads("[" * 200 + "]" * 200)),
)


def leaves(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [way] if way else []
    if len(way) > 8:
        return found
    if isinstance(value, dict):
        return found + [inner for key, one in value.items() for inner in leaves(one, (*way, key))]
    if isinstance(value, list):
        return found + [inner for n, one in enumerate(value) for inner in leaves(one, (*way, n))]
    return found


@functools.cache
def shapes(backend: str) -> list[bytes]:
    """One line of each shape that the recordings have."""
    found: dict[str, bytes] = {}
    for recording in recordings(backend):
        for line, value in zip(recording.lines, recording.values, strict=True):
            shape = [str(value.get(key)) for key in ("method", "type", "subtype", "state")]
            item = value.get("params", {}).get("item", {}) if isinstance(value.get("params"), dict) else {}
            shape += [str(item.get("type")), str(value.get("id", "")).partition(":")[0]]
            found.setdefault(" ".join(shape), line)
    return list(found.values())


@per_stream
@QUICK
@given(data=st.data())
def test_values_that_are_changed(backend: str, data: st.DataObject) -> None:
    made = begun(backend)
    for line in data.draw(st.lists(st.sampled_from(shapes(backend)), min_size=1, max_size=6)):
        value = json.loads(line)
        for _ in range(data.draw(st.integers(0, 2))):
            way = data.draw(st.sampled_from(leaves(value)))
            inner = functools.reduce(lambda v, key: v[key], way[:-1], value)
            if data.draw(st.booleans()):
                inner[way[-1]] = copy.deepcopy(data.draw(ODD))
            elif isinstance(inner, dict):
                del inner[way[-1]]
        feed(made, [json.dumps(value).encode()])


@per_stream
@QUICK
@given(line=st.binary(max_size=60))
def test_any_bytes(backend: str, line: bytes) -> None:
    feed(begun(backend), [line])


@per_stream
def test_numbers_and_nesting_beyond_measure(backend: str) -> None:
    made = begun(backend)
    lines = [b"1" * 5000, b"[" * 100_000, b'{"a":' * 100_000, b"1e999", b"NaN", b"-0", b'"', b"\xff\xfe", b"null", b""]
    for depth in range(900, 1000, 3):
        lines += [b'{"type":"x%d","a":' % depth + b"[" * depth + b"]" * depth + b"}"]
        lines += [b'{"method":"x%d","params":' % depth + b"[" * depth + b"]" * depth + b"}"]
        lines += [b'{"method":"y","id":' + b"[" * depth + b"]" * depth + b"}"]
    for line in lines:
        decoded = made.decode(line)
        assert all(isinstance(event, told.Unknown | told.Unreadable | told.Unserved) for event in decoded), line
        made.take()


@per_stream
def test_a_type_that_is_not_known_is_told_once_and_ends_nothing(backend: str) -> None:
    for recording in recordings(backend):
        plain = play(recording)
        strange = (
            b'{"type":"news","method":"news","params":{}}',
            b'{"type":"system","subtype":"news","method":"more"}',
        )
        lines = [part for line in recording.lines for part in (line, *strange)]
        calls = tuple(attrs.evolve(call, at=call.at * 3) for call in recording.calls)
        mixed = play(attrs.evolve(recording, lines=tuple(lines), calls=calls))
        unknown = mixed.of(told.Unknown)
        assert len(unknown) == 2 * bool(recording.lines)
        assert [e for _, e in mixed.events if e not in unknown] == [e for _, e in plain.events]


@per_stream
def test_how_many_unknown_types_are_told_is_bounded(backend: str) -> None:
    made = make(backend)
    lines = [b'{"type":"t%d","method":"t%d"}' % (n, n) for n in range(1000)]
    assert 0 < len(feed(made, lines)) <= 100


# -- what is written --------------------------------------------------------------------------------------------------

TEXTS = {
    "plain": "hello",
    "empty": "",
    "nul": "a\0b",
    "separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "newlines": "a\nb\r\nc\r",
    "emoji": "\U0001f600\U0001f1fa\U0001f1f3 e\u0301",
    "astral": "\U00010000\U0010ffff",
    "escapes": '\x1b[201~\\u0000 "quoted" {"type":"control_request"}',
    "command": "/compact\n!ls @file $skill",
    "megabyte": "0123456789abcdé\n" * (1 << 16),
}


@per_stream
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_prompt_is_one_line_under_its_message_whatever_is_in_it(backend: str, text: str) -> None:
    for write in (lambda made: made.prompt("the-id", text), lambda made: steer_of(made, backend, "the-id", text)):
        data = write(make(backend))
        (value,) = assert_lines(data)
        assert data.count(b"\n") == 1
        assert TEXT_OF[backend](value) == ("the-id", text)


@per_stream
@QUICK
@given(text=st.text(st.characters(codec="utf-8")), message=st.uuids())
def test_any_text_comes_back_from_its_line(backend: str, text: str, message: Any) -> None:
    (value,) = assert_lines(make(backend).prompt(str(message), text))
    assert TEXT_OF[backend](value) == (str(message), text)


def claude_text(value: Any) -> tuple[str, str]:
    assert value["type"] == "user"
    assert value["message"]["role"] == "user"
    return value["uuid"], value["message"]["content"]


def codex_text(value: Any) -> tuple[str, str]:
    assert value["method"] in ("turn/start", "turn/steer")
    assert value["params"]["threadId"] == "S"
    ((part),) = value["params"]["input"]
    assert part["type"] == "text"
    return value["params"]["clientUserMessageId"], part["text"]


TEXT_OF: dict[str, Callable[[Any], tuple[str, str]]] = {"claude": claude_text, "codex": codex_text}


def steer_of(made: Codec, backend: str, message: str, text: str) -> bytes:
    """A steer into a turn that runs, of a CLI that takes one."""
    made.prompt("first", "text")
    running = {
        "claude": b'{"type":"system","subtype":"init","capabilities":["msg_lifecycle_v1"]}',
        "codex": b'{"id":"prompt:first","result":{"turn":{"id":"T"}}}',
    }
    made.decode(running[backend])
    return made.steer("s", message, text)


@per_stream
def test_all_that_is_ever_written_is_whole_lines(backend: str) -> None:
    for recording in recordings(backend):
        for _, data in play(recording).written:
            assert assert_lines(data)
    made = make(backend)
    for data in (made.hello(), made.interrupt(), made.compact("c"), made.expect_compact("c"), made.take()):
        assert_lines(data)
    assert assert_lines(made.hello())
    assert assert_lines(made.compact("c"))


VERDICTS = {
    "allow": Verdict(True),
    "always": Verdict(True, always=True),
    "deny": Verdict(False),
    "deny with a reason": Verdict(False, why='no "way"\n\u2028\0'),
}


def asks_of(backend: str) -> list[tuple[Recording, Ask]]:
    return [(r, event.ask) for r in recordings(backend) for event in play(r).of(told.Asked)]


@per_stream
@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=VERDICTS.keys())
def test_an_answer_is_whole_lines_of_which_one_names_the_ask(backend: str, verdict: Verdict) -> None:
    asks = asks_of(backend)
    assert asks
    for recording, ask in asks:
        answers: dict[str, tuple[str, ...]] = {q.key: ("B", "C") for q in ask.questions} if verdict.allow else {}
        made = codec_of(recording)
        values = assert_lines(made.answer(ask, attrs.evolve(verdict, answers=answers)))
        assert [value for value in values if ANSWERS[backend](value, ask, verdict)]
        assert [event for event in made.decode(recording.lines[0]) if isinstance(event, told.AskGone)] == []


def claude_answer(value: Any, ask: Ask, verdict: Verdict) -> bool:
    response = value["response"]
    assert value["type"] == "control_response"
    assert response["subtype"] == "success"
    body = response["response"]
    if verdict.allow:
        assert body["behavior"] == "allow"
        assert {**body["updatedInput"], "answers": 0} == {**ask.input, "answers": 0}
        assert body.get("updatedPermissions") == (ask.rule if verdict.always else None)
        if ask.questions:
            assert body["updatedInput"]["answers"] == {"Which?": "B, C"}
    else:
        assert body == {"behavior": "deny", "message": verdict.why or "denied", "interrupt": False}
    return bool(response["request_id"] == ask.id)


def codex_answer(value: Any, ask: Ask, verdict: Verdict) -> bool:
    if "method" in value:
        return False
    result = value["result"]
    if ask.questions:
        assert result == {"answers": {"color": {"answers": ["B", "C"]}} if verdict.allow else {}}
    elif verdict.always:
        assert result["decision"] == "acceptForSession" or "acceptWithExecpolicyAmendment" in result["decision"]
    else:
        assert result["decision"] == ("accept" if verdict.allow else "decline")
    return bool(f"1-{value['id']}" == ask.id)


ANSWERS: dict[str, Callable[[Any, Ask, Verdict], bool]] = {"claude": claude_answer, "codex": codex_answer}


@per_stream
def test_an_ask_that_came_back_from_the_journal_is_answered_the_same(backend: str) -> None:
    """Who answers may be another supervisor than who was asked."""
    for recording, ask in asks_of(backend):
        data = {"ask": ask.id, "tool": ask.tool, "input": ask.input, "rule": ask.rule, "detail": ask.detail}
        data["questions"] = [question.encode() for question in ask.questions]
        again = ask_of(Event("", 1, "asked", json.loads(json.dumps(data))))
        for verdict in (verdict_on(ask), Verdict(True, always=True), Verdict(False)):
            assert codec_of(recording).answer(again, verdict) == codec_of(recording).answer(ask, verdict)


# -- exec -------------------------------------------------------------------------------------------------------------


def test_exec_says_nothing_and_hears_nothing() -> None:
    made = make("exec", spec=attrs.evolve(make("claude")._setup.spec, backend="exec", argv=("a",)))  # type: ignore[attr-defined]
    ask = Ask("1", "t", {}, questions=(Question("k", "?"),))
    said = [made.hello(), made.prompt("m", "t"), made.interrupt(), made.answer(ask, Verdict(True)), made.take()]
    said += [made.steer("s", "m", "t"), made.expect_steer("s", "m", "t"), made.compact("c"), made.expect_compact("c")]
    assert set(said) == {b""}
    made.expect("m")
    assert made.decode(b'{"type":"result"}') == []
    assert made.partial() == ""


@per_stream
def test_the_old_end_of_a_turn_is_how_it_ended(backend: str) -> None:
    """Whatever ended it, a turn that is not done says why, and one that is done does not."""
    for recording in recordings(backend):
        for end in play(recording).of(told.TurnEnd):
            assert bool(end.reason) is (end.how is not How.DONE)
            assert isinstance(end.text, str)


def test_a_call_is_one_of_those_that_a_supervisor_makes() -> None:
    assert {call.method for r in ALL for call in r.calls} == {"prompt", "expect", "steer", "compact", "interrupt"}
    assert Call(0, "prompt").message == ""
