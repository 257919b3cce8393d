"""The table of fields: a row for each kind, held to what the supervisor writes of every recording, and of its own.

Every living tree of the other tests is held to it too, when it goes down (`tests/living.py`).
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import supervisor
from supervisor.backends import codec as told
from supervisor.desk import Desk
from supervisor.hearing import as_note
from supervisor.running import Running
from tests.unit.recordings import Recording, play, recordings
from zoefs.contract.events import Kind
from zoefs.contract.fields import FIELDS, FITS, Type, strange

ALL = recordings()
NO_NOTE = (told.TurnEnd, told.Delta, told.Steered, told.Compacted, told.Unable, told.SessionChanged)


def test_every_kind_has_its_rows_and_no_name_twice() -> None:
    assert set(FIELDS) == set(Kind)
    assert set(FITS) == set(Type)
    for kind, rows in FIELDS.items():
        names = [row.name for row in rows]
        assert len(names) == len(set(names)), kind
        assert not {"v", "t", "seq", "kind"} & set(names)


def test_every_field_is_written_somewhere() -> None:
    sources = [*Path(supervisor.__file__ or "").parent.rglob("*.py")]
    sources.append(Path(supervisor.__file__ or "").parents[1] / "zoefs" / "contract" / "lifecycle.py")
    written = {
        node.value
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = {row.name for rows in FIELDS.values() for row in rows}
    assert named <= written


@pytest.mark.parametrize("recording", ALL, ids=[recording.name for recording in ALL])
def test_what_a_recording_leads_to_carries_what_the_table_says(recording: Recording) -> None:
    fold = SimpleNamespace(turn=1, turn_open=True, given="p1", asks={})
    hub = SimpleNamespace(started=lambda name: None)
    desk = SimpleNamespace(fold=fold, hub=hub, home=SimpleNamespace(name="a"), message_id=lambda id: "")
    running = SimpleNamespace(inc=1, sent=False, accepted="")
    notes = []
    for _, event in play(recording).events:
        if not isinstance(event, NO_NOTE):
            note = as_note(cast(Desk, desk), event, cast(Running, running), 10)
            notes += [] if note is None else [note]
    assert [(kind, what) for kind, data in notes for what in strange(Kind(kind), data)] == []


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (Kind.GAP, {"missing": 1, "text": "x"}, []),
        (Kind.GAP, {"missing": 1}, ["text: missing"]),
        (Kind.GAP, {"missing": True, "text": "x"}, ["missing: True is no whole number"]),
        (Kind.GAP, {"missing": 1, "text": "x", "more": 2}, ["more: no such field"]),
        (Kind.EXITED, {"inc": 1, "next": "resting", "rc": None}, []),
        (Kind.EXITED, {"inc": 1, "next": "resting", "rc": 1.5}, ["rc: 1.5 is no whole number"]),
        (Kind.EXITED, {"inc": 1, "next": "backoff", "until": 7}, []),
        (
            Kind.ANSWERED,
            {"ask": "1", "decision": "deny", "why": "", "by": "k", "answers": []},
            ["answers: [] is no object"],
        ),
    ],
)
def test_what_the_table_does_not_tell_is_strange(kind: Kind, data: dict[str, Any], said: list[str]) -> None:
    assert strange(kind, data) == said
