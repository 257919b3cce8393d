"""What must outlive a power cut: the order of the system calls that make it last, and every state a cut can leave.

No plug is pulled. The order is proven from strace (see tracing): what was fsynced before the reply was fsynced before
the client's call returned. The states are laid down by hand in HOME while nothing runs, then `up` must make sense of
each: a prompt that was accepted as a whole is given once, one that was cut off says so, and never both.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.fake_cli import Fake
from tests.e2e.reading import agent_home, check_journal, ends, events, journal, story
from tests.e2e.tracing import (
    FLUSH,
    RENAME,
    RENAME2,
    WRITE,
    Call,
    Request,
    calls,
    needs,
    requests,
    the,
    traced,
)
from tests.living import Tree, living, wait_for
from zoefs.contract.home import Home
from zoefs.contract.words import SINGLE_WRITE_MAX
from zoefs.disk.files import replace
from zoefs.disk.journal import Writer
from zoefs.disk.process import boot_id, start_time

SYNC = "fsync|fdatasync"
WRITES = "write|pwrite64|writev|pwritev"
MOVES = "rename|renameat|renameat2"
COUNTS = """
backend = "exec"
argv = ["sh", "-c", "cat >>$1/$2.runs; echo >>$1/$2.runs; echo done", "sh", "{base}", "{name}"]
"""


@pytest.fixture
def exec_tree(base: Path) -> Iterator[Tree]:
    """A living tree with the agent `e`, which notes every prompt it gets in base/e.runs."""
    needs("strace")
    with living(base) as tree:
        tree.make("e", COUNTS.replace("{base}", str(base)))
        yield tree


def trace_mount(tree: Tree, base: Path, script: str) -> tuple[list[Call], list[Request]]:
    """What the mount daemon did while a shell ran `script` in the agent's directory."""
    log = base / "strace"
    with traced(tree.part("mount").mark.pid, log):
        tree.shell(f"cd e && {{ {script}\n}}", shell="dash")
        tree.settle("e")
    found = calls(log)
    return found, requests(found)


def about(*parts: str) -> Callable[[Call], bool]:
    """Whether a call is on a file whose path holds all of these."""
    return lambda call: all(part in " ".join((call.path, *call.names)) for part in parts)


def is_dir(path: Path) -> Callable[[Call], bool]:
    return lambda call: call.path == str(path)


def last_flush(told: list[Request], writes: int) -> Request:
    """The FLUSH that followed the last of so many WRITEs of one handle."""
    handles = [request.fh for request in told if request.opcode == WRITE]
    (fh,) = {fh for fh in handles if handles.count(fh) == writes}
    written = max(request.answered for request in told if request.opcode == WRITE and request.fh == fh)
    return next(r for r in told if r.opcode == FLUSH and r.fh == fh and r.asked > written)


# -- the order of the calls: mount --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "writes"),
    [
        ("echo hello > in", 1),
        ("echo hello > inbox/k", 1),
        ("{ echo one; echo two; /bin/echo three; } > in", 3),
        ("dd if=/dev/zero of=in bs=100000 count=4 conv=notrunc 2>/dev/null", 4),
    ],
)
def test_a_prompt_lasts_before_close_returns(exec_tree: Tree, base: Path, script: str, writes: int) -> None:
    home = agent_home(exec_tree, "e")
    found, told = trace_mount(exec_tree, base, script)
    answered = last_flush(told, writes)
    assert answered.error == 0
    staged = [c for c in found if c.name in WRITES.split("|") and about("/orders/tmp/", ".prompt.")(c)]
    assert len(staged) >= writes
    synced = the(found, SYNC, about("/orders/tmp/", ".prompt."), max(call.ended for call in staged))
    named = the(found, MOVES, lambda c: re.search(r"/tmp/.*\.prompt\..*@\d+$", c.names[-1]) is not None, synced.ended)
    lasting = the(found, SYNC, is_dir(home.tmp), named.ended)
    assert lasting.ended < answered.answered, "close() returned before the name was lasting"
    the(found, MOVES, lambda c: str(home.tmp) in c.names[0] and str(home.new) in c.names[-1], lasting.ended)


