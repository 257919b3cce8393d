"""Journal lines: what survives, what is skipped, and that nothing raises."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoefs.contract.events import Event, Kind, decode_line, decode_lines, seconds, utc

QUICK = settings(deadline=None, max_examples=200)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
HEAD = ("v", "t", "seq", "kind")
EVENTS = st.builds(
    Event,
    t=st.floats(0, 4e9).map(utc) | st.text(max_size=8),
    seq=st.integers(),
    kind=st.sampled_from(list(Kind)) | st.text(max_size=12),
    data=st.dictionaries(st.text(max_size=8).filter(lambda key: key not in HEAD), JSON, max_size=4),
    v=st.integers(0, 9),
)


def line(**fields: Any) -> bytes:
    """One whole line with a right head, changed by `fields`."""
    return json.dumps({"v": 1, "t": "2026-01-02T03:04:05.678Z", "seq": 1, "kind": "note", **fields}).encode() + b"\n"


@QUICK
@given(EVENTS)
def test_any_event_survives_a_round_trip(event: Event) -> None:
    encoded = event.encode()
    assert encoded.endswith(b"\n")
    assert encoded.count(b"\n") == 1
    encoded.decode("ascii")
    assert decode_line(encoded) == event
    assert decode_line(encoded[:-1]) == event
    decoded = decode_line(encoded)
    assert decoded is not None
    assert decoded.encode() == encoded


def test_unknown_kinds_and_fields_survive() -> None:
    data = b'{"v":7,"t":"x","seq":3,"kind":"from-the-future","a":{"b":[1,null,true]},"\\u00e9":"\\ud800"}\n'
    event = decode_line(data)
    assert event is not None
    assert event.kind == "from-the-future"
    assert event.v == 7
    assert event.encode() == data


def test_a_lone_surrogate_is_written_as_valid_utf_8() -> None:
    encoded = Event("t", 1, "text", {"text": "a\udc80b"}).encode()
    encoded.decode("utf-8")
    event = decode_line(encoded)
    assert event is not None
    assert event.text("text") == "a\udc80b"


@pytest.mark.parametrize("key", HEAD)
def test_no_field_can_stand_for_the_head(key: str) -> None:
    event = decode_line(Event("2026", 5, "note", {key: 99, "x": 1}).encode())
    assert event is not None
    assert (event.v, event.t, event.seq, event.kind, event.data["x"]) == (1, "2026", 5, "note", 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"null\n",
        b"[]\n",
        b'"text"\n',
        b"{}\n",
        b"\0\0\0\0\0\0\0\0\n",
        b"\xff\xfe\n",
        b'{"v":1,"t":"x","seq":1,"kind":"note"\n',
        b'{"v":1,"t":"x","seq":1,"kind":"n\xff"}\n',
        b"[" * 100_000 + b"\n",
        b'{"v":1,"t":"x","kind":"note","seq":' + b"9" * 5000 + b"}\n",
        line(v="1"),
        line(v=None),
        line(v=True),
        line(t=1),
        line(t=None),
        line(seq="1"),
        line(seq=1.0),
        line(seq=None),
        line(seq=True),
        line(kind=1),
        line(kind=None),
        line(kind=["note"]),
    ],
)
def test_what_is_no_event_is_skipped(data: bytes) -> None:
    assert decode_line(data) is None
    good = line()
    assert decode_lines(good + data.rstrip(b"\n") + b"\n" + good)[0] == [decode_line(good)] * 2


@pytest.mark.parametrize("missing", HEAD)
def test_a_head_with_a_part_missing_is_no_event(missing: str) -> None:
    fields = json.loads(line())
    del fields[missing]
    assert decode_line(json.dumps(fields).encode()) is None


@QUICK
@given(st.lists(EVENTS, max_size=4), st.data())
def test_a_journal_cut_anywhere_gives_its_whole_lines(events: list[Event], data: st.DataObject) -> None:
    lines = [event.encode() for event in events]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    expected = sum(1 for n in range(1, len(lines) + 1) if len(b"".join(lines[:n])) <= cut)
    found, end = decode_lines(whole[:cut])
    assert found == events[:expected]
    assert end == len(b"".join(lines[:expected]))
    rest, _ = decode_lines(whole[end:])
    assert found + rest == events


@QUICK
@given(st.binary(max_size=60) | st.lists(st.binary(max_size=20), max_size=5).map(b"\n".join), EVENTS)
def test_no_bytes_raise_and_none_hide_a_later_line(noise: bytes, event: Event) -> None:
    found, end = decode_lines(noise)
    assert 0 <= end <= len(noise)
    again, whole = decode_lines(noise + b"\n" + event.encode())
    assert again[-1] == event
    assert whole == len(noise) + 1 + len(event.encode())
    assert again[: len(found)] == found


@QUICK
@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_a_journal_with_a_byte_changed_never_raises(events: list[Event], data: st.DataObject) -> None:
    whole = bytearray(b"".join(event.encode() for event in events))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    decode_lines(bytes(whole))


VALUES: list[object] = [None, True, False, "", "7", 7, -7, 0, 2.5, -2.5, math.nan, [], {}, [7]]


@pytest.mark.parametrize("value", VALUES)
def test_a_field_of_another_type_is_the_default(value: object) -> None:
    event = Event("t", 1, "note", {"x": value})
    assert event.text("x", "d") == (value if isinstance(value, str) else "d")
    assert event.number("x", 9) == (value if type(value) is int else 9)
    assert event.amount("x") == (value if isinstance(value, int | float) and value in (7, 2.5) else 0.0)
    assert type(event.amount("x")) is float
    assert (event.text("y", "d"), event.number("y", 9), event.amount("y")) == ("d", 9, 0.0)


@pytest.mark.parametrize("number", [b"1e999", b"Infinity", b"1" + b"0" * 400])
def test_an_amount_is_always_a_finite_number(number: bytes) -> None:
    event = decode_line(line(cost_usd=0).replace(b'"cost_usd": 0', b'"cost_usd": ' + number))
    assert event is not None
    assert math.isfinite(event.amount("cost_usd"))


@QUICK
@given(st.floats(0, 4e9))
def test_a_time_survives_to_the_millisecond(now: float) -> None:
    text = utc(now)
    assert text.endswith("Z")
    assert len(text) == len("2026-01-02T03:04:05.678Z")
    assert -1e-6 <= now - seconds(text) < 0.00101


@QUICK
@given(st.text(max_size=30))
def test_a_text_that_is_no_time_is_zero(text: str) -> None:
    assert isinstance(seconds(text), float)


@pytest.mark.parametrize(
    "text", ["", "now", "2026-13-01", "\ud800", "0001-01-01T00:00:00", "9999-12-31T23:59:59", "2026-01-01T25:00"]
)
def test_odd_times_do_not_raise(text: str) -> None:
    assert isinstance(seconds(text), float)


def test_a_time_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """`t` is UTC, wherever it is read."""
    monkeypatch.setenv("TZ", "XXX5")
    time.tzset()
    try:
        assert seconds("1970-01-01T00:01:00Z") == 60.0
        assert seconds("1970-01-01T00:01:00") == 60.0
    finally:
        monkeypatch.undo()
        time.tzset()
