"""The fold from disk: the same whatever of it was kept, and in whichever segments the journal lies."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from supervisor import upkeep as module
from supervisor.upkeep import Upkeep
from tests.unit.test_lifecycle import COMMON, RARE, Driver
from zoefs.contract.events import Event
from zoefs.contract.home import segment_of
from zoefs.contract.lifecycle import Fold, fold
from zoefs.contract.snapshot import Place, Snapshot, decode, encode
from zoefs.disk.files import names
from zoefs.disk.history import load
from zoefs.disk.journal import Sizes, Tail, Writer
from zoefs.disk.segments import older


@attrs.define
class Ground:
    """A journal, where its fold is kept, and who writes both."""

    journal: Path
    kept: Path
    writer: Writer
    state: Fold = attrs.Factory(Fold)

    def note(self, kind: str, **data: Any) -> None:
        for event in self.writer.append((kind, data)):
            self.state.feed(event)

    def keep(self) -> None:
        self.kept.write_bytes(encode(Snapshot(self.writer.place, self.state)))

    def live(self, seed: int, length: int, rotate: float = 0.0, keep: float = 0.0) -> None:
        """Some life of an agent, with rotations and kept folds now and then."""
        chance, driver = random.Random(seed), Driver()
        driver.pen.note = self.told  # type: ignore[method-assign]
        self.note("created", born="b")
        for _ in range(length):
            driver.act(chance.choice(COMMON * 2 + RARE), chance.randrange(42), chance.randrange(400) / 4)
            if chance.random() < rotate:
                self.writer.rotate()
            if chance.random() < keep:
                self.keep()

    def told(self, kind: str, **data: Any) -> Fold:
        self.note(kind, **data)
        return self.state

    def check(self, replays_at_most: int | None = None) -> None:
        history = load(self.journal, self.kept, "b")
        assert history.fold == self.state == fold(Tail(self.journal).read())
        assert list(history.fold.receipts) == list(self.state.receipts)
        assert history.tail.read() == []
        if replays_at_most is not None:
            assert history.replayed <= replays_at_most
        before = self.writer.seq
        self.note("note", text="more")
        assert [event.seq for event in history.tail.read()] == [before + 1]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    journal = tmp_path / "r1.jsonl"
    return Ground(journal, tmp_path / "fold.json", Writer(journal, 0))


@pytest.mark.parametrize("seed", range(30))
def test_with_any_rotations_and_any_kept_fold_it_is_the_fold_of_all(ground: Ground, seed: int) -> None:
    ground.live(seed, 200, rotate=0.05 * (seed % 3), keep=0.05 * (seed % 4))
    ground.check()
    ground.writer.rotate()
    ground.check()
    os.rename(ground.journal, segment_of(ground.journal, ground.writer.place.first))
    history = load(ground.journal, ground.kept, "b")
    assert history.fold == ground.state, "between two segments"


def test_a_kept_fold_saves_reading(ground: Ground) -> None:
    ground.live(1, 400)
    ground.keep()
    history = load(ground.journal, ground.kept, "b")
    assert (history.replayed, history.fold) == (0, ground.state)
    for at in range(3):
        ground.writer.rotate()
        ground.note("note", text=f"n{at}")
        assert load(ground.journal, ground.kept, "b").replayed < 1000
    ground.check(1000)


def test_an_older_life_is_not_read(ground: Ground) -> None:
    for life in range(3):
        ground.live(life, 300, rotate=0.02)
        ground.note("retired")
    ground.note("created", born="b")
    ground.note("text", text='an odd one: {"kind":"created"}')
    ground.note("tool", input={"kind": "created"})
    ground.check(1000)
    ground.writer.rotate()
    ground.note("note")
    ground.check(1500)
    assert load(ground.journal, ground.kept, "b9").fold == ground.state, "whose fold it is, the caller must ask"


def test_without_a_beginning_everything_is_read(ground: Ground) -> None:
    ground.note("note")
    ground.writer.rotate()
    ground.note("prompt-cut", id="p")
    ground.check()
    assert load(ground.journal.with_name("none.jsonl"), ground.kept, "b").fold == Fold()


def wrong(ground: Ground, what: str) -> None:
    """Make the kept fold one that must not be used."""
    snapshot = Snapshot(ground.writer.place, attrs.evolve(ground.state, turn=77))
    place = snapshot.place
    match what:
        case "torn":
            ground.kept.write_bytes(encode(snapshot)[:-100])
        case "born":
            ground.kept.write_bytes(encode(attrs.evolve(snapshot, fold=attrs.evolve(snapshot.fold, born="b7"))))
        case "offset":
            ground.kept.write_bytes(encode(attrs.evolve(snapshot, place=attrs.evolve(place, offset=place.offset - 1))))
        case "beyond":
            ground.kept.write_bytes(encode(attrs.evolve(snapshot, place=attrs.evolve(place, offset=place.offset + 1))))
        case "segment":
            ground.kept.write_bytes(encode(attrs.evolve(snapshot, place=attrs.evolve(place, first=place.first + 1))))
        case "seq":
            place = Place(place.first, place.offset, place.seq + 5)
            snapshot = Snapshot(place, attrs.evolve(snapshot.fold, seq=place.seq))
            ground.kept.write_bytes(encode(snapshot))
            ground.note("note")
        case "directory":
            ground.kept.mkdir()


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("what", ["torn", "born", "offset", "beyond", "segment", "seq"])
def test_a_kept_fold_that_does_not_fit_is_not_used(ground: Ground, what: str, rotated: bool) -> None:
    ground.live(3, 100, rotate=0.05)
    if rotated:
        ground.writer.rotate()
    wrong(ground, what)
    ground.check()


def test_a_kept_fold_that_is_ahead_of_the_journal_is_not_used(ground: Ground) -> None:
    """A journal that lost its end to a power cut, or was put back from a copy."""
    ground.live(5, 100)
    old, copy = ground.journal.read_bytes(), fold(Tail(ground.journal).read())
    ground.note("note", text="lost")
    ground.keep()
    ground.journal.write_bytes(old)
    assert load(ground.journal, ground.kept, "b").fold == copy


def test_lines_taken_back_are_in_no_kept_fold(ground: Ground) -> None:
    ground.live(6, 100)
    ground.keep()
    with ground.journal.open("ab") as file:
        file.write(Event("t", ground.state.seq + 1, "prompt-cut", {"id": "gone"}).encode())
    history = load(ground.journal, ground.kept, "b")
    assert "gone" in history.fold.ids
    os.truncate(ground.journal, ground.writer.size)
    ground.check()


# -- upkeep ----------------------------------------------------------------------------------------------------------


def upkeep(ground: Ground, rotate: int = 1 << 20, snapshot: int = 1000, replayed: int = 0) -> Upkeep:
    return Upkeep(ground.writer, ground.kept, Sizes(rotate, rotate, snapshot), replayed)


async def kept_now(tending: Upkeep, state: Fold) -> None:
    async with trio.open_nursery() as nursery:
        tending.keep(state, nursery)


async def test_the_fold_is_kept_between_turns_once_enough_was_written(ground: Ground) -> None:
    tending = upkeep(ground)
    ground.note("created", born="b")
    ground.note("spawned", inc=1, pid=1, ready=True)
    await kept_now(tending, ground.state)
    assert not ground.kept.exists(), "there is little to be kept"
    ground.note("prompt-given", inc=1, turn=1, id="p1", text="x" * 2000)
    await kept_now(tending, ground.state)
    assert not ground.kept.exists(), "a turn is open"
    ground.note("turn-ended", inc=1, turn=1, how="done")
    await kept_now(tending, ground.state)
    first = decode(ground.kept.read_bytes(), "b")
    assert first == Snapshot(ground.writer.place, ground.state)
    ground.note("note", text="short")
    await kept_now(tending, ground.state)
    assert decode(ground.kept.read_bytes(), "b") == first
    ground.note("note", text="x" * len(ground.kept.read_bytes()))
    await kept_now(tending, ground.state)
    assert decode(ground.kept.read_bytes(), "b") == Snapshot(ground.writer.place, ground.state)
    assert names(ground.kept.parent) == ["fold.json", "r1.jsonl"]
    ground.check(1000)


async def test_what_a_start_had_to_read_counts(ground: Ground) -> None:
    ground.note("created", born="b")
    await kept_now(upkeep(ground, replayed=500), ground.state)
    assert not ground.kept.exists()
    await kept_now(upkeep(ground, replayed=1000), ground.state)
    assert ground.kept.exists()


async def test_it_is_kept_as_of_the_moment_it_was_asked_for(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.live(7, 200)
    if ground.state.turn_open:
        ground.note("turn-ended", turn=ground.state.turn, how="done")
    then, place, tending = fold(Tail(ground.journal).read()), ground.writer.place, upkeep(ground, replayed=1000)
    async with trio.open_nursery() as nursery:
        tending.keep(ground.state, nursery)
        for n in range(50):
            ground.note("prompt-cut", id=f"later{n}")
        ground.writer.rotate()
        ground.note("note")
        tending.keep(ground.state, nursery)
    assert decode(ground.kept.read_bytes(), "b") == Snapshot(place, then)
    ground.check()


async def test_the_journal_lasts_before_the_fold_is_kept(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(module, "sync_file", lambda path: calls.append(path.name))
    monkeypatch.setattr(module, "replace", lambda path, data: calls.append(path.name))
    await kept_now(upkeep(ground, replayed=1000), ground.state)
    assert calls == ["r1.jsonl", "fold.json"]


async def test_a_segment_is_begun_between_turns_once_it_is_long(ground: Ground) -> None:
    tending = upkeep(ground, rotate=3000)
    ground.note("created", born="b")
    ground.note("spawned", inc=1, pid=1, ready=True)
    await tending.rotate(ground.state)
    ground.note("prompt-given", inc=1, turn=1, id="p1", text="x" * 4000)
    await tending.rotate(ground.state)
    assert older(ground.journal) == []
    ground.note("turn-ended", inc=1, turn=1, how="done")
    await tending.rotate(ground.state)
    assert older(ground.journal) == [], "it was written just now"
    ground.writer.wrote -= module.QUIET_SECONDS
    await tending.rotate(ground.state)
    assert older(ground.journal) == [1]
    await tending.rotate(ground.state)
    assert older(ground.journal) == [1]
    await kept_now(tending, ground.state)
    assert decode(ground.kept.read_bytes(), "b") == Snapshot(Place(5, 0, 4), ground.state), "a rotation makes it due"
    ground.check(0)
    ground.note("note", text="x" * 6000)
    await tending.rotate(ground.state)
    assert older(ground.journal) == [1, 5], "twice as long"


async def test_what_fails_is_left_for_later(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tending = upkeep(ground, rotate=1000)
    ground.live(8, 60)
    ground.writer.wrote -= module.QUIET_SECONDS
    if ground.state.turn_open:
        ground.note("turn-ended", turn=ground.state.turn, how="done")
    with monkeypatch.context() as patch:
        patch.setattr(module, "replace", full)
        patch.setattr(ground.writer, "rotate", full)
        for _ in range(3):
            await kept_now(tending, ground.state)
            await tending.rotate(ground.state)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2, said
    assert all("tried again later: [Errno 28] No space left on device" in line for line in said)
    assert names(ground.kept.parent) == ["r1.jsonl"]
    await tending.rotate(ground.state)
    await kept_now(tending, ground.state)
    assert names(ground.kept.parent) == ["r1.jsonl"], "later is when there is more"
    ground.note("note", text="x" * 1100)
    ground.writer.wrote -= module.QUIET_SECONDS
    await tending.rotate(ground.state)
    await kept_now(tending, ground.state)
    assert len(names(ground.kept.parent)) == 3
    ground.check(0)


async def test_the_room_that_turns_need_is_left_to_them(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESERVE", 1 << 62)
    await kept_now(upkeep(ground, replayed=1000), ground.state)
    assert not ground.kept.exists()


async def test_a_home_that_was_moved_away_is_no_error(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    ground.kept = ground.kept.parent / "gone" / "fold.json"
    await kept_now(upkeep(ground, replayed=1000), ground.state)
    assert "not kept" in capsys.readouterr().err


def test_what_a_killed_supervisor_left_half_written_is_taken_away(ground: Ground) -> None:
    for name in (".fold.json.17.3", ".other.17.3"):
        (ground.kept.parent / name).touch()
    upkeep(ground).begin()
    assert names(ground.kept.parent) == [".other.17.3", "r1.jsonl"]


LISTINGS = """
import sys
from pathlib import Path
from zoefs.disk.history import load
listed = []
sys.addaudithook(lambda event, args: listed.append(args[0]) if event in ("os.listdir", "os.scandir") else None)
history = load(Path(sys.argv[1]), Path(sys.argv[2]), "b")
assert not history.tail.read()
print(history.fold.seq, len(listed))
"""


@pytest.mark.parametrize("kept", ["in it", "behind an older one", "at the end of an older one", "not"])
def test_a_start_lists_no_directory_for_each_agent(ground: Ground, kept: str) -> None:
    """Of ten thousand journals in one directory, each would cost a look at all."""
    ground.live(3, 100, rotate=0.05 if kept == "behind an older one" else 0.0)
    if kept != "not":
        ground.keep()
    if kept == "at the end of an older one":
        ground.writer.rotate()
        ground.keep()
    ground.note("note")
    words = [sys.executable, "-c", LISTINGS, str(ground.journal), str(ground.kept)]
    done = subprocess.run(words, text=True, capture_output=True, check=True, timeout=60)
    assert done.stdout == f"{ground.state.seq} 0\n"