def test_a_flush_in_the_middle_counts_for_what_was_written_till_then(exec_tree: Tree, base: Path) -> None:
    home = agent_home(exec_tree, "e")
    script = "exec 3>in; echo one >&3; (exec 3>&-); echo two >&3; exec 3>&-"
    found, told = trace_mount(exec_tree, base, script)
    written = sorted((r for r in told if r.opcode == WRITE), key=lambda r: r.asked)
    assert len(written) == 2
    for write in written:
        answered = next(r for r in told if r.opcode == FLUSH and r.fh == write.fh and r.asked > write.answered)
        put = [c for c in found if c.name in WRITES.split("|") and about(".prompt.")(c) and c.began > write.asked]
        synced = the(found, SYNC, about(".prompt."), put[0].ended, answered.answered)
        named = the(found, MOVES, about("@"), synced.ended, answered.answered)
        the(found, SYNC, is_dir(home.tmp), named.ended, answered.answered)


def test_a_moved_draft_lasts_before_rename_returns(exec_tree: Tree, base: Path) -> None:
    home = agent_home(exec_tree, "e")
    found, told = trace_mount(exec_tree, base, "echo hello > inbox/.k; mv inbox/.k inbox/k")
    (answered,) = [request for request in told if request.opcode in (RENAME, RENAME2)]
    assert answered.error == 0
    put = the(found, WRITES, about("/orders/tmp/.k"))
    synced = the(found, SYNC, about("/orders/tmp/.k"), put.ended)
    moved = the(
        found, MOVES, lambda c: c.names[0] == str(home.tmp / ".k") and str(home.new) in c.names[-1], synced.ended
    )
    lasting = the(found, SYNC, is_dir(home.new), moved.ended)
    assert lasting.ended < answered.answered, "rename() returned before the name was lasting"


def test_a_text_for_out_lasts_before_close_returns(exec_tree: Tree, base: Path) -> None:
    home = agent_home(exec_tree, "e")
    found, told = trace_mount(exec_tree, base, "echo mine > out")
    answered = last_flush(told, 1)
    put = the(found, WRITES, about("/orders/tmp/", ".out."))
    synced = the(found, SYNC, about(".out."), put.ended)
    moved = the(found, MOVES, lambda c: str(home.new) in c.names[-1], synced.ended)
    lasting = the(found, SYNC, is_dir(home.new), moved.ended)
    assert lasting.ended < answered.answered


def test_a_verb_lasts_before_close_returns(exec_tree: Tree, base: Path) -> None:
    home = agent_home(exec_tree, "e")
    found, told = trace_mount(exec_tree, base, "echo interrupt > ctl")
    answered = last_flush(told, 1)
    put = the(found, WRITES, about("/orders/tmp/", ".ctl."))
    moved = the(found, MOVES, lambda c: str(home.new) in c.names[-1], put.ended)
    acts = next(r for r in told if r.opcode == WRITE and r.fh == answered.fh)
    assert moved.ended < acts.answered, "a verb counts when write() returns"
    # the order, or, where it was carried out already and is gone, the journal that says so
    lasting = the(found, SYNC, lambda c: ".ctl." in c.path or c.path.endswith("/e.jsonl"), put.ended)
    assert lasting.ended < answered.answered
    assert the(found, SYNC, is_dir(home.new), moved.ended).ended < answered.answered


def test_a_new_agent_and_its_spec_last_before_the_calls_return(exec_tree: Tree, base: Path) -> None:
    agents = Home(exec_tree.home).agents
    found, told = trace_mount(exec_tree, base, "mkdir ../n; echo 'backend = \"claude\"' > ../n/spec")
    made = the(found, MOVES, lambda c: c.names[-1] == str(agents / "n"))
    born = the(found, SYNC, about("/born"), before=made.began)
    assert born.ended < made.began
    (answered,) = [request for request in told if request.opcode == 9]
    assert the(found, SYNC, is_dir(agents), made.ended).ended < answered.answered
    flush = last_flush(told, 1)
    put = the(found, WRITES, about("/n/", "spec"))
    synced = the(found, SYNC, about("/n/", "spec"), put.ended)
    moved = the(found, MOVES, lambda c: c.names[-1] == str(agents / "n" / "spec.toml"), synced.ended)
    assert the(found, SYNC, is_dir(agents / "n"), moved.ended).ended < flush.answered


