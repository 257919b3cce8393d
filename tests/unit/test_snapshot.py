"""A fold kept and taken up again is the same fold, whatever it holds; and one that does not fit is none."""

from __future__ import annotations

import copy
import json
import types
import typing
from enum import StrEnum
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_lifecycle import ACTIONS, ANYTHING, QUICK, Driver
from zoefs.contract import snapshot
from zoefs.contract.events import Event
from zoefs.contract.lifecycle import Fold, fold
from zoefs.contract.snapshot import Place, Snapshot, copied, decode, encode, layout


def sample(kind: Any, n: int) -> Any:
    """A value of this type that is no default; another for each `n`."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {"a": [n, None, True, 1.5, "\ud800"]}
    if kind in (str, int, float, bool):
        return {str: f"caf\u00e9 {n}\n", int: n, float: n + 0.25, bool: True}[kind]
    if origin is types.UnionType and inner[1] is types.NoneType:
        return sample(inner[0], n) if n % 2 else None
    if origin is tuple and inner[1:] == (...,):
        return (sample(inner[0], n), sample(inner[0], n + 1))
    if origin is tuple:
        return tuple(sample(of, n) for of in inner)
    if origin is set:
        return {sample(inner[0], n), sample(inner[0], n + 1)}
    if origin is dict:
        return {f"z{n}": sample(inner[1], n), f"a{n}": sample(inner[1], n + 1)}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return list(kind)[n % len(kind)]
    if attrs.has(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: sample(hints[field.name], n + at) for at, field in enumerate(attrs.fields(kind))})
    raise AssertionError(f"Fold has a field of a type that this test cannot make: {kind}; and does snapshot keep it?")


FULL: Fold = sample(Fold, 11)
PLACE = Place(3, 4000, FULL.seq)
BYTES = encode(Snapshot(PLACE, FULL))


def kept(state: Fold) -> Fold:
    """The fold after it was kept and taken up again."""
    found = decode(encode(Snapshot(Place(1, 2, state.seq), state)), state.born)
    assert found is not None
    assert found.place == Place(1, 2, state.seq)
    return found.fold


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Fold)])
def test_every_field_is_kept(name: str) -> None:
    value = getattr(FULL, name)
    assert value != getattr(Fold(), name), "the sample shows nothing"
    back = getattr(kept(FULL), name)
    assert back == value
    assert type(back) is type(value)
    assert list(back) == list(value) if isinstance(value, dict) else True
    assert f"Fold.{name}" in layout()


def test_a_fold_comes_back_with_its_place() -> None:
    assert decode(BYTES, FULL.born) == Snapshot(PLACE, FULL)
    assert BYTES.count(b"\n") == 1
    BYTES.decode("ascii")


def test_of_another_birth_it_is_none() -> None:
    assert decode(BYTES, "b2") is None


def test_torn_at_any_byte_it_is_none() -> None:
    assert [at for at in range(len(BYTES) - 1) if decode(BYTES[:at], FULL.born) is not None] == []


def changed(**fields: Any) -> Snapshot | None:
    return decode(json.dumps({**json.loads(BYTES), **fields}).encode(), FULL.born)


def without(name: str) -> dict[str, str]:
    return {key: of for key, of in layout().items() if key != name}


WRONG: list[dict[str, Any]] = [
    {"version": "0"},
    {"version": None},
    {"layout": {**layout(), "Fold.news": "<class 'int'>"}},
    {"layout": without("Fold.turn")},
    {"layout": without("Receipt.verb")},
    {"layout": {**layout(), "Receipt.turn": "<class 'str'>"}},
    {"seq": FULL.seq + 1},
    {"seq": str(FULL.seq)},
    {"first": None},
    {"offset": 1.0},
    {"offset": True},
    {"fold": None},
    {"fold": {}},
    {"fold": json.loads(BYTES)["fold"][:-1]},
    {"fold": [*json.loads(BYTES)["fold"], 0]},
]


@pytest.mark.parametrize("fields", WRONG)
def test_what_is_not_as_expected_is_none(fields: dict[str, Any]) -> None:
    assert changed() == Snapshot(PLACE, FULL)
    assert changed(**fields) is None


@pytest.mark.parametrize("at", range(len(attrs.fields(Fold))))
def test_a_field_of_another_type_is_none(at: int) -> None:
    for odd in (None, {"x": None}, [None]):
        values = json.loads(BYTES)["fold"]
        values[at] = odd
        assert changed(fold=values) is None, odd


@pytest.mark.parametrize("data", [b"", b"\n", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, b"\0" * 100])
def test_what_is_no_snapshot_is_none(data: bytes) -> None:
    assert decode(data, "") is None


def test_a_type_that_cannot_be_kept_is_no_silence() -> None:
    @attrs.define
    class Odd:
        x: bytes = b""

    with pytest.raises(TypeError, match="no codec for <class 'bytes'>"):
        snapshot._codec(typing.get_type_hints(Odd)["x"])


def test_a_copy_stays_as_it_was() -> None:
    state = copy.deepcopy(FULL)
    now = copied(state)
    assert now == FULL
    for value in (getattr(state, field.name) for field in attrs.fields(Fold)):
        if isinstance(value, dict | set | list):
            value.clear()
    assert now == FULL


def through(events: list[Event], cut: int) -> Fold:
    """The fold of all, with what came before the cut from a snapshot."""
    state = kept(fold(events[:cut]))
    for event in events[cut:]:
        state.feed(event)
    return state


@QUICK
@given(ANYTHING, st.data())
def test_at_any_cut_of_any_journal_the_fold_goes_on(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    whole = fold(events)
    assert through(events, cut) == whole
    assert list(through(events, cut).receipts) == list(whole.receipts)


@QUICK
@given(st.lists(ACTIONS, max_size=60), st.data())
def test_at_any_cut_of_a_legal_journal_the_fold_goes_on(
    actions: list[tuple[str, int, float]], data: st.DataObject
) -> None:
    driver = Driver()
    for action, pick, cost in [("spawn", 1, 0.0), *actions]:
        driver.act(action, pick, cost)
    events = driver.pen.events
    assert through(events, data.draw(st.integers(0, len(events)))) == driver.pen.fold
