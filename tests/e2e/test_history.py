"""Journals in many segments and folds kept all the time, while the programs are killed, cut off and out of space.

The sizes are so small that a segment holds a few turns and the fold is kept after nearly each. What must hold is what
holds without them: accepted is received once, seq has no gap, and what the mount says is what all events say.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.reading import agent_home, check_journal, ends, events, journal, mounts
from tests.e2e.test_crash import EXEC, FINISH_S, WITNESS, Crowd, check_exec, complaints, kill_at_random, say, witnessed
from tests.e2e.test_diskfull import GATED, check_alive, fill, tmpfs
from tests.e2e.test_power import SYNC, WRITES, is_dir, noted
from tests.e2e.tracing import calls, needs, the, traced
from tests.living import Tree, living, wait_for
from zoefs.contract.home import Home, segment_of
from zoefs.contract.lifecycle import fold, status_of
from zoefs.contract.snapshot import decode
from zoefs.disk.files import read, read_text
from zoefs.disk.history import load
from zoefs.disk.segments import older

TINY = {"ZOEFS_ROTATE_BYTES": "2048", "ZOEFS_SNAPSHOT_BYTES": "700"}
ECHO = 'backend = "exec"\nargv = ["cat"]\n'
AGENTS = (*EXEC, "c")


@pytest.fixture
def tiny(base: Path) -> Iterator[Tree]:
    """A living tree with tiny segments."""
    with living(base, TINY) as tree:
        yield tree


def turns(tree: Tree, name: str, count: int) -> None:
    """Some turns, one after another."""
    for _ in range(count):
        id = f"k{len(events(tree, name))}"
        (tree.agent(name) / "inbox" / id).write_text(f"{id}\n")
        assert tree.ended(name, id) == ("done", f"{id}\n".encode())


def check_whole(tree: Tree, name: str) -> None:
    """The fold kept and fed, the fold of all, and what the mount says are the same."""
    home, found = agent_home(tree, name), events(tree, name)
    whole = fold(found)
    history = load(journal(tree, name), home.snapshot, read_text(home.born))
    assert history.fold == whole
    assert history.tail.place.seq == found[-1].seq
    agent, stat = tree.agent(name), tree.stat(name)
    assert tree.status(name) == status_of(whole)
    said = {key: stat[key] for key in ("turn", "last_turn", "incarnation", "evidence", "restarts", "since")}
    assert said == {
        "turn": str(whole.turn),
        "last_turn": whole.last_turn,
        "incarnation": str(whole.inc),
        "evidence": whole.evidence,
        "restarts": str(whole.restarts),
        "since": whole.since,
    }
    assert set(os.listdir(agent / "inbox")) == set(whole.receipts)
    for id, receipt in whole.receipts.items():
        head, _ = tree.receipt(name, id)
        assert (head["receipt"], head["since"], head.get("turn", "0")) == (receipt.fate, receipt.t, str(receipt.turn))
    assert (agent / "out").read_bytes() == home.turn(whole.turn).read_bytes()


@pytest.mark.soak
def test_whatever_is_killed_nothing_is_lost_between_segments(tiny: Tree, base: Path, soak: bool) -> None:
    seed = int(os.environ.get("ZOEFS_SEED") or time.time_ns() % 1_000_000_000)
    kills = 200 if soak else 25
    print(f"ZOEFS_SEED={seed}, {kills} kills")
    chance, witness = random.Random(seed), base / "witness"
    witness.mkdir()
    for name in AGENTS:
        argv = json.dumps(["sh", "-c", WITNESS, "sh", str(witness), "{turn}", "{name}"])
        tiny.make(name, f'backend = "exec"\nargv = {argv}\n')
    crowd = Crowd(tiny, base, seed)
    try:
        for _ in range(kills):
            kill_at_random(tiny, chance)
            assert mounts(tiny) == 1
        crowd.finish()
    finally:
        crowd.end()
    for name in AGENTS:
        assert tiny.settle(name, FINISH_S) == "await", complaints(tiny)
    sent, errors = say(crowd.logs.iterdir())
    print(Counter(f"{one.way} {one.fate}" for one in sent.values()), errors)
    received = witnessed(witness)
    for one in sent.values():
        check_exec(tiny, one, received.pop(one.token, []))
    assert not received, f"nobody sent these: {sorted(received)[:10]}"
    used = 0
    for name in AGENTS:
        check_journal(tiny, name)
        check_whole(tiny, name)
        home = agent_home(tiny, name)
        used += decode(read(home.snapshot) or b"", read_text(home.born)) is not None
        assert len(older(journal(tiny, name))) > kills / 10 or name not in EXEC
    assert used == len(AGENTS), "the folds are not kept at all"
    for part in ("mount", "supervisor"):
        tiny.kill(part)
    for name in AGENTS:
        agent_home(tiny, name).snapshot.unlink()
    tiny.up()
    wait_for(lambda: not list(tiny.home.glob("agents/*/.fold.json.*")), "nothing half written is left")
    for name in AGENTS:
        check_whole(tiny, name)


def test_a_cut_between_two_segments_goes_on(tiny: Tree) -> None:
    """The rename lasts, the next segment was not made, or it was and nothing stands in it."""
    tiny.make("e", ECHO)
    turns(tiny, "e", 4)
    for made in (False, True):
        tiny.down()
        path, last = journal(tiny, "e"), events(tiny, "e")
        first = json.loads(path.read_bytes().splitlines()[0])["seq"]
        path.rename(segment_of(path, first))
        if made:
            path.touch(0o600)
        tiny.zoefs("up", "--without", "supervisor")
        assert tiny.stat("e")["turn"] == str(fold(last).turn)
        assert (tiny.agent("e") / "events").read_bytes() == b""
        assert (tiny.agent("e") / "events").stat().st_size == 0
        (tiny.agent("e") / "inbox" / f"cut{made}").write_text("x")
        tiny.up()
        assert tiny.ended("e", f"cut{made}") == ("done", b"x")
        assert events(tiny, "e")[: len(last)] == last
        check_journal(tiny, "e")
        check_whole(tiny, "e")
        turns(tiny, "e", 1)


@pytest.mark.parametrize("data", [b"", b"{", b"\0" * 4096, b'{"version":"0"}\n'])
def test_a_kept_fold_that_is_none_does_no_harm(tiny: Tree, data: bytes) -> None:
    tiny.make("e", ECHO)
    turns(tiny, "e", 4)
    wait_for(agent_home(tiny, "e").snapshot.exists, "its fold is kept")
    tiny.down()
    agent_home(tiny, "e").snapshot.write_bytes(data)
    tiny.up()
    turns(tiny, "e", 1)
    wait_for(lambda: agent_home(tiny, "e").snapshot.read_bytes() != data, "it is kept anew")
    check_journal(tiny, "e")
    check_whole(tiny, "e")


def test_a_segment_lasts_before_the_next_is_begun(tiny: Tree, base: Path) -> None:
    needs("strace")
    tiny.make("e", ECHO)
    path, log = journal(tiny, "e"), base / "strace"
    while not path.exists() or path.stat().st_size <= 2 * 2048:
        turns(tiny, "e", 1)
    with traced(tiny.part("supervisor").mark.pid, log, text=4096):
        turns(tiny, "e", 1)
    found = calls(log)
    logs = Home(tiny.home).agent_logs
    moved = the(found, "rename|renameat|renameat2", lambda c: c.names == (str(path), str(segment_of(path, 1))))
    synced = the(found, SYNC, lambda c: c.path == str(path), before=moved.began)
    kept = the(found, SYNC, is_dir(logs), moved.ended)
    named = the(found, SYNC, is_dir(logs), kept.ended)
    given = the(found, WRITES, noted("prompt-given"), named.ended)
    lasting = the(found, SYNC, lambda c: c.path == str(path), given.ended)
    started = the(found, "execve", lambda c: any(name.endswith("keeper.sh") for name in c.names))
    assert synced.ended < moved.began < kept.ended < named.ended < given.began < lasting.ended < started.began
    ended = the(found, WRITES, noted("turn-ended"))
    for call in found:
        if any("/e/.fold.json" in name for name in (call.path, *call.names)):
            assert call.began > ended.ended or call.ended < given.began, "the fold was kept amid a turn"


def test_a_full_disk_hurts_neither(base: Path) -> None:
    with tmpfs(base / "home"), living(base, TINY) as tree:
        agent = tree.make("e", GATED.replace("{base}", str(base)))
        (base / "go").touch()
        for n in range(8):
            (agent / "inbox" / f"k{n}").write_text(f"{n}\n")
            assert tree.ended("e", f"k{n}")[0] == "done"
        (base / "go").unlink()
        (agent / "inbox" / "k8").write_text("8\n")
        wait_for(lambda: "8" in (base / "runs").read_text(), "the turn runs")
        filler = fill(tree)
        (base / "go").touch()
        time.sleep(1.0)
        check_alive(tree)
        filler.unlink()
        assert tree.ended("e", "k8")[0] in ("done", "failed", "lost")
        for n in range(9, 14):
            filler = fill(tree, leave=(n - 8) * 100_000)  # below the reserve, at it, and above
            (agent / "inbox" / f"k{n}").write_text(f"{n}\n")
            time.sleep(0.2)
            filler.unlink()
            assert tree.ended("e", f"k{n}")[0] == "done"
        assert ends(tree, "e", "k13") == ["done"]
        assert (base / "runs").read_text().split() == [str(n) for n in range(14)]
        check_journal(tree, "e")
        assert tree.settle("e") == "await"
        check_whole(tree, "e")
        assert "Traceback" not in complaints(tree)


def test_a_segment_that_somebody_took_away_is_told_and_nothing_is_given_twice(tiny: Tree, base: Path) -> None:
    """What the missing events told of is not known, so no prompt is given on the strength of not being in them."""
    tiny.make("e", f'backend = "exec"\nargv = ["sh", "-c", "tee -a $0", "{base}/heard"]\n')
    turns(tiny, "e", 80)
    heard = (base / "heard").read_bytes()
    path = journal(tiny, "e")
    wait_for(lambda: len(older(path)) > 3, "there are segments")
    tiny.down()
    segment_of(path, older(path)[2]).unlink()
    agent_home(tiny, "e").snapshot.unlink(missing_ok=True)
    tiny.up()
    wait_for(lambda: events(tiny, "e", "gap"), "the gap is told")
    (gap,) = events(tiny, "e", "gap")
    assert gap.number("missing") > 0
    wait_for(lambda: "missing" in (tiny.agent("e") / "error").read_text(), "it is told where one looks")
    turns(tiny, "e", 1)
    assert (base / "heard").read_bytes().startswith(heard)
    assert (base / "heard").read_bytes().count(b"\n") == 81
    tiny.kill("supervisor")
    tiny.up()
    turns(tiny, "e", 1)
    assert len(events(tiny, "e", "gap")) == 1