# -- the order of the calls: supervisor ---------------------------------------------------------------------------


def noted(kind: str) -> Callable[[Call], bool]:
    """Whether a call writes an event of this kind to the journal."""
    return lambda call: call.path.endswith(".jsonl") and f'"kind":"{kind}"'.encode() in b"".join(call.strings)


def is_journal(call: Call) -> bool:
    return call.path.endswith(".jsonl")


def check_answer(found: list[Call], turn: int) -> None:
    """The answer lasts before the journal says that the turn ended, and that lasts too."""
    answer = f"/turns/{turn}"
    told = the(found, WRITES, noted("turn-ended"))
    moved = the(found, MOVES, lambda c: c.names[-1].endswith(answer))
    put = the(found, WRITES, about("/turns/"), before=moved.began)
    synced = the(found, SYNC, about("/turns/"), put.ended, moved.began)
    lasting = the(found, SYNC, lambda c: c.path.endswith("/turns"), moved.ended, told.began)
    assert synced.ended < moved.began < lasting.ended < told.began
    the(found, SYNC, is_journal, told.ended)


def test_what_must_not_happen_twice_is_noted_for_good_first_exec(exec_tree: Tree, base: Path) -> None:
    log = base / "strace"
    with traced(exec_tree.part("supervisor").mark.pid, log, text=4096):
        exec_tree.shell("echo hello > e/inbox/k")
        assert exec_tree.ended("e", "k")[0] == "done"
    found = calls(log)
    chosen = the(found, MOVES, lambda c: c.names[-1].endswith("/e/session"))
    known = the(found, WRITES, noted("session"), chosen.ended)
    lasting = the(found, SYNC, is_journal, known.ended)
    given = the(found, WRITES, noted("prompt-given"))
    given_lasting = the(found, SYNC, is_journal, given.ended)
    started = the(found, "execve", lambda c: any(name.endswith("keeper.sh") for name in c.names))
    assert given_lasting.ended < started.began, "the CLI was started before prompt-given was lasting"
    assert lasting.ended < started.began, "the CLI was started before its session was lasting"
    check_answer(found, 1)


def test_what_must_not_happen_twice_is_noted_for_good_first_stream(base: Path) -> None:
    needs("strace")
    fake, log = Fake(base / "fake"), base / "strace"
    with living(base, fake.env) as tree:
        tree.make("c", 'backend = "claude"\n')
        with traced(tree.part("supervisor").mark.pid, log, text=4096):
            tree.shell("echo hello > c/inbox/k1")
            assert tree.ended("c", "k1")[0] == "done"
            long = "x" * 10_000
            (tree.agent("c") / "inbox" / "k2").write_text(long)
            assert tree.ended("c", "k2") == ("done", f"fake: {long}\n".encode())
        found = calls(log)
        known = the(found, WRITES, noted("session"))
        lasting = the(found, SYNC, is_journal, known.ended)
        started = the(found, "execve", lambda c: any(name.endswith("keeper.sh") for name in c.names))
        assert lasting.ended < started.began
        at = 0
        for _ in range(2):
            given = the(found, WRITES, noted("prompt-given"), at)
            sync = the(found, SYNC, is_journal, given.ended)
            sent = the(found, "write", lambda c: c.path.endswith("/c/stdin"), given.began)
            assert sync.ended < sent.began, "the prompt went to the FIFO before prompt-given was lasting"
            at = sent.ended
        begun = the(found, WRITES, noted("stdin-begun"))
        begun_lasting = the(found, SYNC, is_journal, begun.ended)
        long_line = the(found, "write", lambda c: c.path.endswith("/c/stdin"), begun.began)
        done = the(found, WRITES, noted("stdin-done"))
        assert begun_lasting.ended < long_line.began < done.began
        check_answer(found, 1)


# -- every state that a cut can leave: a prompt under way -----------------------------------------------------------


@attrs.frozen
class Stage:
    """A file in orders/tmp: what its name says behind the id, how long it is, and whether it was accepted whole."""

    mark: str
    size: int
    whole: bool

    @property
    def id(self) -> str:
        return f"k{self.mark.replace('+', 'several').replace('@', 'flushed')}-{self.size}"

    @property
    def text(self) -> str:
        return (self.id + "x" * self.size)[-self.size :]


