"""A journal in segments: what every reader sees over any number of rotations, and what a crash amid one leaves."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.disk.test_files import FORK
from zoefs.contract.events import Event
from zoefs.contract.home import first_of, segment_of
from zoefs.contract.snapshot import Place
from zoefs.disk import journal as module
from zoefs.disk.files import names, sync_dir
from zoefs.disk.journal import Sizes, Tail, TakenBack, Writer, recent
from zoefs.disk.segments import following, older


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r1.jsonl"


def written(path: Path, *counts: int) -> list[Event]:
    """A journal whose segments hold so many events; the last is the current one."""
    writer = Writer(path, 0)
    events: list[Event] = []
    for n, count in enumerate(counts):
        if n:
            writer.rotate()
        for _ in range(count):
            events += writer.append(("note", {"text": "x" * (len(events) % 7)}))
    writer.close()
    return events


def goes_on(path: Path) -> list[Event]:
    """What the next writer, which reads all first, adds to the journal."""
    past = Tail(path).read()
    writer = Writer(path, past[-1].seq if past else 0)
    try:
        return writer.append(("next", {}), sync=True)
    finally:
        writer.close()


def test_an_older_segment_is_named_by_its_first_event(path: Path) -> None:
    events = written(path, 3, 2, 1)
    assert names(path.parent) == ["r1.jsonl", "r1.jsonl.000000000001", "r1.jsonl.000000000004"]
    assert older(path) == [1, 4]
    assert Tail(path).read() == events
    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
    assert all((path.parent / name).stat().st_mode & 0o777 == 0o600 for name in names(path.parent))


def test_numbers_beyond_the_digits_still_ascend(path: Path) -> None:
    for first in (7, 999_999_999_999, 1_000_000_000_000, 12_345_678_901_234):
        kept = segment_of(path, first)
        assert first_of(path, kept.name) == first
        kept.touch()
    assert older(path) == [7, 999_999_999_999, 1_000_000_000_000, 12_345_678_901_234]


@pytest.mark.parametrize(
    "name", ["r1.jsonl", "r1.jsonl.1", "r1.jsonl.00000000000x", "r2.jsonl.000000000001", ".r1.jsonl.000000000001"]
)
def test_other_names_are_no_segments(path: Path, name: str) -> None:
    (path.parent / name).touch()
    assert older(path) == []


def test_no_agent_has_the_name_of_anothers_segment(path: Path) -> None:
    """An agent may be called like a segment; its journal ends in .jsonl all the same."""
    mine = written(path, 2, 1)
    odd = path.with_name("r1.jsonl.000000000001.jsonl")
    theirs = written(odd, 1, 3)
    assert Tail(path).read() == mine
    assert Tail(odd).read() == theirs


def test_a_segment_without_a_line_is_not_ended(path: Path) -> None:
    writer = Writer(path, 6)
    writer.rotate()
    path.write_bytes(b"{torn")
    writer.rotate()
    assert names(path.parent) == ["r1.jsonl"]
    assert writer.append(("a", {}))[0].seq == 7
    writer.rotate()
    writer.rotate()
    assert older(path) == [7]
    assert writer.append(("b", {}), sync=True)[0].seq == 8
    writer.close()


def test_a_torn_tail_is_cut_before_a_segment_is_ended(path: Path) -> None:
    first = written(path, 2)
    with path.open("ab") as file:
        file.write(b'{"v":1,"t":"2026')
    writer = Writer(path, 2)
    writer.rotate()
    more = writer.append(("next", {}))
    writer.close()
    assert segment_of(path, 1).read_bytes().endswith(b"}\n")
    assert Tail(path).read() == first + more


def test_the_writer_knows_its_place(path: Path) -> None:
    writer = Writer(path, 0)
    assert writer.place == Place(1, 0, 0)
    writer.append(("a", {}), ("b", {}))
    size = path.stat().st_size
    assert (writer.place, writer.size, writer.written) == (Place(1, size, 2), size, size)
    writer.rotate()
    assert (writer.place, writer.size, writer.written) == (Place(3, 0, 2), 0, size)
    writer.append(("c", {}))
    tail = Tail(path)
    tail.read()
    assert tail.place == writer.place
    assert tail.taken == writer.written
    writer.close()


# -- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_any_number_of_rotations_between_two_looks(path: Path, seed: int) -> None:
    """Readers that look now and then, and one that begins at any place, see each event once and in order."""
    chance = random.Random(seed)
    writer = Writer(path, 0)
    events: list[Event] = []
    tails: list[tuple[Tail, list[Event]]] = [(Tail(path), []) for _ in range(3)]
    for _ in range(120):
        match chance.randrange(8):
            case 0 | 1:
                writer.rotate()
            case 2:
                tail, seen = chance.choice(tails)
                seen += tail.read()
                assert seen == events
            case 3:
                tails.append((Tail(path, writer.place), list(events)))
            case 4:
                writer.close()
                writer = Writer(path, len(events))
            case _:
                notes = [("note", {"n": n}) for n in range(chance.randrange(1, 4))]
                events += writer.append(*notes)
    for tail, seen in tails:
        assert seen + tail.read() == events
        assert tail.read() == []
        assert tail.place == writer.place or not tail.place.offset
    assert Tail(path).read() == events
    writer.close()


def test_a_reader_of_a_finished_segment_reads_on_in_the_next(path: Path) -> None:
    tail, writer = Tail(path), Writer(path, 0)
    writer.append(("a", {}))
    assert len(tail.read()) == 1
    writer.append(("b", {}))
    writer.rotate()
    assert [event.kind for event in tail.read()] == ["b"]
    assert tail.read() == []
    writer.append(("c", {}))
    assert [event.kind for event in tail.read()] == ["c"]
    writer.close()


def test_while_nothing_was_rotated_a_look_asks_no_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tail, writer = Tail(path), Writer(path, 0)
    writer.append(("a", {}))
    tail.read()

    def asked(journal: Path) -> list[int]:
        raise AssertionError("the directory was read")

    monkeypatch.setattr(module, "older", asked)
    monkeypatch.setattr(module, "following", asked)
    for _ in range(3):
        more = writer.append(("b", {}))
        assert tail.read() == more
        assert tail.read() == []
    writer.close()


def test_a_reader_beside_a_writer_that_rotates_sees_each_event_once(path: Path) -> None:
    count = 3000

    def act() -> None:
        writer = Writer(path, 0)
        for n in range(count):
            writer.append(("text", {"n": n, "text": "x" * (n * 97 % 300)}))
            if n % 7 == 0:
                writer.rotate()

    child = FORK.Process(target=act)
    child.start()
    tails, alive = (Tail(path), Tail(path)), True
    seen: tuple[list[Event], list[Event]] = ([], [])
    looks = 0
    while alive:
        alive = child.is_alive()
        seen[0].extend(found := tails[0].read())
        looks += bool(found)
        if looks % 5 == 0:
            seen[1].extend(tails[1].read())
    seen[1].extend(tails[1].read())
    child.join(5)
    assert child.exitcode == 0
    child.close()
    assert looks > 5
    for one in seen:
        assert [event.number("n") for event in one] == list(range(count))


def test_a_look_that_fails_takes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = written(path, 3, 3, 3)
    tail = Tail(path)
    seen = following

    def failing(journal: Path, inode: int) -> int | None:
        if Path(f"/proc/self/fd/{(fd := seen(journal, inode))}").resolve() == path.resolve():
            assert fd is not None
            os.close(fd)
            raise OSError(errno.EIO, "no luck")
        return fd

    monkeypatch.setattr(module, "following", failing)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="no luck"):
            tail.read()
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    assert tail.read() == events


def test_lines_taken_back_are_told_of_in_any_segment(path: Path) -> None:
    tail, writer = Tail(path), Writer(path, 0)
    writer.append(("a", {"text": "x"}))
    length = path.stat().st_size
    writer.append(("b", {"text": "longer than that"}))
    assert len(tail.read()) == 2
    os.truncate(path, length)
    again = Writer(path, 1)
    again.append(("c", {"text": "y"}))
    with pytest.raises(TakenBack):
        tail.read()
    again.append(("d", {}))
    again.rotate()
    with pytest.raises(TakenBack):
        tail.read()
    assert [event.kind for event in Tail(path).read()] == ["a", "c", "d"]
    writer.close()
    again.close()


def test_lines_taken_back_are_told_of_by_their_numbers_too(path: Path) -> None:
    """Two lines were read, and one of the length of both stands in their place."""
    tail, writer = Tail(path), Writer(path, 0)
    writer.append(("a", {}))
    start = path.stat().st_size
    writer.append(("b", {}), ("c", {}))
    length = path.stat().st_size - start
    assert len(tail.read()) == 3
    os.truncate(path, start)
    again = Writer(path, 1)
    one = len(Event("2026-01-01T00:00:00.000Z", 2, "b", {"x": ""}).encode())
    again.append(("b", {"x": "y" * (length - one)}))
    assert path.stat().st_size == tail.place.offset
    again.append(("d", {}))
    with pytest.raises(TakenBack):
        tail.read()
    again.close()
    writer.close()


def test_a_journal_that_was_replaced_is_read_anew(path: Path) -> None:
    events = written(path, 2, 2)
    tail = Tail(path)
    assert tail.read() == events
    data = path.read_bytes()
    path.unlink()
    assert tail.read() == []
    path.with_name("copy").write_bytes(data)
    path.with_name("other").write_bytes(data)
    path.with_name("other").rename(path)
    with pytest.raises(TakenBack):
        tail.read()
    assert Tail(path).read() == events


@pytest.mark.parametrize("place", [Place(1, 3, 1), Place(2, 0, 1), Place(9, 0, 8), Place(3, 10_000, 4), Place(3, 1, 2)])
def test_a_place_that_does_not_fit_is_told(path: Path, place: Place) -> None:
    written(path, 2, 2)
    with pytest.raises(TakenBack):
        Tail(path, place).read()


def test_a_place_fits_wherever_its_segment_is_by_now(path: Path) -> None:
    events = written(path, 2, 2)
    place = Place(3, path.stat().st_size, 4)
    assert Tail(path, place).read() == []
    more = goes_on(path)
    assert Tail(path, place).read() == more
    writer = Writer(path, 5)
    writer.rotate()
    assert Tail(path, place).read() == more
    more += writer.append(("last", {}))
    writer.rotate()
    assert Tail(path, place).read() == more
    assert Tail(path, writer.place).read() == []
    path.unlink()
    tail = Tail(path, writer.place)
    assert tail.read() == []
    writer.close()
    last = goes_on(path)
    assert tail.read() == last
    assert Tail(path).read() == events + more + last


# -- crashes ---------------------------------------------------------------------------------------------------------


class Cut(BaseException):
    """The process ends here."""


STEPS = ("fsync", "rename", "open", "close")
"""The system calls of a rotation that change something, or make it last."""


def stop_at(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """Have the program end before its call of this number; the calls it came to, as they come."""
    came: list[str] = []

    def patch(name: str, real: Callable[..., Any]) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            came.append(name)
            if len(came) == count:
                raise Cut
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in STEPS:
        patch(name, getattr(os, name))
    return came


def test_the_steps_of_a_rotation(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment lasts, then its name, then the next one's."""
    written(path, 2)
    writer = Writer(path, 2)
    with monkeypatch.context() as patch:
        came = stop_at(patch, 0)
        writer.rotate()
    assert " ".join(came) == "fsync rename open fsync close open close open fsync close"
    writer.close()


