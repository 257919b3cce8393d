"""`inbox/`: prompts under the client's own id, drafts, the commit by mv, and taking back."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.living import Tree, wait_for
from tests.mount.clients import (
    BUSY,
    ECHO,
    ORDERS,
    PROMPT_MAX,
    SHELLS,
    answers,
    ask,
    attempt,
    busy,
    clients,
    error,
    events,
    fate,
    fresh,
    gated,
    ids,
    noise,
    put,
    put_all,
    refused,
    said,
    word,
)


def given(agent: Path) -> list[str]:
    """The ids that were given to the agent, in order."""
    return [event["id"] for event in events(agent) if event["kind"] == "prompt-given"]


# -- own ids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_a_prompt_under_an_own_id_carries_its_answer(shared: Tree, shell: str) -> None:
    agent = fresh(shared)
    shared.shell(
        f"cd {agent.name}; echo one > inbox/k1; printf 'a\\nb\\n' > inbox/k.2-x_Y; cp /etc/hostname inbox/3", shell
    )
    assert shared.ended(agent.name, "k1") == ("done", b"one\n")
    assert shared.ended(agent.name, "k.2-x_Y") == ("done", b"a\nb\n")
    assert shared.ended(agent.name, "3") == ("done", Path("/etc/hostname").read_bytes())
    assert sorted(ids(agent)) == ["3", "k.2-x_Y", "k1"]
    assert given(agent) == ["k1", "k.2-x_Y", "3"]


def test_a_receipt_is_lines_an_empty_line_and_the_answer(shared: Tree) -> None:
    agent = fresh(shared)
    answer = b"\n\nan answer with\n\nempty lines\0"
    put(agent / "inbox/k1", answer)
    shared.settle(agent.name)
    head, _, rest = (agent / "inbox/k1").read_bytes().partition(b"\n\n")
    assert rest == answer
    lines = head.decode().split("\n")
    assert lines[:2] == ["receipt: done", "id: k1"]
    assert "turn: 1" in lines
    assert all(": " in line for line in lines)


def test_reading_it_while_it_waits_runs_and_has_ended(shared: Tree, base: Path) -> None:
    agent = fresh(shared, gated(base / "gate"))
    for id in ("k1", "k2"):
        fd = os.open(agent / "inbox" / id, os.O_WRONLY | os.O_CREAT)
        os.write(fd, id.encode())
        assert fate(agent, id) == "writing"
        os.close(fd)
    wait_for(lambda: fate(agent, "k1") in {"sent", "accepted"}, "k1 is worked on")
    assert shared.receipt(agent.name, "k1")[1] == b""
    head, answer = shared.receipt(agent.name, "k2")
    assert (head["receipt"], answer) == ("queued", b"")
    for id in ("k1", "k2"):
        assert os.stat(agent / "inbox" / id).st_size == len((agent / "inbox" / id).read_bytes())
    (base / "gate").unlink()
    for id in ("k1", "k2"):
        assert shared.ended(agent.name, id) == ("done", id.encode())
        assert os.stat(agent / "inbox" / id).st_size == len((agent / "inbox" / id).read_bytes())


@pytest.mark.parametrize(
    ("how", "receipt", "answer"),
    [("done", "done", b"answer k1\n"), ("fail", "failed", b""), ("half", "failed", b"half k1\n")],
)
def test_the_receipt_says_how_it_ended(shared: Tree, how: str, receipt: str, answer: bytes) -> None:
    agent = fresh(shared, ORDERS)
    put(agent / "inbox/k1", f"k1 {how} 0\n".encode())
    assert shared.ended(agent.name, "k1") == (receipt, answer)


def test_an_interrupted_turn_is_cancelled_and_keeps_what_it_said(shared: Tree) -> None:
    agent = busy(shared)
    wait_for(lambda: said(shared, agent) == b"begun\n", "it has said something")
    (agent / "ctl").write_text("interrupt\n")
    assert shared.ended(agent.name, "first") == ("cancelled", b"begun\n")
    assert shared.stat(agent.name)["last_turn"] == "interrupted"


BAD = ["-k", "a b", "caf\u00e9", "k~", "k:1", "#k", "x" * 201, "k\n"]


@pytest.mark.parametrize("id", BAD)
def test_a_bad_id_is_einval(shared: Tree, id: str) -> None:
    agent = fresh(shared)
    with refused(errno.EINVAL):
        put(agent / "inbox" / id, b"x")
    assert "an id is" in error(agent)
    with refused(errno.EINVAL):
        put(agent / "inbox" / f".{id}", b"x")
    put(agent / "inbox/.draft", b"x")
    with refused(errno.EINVAL):
        os.rename(agent / "inbox/.draft", agent / "inbox" / id)
    assert (word(agent), os.listdir(agent / "inbox")) == ("await", [".draft"])


def test_the_longest_id(shared: Tree) -> None:
    agent = fresh(shared)
    put(agent / "inbox" / ("x" * 200), b"data")
    assert shared.ended(agent.name, "x" * 200) == ("done", b"data")


def test_an_empty_write_makes_no_id(shared: Tree) -> None:
    agent = fresh(shared)
    shared.shell(f": > {agent.name}/inbox/k1; touch {agent.name}/inbox/k1", check=False)
    assert ids(agent) == []
    put(agent / "inbox/k1", b"data")
    assert shared.ended(agent.name, "k1") == ("done", b"data")


# -- once in the agent's life ----------------------------------------------------------------------------------------


def demand_taken(tree: Tree, agent: Path, id: str) -> None:
    """Every way to use the id again is EEXIST, and changes nothing."""
    before = tree.receipt(agent.name, id)
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
        with refused(errno.EEXIST):
            os.close(os.open(agent / "inbox" / id, flags))
    with refused(errno.EEXIST):
        os.close(os.open(agent / "inbox" / id, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    put(agent / "inbox/.again", b"again")
    with refused(errno.EEXIST):
        os.rename(agent / "inbox/.again", agent / "inbox" / id)
    assert id in error(agent)
    for shell in SHELLS:
        done = tree.shell(f"cd {agent.name}/inbox; echo again > {id}", shell, check=False)
        assert done.returncode != 0
        done = tree.shell(f"cd {agent.name}/inbox; mv -f .again {id}", shell, check=False)
        assert (done.returncode, "File exists" in done.stderr) == (1, True)
    assert (agent / "inbox/.again").read_bytes() == b"again"
    assert tree.receipt(agent.name, id) == before


def test_an_id_is_used_once_while_it_is_written_waits_runs_and_has_ended(shared: Tree, base: Path) -> None:
    agent = fresh(shared, gated(base / "gate"))
    put(agent / "inbox/first", b"1")
    fd = os.open(agent / "inbox/k1", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"2")
    demand_taken(shared, agent, "k1")
    os.close(fd)
    demand_taken(shared, agent, "k1")
    wait_for(lambda: fate(agent, "first") in {"sent", "accepted"}, "the first is worked on")
    demand_taken(shared, agent, "first")
    (base / "gate").unlink()
    assert shared.ended(agent.name, "k1") == ("done", b"2")
    demand_taken(shared, agent, "first")
    demand_taken(shared, agent, "k1")
    assert given(agent) == ["first", "k1"]


def test_an_id_stays_used_when_everything_was_started_anew(tree: Tree) -> None:
    agent = tree.make("r1", ECHO)
    put(agent / "inbox/ended", b"1")
    tree.settle("r1")
    queued = fresh(tree, BUSY)
    put(queued / "inbox/first", b"go")
    put(queued / "inbox/waits", b"2")
    put(queued / "inbox/back", b"3")
    os.unlink(queued / "inbox/back")
    put(queued / "inbox/.draft", b"draft")
    tree.down()
    tree.up()
    assert tree.receipt("r1", "ended")[0]["receipt"] == "done"
    demand_taken(tree, agent, "ended")
    wait_for(lambda: fate(queued, "waits") in {"sent", "accepted"}, "what waited is worked on")
    for id in ("first", "waits", "back"):
        demand_taken(tree, queued, id)
    assert (queued / "inbox/.draft").read_bytes() == b"draft"


@pytest.mark.soak
def test_of_two_processes_at_once_one_gets_the_id(shared: Tree, base: Path, soak: bool) -> None:
    """By open, by mv, and one by each: exactly one goes through, the other is EEXIST, and its bytes arrive."""
    agent = fresh(shared, gated(base / "gate"))
    ways = {
        "open": "put(r'{inbox}/{id}', b'{who}')",
        "excl": "put(r'{inbox}/{id}', b'{who}', os.O_EXCL)",
        "move": "put(r'{inbox}/.{who}', b'{who}'); os.rename(r'{inbox}/.{who}', r'{inbox}/{id}')",
    }
    wanted = {}
    with clients(2) as two:
        for n in range(200 if soak else 15):
            for pair in (("open", "open"), ("move", "move"), ("open", "move"), ("excl", "excl")):
                id = f"{pair[0]}-{pair[1]}-{n}"
                lines = [ways[way].format(inbox=agent / "inbox", id=id, who=f"w{k}") for k, way in enumerate(pair)]
                heard = two.at_once(lines)
                assert sorted(heard) == ["EEXIST", "ok"], (id, heard)
                wanted[id] = f"w{heard.index('ok')}".encode()
    (base / "gate").unlink()
    assert shared.settle(agent.name) == "await"
    assert {id: shared.receipt(agent.name, id)[1] for id in ids(agent)} == wanted
    assert sorted(given(agent)) == sorted(wanted)


# -- drafts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_a_draft_is_an_ordinary_private_file(shared: Tree, shell: str) -> None:
    agent = fresh(shared)
    done = shared.shell(
        f"""cd {agent.name}/inbox || exit; set -e
        echo one > .k; cat .k; echo two > .k; echo three >> .k; cat .k; cat ../status
        mv .k .m; cat .m; [ ! -e .k ]; ls -A; cp .m .n; mv .n .m; stat -c '%a %s' .m
        printf 'cut here' > .m; truncate -s 3 .m; cat .m; echo; cat ../status
        dd if=/dev/zero of=.m bs=1 count=2 seek=10 conv=notrunc status=none; wc -c < .m
        rm .m; ls -A; cat ../status""",
        shell,
    )
    assert done.stdout.split("\n") == [
        *"one two three await two three .m".split(),
        "600 10",
        "cut",
        "await",
        "12",
        "await",
        "",
    ]
    assert (ids(agent), given(agent)) == ([], [])
    assert ask(shared, agent, b"next") == b"next"


def test_reading_and_writing_one_descriptor_of_a_draft(shared: Tree) -> None:
    agent = fresh(shared)
    fd = os.open(agent / "inbox/.k", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, b"hello world")
    os.pwrite(fd, b"W", 6)
    assert os.pread(fd, 100, 0) == b"hello World"
    os.ftruncate(fd, 5)
    assert (os.pread(fd, 100, 0), os.fstat(fd).st_size) == (b"hello", 5)
    os.close(fd)
    with refused(errno.EEXIST):
        os.open(agent / "inbox/.k", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_draft_without_a_name_lives_while_it_is_open(shared: Tree, how: str) -> None:
    agent = fresh(shared)
    draft = agent / "inbox/.k"
    fd = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.write(fd, b"before")
        number = os.fstat(fd).st_ino
        if how == "removed":
            draft.unlink()
            assert os.listdir(agent / "inbox") == []
        put(agent / "inbox/.new", b"another one")
        os.rename(agent / "inbox/.new", draft)
        assert os.lseek(fd, 0, os.SEEK_END) == 6
        os.write(fd, b" after")
        os.ftruncate(fd, 10)
        assert os.pread(fd, 100, 0) == b"before aft"
        assert (os.fstat(fd).st_size, os.fstat(fd).st_nlink, os.fstat(fd).st_ino) == (10, 0, number)
        assert (draft.stat().st_size, draft.stat().st_nlink) == (11, 1)
        assert draft.stat().st_ino != number
        assert Path(f"/proc/self/fd/{fd}").read_bytes() == b"before aft"
        os.truncate(f"/proc/self/fd/{fd}", 3)
        os.rename(draft, agent / "inbox/k")
        os.write(fd, b"still its own")
        assert os.pread(fd, 3, 0) == b"bef"
    finally:
        os.close(fd)
    assert shared.ended(agent.name, "k") == ("done", b"another one")


def test_drafts_and_prompts_survive_the_death_of_the_mount(tree: Tree) -> None:
    agent = tree.make("r1", ECHO)
    data = noise(300_000)
    put(agent / "inbox/.k", data)
    fd = os.open(agent / "inbox/.open", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"never flushed")
    tree.kill("mount")
    with refused(errno.ENOTCONN, errno.ECONNABORTED):
        os.write(fd, b"x")
    with refused(errno.ENOTCONN, errno.ECONNABORTED):
        os.close(fd)
    tree.up()
    assert (agent / "inbox/.k").read_bytes() == data
    assert (agent / "inbox/.open").read_bytes() == b"never flushed"
    assert (tree.status("r1"), given(agent)) == ("await", [])
    os.rename(agent / "inbox/.k", agent / "inbox/k")
    assert tree.ended("r1", "k") == ("done", data)


def test_a_draft_holds_16_mib(shared: Tree) -> None:
    agent = fresh(shared)
    data = noise(PROMPT_MAX)
    put(agent / "inbox/.k", data)
    assert os.stat(agent / "inbox/.k").st_size == PROMPT_MAX
    fd = os.open(agent / "inbox/.k", os.O_WRONLY | os.O_APPEND)
    with refused(errno.EFBIG):
        os.write(fd, b"x")
    with refused(errno.EFBIG):
        os.ftruncate(fd, PROMPT_MAX + 1)
    os.close(fd)
    with refused(errno.EFBIG):
        put(agent / "inbox/.too-big", bytes(PROMPT_MAX + 1))
    done = shared.shell(f"head -c {PROMPT_MAX + 1} /dev/zero > {agent.name}/inbox/.m", check=False)
    assert done.returncode != 0
    os.rename(agent / "inbox/.k", agent / "inbox/k")
    assert shared.ended(agent.name, "k") == ("done", data)


# -- the commit ------------------------------------------------------------------------------------------------------


def test_the_commit_counts_when_rename_returns(shared: Tree) -> None:
    """The word flips, the receipt is there, and the bytes are an order on disk, though a handle is still open."""
    agent = fresh(shared, BUSY)
    for id, found in (("first", "sent"), ("k", "queued")):
        fd = os.open(agent / "inbox/.k", os.O_RDWR | os.O_CREAT)
        put_all(fd, b"whole")
        os.rename(agent / "inbox/.k", agent / "inbox" / id)
        assert word(agent) == "running"
        assert fate(agent, id) in {"queued", found}
        assert os.listdir(agent / "inbox") == ["first", "k"][: 1 + (id == "k")]
        with refused(errno.ESTALE):
            os.write(fd, b"more")
        with refused(errno.ESTALE):
            os.ftruncate(fd, 0)
        assert os.pread(fd, 10, 0) == b"whole"
        os.close(fd)
    (order,) = (shared.home / "agents" / agent.name / "orders/new").glob("*.k")
    assert order.read_bytes() == b"whole"


@pytest.mark.parametrize("shell", SHELLS)
def test_mv_commits_and_the_name_is_free_for_the_next(shared: Tree, shell: str) -> None:
    agent = fresh(shared)
    shared.shell(
        f"cd {agent.name}/inbox; for i in 1 2 3; do echo $i > .k; echo +$i >> .k; mv .k k$i || exit; done", shell
    )
    assert answers(shared, agent) == [b"1\n+1\n", b"2\n+2\n", b"3\n+3\n"]
    assert given(agent) == ["k1", "k2", "k3"]


def test_a_draft_renamed_then_committed(shared: Tree) -> None:
    """A handle follows its file through renames, up to the commit."""
    agent = fresh(shared)
    fd = os.open(agent / "inbox/.a", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"one ")
    os.rename(agent / "inbox/.a", agent / "inbox/.b")
    os.write(fd, b"two")
    assert (agent / "inbox/.b").read_bytes() == b"one two"
    os.rename(agent / "inbox/.b", agent / "inbox/k")
    with refused(errno.ESTALE):
        os.write(fd, b" three")
    os.close(fd)
    assert shared.ended(agent.name, "k") == ("done", b"one two")


def test_a_refused_commit_leaves_the_draft(shared: Tree) -> None:
    agent = fresh(shared)
    put(agent / "inbox/.k", b"later")
    shared.shell(f": > {agent.name}/inbox/.empty")
    with refused(errno.EINVAL):
        os.rename(agent / "inbox/.empty", agent / "inbox/k")
    assert "empty" in error(agent)
    (agent / "ctl").write_text("stop\n")
    assert shared.settle(agent.name) == "stopped"
    with refused(errno.EHOSTDOWN):
        os.rename(agent / "inbox/.k", agent / "inbox/k")
    assert "start" in error(agent)
    assert sorted(os.listdir(agent / "inbox")) == [".empty", ".k"]
    (agent / "ctl").write_text("start\n")
    assert shared.settle(agent.name) == "await"
    os.rename(agent / "inbox/.k", agent / "inbox/k")
    assert shared.ended(agent.name, "k") == ("done", b"later")


def test_what_else_a_rename_may_not(shared: Tree) -> None:
    agent, other = fresh(shared), fresh(shared)
    put(agent / "inbox/k", b"x")
    put(agent / "inbox/.d", b"draft")
    shared.settle(agent.name)
    for source, target in (
        ("inbox/k", "inbox/k2"),
        ("inbox/k", "inbox/.k"),
        ("inbox/.d", "in"),
        ("inbox/.d", "new"),
        ("in", "inbox/k3"),
        ("inbox", "inbox2"),
    ):
        with refused(errno.EPERM, errno.EEXIST):
            os.rename(agent / source, agent / target)
    with refused(errno.EPERM, errno.EXDEV):
        os.rename(agent / "inbox/.d", other / "inbox/k")
    with refused(errno.ENOENT):
        os.rename(agent / "inbox/.none", agent / "inbox/k4")
    assert sorted(os.listdir(agent / "inbox")) == [".d", "k"]
    assert (word(agent), ids(other)) == ("await", [])


@pytest.mark.parametrize("target", ["inbox/k", "inbox/.k"])
def test_mv_from_another_file_system(shared: Tree, base: Path, target: str) -> None:
    agent = fresh(shared)
    data = noise(500_000)
    (base / "file").write_bytes(data)
    shared.shell(f"cd {agent.name}; mv {base}/file {target}; [ ! -e {base}/file ] || exit 1")
    if target == "inbox/.k":
        assert (word(agent), given(agent)) == ("await", [])
        shared.shell(f"cd {agent.name}; mv inbox/.k inbox/k")
    assert shared.ended(agent.name, "k") == ("done", data)
    assert answers(shared, agent) == [data]


def test_a_writer_killed_in_a_draft_has_sent_nothing(shared: Tree) -> None:
    agent = fresh(shared)
    script = f"exec > {agent}/inbox/.k; echo half; exec sleep 600"
    with subprocess.Popen(["bash", "-c", script]) as writer:
        wait_for(lambda: (agent / "inbox/.k").exists() and (agent / "inbox/.k").read_text(), "it wrote")
        wait_for(lambda: "sleep" in Path(f"/proc/{writer.pid}/comm").read_text(), "it sleeps")
        writer.send_signal(signal.SIGKILL)
    assert (word(agent), ids(agent)) == ("await", [])
    shared.shell(f"cd {agent.name}/inbox; echo whole > .k; mv .k k")
    assert shared.ended(agent.name, "k") == ("done", b"whole\n")
    assert given(agent) == ["k"]


# -- taking back -----------------------------------------------------------------------------------------------------


def test_rm_cancels_what_waits_and_only_that(shared: Tree, base: Path) -> None:
    agent = fresh(shared, gated(base / "gate"))
    put(agent / "inbox/k1", b"1")
    wait_for(lambda: fate(agent, "k1") in {"sent", "accepted"}, "k1 is worked on")
    for id in ("k2", "k3", "k4"):
        put(agent / "inbox" / id, id.encode())
    shared.shell(f"rm {agent.name}/inbox/k2 {agent.name}/inbox/k4")
    assert [fate(agent, id) for id in ("k2", "k3", "k4")] == ["cancelled", "queued", "cancelled"]
    assert shared.stat(agent.name)["queued"] == "1"
    done = shared.shell(f"rm -f {agent.name}/inbox/k1", check=False)
    assert (done.returncode, "busy" in done.stderr) == (1, True)
    assert "interrupt" in error(agent)
    with refused(errno.EBUSY):
        os.unlink(agent / "inbox/k1")
    (base / "gate").unlink()
    assert shared.ended(agent.name, "k3") == ("done", b"k3")
    for id in ("k1", "k2", "k3"):
        with refused(errno.EPERM):
            os.unlink(agent / "inbox" / id)
    with refused(errno.ENOENT):
        os.unlink(agent / "inbox/none")
    assert given(agent) == ["k1", "k3"]
    assert [shared.ended(agent.name, id) for id in ("k2", "k4")] == [("cancelled", b"")] * 2
    assert shared.status(agent.name) == "await"


def test_rm_of_the_only_one_that_waits_settles_the_agent(tree: Tree) -> None:
    """Nobody takes it, since no supervisor runs: await again at once."""
    agent = tree.make("r1", ECHO)
    tree.kill("supervisor")
    put(agent / "inbox/k1", b"1")
    assert word(agent) == "running"
    os.unlink(agent / "inbox/k1")
    assert (word(agent), fate(agent, "k1")) == ("await", "cancelled")
    tree.up()
    assert ask(tree, agent, b"next") == b"next"
    assert fate(agent, "k1") == "cancelled"
    assert "k1" not in given(agent)


@pytest.mark.soak
def test_rm_against_the_claim(shared: Tree, soak: bool) -> None:
    """Removed at the moment it is given: either it was cancelled and never ran, or rm failed and it ran."""
    agent, cancelled, chance = fresh(shared), set(), random.Random(1)
    for n in range(1000 if soak else 60):
        id = f"k{n}"
        put(agent / "inbox" / id, b"x")
        time.sleep(chance.choice((0.0, chance.random() * 0.015)))  # any moment around the claim, early ones above all
        if attempt(os.unlink, agent / "inbox" / id, errno.EBUSY, errno.EPERM) == 0:
            cancelled.add(id)
        assert shared.ended(agent.name, id) == (("cancelled", b"") if id in cancelled else ("done", b"x"))
    assert set(given(agent)) == set(ids(agent)) - cancelled
    assert 0 < len(cancelled) < len(ids(agent)), "the moments tried were all on one side"


# -- the directory ---------------------------------------------------------------------------------------------------


def test_the_listing(shared: Tree) -> None:
    agent = busy(shared)
    put(agent / "inbox/k1", b"1")
    put(agent / "inbox/.draft", b"2")
    shared.shell(f"echo in > {agent.name}/in")
    names = os.listdir(agent / "inbox")
    assert {"first", "k1", ".draft"} < set(names)
    assert len(names) == len(set(names)) == 4
    listed = shared.shell(f"ls -lA {agent.name}/inbox").stdout.splitlines()[1:]
    for line in listed:
        mode, _, _, _, size, *_, name = line.split()
        assert (mode, int(size)) == ("-rw-------", len((agent / "inbox" / name).read_bytes()))
    for made in ("mkdir", "mkfifo", "ln -s x"):
        done = shared.shell(f"{made} {agent.name}/inbox/sub", check=False)
        assert "not permitted" in done.stderr
