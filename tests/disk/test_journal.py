"""Journals on disk: torn tails, failed appends, and a reader beside a writer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk.test_files import FORK, in_child, limit_files
from zoefs.contract.events import Event, decode_lines
from zoefs.contract.snapshot import Place
from zoefs.disk.files import names
from zoefs.disk.journal import Tail, Writer
from zoefs.disk.segments import CHUNK


def now() -> float:
    return 1_767_323_045.678


def write(path: Path, *kinds: str, seq: int = 0) -> list[Event]:
    writer = Writer(path, seq, now)
    try:
        return [event for kind in kinds for event in writer.append((kind, {"x": kind}))]
    finally:
        writer.close()


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "r1.jsonl"
    assert names(tmp_path) in ([], ["r1.jsonl"])


def test_a_batch_is_written_and_read(path: Path) -> None:
    tail = Tail(path)
    assert tail.read() == []
    writer = Writer(path, 41, now)
    events = writer.append(("created", {"born": "b"}), ("note", {"text": "caf\u00e9\n"}), sync=True)
    assert [(e.seq, e.kind, e.t) for e in events] == [
        (42, "created", "2026-01-02T03:04:05.678Z"),
        (43, "note", "2026-01-02T03:04:05.678Z"),
    ]
    assert writer.seq == 43
    assert tail.read() == events
    assert tail.read() == []
    assert tail.place.offset == path.stat().st_size
    assert tail.read() == writer.append() == []
    assert tail.read() == []
    assert writer.seq == 43
    more = writer.append(("odd", {}))
    assert tail.read() == more
    assert more[0].seq == 44
    writer.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert Tail(path).read() == events + more == decode_lines(path.read_bytes())[0]


def test_a_writer_goes_on_where_another_ended(path: Path) -> None:
    first = write(path, "a", "b")
    second = write(path, "c", seq=2)
    assert Tail(path).read() == first + second
    assert [event.seq for event in first + second] == [1, 2, 3]


def test_the_fields_of_a_note_are_those_at_its_time(path: Path) -> None:
    fields = {"x": 1}
    writer = Writer(path, 0, now)
    [event] = writer.append(("note", fields))
    fields["x"] = 2
    writer.close()
    assert event.data == {"x": 1} == Tail(path).read()[0].data


def test_what_no_line_can_hold_is_noted_not_at_all(path: Path) -> None:
    writer = Writer(path, 0, now)
    with pytest.raises(TypeError):
        writer.append(("good", {}), ("bad", {"x": object()}))
    assert (writer.seq, path.read_bytes()) == (0, b"")
    assert writer.append(("next", {}))[0].seq == 1
    writer.close()


@pytest.mark.parametrize("tail", [b"{", b'{"v":1,"t":"x","seq":3,"ki', b"\0\0\0", b"\xff", b"x" * 3_000_000])
def test_a_torn_tail_is_closed_and_skipped(path: Path, tail: bytes) -> None:
    first = write(path, "a", "b")
    path.write_bytes(path.read_bytes() + tail)
    reader = Tail(path)
    assert reader.read() == first
    second = write(path, "c", "d", seq=2)
    assert reader.read() == second
    assert Tail(path).read() == first + second


def test_a_journal_cut_at_any_byte_goes_on(path: Path) -> None:
    """Whoever reads before the next line and whoever reads after it see the same events, and no seq twice."""
    write(path, "created", "text")
    whole = path.read_bytes()
    wrong = []
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        before = Tail(path).read()
        seq = before[-1].seq if before else 0
        after = write(path, "next", seq=seq)
        if Tail(path).read() != before + after:
            wrong.append(f"{cut} of {len(whole)}: {[(e.seq, e.kind) for e in Tail(path).read()]}")
    assert wrong == []


def test_a_failed_append_is_taken_back(path: Path) -> None:
    first = write(path, "a")
    length = path.stat().st_size

    def act() -> None:
        writer = Writer(path, 1)
        limit_files(length + 100)
        for sync in (False, True):
            with pytest.raises(OSError, match="too large"):
                writer.append(("b", {}), ("c", {"x": "y" * 500}), sync=sync)
            assert (path.stat().st_size, writer.seq) == (length, 1)
        limit_files(None)
        assert [event.seq for event in writer.append(("d", {}), ("e", {"x": "y" * 500}))] == [2, 3]
        writer.close()

    in_child(act)
    events = Tail(path).read()
    assert events[:1] == first
    assert [(event.seq, event.kind) for event in events] == [(1, "a"), (2, "d"), (3, "e")]


def test_a_failed_append_after_a_torn_tail_is_taken_back(path: Path) -> None:
    write(path, "a")
    torn = path.read_bytes() + b'{"v":1,'
    path.write_bytes(torn)

    def act() -> None:
        writer = Writer(path, 1)
        limit_files(len(torn) + 20)
        with pytest.raises(OSError, match="too large"):
            writer.append(("b", {}))
        assert [(event.seq, event.kind) for event in Tail(path).read()] == [(1, "a")]
        limit_files(None)
        writer.append(("c", {}))

    in_child(act)
    assert [(event.seq, event.kind) for event in Tail(path).read()] == [(1, "a"), (2, "c")]


def test_a_reader_that_was_there_before_a_failed_append_reads_on(path: Path) -> None:
    """It saw the line that was taken back at most as not yet whole; what comes instead reaches it."""
    write(path, "a")
    length = path.stat().st_size

    def act() -> None:
        reader = Tail(path)
        writer = Writer(path, 1)
        limit_files(length + 10)
        with pytest.raises(OSError, match="too large"):
            writer.append(("b", {}))
        assert [event.kind for event in reader.read()] == ["a"]
        limit_files(None)
        writer.append(("c", {}))
        assert [event.kind for event in reader.read()] == ["c"]

    in_child(act)


@pytest.mark.parametrize("length", [CHUNK - 60, CHUNK, 3 * CHUNK, 3 * CHUNK + 1])
def test_lines_longer_than_a_look_are_read_whole(path: Path, length: int) -> None:
    writer = Writer(path, 0, now)
    events = writer.append(("a", {}), ("b", {"x": "\u00e9" * 10 + "z" * length}), ("c", {}))
    events += writer.append(("d", {"x": "z" * length}))
    writer.close()
    tail = Tail(path)
    assert tail.read() == events
    assert tail.place.offset == path.stat().st_size


def test_a_line_that_arrives_in_pieces_is_seen_once_whole(path: Path) -> None:
    write(path, "a", "b")
    whole = path.read_bytes()
    path.write_bytes(b"")
    tail = Tail(path)
    seen: list[Event] = []
    with path.open("ab", buffering=0) as file:
        for at in range(len(whole)):
            file.write(whole[at : at + 1])
            seen += (found := tail.read())
            assert len(found) == (whole[at : at + 1] == b"\n")
    assert seen == Tail(path).read()
    assert [event.seq for event in seen] == [1, 2]


def test_a_reader_starts_at_its_offset(path: Path) -> None:
    write(path, "a")
    offset = path.stat().st_size
    second = write(path, "b", seq=1)
    assert Tail(path, Place(1, offset, 1)).read() == second


def test_a_reader_beside_a_writer_sees_each_event_once_and_whole(path: Path) -> None:
    batches = 400

    def act() -> None:
        writer = Writer(path, 0)
        for n in range(batches):
            writer.append(("begin", {"n": n}), ("text", {"text": "x" * (n * 97 % 9000)}), ("end", {"n": n}))

    child = FORK.Process(target=act)
    child.start()
    tail = Tail(path)
    seen: list[Event] = []
    looks = 0
    alive = True
    while alive:
        alive = child.is_alive()
        found = tail.read()
        seen += found
        looks += bool(found)
    child.join(5)
    assert child.exitcode == 0
    child.close()
    assert [event.seq for event in seen] == list(range(1, 3 * batches + 1))
    assert [event.kind for event in seen] == ["begin", "text", "end"] * batches
    assert all(event.text("text").strip("x") == "" for event in seen)
    assert looks > 1


def test_a_journal_is_not_inherited(path: Path) -> None:
    """A CLI started by the supervisor must not hold its journals."""
    writer = Writer(path, 0)
    opened = [fd for fd in map(int, os.listdir("/proc/self/fd")) if _target(fd) == str(path)]
    assert len(opened) == 1
    assert not os.get_inheritable(opened[0])
    writer.close()


def _target(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def test_a_writer_that_rests_holds_nothing_and_goes_on(path: Path) -> None:
    writer = Writer(path, 0, now)
    open_then = len(os.listdir("/proc/self/fd"))
    writer.append(("one", {}))
    writer.rest()
    writer.rest()
    assert len(os.listdir("/proc/self/fd")) == open_then - 1
    assert (writer.place, writer.seq) == (Place(1, path.stat().st_size, 1), 1)
    writer.rest()
    with path.open("ab") as file:
        file.write(b'{"torn')
    writer.append(("two", {}))
    writer.rest()
    writer.rotate()
    writer.append(("three", {}))
    writer.close()
    writer.close()
    assert [event.kind for event in Tail(path).read()] == ["one", "two", "three"]
    for name in names(path.parent)[1:]:
        (path.parent / name).unlink()