@pytest.mark.parametrize("count", range(1, 11))
def test_a_crash_at_any_step_of_a_rotation_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    events = written(path, 2, 3)
    early, writer = Tail(path), Writer(path, 5)
    assert early.read() == events
    behind = Tail(path, Place(3, path.stat().st_size, 5))
    events += writer.append(("accepted", {}), sync=True)
    with monkeypatch.context() as patch:
        stop_at(patch, count)
        with pytest.raises(Cut):
            writer.rotate()
    assert early.read() == events[-1:]
    assert behind.read() == events[-1:]
    assert Tail(path).read() == events
    more = goes_on(path)
    assert more[0].seq == 7
    assert early.read() == behind.read() == more
    assert Tail(path).read() == events + more


def test_between_two_segments_there_is_nothing_to_read_and_all_to_know(path: Path) -> None:
    events = written(path, 2, 2)
    os.rename(path, segment_of(path, 3))
    tail = Tail(path)
    assert tail.read() == events
    assert tail.read() == []
    assert recent(path) == events[2:]
    path.touch(0o600)  # made, and the writer died before its first line
    assert tail.read() == []
    assert Tail(path).read() == events
    more = goes_on(path)
    assert tail.read() == more
    assert more[0].seq == 5


@pytest.mark.parametrize("call", ["fsync", "rename", "open"])
def test_a_rotation_that_fails_leaves_the_journal_going_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    events = written(path, 2)
    writer = Writer(path, 2)
    real, fails = getattr(os, call), [True]

    def failing(*args: Any, **kwargs: Any) -> Any:
        if fails:
            fails.pop()
            raise OSError(errno.ENOSPC, "full")
        return real(*args, **kwargs)

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(OSError, match="full"):
            writer.rotate()
    assert len(os.listdir("/proc/self/fd")) == before
    assert names(path.parent) == ["r1.jsonl"]
    events += writer.append(("next", {}), sync=True)
    writer.rotate()
    events += writer.append(("more", {}), sync=True)
    writer.close()
    assert Tail(path).read() == events
    assert older(path) == [1]


