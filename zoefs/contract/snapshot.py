"""The fold of an agent as bytes, and back, so that who starts need not read a whole life.

Theory. A snapshot says: this is the fold of everything up to here (Place), by these rules (VERSION) and in this shape
(LAYOUT). What follows in the journal is fed to it, and the result is the fold of all. It is a cache. Where anything
about it is not as expected, there is no snapshot, and the journal is read instead.

Rules. How a value is written follows from its type, for every field of Fold and of the values in it; nothing here
names one. So a new field is kept as soon as it exists, and a snapshot without it is not used. A field of a type that
has no row here fails at once, and a test sees to it.
"""

from __future__ import annotations

import copy
import functools
import json
import sys
import types
import typing
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import attrs

from zoefs import __version__
from zoefs.contract.lifecycle import Fold

VERSION = f"1 {__version__}"
"""Its number grows whenever Fold takes in the same events otherwise than before."""


@attrs.frozen
class Place:
    """Where a reader of a journal stands: behind event `seq`, at byte `offset` of the segment that begins with event
    `first`. `first` 0: at the beginning of whatever there is."""

    first: int = 0
    offset: int = 0
    seq: int = 0


@attrs.frozen
class Snapshot:
    """A fold, and how far it goes."""

    place: Place
    fold: Fold


@attrs.frozen
class _Codec:
    """How values of one type become JSON and come back. `back` raises ValueError or TypeError for anything else."""

    there: Callable[[Any], Any]
    back: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type) -> _Codec:
    def back(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{kind.__name__} expected")
        return value

    return _Codec(_same, back)


def _text(value: Any) -> str:
    """The same text is one object, as it is in a fold that was fed."""
    if type(value) is not str:
        raise TypeError("str expected")
    return sys.intern(value)


_list, _dict = _exactly(list).back, _exactly(dict).back


@functools.cache
def _codec(kind: Any) -> _Codec:
    """The codec of a type. Raises TypeError for one that has none."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return _Codec(_same, _same)
    if kind is str:
        return _Codec(_same, _text)
    if kind in (int, float, bool):
        return _exactly(kind)
    if origin is types.UnionType and len(inner) == 2 and inner[1] is types.NoneType:
        some = _codec(inner[0])
        return _Codec(
            lambda v: None if v is None else some.there(v),
            lambda v: None if v is None else some.back(v),
        )
    if origin is tuple and inner[1:] == (...,):
        one = _codec(inner[0])
        return _Codec(lambda v: [one.there(x) for x in v], lambda v: tuple(one.back(x) for x in _list(v)))
    if origin is tuple:
        there, back = [_codec(x).there for x in inner], [_codec(x).back for x in inner]
        return _Codec(lambda v: _each(there, v), lambda v: tuple(_each(back, v)))
    if origin is set and inner == (str,):
        return _Codec(sorted, lambda v: {_text(x) for x in _list(v)})
    if origin is dict and inner[0] is str:
        of = _codec(inner[1])
        return _Codec(
            lambda v: {key: of.there(x) for key, x in v.items()},
            lambda v: {_text(key): of.back(x) for key, x in _dict(v).items()},
        )
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _Codec(str, kind)
    if attrs.has(kind):
        names, row = [name for name, _ in _fields(kind)], [_codec(of) for _, of in _fields(kind)]
        there, back = [x.there for x in row], [x.back for x in row]
        return _Codec(lambda v: _each(there, [getattr(v, name) for name in names]), lambda v: kind(*_each(back, v)))
    raise TypeError(f"no codec for {kind}")


def _each(ways: Sequence[Callable[[Any], Any]], values: Any) -> list[Any]:
    """A row of values, each its own way."""
    if type(values) not in (list, tuple):
        raise TypeError("a row expected")
    return [way(value) for way, value in zip(ways, values, strict=True)]


def _fields(kind: type) -> list[tuple[str, Any]]:
    """Each field of an attrs class, in the order in which its values are written, and its type."""
    hints = typing.get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in attrs.fields(kind)]


@functools.cache
def layout() -> dict[str, str]:
    """The shape of what is kept: `Class.field` and its type, for Fold and every class in it."""
    found: dict[str, str] = {}

    def add(kind: Any) -> None:
        for inner in typing.get_args(kind):
            add(inner)
        if isinstance(kind, type) and attrs.has(kind):
            for name, of in _fields(kind):
                found[f"{kind.__name__}.{name}"] = str(of)
                add(of)

    add(Fold)
    return found


def copied(fold: Fold) -> Fold:
    """The fold as of now: what the original is fed later does not show in it."""
    return attrs.evolve(fold, **{field.name: copy.copy(getattr(fold, field.name)) for field in attrs.fields(Fold)})


def encode(snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot, one line of JSON."""
    value = {
        "version": VERSION,
        "born": snapshot.fold.born,
        **attrs.asdict(snapshot.place),
        "layout": layout(),
        "fold": _codec(Fold).there(snapshot.fold),
    }
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def decode(data: bytes, born: str) -> Snapshot | None:
    """The snapshot of the agent that was born as `born`; None where these bytes are none that may be used."""
    try:
        value = _dict(json.loads(data))
        if (value.get("version"), value.get("layout"), value.get("born")) != (VERSION, layout(), born):
            return None
        place = Place(**{field.name: _codec(int).back(value[field.name]) for field in attrs.fields(Place)})
        fold = _codec(Fold).back(value["fold"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    fits = (fold.born, fold.seq) == (born, place.seq) and (place.offset > 0 or place.first == place.seq + 1)
    return Snapshot(place, fold) if fits else None
