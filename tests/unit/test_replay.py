"""A replay that parses only what moves something gives the fold that taking in every event gives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.unit.test_lifecycle import COMMON, RARE, Driver
from zoefs.contract.events import Event, Kind, decode_lines
from zoefs.contract.lifecycle import CARRIED, Fold
from zoefs.contract.replay import Carried, decode_past, replay

T = "2026-11-30T00:00:00.000Z"


def both(data: bytes) -> tuple[Fold, Fold]:
    """The fold by replay, and by feeding every event."""
    quick, plain = Fold(), Fold()
    past, end = decode_past(data)
    replay(quick, past)
    events, same = decode_lines(data)
    for event in events:
        plain.feed(event)
    assert end == same
    return quick, plain


def said(chance: random.Random, fold: Fold) -> dict[str, Any]:
    """What a CLI may have said: of this incarnation or of another, with an offset or without."""
    fields: dict[str, Any] = {"inc": max(0, fold.inc + chance.choice((-1, 0, 0, 0, 1)))}
    fields |= {"raw_end": chance.randrange(10_000)} if chance.random() < 0.7 else {}
    fields |= {"turn": fold.turn}
    fields |= {"text": chance.choice(('a "quoted" one', "caf\u00e9", '{"kind":"created","inc":9}', "\n", ""))}
    fields |= {"input": {"raw_end": 5, "seq": 1}} if chance.random() < 0.2 else {}
    keys = list(fields)
    if chance.random() < 0.2:
        chance.shuffle(keys)
    return {key: fields[key] for key in keys}


@pytest.mark.parametrize("seed", range(40))
def test_the_fold_is_the_same(seed: int) -> None:
    chance, driver = random.Random(seed), Driver()
    fold, lines = Fold(), bytearray()
    plainly = driver.pen.note

    def told(kind: str, **data: Any) -> Fold:
        event = Event(T, fold.seq + 1 + (chance.random() < 0.01), kind, data)
        fold.feed(event)
        lines.extend(event.encode())
        return plainly(kind, **data)

    driver.pen.note = told  # type: ignore[method-assign]
    told("created", born="b")
    for _ in range(150):
        driver.act(chance.choice(COMMON * 2 + RARE), chance.randrange(42), chance.randrange(400) / 4)
        for _ in range(chance.randrange(3)):
            told(chance.choice(sorted(CARRIED)), **said(chance, fold))
    quick, plain = both(bytes(lines))
    assert quick == plain == fold
    assert any(isinstance(one, Carried) for one in decode_past(bytes(lines))[0]), "it is a quick way at all"


def line(**fields: Any) -> bytes:
    return json.dumps({"v": 1, "t": T, "seq": 7, "kind": "text", **fields}, separators=(",", ":")).encode() + b"\n"


ODD = [
    line(inc=1, turn=1, text="x").replace(b'"v":1', b'"v":2'),
    line(inc=1, turn=1, text="x", raw_end=9),
    line(turn=1, inc=1, text="x"),
    line(inc="1", turn=1, text="x"),
    line(inc=1.5, turn=1, text="x"),
    line(inc=-1, turn=1, text="x"),
    line(inc=1, raw_end=-5, turn=1, text="x"),
    line(inc=1, raw_end=True, turn=1, text="x"),
    line(inc=10**30, turn=1, text="x"),
    line(inc=1, turn=1),
    line(inc=1, chat_end=5, turn=1, text="x"),
    line(inc=1, turn=1, text="x").replace(b'"text"', b'"spawned"', 1),
    line(inc=1, turn=1, text="x")[:-2],
    line(inc=1, turn=1, text="x")[:40] + b"\n",
    b"\n",
    b"\0\0\0\n",
    b"[]\n",
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_a_line_of_another_form_is_decoded_whole(odd: bytes) -> None:
    begin = Event(T, 1, "created", {"born": "b"}).encode() + Event(T, 2, "spawned", {"inc": 1, "ready": True}).encode()
    quick, plain = both(begin + odd)
    assert quick == plain
    assert not any(isinstance(one, Carried) for one in decode_past(odd)[0])


def test_what_moves_something_is_not_carried() -> None:
    assert {Kind.TEXT, Kind.DELTA, Kind.TOOL, Kind.TOOL_RESULT} <= CARRIED
    assert not CARRIED & {Kind.CREATED, Kind.SPAWNED, Kind.EXITED, Kind.TURN_ENDED, Kind.PROMPT_GIVEN, Kind.ASKED}