def test_a_name_that_does_not_last_yet_is_made_to_before_an_event_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, 2)
    writer = Writer(path, 2)
    calls: list[Path] = []

    def second_fails(directory: Path) -> None:
        calls.append(directory)
        if len(calls) == 2:
            raise OSError(errno.EIO, "no luck")
        sync_dir(directory)

    monkeypatch.setattr(module, "sync_dir", second_fails)
    with pytest.raises(OSError, match="no luck"):
        writer.rotate()
    writer.append(("a", {}))
    assert len(calls) == 2
    writer.append(("b", {}), sync=True)
    assert len(calls) == 3
    writer.append(("c", {}), sync=True)
    assert len(calls) == 3
    writer.close()
    assert [event.seq for event in Tail(path).read()] == [1, 2, 3, 4, 5]


def test_a_segment_is_never_replaced(path: Path) -> None:
    events = written(path, 2)
    segment_of(path, 1).write_bytes(b"somebody's")
    writer = Writer(path, 2)
    with pytest.raises(FileExistsError):
        writer.rotate()
    writer.close()
    assert segment_of(path, 1).read_bytes() == b"somebody's"
    segment_of(path, 1).unlink()
    assert Tail(path).read() == events


# -- logs ------------------------------------------------------------------------------------------------------------


def test_a_log_begins_a_new_segment_by_itself(path: Path) -> None:
    writer = Writer(path, 0, limit=200)
    events = [event for n in range(40) for event in writer.append(("note", {"n": n}), sync=n % 9 == 0)]
    writer.close()
    assert len(older(path)) > 5
    sizes = [(path.parent / name).stat().st_size for name in names(path.parent)]
    assert max(sizes) < 400
    assert Tail(path).read() == events
    last = recent(path)
    assert last == events[-len(last) :]
    assert len(last) < 10


def test_of_a_short_log_everything_is_recent(path: Path) -> None:
    assert recent(path) == []
    events = written(path, 4)
    assert recent(path) == events


def test_sizes_are_those_of_the_environment() -> None:
    assert Sizes.of({}) == Sizes() == Sizes(8 << 20, 1 << 20, 256 << 10)
    assert Sizes.of({"ZOEFS_ROTATE_BYTES": "2048"}) == Sizes(2048, 2048)
    assert Sizes.of({"ZOEFS_SNAPSHOT_BYTES": "100", "ZOEFS_ROTATE_BYTES": "many"}) == Sizes(snapshot=100)