LONG = 100_000
STAGES = [
    Stage("", 1, True),
    Stage("", SINGLE_WRITE_MAX - 1, True),
    Stage("", SINGLE_WRITE_MAX, False),
    Stage("", LONG, False),
    Stage("+", 10, False),
    Stage("+", LONG, False),
    Stage("@10", 10, True),
    Stage(f"@{LONG}", LONG, True),
    Stage("@10", 20, False),
    Stage("@10", LONG, False),
    Stage("@20", 10, False),
    Stage(f"@{LONG}", 4096, False),
]


def stamp(n: int) -> str:
    return f"{time.time_ns() + n:016x}"


def lay(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


@pytest.fixture
def down(base: Path) -> Iterator[Tree]:
    """A tree with the agent `e` made and nothing running; the test brings it up."""
    with living(base) as tree:
        tree.make("e", COUNTS.replace("{base}", str(base)))
        (tree.agent("e") / "inbox" / "first").write_text("first")
        assert tree.ended("e", "first")[0] == "done"
        tree.down()
        yield tree


def runs(base: Path, name: str = "e") -> list[str]:
    """What the agent received after the first prompt."""
    return (base / f"{name}.runs").read_text().split("\n")[1:-1]


def refused(path: Path) -> int:
    """The errno with which a writing open is refused; 0 where it is not."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError as error:
        return error.errno or -1
    return 0


@pytest.mark.parametrize("again", [False, True], ids=["recovered once", "killed again before the supervisor came"])
def test_each_stage_is_committed_or_cut_and_never_both(down: Tree, base: Path, again: bool) -> None:
    home, inbox = agent_home(down, "e"), down.agent("e") / "inbox"
    texts = {stage.id: stage.text for stage in STAGES}
    for n, stage in enumerate(STAGES):
        lay(home.tmp / f"{stamp(n)}.prompt.{stage.id}{stage.mark}", texts[stage.id].encode())
    lay(home.tmp / f"{stamp(99)}.prompt.empty", b"")
    lay(home.tmp / ".draft", b"a draft stays")
    down.zoefs("up", "--without", "supervisor")
    if again:
        down.kill("mount")
        down.zoefs("up", "--without", "supervisor")
    cut = {name.split(".", 2)[2] for name in os.listdir(home.cut)}
    new = {name.split(".", 2)[2] for name in os.listdir(home.new)}
    assert cut == {stage.id for stage in STAGES if not stage.whole}
    assert new == {stage.id for stage in STAGES if stage.whole}
    for stage in STAGES:  # a writer looks at once, before any supervisor is there
        assert down.receipt("e", stage.id)[0]["receipt"] == ("queued" if stage.whole else "lost"), stage
        assert refused(inbox / stage.id) == errno.EEXIST, stage
    assert (inbox / ".draft").read_bytes() == b"a draft stays"
    down.up()
    for stage in STAGES:
        fate, _ = down.ended("e", stage.id)
        head, answer = down.receipt("e", stage.id)
        assert (fate, head["note"]) == (("done", "recovered") if stage.whole else ("lost", "cut")), stage
        assert answer == (b"done\n" if stage.whole else b""), stage
    assert down.settle("e") == "await"
    assert sorted(runs(base)) == sorted(texts[stage.id] for stage in STAGES if stage.whole)
    assert "cut off" in (down.agent("e") / "error").read_text()
    (inbox / "empty").write_text("its id is free")
    assert down.ended("e", "empty")[0] == "done"
    assert os.listdir(home.cut) == []
    check_journal(down, "e")


def test_what_no_client_was_told_of_is_dropped(down: Tree, base: Path) -> None:
    home = agent_home(down, "e")
    lay(home.tmp / f"{stamp(1)}.ctl.ctl-1", b"stop\n")
    lay(home.tmp / f"{stamp(2)}.out.out-1@3", b"abc")
    lay(home.tmp / f"{stamp(3)}.answer.out-2", b"abc")
    (Home(down.home).agents / ".half.0123abcd").mkdir()
    down.up()
    assert down.settle("e") == "await"
    assert os.listdir(home.tmp) == []
    assert (down.agent("e") / "out").read_text() == "done\n"
    assert sorted(os.listdir(Home(down.home).agents)) == ["e"]


def test_orders_that_were_accepted_and_not_noted_are_carried_out_once(down: Tree, base: Path) -> None:
    home = agent_home(down, "e")
    lay(home.new / f"{stamp(1)}.prompt.in-new", b"in new")
    lay(home.taken / f"{stamp(2)}.prompt.claimed", b"claimed")
    lay(home.new / f"{stamp(3)}.recovered.recovered", b"recovered")
    lay(home.cancelled / f"{stamp(4)}.prompt.cancelled", b"cancelled")
    lay(home.new / f"{stamp(5)}.out.out-1", b"somebody's\n")
    down.up()
    assert down.settle("e") == "await"
    assert [down.ended("e", id)[0] for id in ("in-new", "claimed", "recovered")] == ["done"] * 3
    assert down.ended("e", "cancelled")[0] == "cancelled"
    assert down.receipt("e", "recovered")[0]["note"] == "recovered"
    assert runs(base) == ["in new", "claimed", "recovered"]
    check_journal(down, "e")


@pytest.mark.parametrize("data", [b"", b"\0" * 5, b"sto", b"stop\nno-such-verb\n", b"\xff\xfe\n"])
def test_a_verb_whose_bytes_did_not_last_does_no_harm(down: Tree, base: Path, data: bytes) -> None:
    """A verb counts from write() on, a power cut may leave its name without its bytes: nobody closed it yet."""
    lay(agent_home(down, "e").new / f"{stamp(1)}.ctl.ctl-1", data)
    down.up()
    assert down.settle("e") in ("await", "stopped")
    (down.agent("e") / "ctl").write_text("#again restart\n")
    wait_for(lambda: down.receipt("e", "again")[0]["receipt"] == "done", "a later verb is carried out", 10)
    (down.agent("e") / "inbox" / "k1").write_text("still there")
    assert down.ended("e", "k1")[0] == "done"
    assert runs(base) == ["still there"]
    assert down.settle("e") == "await"


# -- every state that a cut can leave: a turn under way -------------------------------------------------------------


def given(tree: Tree, id: str, order: str, boot: str) -> None:
    """Note a prompt as given, as the supervisor does just before it starts the CLI."""
    last = events(tree, "e")[-1].seq
    turn = len(events(tree, "e", "prompt-given")) + 1
    fields: dict[str, Any] = {"id": id, "turn": turn, "inc": turn, "order": order, "bytes": 5, "boot": boot}
    writer = Writer(journal(tree, "e"), last)
    writer.append(("prompt-given", fields), sync=True)
    writer.close()


@pytest.mark.parametrize("where", ["taken", "new", "tmp"])
@pytest.mark.parametrize("boot", ["this boot", "an earlier boot"])
def test_a_prompt_noted_as_given_and_never_started(down: Tree, base: Path, where: str, boot: str) -> None:
    """The note lasts (fdatasync); the renames before it may not have: the order stands where it stood before."""
    home, name = agent_home(down, "e"), f"{stamp(1)}.prompt.k1"
    lay(home.orders / where / (name + "@5" * (where == "tmp")), b"hello")
    given(down, "k1", name, boot_id() if boot == "this boot" else "0000")
    down.up()
    fate, _ = down.ended("e", "k1", deadline=10)
    assert ends(down, "e", "k1") == [fate]
    assert runs(base) == (["hello"] if fate == "done" else [])
    if boot == "this boot":
        assert fate == "done", story(down, "e", "k1")
    assert down.settle("e") == "await"
    (down.agent("e") / "inbox" / "k2").write_text("next")
    assert down.ended("e", "k2")[0] == "done"
    assert runs(base)[-1] == "next"
    check_journal(down, "e")


def test_a_keeper_that_is_slow_to_write_its_mark_is_waited_for(down: Tree, base: Path) -> None:
    """The supervisor died as soon as it had forked; that keeper holds the lock, and runs the turn in its own time."""
    home, name = agent_home(down, "e"), f"{stamp(1)}.prompt.k1"
    lay(home.taken / name, b"hello")
    given(down, "k1", name, boot_id())
    inc = events(down, "e")[-1].number("inc")
    lock = os.open(home.lock, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # this test is the keeper
        down.up()
        time.sleep(4.0)  # longer than the supervisor waits for a mark
        assert runs(base) == []
        lay(home.err(inc), b"")
        lay(home.raw(inc), b"the answer\n")
        lay(home.pid, f"{os.getpid()} {start_time(os.getpid())} {inc} {boot_id()}\n".encode())
        lay(home.exit(inc), b"0\n")
        lay(home.pid, f"4000000 1 {inc} {boot_id()}\n".encode())
    finally:
        os.close(lock)
    assert down.ended("e", "k1") == ("done", b"the answer\n")
    assert runs(base) == [], "the prompt was given a second time"
    assert down.settle("e") == "await"
    check_journal(down, "e")


TAILS = [
    b'{"v":1,"t":"2026',
    b"\0" * 64,
    b'{"v":1}\n',
    b"\n\n",
    b'{"v":1,"t":"x","seq":"no","kind":7}\n' + b"\0" * 4096,
]


@pytest.mark.parametrize("tail", TAILS, ids=range(len(TAILS)))
def test_a_torn_journal_goes_on_without_a_gap(down: Tree, base: Path, tail: bytes) -> None:
    with journal(down, "e").open("ab") as file:
        file.write(tail)
    down.up()
    assert down.receipt("e", "first")[0]["receipt"] == "done"
    (down.agent("e") / "inbox" / "k1").write_text("next")
    assert down.ended("e", "k1")[0] == "done"
    check_journal(down, "e")
    down.down()
    down.up()
    assert [down.receipt("e", id)[0]["receipt"] for id in ("first", "k1")] == ["done", "done"]


def test_an_answer_written_and_not_noted_is_written_again(down: Tree, base: Path) -> None:
    """The supervisor died between turns/N and turn-ended: the keeper's exit is on disk, the end is noted now."""
    home, name = agent_home(down, "e"), f"{stamp(1)}.prompt.k1"
    lay(home.taken / name, b"hello")
    given(down, "k1", name, boot_id())
    inc = events(down, "e")[-1].number("inc")
    lay(home.raw(inc), b"the answer\n")
    lay(home.err(inc), b"")
    lay(home.exit(inc), b"0\n")
    lay(home.pid, f"4000000 1 {inc} {boot_id()}\n".encode())
    replace(home.turn(2), b"half of")
    down.up()
    assert down.ended("e", "k1") == ("done", b"the answer\n")
    assert runs(base) == []
    assert ends(down, "e", "k1") == ["done"]
    assert (down.agent("e") / "out").read_text() == "the answer\n"


def connection_is_over(tree: Tree) -> bool:
    """Whether the kernel has let go of a killed daemon's connection: its last thread may hold it for a moment."""
    try:
        os.statvfs(tree.mount)
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return not tree.mounted()


def test_the_states_are_those_that_the_programs_leave(down: Tree, base: Path) -> None:
    """The names used above are the product's own: what a killed daemon leaves looks just like that."""
    down.zoefs("up", "--without", "supervisor")
    home, inbox = agent_home(down, "e"), down.agent("e") / "inbox"
    opened = []
    for id, pieces in (("one", [b"x"]), ("two", [b"x", b"y"])):
        fd = os.open(inbox / id, os.O_WRONLY | os.O_CREAT)
        opened.append(fd)
        for piece in pieces:
            os.write(fd, piece)
    fd = os.open(inbox / "flushed", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"xyz")
    os.fsync(fd)
    down.kill("mount")
    wait_for(lambda: connection_is_over(down), "the connection is over")
    for each in (*opened, fd):
        with pytest.raises(OSError, match=re.escape(os.strerror(errno.ENOTCONN))):
            os.close(each)
    marks = {name.split(".prompt.")[1] for name in os.listdir(home.tmp)}
    assert marks == {"one", "two+", "flushed@3"}
    assert json.loads((journal(down, "e").read_text().splitlines() or ["{}"])[0])["kind"] == "created"
